//! One leaf, its packets and a clock, with a naive account of every flow.

use narrows_packet::{Backlog, Batch, DropReason, Ecn, Headers, PacketId, Packets};
use narrows_qdisc::{Config, Handover, Next, Qdisc, Spec, Stats, Verdict};
use narrows_units::{Bytes, Nanos};
use std::collections::BTreeMap;

const CAPACITY: u32 = 1 << 14;

/// A packet that has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// The how manieth that came it was.
    pub number: u64,
    pub flow: u32,
    pub len: u32,
    pub came: Nanos,
    pub at: Nanos,
    pub is_marked: bool,
    pub is_corrupt: bool,
}

pub fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Headers of flow `number` of 256, distinct for any power of two of queues.
pub fn flow(number: u32) -> Headers {
    Headers { flow: number << 24, ecn: Ecn::NotCapable, ..Headers::default() }
}

/// Headers of flow `number` of 256, ECN-capable.
pub fn capable(number: u32) -> Headers {
    Headers { ecn: Ecn::Capable0, ..flow(number) }
}

pub struct Port {
    pub qdisc: Box<dyn Qdisc>,
    pub packets: Packets,
    pub now: Nanos,
    pub next: Next,
    pub left: Vec<Left>,
    /// Packets that were dropped: which they were.
    pub dropped: Vec<u64>,
    /// Which packets are queued, and how long each came.
    queued: BTreeMap<PacketId, (u64, u32)>,
    free: Vec<PacketId>,
    pub came: u64,
}

impl Port {
    pub fn new(config: Config) -> Self {
        Self::of(Spec::new(config))
    }

    /// A port with that qdisc.
    pub fn of(spec: Spec) -> Self {
        Self {
            qdisc: spec.build(),
            packets: Packets::new(CAPACITY),
            now: Nanos::from_secs(1),
            next: Next::Empty,
            left: Vec::new(),
            dropped: Vec::new(),
            queued: BTreeMap::new(),
            free: (0..CAPACITY).rev().map(PacketId).collect(),
            came: 0,
        }
    }

    pub fn arrive(&mut self, headers: Headers, len: u32) -> Verdict {
        let id = self.free.pop().expect("fewer packets are queued than there are");
        self.packets.arrive(id, len, self.now);
        self.packets.set_headers(id, headers);
        self.queued.insert(id, (self.came, len));
        self.came += 1;
        let verdict = self.qdisc.enqueue(&mut self.packets, id, self.now);
        let before = self.dropped.len();
        self.reclaim();
        assert_eq!(verdict == Verdict::Dropped, self.dropped.len() > before);
        verdict
    }

    /// A packet of each of `flows` arrives; it may be dropped.
    pub fn arrive_all(&mut self, flows: impl Iterator<Item = Headers>, len: u32) {
        for headers in flows {
            self.arrive(headers, len);
        }
    }

    fn reclaim(&mut self) {
        while self.packets.unreclaimed() > 0 {
            let mut back = Batch::new(64);
            self.packets.reclaim(&mut back);
            for id in back.as_slice() {
                let (number, _) = self.queued.remove(id).expect("what is dropped was queued");
                self.dropped.push(number);
                self.free.push(*id);
            }
        }
    }

    /// Takes the packets that may leave now, at most `most`. Returns their number.
    pub fn leave(&mut self, most: usize) -> usize {
        let mut out = Batch::new(most);
        self.next = self.qdisc.dequeue(&mut self.packets, self.now, &mut out);
        self.reclaim();
        for id in out.as_slice() {
            let (number, _) = self.queued.remove(id).expect("what leaves was queued");
            let meta = *self.packets.meta(*id);
            self.left.push(Left {
                number,
                flow: self.packets.headers(*id).flow >> 24,
                len: meta.len.0,
                came: meta.arrival,
                at: self.now,
                is_marked: meta.rewrite.marks(),
                is_corrupt: meta.rewrite.place() != 0,
            });
            self.free.push(*id);
        }
        self.check();
        out.len()
    }

    /// Polls as requested until `end`.
    pub fn leave_until(&mut self, end: Nanos) {
        loop {
            self.leave(64);
            match self.next {
                Next::Now => {}
                Next::At(at) | Next::Held(at) if at <= end => {
                    assert!(at > self.now, "it may be asked when it says so");
                    self.now = at;
                }
                _ => break,
            }
        }
        self.now = self.now.max(end);
    }

    /// Polls as requested until it is empty.
    pub fn leave_all(&mut self) {
        self.leave_until(Nanos(self.now.0 + Nanos::from_secs(3600).0));
        assert_eq!(self.next, Next::Empty);
    }

    pub fn retune(&mut self, config: Config) {
        let mut handover = Handover::new(&mut self.packets, self.now);
        self.qdisc.retune(Spec::new(config), &mut handover);
    }

    pub fn stats(&self) -> Stats {
        let mut stats = Vec::new();
        self.qdisc.stats(&mut stats);
        stats.remove(0)
    }

    pub fn drops(&self, reason: DropReason) -> u64 {
        self.packets.drops().get(reason)
    }

    /// Nothing is lost, and the qdisc knows what it holds.
    pub fn check(&self) {
        let bytes = Bytes(self.queued.values().map(|(_, len)| u64::from(*len)).sum());
        let backlog = Backlog { packets: self.queued.len() as u32, bytes };
        assert_eq!(self.qdisc.backlog(), backlog);
        let stats = self.stats();
        assert_eq!(stats.backlog, backlog);
        assert_eq!(stats.drops, self.packets.drops().total());
        assert_eq!(stats.drops, self.dropped.len() as u64);
        let left = self.left.iter().map(|left| u64::from(left.len));
        assert_eq!((stats.sent_packets, stats.sent_bytes), (self.left.len() as u64, left.sum()));
        assert_eq!(self.came, stats.sent_packets + u64::from(backlog.packets) + stats.drops);
    }
}
