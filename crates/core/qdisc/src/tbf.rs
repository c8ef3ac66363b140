//! `tbf`: a queue that leaves no faster than a token bucket lets it.
//!
//! Packets wait in a qdisc of their own (the inner one, a FIFO unless the operator says
//! otherwise). The one that leaves next is taken out of it and held until a [`Meter`] grants
//! it: the qdisc's own [`Bucket`], or a meter at a limit that several workers keep together.
//! The shaper itself does not know the difference.
//!
//! *The limit is the port's.* A queue holds at most its share of the limit ([`Meter::share`]), so
//! the sum over all workers is the configured limit. A part may become arbitrarily small, so
//! [`LEAST_QUEUE`] packets are always taken while they fit the whole. It holds in addition to the
//! inner qdisc's own limit.
//!
//! *Nothing is ever stuck.* A packet that costs more than the bucket can ever hold is dropped
//! on arrival. One that was queued before the bucket shrank leaves when the bucket is full,
//! into debt.
//!
//! *Stamps.* A strategy that decides at arrival writes its decision into the packet. If the inner
//! qdisc then drops a packet, on arrival or later, it tells the strategy ([`Meter::unstamp`]).
//! Packets that come from elsewhere (adopted, or queued when the meter was exchanged) carry no
//! stamp of this meter; an earliest departure time of zero marks them.
//!
//! Source: `tc-tbf(8)`; differs from the kernel's in that a limit can belong to many queues.
//!
//! Cost: on arrival a price and two comparisons, at departure the meter's; the inner qdisc is
//! called once each way. Nothing is allocated. Counted, from arrival to departure over a
//! `pfifo` and with a bucket of its own: 178 instructions per packet, to which a shared meter adds
//! 50 (`equal`) to 100 (`edt`); `instruction-count` in the `bench` crate holds it there.
//!
//! Non-goals: dropping from the head, segmentation of frames that are too long (frames are as on
//! the wire), two stamping meters one above the other.

use crate::bucket::{Bucket, Shape};
use crate::coalescing::Coalescing;
use crate::inner::Inner;
use crate::sink::Sink;
use crate::{Above, Handover, Meter, Metering, Next, Qdisc, Share, Spec, Stats, Verdict};
use narrows_packet::{Backlog, Batch, DropReason, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use queue::Queue;

mod queue;

/// Packets that a queue may always hold while they fit the whole limit, however small its
/// share: the held packet, one behind it so that the queue does not look idle whenever the held one
/// leaves, and two more because TCP sends in pairs (an ACK for every second segment).
pub const LEAST_QUEUE: u32 = 4;

/// Parameters of a token bucket filter, see `tc-tbf(8)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The rate that is kept on average.
    pub rate: Rate,
    /// How much may leave at once after a pause (`burst`), as charged.
    pub burst: Bytes,
    /// How much may be queued, for the whole limit: a queue gets its [`crate::Share`] of it.
    pub limit: Bytes,
    /// The rate that is never exceeded, not even by the burst, and the size of its bucket.
    pub peak: Option<Peak>,
    /// The charge of a frame.
    pub overhead: Overhead,
}

impl Config {
    /// The bucket that keeps to these parameters.
    pub fn shape(&self) -> Shape {
        Shape { rate: self.rate, burst: self.burst, peak: self.peak }
    }
}

/// `peakrate` and `mtu`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peak {
    /// The rate that is never exceeded.
    pub rate: Rate,
    /// The size of its bucket; packets that are charged more can never leave.
    pub mtu: Bytes,
}

/// What keeps the rate.
enum Limiter {
    /// A limit of one's own.
    Own(Bucket),
    /// A meter at a shared one.
    Shared(Box<dyn Meter>),
}

impl Limiter {
    fn meter(&self) -> &dyn Meter {
        match self {
            Self::Own(bucket) => bucket,
            Self::Shared(meter) => meter.as_ref(),
        }
    }
}

/// A token bucket filter over an inner qdisc.
pub(crate) struct Tbf {
    /// The whole limit.
    limit: Bytes,
    /// This queue's share, as of the last dequeue, and its part of the limit.
    share: Share,
    part: Bytes,
    /// The longest packet that the meter grants, as of the last dequeue.
    longest: Bytes,
    coalescing: Coalescing,
    limiter: Limiter,
    queue: Queue,
}

