//! The course of a run.

use super::setup::{Case, Phase, Setup, Shaping};
use crate::traffic::seed::hash;
use narrows_packet::{PacketId, Packets};
use narrows_qdisc::pacing::{Bundles, Calendar, Mltw, Slot};
use narrows_units::{Nanos, Rate};
use std::collections::BTreeMap;

/// Slots of each wheel.
const SLOTS: u32 = 1024;
/// No slot is shorter than this for a connection of unknown rate.
const ANY_SPACING: u32 = 63;

/// The observations of one host.
#[derive(Default)]
pub(super) struct Seen {
    /// When the estimate became what, in bits per second.
    pub(super) estimates: Vec<(Nanos, u64)>,
    /// Bytes that left, by window of the run.
    pub(super) bytes: Vec<u64>,
}

/// A connection at its sender.
struct Connection {
    host: u32,
    /// When the next packet may leave, in picoseconds.
    next: u64,
    /// When the last one leaves.
    behind: Nanos,
}

struct World<'a> {
    setup: &'a Setup,
    packets: Packets,
    calendar: Mltw,
    bundles: Bundles,
    connections: Vec<Connection>,
    /// When the next packet of all together may leave, in picoseconds.
    next: u64,
    seen: BTreeMap<u32, Seen>,
}

/// The observations of each host while `case` ran.
pub(super) fn run(setup: &Setup, case: &Case) -> BTreeMap<u32, Seen> {
    let mut world = World::new(setup, case);
    let mut phases = case.phases.iter();
    let Some(mut phase) = phases.next() else { return world.seen };
    let mut until = phase.length;
    for connection in 0..world.connections.len() {
        world.begin(connection, phase);
        (0..setup.ahead).for_each(|packet| world.send(connection, packet, phase, Nanos::ZERO));
    }
    while let Some(now) = world.calendar.next() {
        while now >= until {
            let Some(following) = phases.next() else { return world.seen };
            phase = following;
            until += phase.length;
        }
        while let Some(id) = world.calendar.pop(&mut world.packets, now) {
            let (connection, packet) = (id.0 / setup.ahead, id.0 % setup.ahead);
            world.leave(connection as usize, id, now);
            world.send(connection as usize, packet, phase, now);
        }
    }
    world.seen
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup, case: &Case) -> Self {
        let mut bundles = Bundles::new(setup.frame, true);
        let windows = case.length().0.div_ceil(setup.window.0) as usize;
        let mut seen = BTreeMap::new();
        for &host in &case.hosts {
            if let Some(start) = case.start {
                bundles.spacing(host, start, Nanos::ZERO);
            }
            let estimates = vec![(Nanos::ZERO, bundles.estimate(host, Nanos::ZERO).bits_per_sec())];
            seen.insert(host, Seen { estimates, bytes: vec![0; windows] });
        }
        let connection = |&host: &u32| Connection { host, next: 0, behind: Nanos::ZERO };
        Self {
            setup,
            packets: Packets::new(case.hosts.len() as u32 * setup.ahead),
            calendar: Mltw::new(SLOTS),
            bundles,
            connections: case.hosts.iter().map(connection).collect(),
            next: 0,
            seen,
        }
    }

    /// A connection's first packet may leave at some time within a packet's time.
    fn begin(&mut self, number: usize, phase: &Phase) {
        let rate = match &phase.shaping {
            Shaping::Each(rates) => rates[number],
            Shaping::Together(rate) => *rate,
        };
        let later = hash(self.setup.seed, [number as u64, 0, 0]);
        self.connections[number].next = 1000 + later % self.gap(rate);
    }

    /// The time of a packet at `rate`, in picoseconds.
    fn gap(&self, rate: Rate) -> u64 {
        (self.setup.frame.0 * 8_000_000_000_000 / rate.bits_per_sec().max(1)).max(1)
    }

    /// The connection `number` sends its `packet`, as the qdisc would hold it.
    fn send(&mut self, number: usize, packet: u32, phase: &Phase, now: Nanos) {
        let (own, known, gap) = match &phase.shaping {
            Shaping::Each(rates) => {
                let gap = self.gap(rates[number]);
                ((gap / 1000).max(1).ilog2(), rates[number], gap)
            }
            Shaping::Together(rate) => (ANY_SPACING, Rate::default(), self.gap(*rate)),
        };
        let connection = &mut self.connections[number];
        let next = match &phase.shaping {
            Shaping::Each(_) => &mut connection.next,
            Shaping::Together(_) => &mut self.next,
        };
        let departure = (*next).max(now.0 * 1000);
        *next = departure + gap;
        let at = Nanos(departure.div_ceil(1000));
        let apart = self.bundles.spacing(connection.host, known, now);
        let spacing = if at <= now {
            self.bundles.came_late(connection.host, now);
            0
        } else {
            apart.map_or(own, |apart| apart.min(own))
        };
        let id = PacketId(number as u32 * self.setup.ahead + packet);
        self.packets.arrive(id, self.setup.frame.0 as u32, now);
        let slot = Slot { at, behind: connection.behind, spacing };
        connection.behind = self.calendar.insert(&mut self.packets, id, slot, now);
        let host = connection.host;
        self.read(host, now);
    }

    /// A packet of the connection `number` leaves.
    fn leave(&mut self, number: usize, id: PacketId, now: Nanos) {
        let host = self.connections[number].host;
        let slot = self.packets.meta(id).edt;
        self.bundles.left(host, slot, self.setup.frame, now);
        self.read(host, now);
        let window = (now.0 / self.setup.window.0) as usize;
        let bytes = self.seen.get_mut(&host).and_then(|seen| seen.bytes.get_mut(window));
        if let Some(bytes) = bytes {
            *bytes += self.setup.frame.0;
        }
    }

    /// Notes the estimate of `host`, if it is another.
    fn read(&mut self, host: u32, now: Nanos) {
        let rate = self.bundles.estimate(host, now).bits_per_sec();
        if let Some(seen) = self.seen.get_mut(&host)
            && seen.estimates.last().is_none_or(|(_, before)| *before != rate)
        {
            seen.estimates.push((now, rate));
        }
    }
}
