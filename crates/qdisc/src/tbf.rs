//! `tbf`: a queue that leaves no faster than a token bucket lets it.
//!
//! Packets wait in a qdisc of their own (the inner one, a FIFO unless the operator says
//! otherwise). The one that leaves next is taken out of it and held until a [`Meter`] grants
//! it: the qdisc's own [`Bucket`], or a seat at a limit that several workers keep together.
//! The shaper itself does not know the difference.
//!
//! *The limit is the port's.* A seat queues at most the part of the limit that it may count on
//! ([`Meter::share`]), so that the sum over all workers stays what the operator asked for.
//! A part may become arbitrarily small, so [`LEAST_QUEUE`] packets are always taken while
//! they fit the whole. The limit holds whatever the inner qdisc's own is.
//!
//! *Nothing is ever stuck.* A packet that costs more than the bucket can ever hold is dropped
//! on arrival. One that was queued before the bucket shrank leaves when the bucket is full,
//! into debt.
//!
//! *Stamps.* A strategy that decides at arrival writes its decision into the packet. Packets
//! that come from elsewhere (adopted, or queued when the meter was exchanged) carry none
//! that this meter has made; the meter is told so by an earliest departure time of zero.
//!
//! Source: `tc-tbf(8)`; differs from the kernel's in that a limit can belong to many queues.
//!
//! Cost: on arrival a price and two comparisons, at departure the meter's; the inner qdisc is
//! called once each way. Nothing is allocated.
//!
//! Non-goals: dropping from the head, segmentation of what is too long (frames are what the
//! wire carries), two stamping meters one above the other.

use crate::bucket::{Bucket, Shape};
use crate::{Meter, Next, Qdisc, Share, Spec, Stats, Take, Verdict};
use narrows_packet::{Backlog, Batch, DropReason, PacketId, Packets};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};

/// Packets that a seat may always queue while they fit the whole limit, however small its
/// part: one that is held, one behind it so that the seat does not look idle whenever the held
/// one leaves, and a pair more because TCP sends in pairs (an ACK for every second segment).
pub const LEAST_QUEUE: u32 = 4;

/// Parameters of a token bucket filter, see `tc-tbf(8)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The rate that is kept on average.
    pub rate: Rate,
    /// How much may leave at once after a pause (`burst`), as charged.
    pub burst: Bytes,
    /// How much may be queued, for the whole limit: a seat gets its [`crate::Share`] of it.
    pub limit: Bytes,
    /// The rate that is never exceeded, not even by the burst, and the size of its bucket.
    pub peak: Option<Peak>,
    /// What a frame is charged.
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

/// Who grants.
enum Seat {
    /// A limit of one's own.
    Own(Bucket),
    /// A seat at a shared one.
    Shared(Box<dyn Meter>),
}

impl Seat {
    fn new(config: &Config, meter: Option<Box<dyn Meter>>) -> Self {
        meter.map_or_else(|| Self::Own(Bucket::new(config.shape())), Self::Shared)
    }

    fn meter(&self) -> &dyn Meter {
        match self {
            Self::Own(bucket) => bucket,
            Self::Shared(meter) => meter.as_ref(),
        }
    }

    fn meter_mut(&mut self) -> &mut dyn Meter {
        match self {
            Self::Own(bucket) => bucket,
            Self::Shared(meter) => meter.as_mut(),
        }
    }
}

/// The packet that leaves next, out of the inner qdisc already.
#[derive(Clone, Copy)]
struct Held {
    id: PacketId,
    len: Bytes,
    cost: Bytes,
}

/// A token bucket filter over an inner qdisc.
pub(crate) struct Tbf {
    config: Config,
    seat: Seat,
    inner: Box<dyn Qdisc>,
    /// Where the inner qdisc puts the next packet.
    slot: Batch,
    held: Option<Held>,
    /// Packets at the head of the queue whose stamps are not this meter's.
    unstamped: u32,
    /// This seat's part of the limit, as of the last dequeue.
    part: Bytes,
    /// The longest packet that the meter grants, as of the last dequeue.
    longest: Bytes,
    /// All but the backlog.
    stats: Stats,
}

impl Tbf {
    pub(crate) fn new(
        config: Config,
        meter: Option<Box<dyn Meter>>,
        inner: Box<dyn Qdisc>,
    ) -> Self {
        let mut tbf = Self {
            seat: Seat::new(&config, meter),
            config,
            inner,
            slot: Batch::new(1),
            held: None,
            unstamped: 0,
            part: Bytes::ZERO,
            longest: Bytes::ZERO,
            stats: Stats::default(),
        };
        tbf.follow_meter();
        tbf
    }

