//! The trait that every queueing discipline implements.

use crate::htb::ClassCount;
use crate::{Above, Detail, Handover, NodeId, Spec, Weight};
use narrows_packet::{Backlog, Batch, DropReason, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos};

/// The result of offering a packet to a qdisc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is queued.
    Queued,
    /// It is queued, and so is a copy of it.
    Copied,
    /// It, or another one instead of it, was discarded; the packet table has the reason.
    Dropped,
}

/// When to ask a qdisc again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// At once: the batch was full.
    Now,
    /// At this time. A queued packet may not leave yet. Asking earlier is harmless; asking later
    /// loses nothing within the qdisc's burst.
    At(Nanos),
    /// At this time, or when a packet has been enqueued if that is earlier: queued packets are held
    /// individually, and arrivals need not wait for them.
    Held(Nanos),
    /// When a packet has been enqueued: it is empty.
    Empty,
}

/// A qdisc's statistics: `struct gnet_stats_basic` and `gnet_stats_queue`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Frame bytes that left.
    pub sent_bytes: u64,
    /// Packets that left.
    pub sent_packets: u64,
    /// Packets dropped by it or below it.
    pub drops: u64,
    /// How often Linux would have found a packet that may not leave yet.
    pub overlimits: u64,
    /// Packets put back after they had been dequeued.
    pub requeues: u64,
    /// The backlog.
    pub backlog: Backlog,
    /// [`Qdisc::flows`].
    pub flows: Option<u32>,
    /// Which qdisc it is.
    pub id: NodeId,
    /// Statistics of its kind only.
    pub detail: Option<Detail>,
}

/// The flows of two queues; none if one of them cannot count its own.
pub(crate) fn both(flows: Option<u32>, others: Option<u32>) -> Option<u32> {
    Some(flows?.saturating_add(others?))
}

/// Drops `ids` for lack of frames, and returns how many they are.
pub(crate) fn refuse(packets: &mut Packets, ids: &[PacketId]) -> u64 {
    for &id in ids {
        packets.discard(id, DropReason::NoFrame);
    }
    ids.len() as u64
}

impl Stats {
    /// Of `came` packets, those that were dropped by it or below it: they neither left nor wait in
    /// `backlog`.
    pub(crate) fn dropped_of(&self, came: u64, backlog: Backlog) -> u64 {
        // Copies that were made below as packets left have not come here.
        came.saturating_sub(self.sent_packets + u64::from(backlog.packets))
    }

    /// Drops `ids` for lack of frames and counts them.
    pub(crate) fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.drops += refuse(packets, ids);
    }

    /// Adds the figures of the same qdisc on another queue.
    pub fn merge(&mut self, other: &Self) {
        self.sent_bytes += other.sent_bytes;
        self.sent_packets += other.sent_packets;
        self.drops += other.drops;
        self.overlimits += other.overlimits;
        self.requeues += other.requeues;
        self.backlog += other.backlog;
        self.flows = both(self.flows, other.flows);
        match (&mut self.detail, &other.detail) {
            (Some(ours), Some(theirs)) => ours.merge(theirs),
            (ours, theirs) => *ours = ours.take().or_else(|| theirs.clone()),
        }
    }
}

/// Bands of more ranks than this count as the last of these, beyond a queue.
pub const RANKS: usize = 8;

/// Which of its bands a qdisc sends next, by rank: 0 goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ranking {
    /// The class of the packet that left last.
    pub left: u8,
    /// The first band that may have packets,
    pub next: u8,
    /// and how much of that rank is queued.
    pub bytes: Bytes,
}

/// A queueing discipline. It owns the packets between [`Qdisc::enqueue`] and
/// [`Qdisc::dequeue`]; every one of them leaves, or is discarded with a reason.
pub trait Qdisc: Send {
    /// The packet fields that it, or a qdisc below it, reads on enqueue. The caller asks once, and
    /// again after [`Qdisc::retune`].
    fn reading(&self) -> Reading {
        Reading::NOTHING
    }

    /// Offers `id` at `now`.
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict;

