//! Departure times by the tree of what a host sends: its program, compiled for the host, and
//! packets that wait for their times.
//!
//! The policy becomes a plan, and the plan the contents of the program's maps, by the code of the
//! data plane (`narrows-xdp`).
//!
//! *Non-goals.* Filters, headers, ECN: packets that the AQM signals are dropped. Super-packets.

use super::gate::Packet;
use super::leaves::compiled;
use super::setup::{Keeper, Scheduler};
use narrows_bpf::stepped::departures::{self, Departures};
use narrows_units::{Bytes, Nanos};
use narrows_xdp::Enforcement;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A tree, where applications send, and what waits.
pub(super) struct Departs {
    tree: Departures,
    /// By application, the number of its class.
    leaves: Vec<u32>,
    /// The first to depart first, and among equals the first that came.
    waiting: BinaryHeap<Reverse<(Nanos, u64, Packet)>>,
    came: u64,
    /// Those whose time has come.
    due: VecDeque<Packet>,
}

impl Departs {
    /// That of the policy of `scheduler`, for applications of `classes` on so many CPUs.
    pub(super) fn new(scheduler: &Scheduler, classes: &[u32], cpus: usize) -> Result<Self, String> {
        let (image, leaves) = compiled(scheduler, classes, cpus, Enforcement::Shaping)?;
        let (waiting, due) = (BinaryHeap::new(), VecDeque::new());
        Ok(Self { tree: Departures::new(&image.classes), leaves, waiting, came: 0, due })
    }

    /// Takes `packet` of `app` and the flow `hash`. Returns whether it departs.
    pub(super) fn push(
        &mut self,
        packet: Packet,
        app: usize,
        hash: u32,
        frame: Bytes,
        now: Nanos,
    ) -> bool {
        let Some(at) = self.ask(app, hash, frame, now) else { return false };
        self.came += 1;
        self.waiting.push(Reverse((at, self.came, packet)));
        true
    }

    /// When a packet of `app` and the flow `hash` departs that comes at `now`.
    pub(super) fn ask(&mut self, app: usize, hash: u32, frame: Bytes, now: Nanos) -> Option<Nanos> {
        let leaf = self.leaves[app];
        // Flows that differ in a bit are far apart, as the kernel's hashes are.
        let hash = hash.wrapping_mul(0x9e37_79b9);
        let asked = Nanos::ZERO;
        let packet =
            departures::Packet { leaf, cost: frame.0, hash, host: 0, asked, is_ecn: false };
        self.tree.ask(now, &packet).1
    }

    /// Lets those go whose time has come. Returns their number.
    pub(super) fn fill(&mut self, now: Nanos) -> u64 {
        let mut passed = 0;
        while let Some(Reverse((at, _, packet))) = self.waiting.peek().copied()
            && at <= now
        {
            self.waiting.pop();
            self.due.push_back(packet);
            passed += 1;
        }
        passed
    }

    /// The packet that the line takes next.
    pub(super) fn take(&mut self) -> Option<Packet> {
        self.due.pop_front()
    }

    /// When the next packet departs or is sent, if the line is busy until then.
    pub(super) fn next(&self, busy_until: Nanos) -> Nanos {
        let departs = self.waiting.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at);
        if self.due.is_empty() { departs } else { departs.min(busy_until) }
    }

    /// Packets that wait.
    pub(super) fn backlog(&self) -> u64 {
        (self.waiting.len() + self.due.len()) as u64
    }
}

/// Whether the plane can run the policy of `scheduler`.
pub(super) fn check(scheduler: &Scheduler, cpus: usize) -> Result<(), String> {
    if scheduler.drops || scheduler.before.contains(&true) {
        return Err("with departures packets wait: write neither drops nor before".to_owned());
    }
    debug_assert_eq!(scheduler.keeper, Keeper::Departures);
    Departs::new(scheduler, &[], cpus).map(|_| ())
}
