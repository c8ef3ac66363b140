//! The structures under test, each with the data that it needs from its caller.

use super::shape::{Load, Shape};
use super::work::{RATE, TURN};
use crate::cake::frames::{Frames, LEN};
use anyhow::Result;
use narrows_coordination::{SharedTree, TreeKind};
use narrows_packet::dissect::Dissector;
use narrows_packet::{Batch, PacketId, Packets};
use narrows_peers::rte_sched::RteSched;
use narrows_qdisc::{Config, Qdisc, Spec, cake, fifo, htb};
use narrows_units::Nanos;

/// The qdisc of a leaf, and of packets without a class.
const LIMIT: u32 = 1000;

/// Something that packets pass through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The floor: one `pfifo` for all.
    Fifo,
    /// `htb` with a `pfifo` below each leaf.
    TreeFifo,
    /// `htb` with a `cake` below each leaf, one tin.
    TreeCake,
    /// `hfsc` with a `pfifo` below each leaf.
    HfscFifo,
    /// DPDK's `rte_sched`, a pipe for each leaf.
    RteSched,
}

impl Subject {
    /// All of them, the floor first.
    pub const ALL: [Self; 5] =
        [Self::Fifo, Self::TreeFifo, Self::TreeCake, Self::HfscFifo, Self::RteSched];

    /// Its name in tables and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::TreeFifo => "tree-fifo",
            Self::TreeCake => "tree-cake",
            Self::HfscFifo => "hfsc-fifo",
            Self::RteSched => "rte_sched",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.name() == name)
    }

    /// The qdisc below each leaf of its tree, if it has a tree.
    pub(super) fn below(self) -> Option<Config> {
        match self {
            Self::TreeFifo | Self::HfscFifo => Some(Config::Fifo(fifo::Config::Packets(LIMIT))),
            Self::TreeCake => {
                let diffserv = cake::Diffserv::BestEffort;
                Some(Config::Cake(cake::Config { diffserv, ..cake::Config::default() }))
            }
            Self::Fifo | Self::RteSched => None,
        }
    }

    /// What schedules the classes of its tree.
    pub(super) fn kind(self) -> TreeKind {
        if self == Self::HfscFifo { TreeKind::Hfsc } else { TreeKind::default() }
    }

    /// Makes it, empty, for this many packets.
    pub(super) fn build(self, packets: u32, shape: Shape) -> Result<Box<dyn Scheduler>> {
        Ok(match self.below() {
            Some(below) => {
                // Where something holds it back it is asked for more than may leave.
                let most = if shape.load == Load::Free { TURN } else { 2 * TURN };
                Box::new(Own::below(&shape.tree(self.kind(), &below), packets, most)?)
            }
            None if self == Self::RteSched => Box::new(Peer::new(packets, shape)?),
            None => {
                let fifo = Spec::new(Config::Fifo(fifo::Config::Packets(packets)));
                // Nothing limits it, so it is asked for as many packets as arrive.
                Box::new(Own::new(fifo, packets, TURN)?)
            }
        })
    }
}

/// A structure, called once for a batch of arrivals and once for departures, so that the call
/// itself weighs nothing.
pub(super) trait Scheduler {
    /// Takes these in, each with its leaf.
    fn arrive(&mut self, arriving: &[(PacketId, u32)], now: Nanos);
    /// Adds departures to `left` and drops since the last call to `dropped`.
    fn leave(&mut self, now: Nanos, left: &mut Batch, dropped: &mut Batch);
}

/// A qdisc of ours, treated as a worker treats it.
pub(super) struct Own {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    /// The key for reading headers, if the structure needs them.
    reader: Option<(Dissector, Frames)>,
    ids: Vec<PacketId>,
    /// The most packets that it may release at once.
    most: usize,
}

impl Own {
    fn new(spec: Spec, packets: u32, most: usize) -> Result<Self> {
        let qdisc = spec.build();
        let reading = qdisc.reading();
        // A `cake` queues at most a quarter of all frames.
        let mut table = Packets::new(packets.next_power_of_two() * 4);
        table.prepare(reading);
        let reader = if reading.headers {
            Some((Dissector::new(1), Frames::new(packets, packets)?))
        } else {
            None
        };
        Ok(Self { qdisc, packets: table, reader, ids: Vec::with_capacity(TURN), most })
    }

    /// One queue's scheduler of `tree`.
    pub(super) fn below(tree: &SharedTree, packets: u32, most: usize) -> Result<Self> {
        let config =
            htb::Config { default: Shape::DEFAULT, unclassified: htb::Unclassified::Sent(LIMIT) };
        let spec = Spec { tree: Some(tree.scheduler()), ..Spec::new(Config::Htb(config)) };
        Self::new(spec, packets, most)
    }
}

impl Scheduler for Own {
    fn arrive(&mut self, arriving: &[(PacketId, u32)], now: Nanos) {
        self.ids.clear();
        for &(id, class) in arriving {
            self.packets.arrive(id, u32::from(LEN), now);
            self.packets.meta_mut(id).class = class;
            self.ids.push(id);
        }
        if let Some((dissector, frames)) = &self.reader {
            for &id in &self.ids {
                narrows_cpu::prefetch(&frames.of(id)[0]);
            }
            for &id in &self.ids {
                dissector.read(frames.of(id), false, self.packets.headers_mut(id));
            }
        }
        self.qdisc.enqueue_all(&mut self.packets, &self.ids, now);
    }

    fn leave(&mut self, now: Nanos, left: &mut Batch, dropped: &mut Batch) {
        left.limit(left.len() + self.most);
        self.qdisc.dequeue(&mut self.packets, now, left);
        if self.packets.unreclaimed() > 0 {
            self.packets.reclaim(dropped);
        }
    }
}

/// `rte_sched`, of which a class is a pipe.
struct Peer {
    port: RteSched,
    dropped: Vec<PacketId>,
}

impl Peer {
    /// Its pipes, at least.
    const PIPES: u32 = 64;

    fn new(packets: u32, shape: Shape) -> Result<Self> {
        let pipes = (shape.classes + 1).next_power_of_two().max(Self::PIPES);
        let pipes =
            if shape.classes.is_power_of_two() { shape.classes.max(Self::PIPES) } else { pipes };
        let port = RteSched::new(pipes, RATE.bits_per_sec() / 8, packets, TURN)?;
        Ok(Self { port, dropped: Vec::with_capacity(TURN) })
    }
}

impl Scheduler for Peer {
    fn arrive(&mut self, arriving: &[(PacketId, u32)], _now: Nanos) {
        // Classes count from 1, pipes from 0.
        let arrivals = arriving.iter().map(|(id, class)| (id.0, class - 1));
        self.port.enqueue(arrivals, LEN, |packet| self.dropped.push(PacketId(packet)));
    }

    fn leave(&mut self, _now: Nanos, left: &mut Batch, dropped: &mut Batch) {
        self.port.dequeue(TURN, |packet| left.push(PacketId(packet)));
        for id in self.dropped.drain(..) {
            dropped.push(id);
        }
    }
}