    /// Looks up what the meter says of sizes, so that arrivals need not ask it.
    fn follow_meter(&mut self) {
        let meter = self.seat.meter();
        self.longest = meter.longest();
        let share = meter.share();
        self.part =
            if share == Share::WHOLE { self.config.limit } else { share.of(self.config.limit) };
    }

    fn has_room_for(&self, len: Bytes) -> bool {
        let backlog = self.backlog();
        let after = backlog.bytes + len;
        after <= self.part || (backlog.packets < LEAST_QUEUE && after <= self.config.limit)
    }

    fn discard(&mut self, packets: &mut Packets, id: PacketId, reason: DropReason) -> Verdict {
        self.stats.drops += 1;
        packets.discard(id, reason);
        Verdict::Dropped
    }

    /// Takes the next packet out of the inner qdisc, or says when there will be one.
    fn hold(&mut self, packets: &mut Packets, now: Nanos) -> Result<Held, Next> {
        let next = self.inner.dequeue(packets, now, &mut self.slot);
        let Some(&id) = self.slot.as_slice().first() else { return Err(next) };
        self.slot.clear();
        let len = packets.len(id);
        let held = Held { id, len, cost: self.config.overhead.cost(len) };
        self.held = Some(held);
        Ok(held)
    }

    fn let_go(&mut self) {
        self.held = None;
        self.unstamped = self.unstamped.saturating_sub(1);
    }
}

impl Qdisc for Tbf {
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let len = packets.len(id);
        let cost = self.config.overhead.cost(len);
        if cost > self.longest {
            return self.discard(packets, id, DropReason::TooLong);
        }
        if !self.has_room_for(len) {
            return self.discard(packets, id, DropReason::Limit);
        }
        if let Seat::Shared(meter) = &mut self.seat {
            let Some(edt) = meter.stamp(cost, now) else {
                return self.discard(packets, id, DropReason::Horizon);
            };
            packets.meta_mut(id).edt = edt;
        }
        let verdict = self.inner.enqueue(packets, id, now);
        if verdict == Verdict::Dropped {
            self.stats.drops += 1;
        }
        verdict
    }

    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        let next = loop {
            if !out.has_room() {
                break Next::Now;
            }
            let held = match self.held {
                Some(held) => held,
                None => match self.hold(packets, now) {
                    Ok(held) => held,
                    Err(next) => break next,
                },
            };
            let edt = if self.unstamped == 0 { packets.meta(held.id).edt } else { Nanos::ZERO };
            match self.seat.meter_mut().take(held.cost, edt, now) {
                Take::Granted => {
                    self.let_go();
                    self.stats.sent_packets += 1;
                    self.stats.sent_bytes += held.len.0;
                    out.push(held.id);
                }
                Take::Wait(at) => {
                    self.stats.overlimits += 1;
                    break Next::At(at);
                }
            }
        };
        let backlog = self.backlog();
        if let Seat::Shared(meter) = &mut self.seat {
            meter.report(backlog, now);
            self.follow_meter();
        }
        next
    }

    fn backlog(&self) -> Backlog {
        let mut backlog = self.inner.backlog();
        if let Some(held) = self.held {
            backlog.packets += 1;
            backlog.bytes += held.len;
        }
        backlog
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        into.push(Stats { backlog: self.backlog(), ..self.stats });
        let child = into.len();
        self.inner.stats(into);
        // The held packet still counts as queued in the inner qdisc, not as sent from it.
        if let (Some(held), Some(child)) = (self.held, into.get_mut(child)) {
            child.sent_packets -= 1;
            child.sent_bytes -= held.len.0;
            child.backlog.packets += 1;
            child.backlog.bytes += held.len;
        }
    }

    fn fits(&self, spec: &Spec) -> bool {
        let [child] = spec.children.as_slice() else { return false };
        matches!(spec.config, crate::Config::Tbf(_)) && self.inner.fits(child)
    }

    fn retune(&mut self, spec: Spec, now: Nanos) {
        assert!(self.fits(&spec), "{:?} does not fit a tbf", spec.config);
        let Spec { config: crate::Config::Tbf(config), meter, mut children } = spec else { return };
        self.config = config;
        if let Some(meter) = meter {
            self.seat = Seat::Shared(meter);
            self.unstamped = self.backlog().packets;
        } else if let Seat::Own(bucket) = &mut self.seat {
            bucket.reshape(config.shape(), now);
        }
        if let Some(held) = &mut self.held {
            held.cost = config.overhead.cost(held.len);
        }
        if let Some(child) = children.pop() {
            self.inner.retune(child, now);
        }
        self.follow_meter();
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = match self.held {
            Some(held) => held.id,
            None => self.inner.drain(packets)?,
        };
        self.let_go();
        Some(id)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        packets.meta_mut(id).edt = Nanos::ZERO;
        self.inner.adopt(packets, id, now);
    }
}