impl Tbf {
    pub(crate) fn new(config: Config, meter: Option<Box<dyn Meter>>, inner: Spec) -> Self {
        let mut tbf = Self {
            limit: config.limit,
            share: Share::WHOLE,
            part: config.limit,
            longest: Bytes::ZERO,
            coalescing: Coalescing::new(&config.shape()),
            limiter: meter
                .map_or_else(|| Limiter::Own(Bucket::new(config.shape())), Limiter::Shared),
            queue: Queue::new(inner, config.overhead),
        };
        tbf.follow_limit();
        tbf
    }

    /// Reads the meter's parameters, and derives those that depend on them.
    fn follow_limit(&mut self) {
        self.follow_meter();
        self.follow_share();
    }

    /// Caches the meter's sizes, so that arrivals need not call it.
    fn follow_meter(&mut self) {
        let meter = self.limiter.meter();
        let (longest, share) = (meter.longest(), meter.share());
        self.longest = longest;
        if share != self.share {
            self.share = share;
            self.follow_share();
        }
    }

    #[inline(never)]
    fn follow_share(&mut self) {
        self.part = self.share.of(self.limit);
        self.coalescing = self.coalescing.of_bucket(self.limiter.meter().part_of_burst());
    }

    #[inline]
    fn release(&mut self, packets: &mut Packets, now: Nanos, out: &mut impl Sink) -> Next {
        let queue = &mut self.queue;
        let next = match (&mut self.limiter, queue.drops_only_arrivals()) {
            (Limiter::Own(bucket), true) => queue.release(bucket, packets, now, out),
            (Limiter::Own(bucket), false) => release_some(queue, bucket, packets, now, out),
            (Limiter::Shared(meter), true) => queue.release(meter.as_mut(), packets, now, out),
            (Limiter::Shared(meter), false) => {
                release_some(queue, meter.as_mut(), packets, now, out)
            }
        };
        // The batch is over: exchanges demands with the siblings.
        if let Limiter::Shared(meter) = &mut self.limiter {
            meter.report(self.queue.backlog(), now);
            self.follow_meter();
        }
        next
    }

    /// On an arrival, the inner qdisc has dropped so many `packets`, worth `cost` and stamped `edt`
    /// at the latest.
    #[cold]
    fn dropped_below(&mut self, packets: u64, cost: Bytes, edt: Nanos, now: Nanos) {
        self.queue.stats.drops += packets;
        let Limiter::Shared(meter) = &mut self.limiter else { return };
        meter.unstamp(cost, edt, now);
        meter.overflowed();
    }

    /// Queues `id`, of `len` bytes and stamped `edt`, if others may be dropped for it.
    #[inline(never)]
    fn push_among(
        &mut self,
        packets: &mut Packets,
        id: PacketId,
        len: Bytes,
        edt: Nanos,
        now: Nanos,
    ) -> Verdict {
        let before = self.queue.accepted().and(len);
        let verdict = self.queue.push(packets, id, now);
        if verdict == Verdict::Dropped {
            let lost = before - self.queue.accepted();
            self.dropped_below(lost.packets, self.queue.cost_of(lost), edt, now);
        }
        verdict
    }

    /// Why a packet is refused, if it is. Out of the usual path.
    #[cold]
    fn refusal(&self, len: Bytes, cost: Bytes) -> Option<DropReason> {
        let backlog = self.queue.backlog();
        if cost > self.longest {
            Some(DropReason::TooLong)
        } else if backlog.packets < LEAST_QUEUE && backlog.bytes + len <= self.limit {
            None
        } else {
            Some(DropReason::Limit)
        }
    }

    #[cold]
    fn discard(&mut self, packets: &mut Packets, id: PacketId, reason: DropReason) -> Verdict {
        self.queue.stats.drops += 1;
        packets.discard(id, reason);
        if reason == DropReason::Limit
            && let Limiter::Shared(meter) = &mut self.limiter
        {
            meter.overflowed();
        }
        Verdict::Dropped
    }
}

impl Qdisc for Tbf {
    fn owe(&mut self, bytes: Bytes, now: Nanos) {
        match &mut self.limiter {
            Limiter::Own(bucket) => bucket.owe(bytes, now),
            Limiter::Shared(meter) => meter.owe(bytes, now),
        }
    }

