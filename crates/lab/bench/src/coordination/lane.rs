//! One thread's work: its packets and its queue; or all threads' one queue, behind a lock.
//!
//! *Behind a lock.* A qdisc that is no queue's own is what the kernel has at the root of a device:
//! a packet that arrives takes the qdisc's lock, and so does a batch that leaves. The lock is an
//! MCS lock, as the kernel's spin locks are under contention: threads get it in the order in which
//! they asked, and each waits on a line of its own.

use super::Load;
use mcslock::raw::MutexNode;
use mcslock::raw::yields::backoff::Mutex;
use narrows_coordination::Limit;
use narrows_packet::{Batch, PacketId, Packets};
use narrows_qdisc::{Config, Meter, Metering, Next, Qdisc, Spec, fifo, tbf};
use narrows_units::{Nanos, wire::Overhead};

/// The most packets that arrive in a turn, and that leave in it.
const BATCH: usize = 64;

/// A `tbf` with a meter at the shared limit, and the packets that go round through it.
pub(super) struct Lane {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    packet_bytes: u32,
    free: Vec<PacketId>,
    out: Batch,
    offered: u64,
    left: u64,
}

/// Where the packets of a lane went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Books {
    pub(super) offered: u64,
    pub(super) left: u64,
    pub(super) dropped: u64,
    pub(super) queued: u64,
}

impl Books {
    /// Whether none was lost and none doubled.
    pub(super) fn balance(&self) -> bool {
        self.offered == self.left + self.dropped + self.queued
    }
}

impl Lane {
    /// An empty queue, and all packets of `load` free.
    pub(super) fn new(load: Load, meter: Box<dyn Meter>) -> Self {
        Self::build(load, Metering::Shared(meter), load.pool())
    }

    fn build(load: Load, metering: Metering, pool: u32) -> Self {
        let Limit { rate, burst, peak, backlog: limit } = load.limit();
        let config = tbf::Config { rate, burst, limit, peak, overhead: Overhead::NONE };
        let fifo = Config::Fifo(fifo::Config::Packets(pool));
        let fifo = Spec::new(fifo);
        let tbf = Spec { metering, children: vec![fifo], ..Spec::new(Config::Tbf(config)) };
        Self {
            qdisc: tbf.build(),
            packets: Packets::new(pool),
            packet_bytes: load.packet_bytes(),
            free: (0..pool).map(PacketId).collect(),
            out: Batch::new(BATCH),
            offered: 0,
            left: 0,
        }
    }

    /// A batch of free packets arrives, and what may leave at `now` does and is free again. How
    /// many left, and when to come back.
    #[inline]
    pub(super) fn turn(&mut self, now: Nanos) -> (u64, Next) {
        for _ in 0..BATCH {
            if !self.arrive(now) {
                break;
            }
        }
        self.depart(now)
    }

    /// A free packet arrives, if there is one. Returns whether there was.
    #[inline]
    fn arrive(&mut self, now: Nanos) -> bool {
        let Some(id) = self.free.pop() else { return false };
        self.offered += 1;
        self.packets.arrive(id, self.packet_bytes, now);
        self.qdisc.enqueue(&mut self.packets, id, now);
        true
    }

    /// What may leave at `now` does, and is free again. How many left, and when to come back.
    #[inline]
    fn depart(&mut self, now: Nanos) -> (u64, Next) {
        self.out.clear();
        let next = self.qdisc.dequeue(&mut self.packets, now, &mut self.out);
        self.free.extend_from_slice(self.out.as_slice());
        let left = self.out.len() as u64;
        self.left += left;
        if self.packets.unreclaimed() > 0 {
            self.reclaim();
        }
        (left, next)
    }

    #[cold]
    fn reclaim(&mut self) {
        while self.packets.unreclaimed() > 0 {
            self.out.clear();
            self.packets.reclaim(&mut self.out);
            self.free.extend_from_slice(self.out.as_slice());
        }
    }

    pub(super) fn books(&self) -> Books {
        Books {
            offered: self.offered,
            left: self.left,
            dropped: self.packets.drops().total(),
            queued: u64::from(self.qdisc.backlog().packets),
        }
    }
}

/// One queue for all threads, behind one lock.
pub(super) struct LockedLane(Mutex<Lane>);

/// A thread that contends for a [`LockedLane`].
pub(super) struct Contender<'a> {
    lane: &'a LockedLane,
    /// Where it waits for the lock.
    node: MutexNode,
    /// How often it has had the lock.
    pub(super) sections: u64,
}

