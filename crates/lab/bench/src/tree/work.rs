//! The work that every structure does.
//!
//! A turn is one step of a worker: the clock advances by the time of 32 packets at the limit, as
//! many arrive as have left, and all that may leave do. Half of all packets are queued, half are
//! away: a packet that has left, or was dropped, is away for a while and then arrives again, drawn
//! by chance from all that are away (as in [`cake`](crate::cake), except for classes).
//!
//! So a limit that binds always binds: what is queued stands. With 32 arrivals in each turn, as
//! many as the limit lets pass, a queue that once got shorter would stay so, and the limit would no
//! longer bind.
//!
//! If there are more packets than leaves, each packet always belongs to the same leaf, so each leaf
//! has a window. Otherwise a packet goes to the next leaf at each arrival, so all leaves get some.
//!
//! Four packets a leaf stand, but at least a turn and at most 32,768.

use super::shape::Shape;
use super::subject::{Scheduler, Subject};
use anyhow::{Result, ensure};
use narrows_packet::{Batch, PacketId};
use narrows_units::{Nanos, Rate};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg32;

/// Packets that arrive in a turn.
pub(super) const TURN: usize = 32;
/// The limit.
pub(super) const RATE: Rate = Rate::from_bits_per_sec(100_000_000_000);
/// The time of a turn's packets at the limit: 120 ns each.
const TURN_TIME: Nanos = Nanos(TURN as u64 * 120);
/// Queued packets, per leaf and at most.
const STANDING_A_LEAF: u32 = 4;
const STANDING_MOST: u32 = 1 << 15;
/// More turns than it takes until full buckets are empty.
const BURST_TURNS: usize = 1000;

/// The work of one structure, ready to be done.
pub struct Work {
    scheduler: Box<dyn Scheduler>,
    shape: Shape,
    /// Packets that may arrive.
    away: Vec<PacketId>,
    /// By packet, the class of which it is the next time that it arrives.
    classes: Vec<u32>,
    arriving: Vec<(PacketId, u32)>,
    left: Batch,
    dropped: Batch,
    chance: Pcg32,
    now: Nanos,
    counts: Counts,
}

/// The packets' counts so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Came.
    pub arrived: u64,
    /// Went.
    pub left: u64,
    /// Were dropped.
    pub dropped: u64,
}

impl Work {
    /// Sets it up.
    pub fn new(subject: Subject, shape: Shape) -> Result<Self> {
        ensure!(
            shape.active == shape.classes || shape.active <= STANDING_MOST,
            "at most {STANDING_MOST} classes are active beside idle ones"
        );
        let standing = (shape.active.saturating_mul(STANDING_A_LEAF))
            .clamp(TURN as u32, STANDING_MOST)
            .next_multiple_of(TURN as u32);
        let packets = 2 * standing;
        Ok(Self::of(subject.build(packets, shape)?, shape, packets))
    }

    /// The work of `scheduler`, with this many packets.
    pub(super) fn of(scheduler: Box<dyn Scheduler>, shape: Shape, packets: u32) -> Self {
        let mut work = Self {
            scheduler,
            shape,
            away: (0..packets).map(PacketId).collect(),
            classes: (0..packets).map(|packet| shape.class(packet % shape.active)).collect(),
            arriving: Vec::with_capacity(TURN),
            left: Batch::new(packets as usize),
            dropped: Batch::new(packets as usize),
            chance: Pcg32::seed_from_u64(1),
            now: Nanos::from_secs(1),
            counts: Counts::default(),
        };
        // Buckets start full: their credit is used while the clock is stopped.
        for _ in 0..BURST_TURNS {
            work.arrive();
            if work.leave() == 0 {
                break;
            }
        }
        while work.missing() > 0 {
            work.arrive();
        }
        work
    }

    /// How many packets it takes until each leaf has had some.
    pub fn round(&self) -> u64 {
        2 * self.classes.len().max(self.shape.active as usize) as u64
    }

    /// Their counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Runs until at least `packets` packets have arrived and left. Returns the number of arrivals.
    pub fn run(&mut self, packets: u64) -> u64 {
        let before = self.counts.arrived;
        while self.counts.arrived - before < packets {
            self.turn(self.now + TURN_TIME);
        }
        self.counts.arrived - before
    }

    /// Does a turn at `now`; how many packets came.
    #[inline]
    pub(super) fn turn(&mut self, now: Nanos) -> u64 {
        let before = self.counts.arrived;
        self.now = now;
        self.arrive();
        self.leave();
        self.counts.arrived - before
    }

    /// Drains the tree, within `turns` turns without arrivals. Fails unless each packet has left
    /// once.
    pub fn finish(mut self, turns: usize) -> Result<Counts> {
        for _ in 0..turns {
            self.now += TURN_TIME;
            self.leave();
        }
        let Counts { arrived, left, dropped } = self.counts;
        ensure!(arrived == left + dropped, "{arrived} came, {left} left, {dropped} were dropped");
        self.away.sort_unstable();
        let all = (0..self.classes.len() as u32).map(PacketId);
        ensure!(self.away.iter().copied().eq(all), "not all came back");
        Ok(self.counts)
    }

    fn arrive(&mut self) {
        self.arriving.clear();
        let (packets, active) = (self.classes.len() as u32, self.shape.active);
        for _ in 0..self.missing().min(2 * TURN) {
            let chance = (u64::from(self.chance.next_u32()) * self.away.len() as u64) >> 32;
            let id = self.away.swap_remove(chance as usize);
            let class = &mut self.classes[id.0 as usize];
            self.arriving.push((id, *class));
            if active > packets {
                *class = 1 + (*class - 1 + packets) % active;
            }
        }
        self.counts.arrived += self.arriving.len() as u64;
        self.scheduler.arrive(&self.arriving, self.now);
    }

    /// The packets that are away, but would be queued if half of all were.
    fn missing(&self) -> usize {
        self.away.len().saturating_sub(self.classes.len() / 2)
    }

    /// How many left.
    fn leave(&mut self) -> usize {
        self.left.clear();
        self.dropped.clear();
        self.scheduler.leave(self.now, &mut self.left, &mut self.dropped);
        for batch in [&self.left, &self.dropped] {
            self.away.extend_from_slice(batch.as_slice());
        }
        self.counts.left += self.left.len() as u64;
        self.counts.dropped += self.dropped.len() as u64;
        self.left.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::Load;
    use super::*;
    use narrows_peers::rte_sched;

    #[test]
    fn every_packet_goes_round_through_every_structure() {
        for subject in Subject::ALL {
            if subject == Subject::RteSched && rte_sched::available().is_err() {
                continue;
            }
            let idle = |load| Shape { classes: 300, depth: 1, active: 20, load };
            let busy = Load::ALL.map(|load| Shape::busy(16, 4, load));
            for shape in busy.into_iter().chain([idle(Load::Free), idle(Load::Bound)]) {
                let mut work = Work::new(subject, shape).unwrap();
                let round = work.round();
                assert!(work.run(round) >= round);
                let counts = work.finish(100_000).unwrap();
                assert_eq!(counts.dropped, 0, "{} {shape:?}", subject.name());
            }
        }
    }
}
