//! One `fq`, its packets and a clock, with a naive account of every flow.

use narrows_packet::{Backlog, Batch, DropReason, Ecn, Headers, PacketId, Packets};
use narrows_qdisc::fq::{Config, Figures};
use narrows_qdisc::{Config as AnyConfig, Detail, Next, Qdisc, Spec, Stats, Verdict};
use narrows_units::{Bytes, Nanos};
use std::collections::{BTreeMap, VecDeque};

const CAPACITY: u32 = 1 << 12;

/// A packet that has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    pub flow: u32,
    pub len: u32,
    pub at: Nanos,
    pub is_marked: bool,
}

/// Code points of the bands, by default.
pub const DSCP: [u8; 3] = [4, 0, 2];

pub fn flow(flow: u32) -> Headers {
    Headers { flow, ecn: Ecn::Capable0, ..Headers::default() }
}

pub struct Port {
    pub qdisc: Box<dyn Qdisc>,
    pub packets: Packets,
    pub now: Nanos,
    pub next: Next,
    /// Packets of each flow, in order.
    pub queued: BTreeMap<u32, VecDeque<PacketId>>,
    pub left: Vec<Left>,
    free: Vec<PacketId>,
    came: u64,
}

pub fn spec(config: Config) -> Spec {
    Spec::new(AnyConfig::Fq(config))
}

impl Port {
    pub fn new(config: Config) -> Self {
        Self {
            qdisc: spec(config).build(),
            packets: Packets::new(CAPACITY),
            now: Nanos::from_secs(1),
            next: Next::Empty,
            queued: BTreeMap::new(),
            left: Vec::new(),
            free: (0..CAPACITY).map(PacketId).collect(),
            came: 0,
        }
    }

    pub fn arrive(&mut self, headers: Headers, len: u32) -> Verdict {
        self.arrive_for(headers, len, Nanos::ZERO)
    }

    /// A packet comes that is not to leave before `edt`.
    pub fn arrive_for(&mut self, headers: Headers, len: u32, edt: Nanos) -> Verdict {
        let id = self.free.pop().expect("fewer packets are queued than there are");
        self.packets.arrive(id, len, self.now);
        self.packets.set_headers(id, headers);
        self.packets.meta_mut(id).edt = edt;
        self.came += 1;
        let verdict = self.qdisc.enqueue(&mut self.packets, id, self.now);
        if verdict == Verdict::Queued {
            self.queued.entry(headers.flow).or_default().push_back(id);
        }
        let mut back = Batch::new(1);
        self.packets.reclaim(&mut back);
        self.free.extend(back.as_slice());
        verdict
    }

    /// `id` has left: the first of its flow.
    pub fn account(&mut self, id: PacketId) {
        let flow = self.packets.headers(id).flow;
        assert_eq!(self.queued.get_mut(&flow).and_then(VecDeque::pop_front), Some(id));
        let meta = self.packets.meta(id);
        let left = Left { flow, len: meta.len.0, at: self.now, is_marked: meta.rewrite.marks() };
        self.left.push(left);
        self.free.push(id);
    }

    /// Takes the packets that may leave now, at most `most`. Returns their number.
    pub fn leave(&mut self, most: usize) -> usize {
        let mut out = Batch::new(most);
        self.next = self.qdisc.dequeue(&mut self.packets, self.now, &mut out);
        out.as_slice().iter().for_each(|id| self.account(*id));
        out.len()
    }

    /// Polls as requested until `end`, keeping `packets` of each of `flows` queued.
    pub fn keep_full(&mut self, flows: &[(Headers, u32)], packets: usize, end: Nanos) {
        while self.now < end {
            for (headers, len) in flows {
                while self.queued.get(&headers.flow).map_or(0, VecDeque::len) < packets {
                    assert_eq!(self.arrive(*headers, *len), Verdict::Queued);
                }
            }
            self.leave(16);
            match self.next {
                Next::Now => {}
                Next::At(at) | Next::Held(at) => self.now = at.max(self.now).min(end),
                Next::Empty => panic!("packets are queued"),
            }
        }
    }

    /// Polls as requested until it is empty.
    pub fn leave_all(&mut self) {
        loop {
            self.leave(16);
            match self.next {
                Next::Now => {}
                Next::At(at) | Next::Held(at) => self.now = at.max(self.now + Nanos(1)),
                Next::Empty => return,
            }
        }
    }

    /// Bytes that a flow has sent after `from`.
    pub fn sent_after(&self, flow: u32, from: Nanos) -> u64 {
        let left = self.left.iter().filter(|left| left.flow == flow && left.at > from);
        left.map(|left| u64::from(left.len)).sum()
    }

    pub fn stats(&self) -> Stats {
        let mut stats = Vec::new();
        self.qdisc.stats(&mut stats);
        stats.remove(0)
    }

    pub fn figures(&self) -> Figures {
        *self.stats().detail.as_ref().and_then(Detail::fq).expect("an fq has figures")
    }

    pub fn drops(&self, reason: DropReason) -> u64 {
        self.packets.drops().get(reason)
    }

    /// Nothing is lost, and the qdisc knows what it holds.
    pub fn check(&self) {
        let ids = || self.queued.values().flatten();
        let bytes = Bytes(ids().map(|id| self.packets.len(*id).0).sum());
        let backlog = Backlog { packets: ids().count() as u32, bytes };
        assert_eq!(self.qdisc.backlog(), backlog);
        let stats = self.stats();
        assert_eq!(stats.backlog, backlog);
        assert_eq!(stats.drops, self.packets.drops().total());
        let sent = self.left.len() as u64;
        assert_eq!(self.came, sent + u64::from(backlog.packets) + stats.drops);
        let figures = self.figures();
        assert_eq!(figures.band_packets.iter().sum::<u32>(), backlog.packets);
        let active = self.queued.values().filter(|queue| !queue.is_empty()).count();
        assert_eq!((figures.flows - figures.inactive_flows) as usize, active);
    }
}