impl LockedLane {
    /// An empty queue with a bucket of its own, and all packets of `threads` threads free.
    pub(super) fn new(load: Load, threads: usize) -> Self {
        let pool = load.pool().saturating_mul(threads as u32);
        Self(Mutex::new(Lane::build(load, Metering::Own, pool)))
    }

    pub(super) fn books(self) -> Books {
        self.0.into_inner().books()
    }

    pub(super) fn contender(&self) -> Contender<'_> {
        Contender { lane: self, node: MutexNode::new(), sections: 0 }
    }
}

impl Contender<'_> {
    /// As [`Lane::turn`], with the lock for each packet that arrives, and for all that leave.
    #[inline]
    pub(super) fn turn(&mut self, now: Nanos) -> (u64, Next) {
        let Self { lane: LockedLane(lane), node, sections } = self;
        for _ in 0..BATCH {
            *sections += 1;
            if !lane.lock_with_then(node, |lane| lane.arrive(now)) {
                break;
            }
        }
        *sections += 1;
        lane.lock_with_then(node, |lane| lane.depart(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_coordination::{Coordination, Strategy};

    fn lanes(strategy: Strategy, load: Load, meters: usize) -> Vec<Lane> {
        let coordination = Coordination::new(strategy, load.limit(), meters);
        (0..meters).map(|meter| Lane::new(load, coordination.meter(meter))).collect()
    }

    /// Runs all lanes in turn, `step` apart. Returns the number of departures.
    fn drive(lanes: &mut [Lane], turns: u64, step: Nanos) -> u64 {
        let mut now = Nanos::from_secs(1);
        let mut left = 0;
        for _ in 0..turns {
            now += step;
            left += lanes.iter_mut().map(|lane| lane.turn(now).0).sum::<u64>();
        }
        left
    }

    #[test]
    fn packets_are_conserved_under_every_strategy_and_load() {
        for strategy in Strategy::ALL {
            for load in Load::ALL {
                let mut lanes = lanes(strategy, load, 3);
                let left = drive(&mut lanes, 1000, Nanos::from_micros(5));
                let books: Vec<Books> = lanes.iter().map(Lane::books).collect();
                assert!(books.iter().all(Books::balance), "{strategy:?} {load:?}: {books:?}");
                assert_eq!(left, books.iter().map(|books| books.left).sum::<u64>());
                let held = books.iter().map(|books| books.queued).max();
                assert!(held.is_some_and(|held| held <= u64::from(load.pool())));
            }
        }
    }

    /// `edt` stamps the packets of a batch with slightly different times, so its last packets, or
    /// all, leave with the next batch.
    #[test]
    fn where_the_limit_is_far_away_packets_leave_at_once_or_in_the_next_turn() {
        const TURNS: u64 = 1000;
        for strategy in Strategy::ALL {
            let mut lanes = lanes(strategy, Load::Unbound, 2);
            drive(&mut lanes, TURNS, Nanos::from_micros(2));
            for lane in &lanes {
                let books = lane.books();
                assert_eq!(books.dropped, 0, "{strategy:?}");
                assert!(books.queued <= BATCH as u64, "{strategy:?}: {books:?}");
                assert_eq!(books.offered, TURNS * BATCH as u64, "{strategy:?}");
            }
        }
    }

    #[test]
    fn threads_that_share_a_queue_lose_no_packet() {
        const TURNS: u64 = 200;
        for load in Load::ALL {
            let lane = LockedLane::new(load, 3);
            let turn = &|thread: u64| {
                let mut contender = lane.contender();
                let now = |turn| Nanos::from_secs(1) + Nanos::from_micros(turn * 5 + thread);
                (0..TURNS).map(|turn| contender.turn(now(turn)).0).sum::<u64>()
            };
            let left: u64 = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..3).map(|thread| scope.spawn(move || turn(thread))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            let books = lane.books();
            assert!(books.balance() && books.left == left && left > 0, "{load:?}: {books:?}");
        }
    }

    #[test]
    fn where_the_limit_binds_the_queue_never_runs_dry() {
        for strategy in Strategy::ALL {
            let mut lanes = lanes(strategy, Load::Bound, 2);
            drive(&mut lanes, 20_000, Nanos::from_micros(5));
            for lane in &lanes {
                let books = lane.books();
                assert!(books.left > 0 && books.queued > 0, "{strategy:?}: {books:?}");
            }
        }
    }
}