    fn reading(&self) -> Reading {
        self.queue.inner().reading()
    }

    fn observe_reverse(&mut self, packets: &Packets, ids: &[PacketId], now: Nanos) {
        self.queue.inner_mut().observe_reverse(packets, ids, now);
    }

    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let len = packets.len(id);
        let cost = self.queue.overhead.cost(len);
        if (cost > self.longest || self.queue.backlog().bytes + len > self.part)
            && let Some(reason) = self.refusal(len, cost)
        {
            return self.discard(packets, id, reason);
        }
        let mut stamp = Nanos::ZERO;
        if let Limiter::Shared(meter) = &mut self.limiter {
            let Some(edt) = meter.stamp(cost, now) else {
                return self.discard(packets, id, DropReason::Horizon);
            };
            packets.meta_mut(id).edt = edt;
            stamp = edt;
        }
        if !self.queue.drops_only_arrivals() {
            return self.push_among(packets, id, len, stamp, now);
        }
        let verdict = self.queue.push(packets, id, now);
        if verdict == Verdict::Dropped {
            self.dropped_below(1, cost, stamp, now);
        }
        verdict
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.queue.stats.refuse_all(packets, ids);
        if let Limiter::Shared(meter) = &mut self.limiter {
            // The frames are what limits this queue.
            meter.overflowed();
        }
    }

    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        match self.release(packets, now, out) {
            Next::At(at) => Next::At(self.queue.when(at, &self.coalescing)),
            other => other,
        }
    }

    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        let mut one = None;
        let next = self.release(packets, now, &mut one);
        if one.is_some() {
            self.queue.gave_one();
        }
        one.ok_or(next)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn flows(&self) -> Option<u32> {
        self.queue.flows()
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        self.stats_below(Above::default(), into);
    }

    fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        self.queue.stats_below(above, into);
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let Spec { config: crate::Config::Tbf(config), metering, children, .. } = spec else {
            panic!("a tbf cannot be retuned to {:?}", spec.config)
        };
        self.limit = config.limit;
        self.coalescing = Coalescing::new(&config.shape());
        self.queue.reweigh(config.overhead);
        match (metering, &mut self.limiter) {
            (Metering::Shared(mut meter), _) => {
                meter.take_over(self.queue.cost());
                self.limiter = Limiter::Shared(meter);
                self.queue.forget_stamps();
            }
            (Metering::Own | Metering::Kept, Limiter::Own(bucket)) => {
                bucket.reshape(config.shape(), handover.now);
            }
            (Metering::Kept, Limiter::Shared(_)) => {}
            (Metering::Own, Limiter::Shared(_)) => {
                self.limiter = Limiter::Own(Bucket::new(config.shape()));
                self.queue.forget_stamps();
            }
        }
        let before = self.queue.accepted();
        self.queue.take_over(Inner::of(children, "tbf"), handover);
        let lost = before - self.queue.accepted();
        if lost.packets != 0 {
            // Classes were removed from the inner qdisc, with their packets.
            let edt = self.queue.held_edt().unwrap_or(handover.now);
            let cost = self.queue.cost_of(lost);
            self.dropped_below(lost.packets, cost, edt, handover.now);
        }
        self.follow_limit();
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        self.queue.drain(packets)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        packets.meta_mut(id).edt = Nanos::ZERO;
        if let Limiter::Shared(meter) = &mut self.limiter {
            meter.take_over(self.queue.overhead.cost(packets.len(id)));
        }
        self.queue.adopt(packets, id, now);
    }
}

/// Moves granted packets into `out`, if the inner qdisc may also drop some.
#[inline(never)]
fn release_some(
    queue: &mut Queue,
    meter: &mut dyn Meter,
    packets: &mut Packets,
    now: Nanos,
    out: &mut impl Sink,
) -> Next {
    let before = queue.accepted();
    let next = queue.release(meter, packets, now, out);
    let lost = before - queue.accepted();
    if lost.packets != 0 {
        queue.stats.drops += lost.packets;
        // They were queued before the packet that leaves next.
        let edt = queue.held_edt().unwrap_or(now);
        meter.unstamp(queue.cost_of(lost), edt, now);
    }
    next
}
