//! `pfifo`, `bfifo` and `noqueue`: first in, first out, up to a limit.
//!
//! As in the kernel, `pfifo` takes a packet while fewer than its limit are queued, and
//! `bfifo` while the packet still fits below its limit in bytes. The last to come is the one
//! to be dropped.
//!
//! `noqueue` is a FIFO as well. A packet that arrives must stand somewhere until the worker has a
//! TX batch together, so it gets [`NOQUEUE_STAGING`] places and no more: while the ring takes
//! nothing and these are full, arrivals are dropped as [`DropReason::RingFull`].
//!
//! Cost: O(1) a packet, its metadata and one cache line of the FIFO touched.

use crate::qdisc::refuse;
use crate::{Config as AnyConfig, Handover, Next, Qdisc, Spec, Stats, Verdict};
use narrows_packet::{Backlog, Batch, DropReason, Fifo as Queue, PacketId, Packets};
use narrows_units::{Bytes, Nanos};

/// Packets that a `noqueue` stages on their way to the TX ring: a few times the batch in which a
/// worker receives, so that only a ring that stays full makes it drop.
pub const NOQUEUE_STAGING: u32 = 256;

/// Where a FIFO ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Config {
    /// `pfifo`: a number of packets.
    Packets(u32),
    /// `bfifo`: a number of bytes of frames.
    Bytes(Bytes),
}

/// A queue with a limit, which counts nothing. Small, because there may be one for each of
/// thousands of classes, and the class counts.
pub(crate) struct Limited {
    queue: Queue,
    limit_bytes: Bytes,
    limit_packets: u32,
    /// Whether it is a `noqueue`.
    is_noqueue: bool,
}

impl Limited {
    /// A `pfifo` or `bfifo`; a `noqueue` for `None`.
    pub(crate) fn new(config: Option<Config>) -> Self {
        let (limit_packets, limit_bytes, is_noqueue) = (0, Bytes::ZERO, false);
        let mut new = Self { queue: Queue::new(), limit_bytes, limit_packets, is_noqueue };
        new.configure(config);
        new
    }

    fn configure(&mut self, config: Option<Config>) {
        (self.limit_packets, self.limit_bytes) = match config {
            Some(Config::Packets(packets)) => (packets, Bytes(u64::MAX)),
            Some(Config::Bytes(bytes)) => (u32::MAX, bytes),
            None => (NOQUEUE_STAGING, Bytes(u64::MAX)),
        };
        self.is_noqueue = config.is_none();
    }

    fn reason(&self) -> DropReason {
        if self.is_noqueue { DropReason::RingFull } else { DropReason::Limit }
    }
}

impl Qdisc for Limited {
    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, _now: Nanos) -> Verdict {
        let backlog = self.queue.backlog();
        if backlog.packets < self.limit_packets
            && backlog.bytes.0 + packets.len(id).0 <= self.limit_bytes.0
        {
            self.queue.push_back(packets, id);
            return Verdict::Queued;
        }
        packets.discard(id, self.reason());
        Verdict::Dropped
    }

    #[inline]
    fn expect(&self, packets: &Packets, _id: PacketId) {
        packets.prefetch(self.queue.back());
    }

    #[inline]
    fn expect_departure(&self, packets: &Packets) {
        packets.prefetch(self.queue.front());
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        refuse(packets, ids);
    }

    #[inline]
    fn dequeue(&mut self, packets: &mut Packets, _now: Nanos, out: &mut Batch) -> Next {
        while out.has_room() {
            let Some(id) = self.queue.pop_front(packets) else { break };
            out.push(id);
        }
        if self.queue.backlog().is_empty() { Next::Empty } else { Next::Now }
    }

    #[inline]
    fn dequeue_one(&mut self, packets: &mut Packets, _now: Nanos) -> Result<PacketId, Next> {
        let id = self.queue.pop_front(packets).ok_or(Next::Empty)?;
        packets.prefetch(self.queue.front());
        Ok(id)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        into.push(Stats { backlog: self.queue.backlog(), ..Stats::default() });
    }

    fn retune(&mut self, spec: Spec, _handover: &mut Handover<'_>) {
        match (self.is_noqueue, spec.config) {
            (true, AnyConfig::Noqueue) => {}
            (false, AnyConfig::Fifo(config)) => self.configure(Some(config)),
            (is_noqueue, other) => {
                let present = if is_noqueue { "noqueue" } else { "a FIFO" };
                panic!("{present} cannot be retuned to {other:?}")
            }
        }
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        self.queue.pop_front(packets)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, _now: Nanos) {
        self.queue.push_back(packets, id);
    }
}

/// A FIFO that counts what it does, in one cache line.
pub(crate) struct Fifo {
    queue: Limited,
    sent_bytes: u64,
    sent_packets: u64,
    drops: u64,
}

impl From<Limited> for Fifo {
    fn from(queue: Limited) -> Self {
        Self { queue, sent_bytes: 0, sent_packets: 0, drops: 0 }
    }
}

impl Qdisc for Fifo {
    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let verdict = self.queue.enqueue(packets, id, now);
        self.drops += u64::from(verdict == Verdict::Dropped);
        verdict
    }

    #[inline]
    fn expect(&self, packets: &Packets, id: PacketId) {
        self.queue.expect(packets, id);
    }

    #[inline]
    fn expect_departure(&self, packets: &Packets) {
        self.queue.expect_departure(packets);
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.drops += refuse(packets, ids);
    }

    #[inline]
    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        let before = self.queue.backlog();
        let next = self.queue.dequeue(packets, now, out);
        let after = self.queue.backlog();
        self.sent_packets += u64::from(before.packets - after.packets);
        self.sent_bytes += (before.bytes - after.bytes).0;
        next
    }

    #[inline]
    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        let before = self.queue.backlog().bytes;
        let id = self.queue.dequeue_one(packets, now)?;
        self.sent_packets += 1;
        self.sent_bytes += before.0 - self.queue.backlog().bytes.0;
        Ok(id)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        let Self { sent_bytes, sent_packets, drops, .. } = *self;
        let backlog = self.queue.backlog();
        into.push(Stats { sent_bytes, sent_packets, drops, backlog, ..Stats::default() });
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        self.queue.retune(spec, handover);
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        self.queue.drain(packets)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.queue.adopt(packets, id, now);
    }
}
