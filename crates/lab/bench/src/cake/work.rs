//! The work that every structure does.
//!
//! A turn is one step of a worker: the clock advances by the time of 32 packets at the limit, as
//! many arrive, and all that may leave do. Each flow has a fixed window of packets, as in TCP: a
//! packet that has left, or was dropped, is away for a while and then arrives again, drawn by
//! chance from all that are away. So every structure gets the same flows in a similar order, each
//! flow's share of the queue is bounded under any structure, and the work is the same at the end as
//! at the start. (With fixed arrivals it is not: at full load the backlog gathers in the few queues
//! in which hashes collide.)
//!
//! Half of all packets stand, half are away. Four packets a flow stand, but at least a turn and at
//! most 32,768: at 100 Gbit/s these are 3.9 ms, and more would stand longer than CoDel's 5 ms, so
//! that it would be its drops that are measured. With 65,536 flows every other one stands.

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
/// Queued packets, per flow and at most.
const STANDING_A_FLOW: u32 = 4;
const STANDING_MOST: u32 = 1 << 15;
/// The most flows that there are packets for.
const FLOWS_MOST: u32 = 2 * STANDING_MOST;

/// The work of one structure, ready to be done.
pub struct Work {
    scheduler: Box<dyn Scheduler>,
    /// Packets that may arrive.
    away: Vec<PacketId>,
    arriving: Vec<PacketId>,
    left: Batch,
    dropped: Batch,
    chance: Pcg32,
    now: Nanos,
    packets: u32,
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
    /// Sets it up, for a power of two of flows, so that a packet's flow is in its lower bits.
    pub fn new(subject: Subject, flows: u32) -> Result<Self> {
        ensure!(
            flows.is_power_of_two() && flows <= FLOWS_MOST,
            "a power of two of flows, at most {FLOWS_MOST}, not {flows}"
        );
        let standing = (flows * STANDING_A_FLOW).clamp(TURN as u32, STANDING_MOST);
        let packets = 2 * standing;
        let mut work = Self {
            scheduler: subject.build(packets, flows)?,
            away: (0..packets).map(PacketId).collect(),
            arriving: Vec::with_capacity(TURN),
            left: Batch::new(packets as usize),
            dropped: Batch::new(packets as usize),
            chance: Pcg32::seed_from_u64(1),
            now: Nanos::from_secs(1),
            packets,
            counts: Counts::default(),
        };
        for _ in 0..standing / TURN as u32 {
            work.arrive();
        }
        Ok(work)
    }

    /// How many packets there are.
    pub fn packets(&self) -> u64 {
        u64::from(self.packets)
    }

    /// Their counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Runs until at least `packets` packets have arrived and left. Returns the number of arrivals.
    pub fn run(&mut self, packets: u64) -> u64 {
        let before = self.counts.arrived;
        while self.counts.arrived - before < packets {
            self.now += TURN_TIME;
            self.arrive();
            self.leave();
        }
        self.counts.arrived - before
    }

    /// Drains the queue, within `turns` turns without arrivals. Fails unless each packet has left
    /// once.
    pub fn finish(mut self, turns: usize) -> Result<Counts> {
        for _ in 0..turns {
            self.now += TURN_TIME;
            self.leave();
        }
        let Counts { arrived, left, dropped } = self.counts;
        ensure!(arrived == left + dropped, "{arrived} came, {left} left, {dropped} were dropped");
        self.away.sort_unstable();
        ensure!(self.away.iter().copied().eq((0..self.packets).map(PacketId)), "not all came back");
        Ok(self.counts)
    }

    fn arrive(&mut self) {
        self.arriving.clear();
        for _ in 0..TURN.min(self.away.len()) {
            let chance = (u64::from(self.chance.next_u32()) * self.away.len() as u64) >> 32;
            self.arriving.push(self.away.swap_remove(chance as usize));
        }
        self.counts.arrived += self.arriving.len() as u64;
        self.scheduler.arrive(&self.arriving, self.now);
    }

    fn leave(&mut self) {
        self.left.clear();
        self.dropped.clear();
        self.scheduler.leave(self.now, &mut self.left, &mut self.dropped);
        for batch in [&self.left, &self.dropped] {
            self.away.extend_from_slice(batch.as_slice());
        }
        self.counts.left += self.left.len() as u64;
        self.counts.dropped += self.dropped.len() as u64;
    }
}
