//! A qdisc with classes, and packets for it.

use narrows_packet::{Batch, DropReason, PacketId, Packets};
use narrows_qdisc::bands::{Class, Config, Discipline};
use narrows_qdisc::{
    Config as AnyConfig, Handover, Next, NodeId, Slot, Spec, Stats, Verdict, fifo,
};
use narrows_units::Nanos;

/// Packets that a class holds.
pub const LIMIT: u32 = 8;

pub fn pfifo() -> AnyConfig {
    AnyConfig::Fifo(fifo::Config::Packets(LIMIT))
}

pub fn strict(id: u16) -> Class {
    Class { id, quantum: None }
}

pub fn shared(id: u16, quantum: u32) -> Class {
    Class { id, quantum: Some(quantum) }
}

pub fn prio(bands: u16) -> Config {
    let classes = (1..=bands).map(strict).collect();
    Config { discipline: Discipline::Prio, classes, otherwise: Some(1) }
}

pub fn drr(quanta: &[(u16, u32)]) -> Config {
    let classes = quanta.iter().map(|(id, quantum)| shared(*id, *quantum)).collect();
    Config { discipline: Discipline::Drr, classes, otherwise: None }
}

pub fn ets(bands: u16, quanta: &[u32]) -> Config {
    let turns = (bands + 1..).zip(quanta).map(|(id, quantum)| shared(id, *quantum));
    let classes = (1..=bands).map(strict).chain(turns).collect();
    Config { discipline: Discipline::Ets, classes, otherwise: Some(1) }
}

/// The qdisc of `config` with a `pfifo` below each class.
pub fn spec(config: &Config) -> Spec {
    spec_over(config, |_| pfifo())
}

pub fn spec_over(config: &Config, below: impl Fn(u16) -> AnyConfig) -> Spec {
    let child = |class: &Class| {
        let id = NodeId(100 + u64::from(class.id));
        Spec { id, ..Spec::new(below(class.id)) }
    };
    let children = config.classes.iter().map(child).collect();
    Spec { id: NodeId(1), children, ..Spec::new(AnyConfig::Bands(config.clone())) }
}

pub struct World {
    pub slot: Slot,
    pub packets: Packets,
    pub came: u32,
    pub now: Nanos,
}

impl World {
    pub fn new(spec: Spec) -> Self {
        let packets = Packets::new(4_096);
        Self { slot: Slot::new(spec), packets, came: 0, now: Nanos::from_secs(1) }
    }

    /// Offers a packet for `class`. Returns its number, and whether it was taken.
    pub fn offer(&mut self, class: u32, len: u32) -> (u32, bool) {
        self.offer_at([class, 0, 0], len)
    }

    pub fn offer_at(&mut self, [class, inner, innermost]: [u32; 3], len: u32) -> (u32, bool) {
        let id = PacketId(self.came);
        self.came += 1;
        self.packets.arrive(id, len, self.now);
        let meta = self.packets.meta_mut(id);
        (meta.class, meta.inner) = (class, [inner as u16, innermost as u16]);
        let verdict = self.slot.qdisc_mut().enqueue(&mut self.packets, id, self.now);
        (id.0, verdict == Verdict::Queued)
    }

    pub fn poll(&mut self, room: usize) -> (Vec<u32>, Next) {
        let mut out = Batch::new(room);
        let next = self.slot.qdisc_mut().dequeue(&mut self.packets, self.now, &mut out);
        (out.as_slice().iter().map(|id| id.0).collect(), next)
    }

    pub fn poll_one(&mut self) -> Option<u32> {
        self.slot.qdisc_mut().dequeue_one(&mut self.packets, self.now).ok().map(|id| id.0)
    }

    pub fn become_this(&mut self, spec: Spec) {
        self.slot.take_over(spec, &mut Handover::new(&mut self.packets, self.now));
    }

    pub fn stats(&self) -> Vec<Stats> {
        let mut stats = Vec::new();
        self.slot.stats(&mut stats);
        stats
    }

    /// The drops since the last call, by reason.
    pub fn dropped(&mut self) -> Vec<(DropReason, u64)> {
        let drops = self.packets.take_drops();
        while self.packets.unreclaimed() > 0 {
            self.packets.reclaim(&mut Batch::new(64));
        }
        drops.iter().filter(|(_, count)| *count != 0).collect()
    }
}
