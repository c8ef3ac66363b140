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

/// A FIFO with a limit: all of it in one cache line, as there may be many.
pub(crate) struct Fifo {
    queue: Queue,
    limit_bytes: Bytes,
    limit_packets: u32,
    /// Whether it is a `noqueue`.
    is_noqueue: bool,
    sent_bytes: u64,
    sent_packets: u64,
    drops: u64,
}

impl Fifo {
    /// A `pfifo` or `bfifo`.
    pub(crate) fn new(config: Config) -> Self {
        Self::with(Some(config))
    }

    /// A `noqueue`.
    pub(crate) fn noqueue() -> Self {
        Self::with(None)
    }

    fn with(config: Option<Config>) -> Self {
        let mut fifo = Self {
            queue: Queue::new(),
            limit_bytes: Bytes(u64::MAX),
            limit_packets: NOQUEUE_STAGING,
            is_noqueue: true,
            sent_bytes: 0,
            sent_packets: 0,
            drops: 0,
        };
        fifo.configure(config);
        fifo
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

impl Qdisc for Fifo {
    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, _now: Nanos) -> Verdict {
        let backlog = self.queue.backlog();
        if backlog.packets < self.limit_packets
            && backlog.bytes.0 + packets.len(id).0 <= self.limit_bytes.0
        {
            self.queue.push_back(packets, id);
            return Verdict::Queued;
        }
        self.drops += 1;
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
        self.drops += refuse(packets, ids);
    }

    #[inline]
    fn dequeue(&mut self, packets: &mut Packets, _now: Nanos, out: &mut Batch) -> Next {
        let before = self.queue.backlog();
        while out.has_room() {
            let Some(id) = self.queue.pop_front(packets) else { break };
            out.push(id);
        }
        let after = self.queue.backlog();
        self.sent_packets += u64::from(before.packets - after.packets);
        self.sent_bytes += (before.bytes - after.bytes).0;
        if after.is_empty() { Next::Empty } else { Next::Now }
    }

    #[inline]
    fn dequeue_one(&mut self, packets: &mut Packets, _now: Nanos) -> Result<PacketId, Next> {
        let before = self.queue.backlog().bytes;
        let id = self.queue.pop_front(packets).ok_or(Next::Empty)?;
        packets.prefetch(self.queue.front());
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
