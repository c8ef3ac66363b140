//! What waits in a `tbf`: the inner qdisc and the packet that is held in front of it.

use crate::coalescing::Coalescing;
use crate::held::cost_of_alike;
use crate::inner::Inner;
use crate::overlimits::Overlimits;
use crate::sink::Sink;
use crate::{Above, Handover, Meter, Next, Qdisc, Spec, Stats, Take, Verdict};
use narrows_packet::{Backlog, PacketId, Packets};
use narrows_units::{Bytes, Nanos, wire::Overhead};

/// The packet that leaves next, out of the inner qdisc already.
#[derive(Clone, Copy)]
struct Held {
    id: PacketId,
    len: Bytes,
    cost: Bytes,
    edt: Nanos,
}

/// Packets that have been accepted, and were not dropped since.
#[derive(Clone, Copy)]
pub(super) struct Passed {
    pub(super) packets: u64,
    bytes: u64,
}

impl Passed {
    /// And one of `len` bytes.
    #[inline]
    pub(super) fn and(self, len: Bytes) -> Self {
        Self { packets: self.packets + 1, bytes: self.bytes + len.0 }
    }
}

impl std::ops::Sub for Passed {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        // Copies of queued packets may have been made meanwhile.
        Self {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// The packets of a `tbf`, in the order in which they leave.
pub(super) struct Queue {
    inner: Inner,
    held: Option<Held>,
    /// The length of the packet that a former inner qdisc had handed over, if there was one.
    inherited: Option<Bytes>,
    /// Packets from the head on whose stamps are not the present meter's.
    unstamped: u32,
    /// The charge of a frame.
    pub(super) overhead: Overhead,
    /// All but the backlog.
    pub(super) stats: Stats,
    overlimits: Overlimits,
}

impl Queue {
    pub(super) fn new(inner: Spec, overhead: Overhead) -> Self {
        Self {
            inner: Inner::new(inner),
            held: None,
            inherited: None,
            unstamped: 0,
            overhead,
            stats: Stats::default(),
            overlimits: Overlimits::default(),
        }
    }

    pub(super) fn inner(&self) -> &dyn Qdisc {
        self.inner.qdisc()
    }

    pub(super) fn inner_mut(&mut self) -> &mut dyn Qdisc {
        self.inner.qdisc_mut()
    }

    #[inline]
    pub(super) fn backlog(&self) -> Backlog {
        let mut backlog = self.inner.backlog();
        if let Some(held) = self.held {
            backlog.packets += 1;
            backlog.bytes += held.len;
        }
        backlog
    }

    #[inline]
    pub(super) fn push(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.inner.enqueue(packets, id, now)
    }

    /// The next packet of the inner qdisc, or when there will be one.
    #[inline(always)]
    fn next(&mut self, packets: &mut Packets, now: Nanos) -> Result<Held, Next> {
        let id = self.inner.dequeue_one(packets, now)?;
        let meta = packets.meta(id);
        let len = Bytes::from(meta.len);
        Ok(Held { id, len, cost: self.overhead.cost(len), edt: meta.edt })
    }

    /// Moves granted packets into `out`, while there is room.
    #[inline]
    pub(super) fn release<M: Meter + ?Sized>(
        &mut self,
        meter: &mut M,
        packets: &mut Packets,
        now: Nanos,
        out: &mut impl Sink,
    ) -> Next {
        let mut sent = Backlog::default();
        // In registers while the batch lasts.
        let mut held = self.held.take();
        let next = loop {
            if !out.has_room() {
                break Next::Now;
            }
            let packet = match held {
                Some(packet) => packet,
                None => match self.next(packets, now) {
                    Ok(packet) => packet,
                    Err(next) => break next,
                },
            };
            let edt = if self.unstamped == 0 { packet.edt } else { Nanos::ZERO };
            match meter.take(packet.cost, edt, now) {
                Take::Granted => {
                    held = None;
                    if self.unstamped != 0 {
                        self.unstamped -= 1;
                    }
                    sent.packets += 1;
                    sent.bytes.0 += packet.len.0;
                    out.push(packet.id);
                }
                Take::Wait(at) => {
                    held = Some(packet);
                    break Next::At(at);
                }
            }
        };
        self.held = held;
        self.stats.sent_packets += u64::from(sent.packets);
        self.stats.sent_bytes += sent.bytes.0;
        if next != Next::Now {
            let queued = self.backlog().packets;
            if held.is_some() {
                self.overlimits.refused(&mut self.stats, queued);
            } else {
                self.overlimits.passed(&mut self.stats, queued);
            }
        }
        next
    }

    /// A parent has taken a packet and may not take the next one yet.
    pub(super) fn gave_one(&mut self) {
        let queued = self.backlog().packets;
        self.overlimits.passed(&mut self.stats, queued);
    }

    /// Whether the inner qdisc only drops arrivals, never queued packets.
    #[inline]
    pub(super) fn drops_only_arrivals(&self) -> bool {
        self.inner.drops_only_arrivals()
    }

    /// Departures and backlog.
    #[inline]
    pub(super) fn accepted(&self) -> Passed {
        let Backlog { packets, bytes } = self.backlog();
        Passed {
            packets: self.stats.sent_packets + u64::from(packets),
            bytes: self.stats.sent_bytes + bytes.0,
        }
    }

    /// The charge of packets that were dropped together; slightly less if they are several.
    pub(super) fn cost_of(&self, lost: Passed) -> Bytes {
        let bytes = Bytes(lost.bytes);
        if lost.packets == 1 { self.overhead.cost(bytes) } else { bytes }
    }

    /// The stamp of the packet that leaves next, if one is held.
    pub(super) fn held_edt(&self) -> Option<Nanos> {
        self.held.map(|held| held.edt)
    }

    /// When to ask again if the held packet may leave at `at`. A stamped one at that time: with
    /// stamps there is no bucket that would keep credit meanwhile.
    #[inline]
    pub(super) fn when(&self, at: Nanos, coalescing: &Coalescing) -> Nanos {
        match self.held {
            Some(held) if held.edt == Nanos::ZERO => {
                coalescing.until(at, held.cost, self.backlog().bytes - held.len)
            }
            _ => at,
        }
    }

    /// Changes the charge of frames from now on.
    pub(super) fn reweigh(&mut self, overhead: Overhead) {
        self.overhead = overhead;
        if let Some(held) = &mut self.held {
            held.cost = overhead.cost(held.len);
        }
    }

    /// Charges the backlog as if all packets had the same length.
    pub(super) fn cost(&self) -> Bytes {
        cost_of_alike(&self.overhead, self.backlog())
    }

    /// The meter was replaced. The new one has stamped none of the queued packets.
    pub(super) fn forget_stamps(&mut self) {
        self.unstamped = self.backlog().packets;
    }

    /// Applies `spec` to the inner qdisc. The held packet stays the next, and the others keep their
    /// stamps.
    pub(super) fn take_over(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        if self.inner.take_over(spec, handover) {
            self.inherited = self.held.map(|held| held.len);
        }
    }

    /// Queues a packet from another qdisc, behind all others.
    pub(super) fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.overlimits.adopted();
        self.inner_mut().adopt(packets, id, now);
    }

    pub(super) fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = match self.held.take() {
            Some(held) => held.id,
            None => self.inner_mut().drain(packets)?,
        };
        self.unstamped = self.unstamped.saturating_sub(1);
        Some(id)
    }

    /// The flows of the inner qdisc.
    pub(super) fn flows(&self) -> Option<u32> {
        self.inner.qdisc().flows()
    }

    /// The figures of the `tbf` and of what is below it.
    pub(super) fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        let mut own = Stats { backlog: self.backlog(), ..self.stats.clone() };
        above.restate(&mut own);
        into.push(own);
        let held = self.held.map(|held| held.len);
        self.inner.stats_below(above.and(self.inherited, held), into);
    }
}