    /// Offers all of `ids` at `now`, in order: like [`Qdisc::enqueue`] for each, ignoring the
    /// verdicts.
    fn enqueue_all(&mut self, packets: &mut Packets, ids: &[PacketId], now: Nanos) {
        for &id in ids {
            let _: Verdict = self.enqueue(packets, id, now);
        }
    }

    /// Prefetches the data for enqueueing `id` soon, see [`narrows_cpu::prefetch`]. For a parent
    /// with many such qdiscs.
    fn expect(&self, packets: &Packets, id: PacketId) {
        let _ = (packets, id);
    }

    /// The class of the packet that leaves next.
    fn expect_departure(&self, packets: &Packets) {
        let _ = packets;
    }

    /// Drops all of `ids`, which arrived when no frame was left for queued packets.
    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]);

    /// Processes packets that arrived at `now` at this qdisc's port, among them answers to packets
    /// that it has sent. For qdiscs that ask for it ([`Reading::echoes`]).
    fn observe_reverse(&mut self, packets: &Packets, ids: &[PacketId], now: Nanos) {
        let _ = (packets, ids, now);
    }

    /// Moves packets that may leave at `now` into `out` until that is full, and returns when to ask
    /// again. Call it after every batch of arrivals, too: this is where a qdisc publishes its
    /// backlog to its siblings.
    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next;

    /// Charges its limit for `bytes` that left through its port without passing it, as
    /// [`Meter::owe`](crate::Meter::owe) does. Without a limit of its own it does nothing.
    fn owe(&mut self, _bytes: Bytes, _now: Nanos) {}

    /// Takes out the one packet that leaves next at `now`, as [`Qdisc::dequeue`] into a batch with
    /// room for one: for a parent that decides packet by packet. `Err` says when there will be
    /// one, and is never [`Next::Now`].
    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next>;

    /// The backlog.
    fn backlog(&self) -> Backlog;

    /// The weight of this queue's part of a class among the queues that share the class's rate: how
    /// many flows, or hosts, are backlogged here. One if it does not isolate them.
    fn weight(&self) -> Weight {
        Weight::ONE
    }

    /// How many flows take turns here, if it tells flows apart. A flow that has sent all it had
    /// may take part until its turn comes. So over time a flow below the rate of the others counts
    /// as a part of one.
    fn flows(&self) -> Option<u32> {
        None
    }

    /// The rank of the next packet among ordered bands, so that the queues of a class can keep the
    /// order together. Without bands all packets have one rank.
    fn ranking(&self) -> Ranking {
        Ranking { left: 0, next: 0, bytes: self.backlog().bytes }
    }

    /// Adds its own figures and then those of the qdiscs below it, depth first, in the order
    /// of the [`Spec`] that it was built from.
    fn stats(&self, into: &mut Vec<Stats>);

    /// Adds its figures and those of the qdiscs below it as seen from outside, where parents hold
    /// packets that this qdisc has released. A qdisc with children must implement it, to find the
    /// child that released the packet.
    fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        let own = into.len();
        self.stats(into);
        if let Some(own) = into.get_mut(own) {
            above.restate(own);
        }
    }

    /// Adds what the leaf classes of this qdisc have sent, hold and dropped, if it is a tree of
    /// classes: a part of its figures that is read often.
    fn class_counts(&self, _into: &mut Vec<ClassCount>) {}

    /// Applies the parameters of `spec`, which this qdisc can carry on with
    /// ([`Config::carries_on`](crate::Config::carries_on)). Queued packets stay queued, even beyond
    /// a new limit; a meter's credit and debt are kept. The qdiscs below are reconciled by their
    /// names, see [`Slot::take_over`](crate::Slot::take_over).
    ///
    /// # Panics
    /// Where `spec` is of another kind.
    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>);

    /// Takes out the packet that would leave next, regardless of the rate, to hand it over to
    /// another qdisc. Does not count as sent.
    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId>;

    /// Adopts a packet from a qdisc that this one replaces, behind all others, regardless of the
    /// limit.
    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos);
}
