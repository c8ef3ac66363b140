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

/// What a FIFO counts.
pub(crate) trait Counting: Default + Send {
    fn sent(&mut self, packets: u32, bytes: Bytes);
    fn dropped(&mut self, packets: u64);
    /// What it has counted.
    fn stats(&self) -> Stats;
}

/// Counts what the FIFO does.
#[derive(Default)]
pub(crate) struct Counts {
    sent_bytes: u64,
    sent_packets: u64,
    drops: u64,
}

impl Counting for Counts {
    #[inline]
    fn sent(&mut self, packets: u32, bytes: Bytes) {
        self.sent_packets += u64::from(packets);
        self.sent_bytes += bytes.0;
    }

    #[inline]
    fn dropped(&mut self, packets: u64) {
        self.drops += packets;
    }

    fn stats(&self) -> Stats {
        let Self { sent_bytes, sent_packets, drops } = *self;
        Stats { sent_bytes, sent_packets, drops, ..Stats::default() }
    }
}

/// Counts nothing: the owner counts the same.
#[derive(Default)]
pub(crate) struct Uncounted;

impl Counting for Uncounted {
    #[inline]
    fn sent(&mut self, _packets: u32, _bytes: Bytes) {}

    #[inline]
    fn dropped(&mut self, _packets: u64) {}

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// A FIFO with a limit, in one cache line. One that counts nothing is smaller: there may be one for
/// each of thousands of classes.
pub(crate) struct Fifo<C = Counts> {
    queue: Queue,
    limit_bytes: Bytes,
    limit_packets: u32,
    /// Whether it is a `noqueue`.
    is_noqueue: bool,
    counts: C,
}

impl<C: Counting> Fifo<C> {
    /// A `pfifo` or `bfifo`; a `noqueue` for `None`.
    pub(crate) fn new(config: Option<Config>) -> Self {
        let mut fifo = Self {
            queue: Queue::new(),
            limit_bytes: Bytes(u64::MAX),
            limit_packets: NOQUEUE_STAGING,
            is_noqueue: true,
            counts: C::default(),
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

impl<C: Counting> Qdisc for Fifo<C> {
    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, _now: Nanos) -> Verdict {
        let backlog = self.queue.backlog();
        if backlog.packets < self.limit_packets
            && backlog.bytes.0 + packets.len(id).0 <= self.limit_bytes.0
        {
            self.queue.push_back(packets, id);
            return Verdict::Queued;
        }
        self.counts.dropped(1);
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
        self.counts.dropped(refuse(packets, ids));
    }

    #[inline]
    fn dequeue(&mut self, packets: &mut Packets, _now: Nanos, out: &mut Batch) -> Next {
        let before = self.queue.backlog();
        while out.has_room() {
            let Some(id) = self.queue.pop_front(packets) else { break };
            out.push(id);
        }
        let after = self.queue.backlog();
        self.counts.sent(before.packets - after.packets, before.bytes - after.bytes);
        if after.is_empty() { Next::Empty } else { Next::Now }
    }

    #[inline]
    fn dequeue_one(&mut self, packets: &mut Packets, _now: Nanos) -> Result<PacketId, Next> {
        let before = self.queue.backlog().bytes;
        let id = self.queue.pop_front(packets).ok_or(Next::Empty)?;
        packets.prefetch(self.queue.front());
        self.counts.sent(1, Bytes(before.0 - self.queue.backlog().bytes.0));
        Ok(id)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        into.push(Stats { backlog: self.queue.backlog(), ..self.counts.stats() });
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
