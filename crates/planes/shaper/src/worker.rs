//! The worker: one queue of each port, on one core.
//!
//! A step receives the packets of each port, enqueues them in the qdisc of the port through which
//! they leave, and sends what that releases. Everything that it touches is its own; the only shared
//! state is behind the meters of its qdiscs. It reads no clock (`now` is an argument, one for the
//! whole step) and does its I/O through [`Io`], so the simulator runs this same code on virtual
//! cores.
//!
//! *Conservation:* for each port where packets leave `received + copied = sent + queued + dropped
//! by reason`, at every moment between two steps. Only a qdisc that duplicates copies.
//!
//! Cost: per step and port a dozen comparisons and two virtual calls; per packet one virtual
//! call to enqueue and what the qdisc and the rings cost.

use crate::filters::Filters;
use crate::io::Io;
use crate::lately::Lately;
use crate::round_trips::RoundTrips;
use crate::{Beyond, Delays, Heaviest, HeaviestReport};
use narrows_classify::{Classification, MemberRates};
use narrows_cpu::probes;
use narrows_forwarding::{PerPort, PortId, PortSet};
use narrows_packet::{
    Backlog, Batch, DropCounters, DropReason, Headers, Meta, Paces, PacketId, Packets, Reading,
    SPARES_MAX,
};
use narrows_qdisc::htb::ClassCount;
use narrows_qdisc::{Handover, Next, Slot, Spec, Stats};
use narrows_roundtrip::Awaited;
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;

/// The most packets that move at once. Long enough to spread a system call thin (at 64 it
/// is some 20 ns per packet), short enough that other ports do not wait long for its
/// turn (64 full frames take 50 us at 15 Gbit/s).
pub const BATCH: usize = 64;

/// How long arrivals may wait unseen because their queue waits for its rate or for its device
/// ([`Pause::listen`]), at most: a quarter of the time in which a million packets per second fill
/// a ring of 2048. The caller of [`Worker::step`] must keep to it.
pub const UNSEEN_MAX: Nanos = Nanos::from_micros(500);

/// The counters of packets that leave, or were to leave, through one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Their frame bytes.
    pub rx_bytes: u64,
    /// Packets handed to the device.
    pub tx_packets: u64,
    /// Their frame bytes.
    pub tx_bytes: u64,
    /// Copies that a qdisc made, or wanted to make: those for which there was no frame are among
    /// the dropped.
    pub copied: u64,
    /// Packets dropped.
    pub drops: DropCounters,
}

impl PathCounters {
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.copied += other.copied;
        self.drops.merge(&other.drops);
    }

    /// Received or copied packets that are unaccounted for when `queued` are in the qdisc: 0, or
    /// there is a bug.
    pub fn unaccounted(&self, queued: u64) -> i64 {
        let accounted = self.tx_packets + queued + self.drops.total();
        (self.rx_packets + self.copied).wrapping_sub(accounted) as i64
    }
}

/// The counters of packets that arrived at one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrived {
    /// Packets.
    pub packets: u64,
    /// Their frame bytes, without those of malformed packets.
    pub bytes: u64,
}

impl Arrived {
    /// Adds `packets` of `bytes` together.
    #[inline]
    pub fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }
}

/// What a step has found so far.
struct Step {
    busy: bool,
    blocked: bool,
    until: Nanos,
    listen: PortSet,
}

/// The way of packets that leave through a port: its qdisc.
struct Path {
    slot: Slot,
    /// The packet fields that its qdisc reads.
    reading: Reading,
    /// The longest packet that came, where its qdisc copies.
    longest: Bytes,
    counters: PathCounters,
    /// The delays of packets that it has sent.
    delays: Delays,
    heaviest: Heaviest,
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// Packets moved, or can move at once: step again.
    Busy,
    /// Nothing to do until the pause is over.
    Idle(Pause),
    /// Nothing to do until the pause is over, but a device has not taken all its packets: look
    /// again soon, within the pause.
    Blocked(Pause),
}

/// When to step a worker again: at a time, or when a packet arrives at a port that it listens to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// When a queued packet may leave; [`Nanos::MAX`] if none waits for a time.
    pub until: Nanos,
    /// The ports where an arrival could leave before that time. If a queue waits for its
    /// rate or for its device it usually could not, and waking up for each arrival would gain
    /// nothing.
    pub listen: PortSet,
}

impl Pause {
    /// Its longest duration from `now` on; `None` if only an arrival ends it.
    pub fn at_most(&self, now: Nanos) -> Option<Nanos> {
        let unseen = if self.listen == PortSet::ALL { Nanos::MAX } else { UNSEEN_MAX };
        let left = if self.until == Nanos::MAX { Nanos::MAX } else { self.until - now };
        Some(left.min(unseen)).filter(|wait| *wait != Nanos::MAX)
    }
}

/// A worker; see the module's documentation.
pub struct Worker<I> {
    io: I,
    packets: Packets,
    /// By the port through which packets leave.
    paths: PerPort<Path>,
    /// By the port where packets arrive.
    arrived: PerPort<Arrived>,
    /// The arrivals by the port through which they leave, where each has one of its own.
    sorted: Option<PerPort<Batch>>,
    /// By the port where packets arrive: where they leave then.
    lately: PerPort<Lately>,
    /// If it measures them.
    round_trips: Option<Box<RoundTrips>>,
    /// Where members of sets have rates, if they do.
    members: Option<Box<dyn MemberRates>>,
    arrivals: Batch,
    departures: Batch,
    dropped: Batch,
    /// What is put aside for copies.
    spare: Batch,
}

impl<I: Io> Worker<I> {
    /// A worker for up to `packets` packets. `qdiscs` are those of the ports, each for packets that
    /// leave there.
    pub fn new(io: I, packets: u32, qdiscs: impl IntoIterator<Item = Slot>) -> Self {
        let mut table = Packets::new(packets).in_frames_of(io.frame()).with_places(io.places());
        let path = |slot: Slot| {
            let reading = slot.qdisc().reading();
            table.prepare(reading);
            let (counters, delays) = (PathCounters::default(), Delays::default());
            let heaviest = Heaviest::default();
            Path { slot, reading, longest: Bytes::ZERO, counters, delays, heaviest }
        };
        let paths: PerPort<Path> = qdiscs.into_iter().map(path).collect();
        table.set_paces(paces(&paths));
        Self {
            io,
            packets: table,
            arrived: paths.iter().map(|_| Arrived::default()).collect(),
            sorted: None,
            lately: paths.iter().map(|_| Lately::default()).collect(),
            paths,
            round_trips: None,
            members: None,
            arrivals: Batch::new(BATCH),
            departures: Batch::new(BATCH),
            dropped: Batch::new(BATCH),
            spare: Batch::new(SPARES_MAX),
        }
    }

    /// This worker, measuring round trips beyond each port, with all workers that share the ports'
    /// `boards` and hash with `key`, which should be random.
    #[must_use]
    pub fn with_round_trips(self, boards: &PerPort<Arc<Awaited>>, key: u64) -> Self {
        Self { round_trips: Some(Box::new(RoundTrips::new(boards, key))), ..self }
    }

    /// This worker, for filters that give packets the rates of `members` of sets.
    #[must_use]
    pub fn with_member_rates(self, members: Box<dyn MemberRates>) -> Self {
        Self { members: Some(members), ..self }
    }

    /// Its I/O.
    pub fn io(&self) -> &I {
        &self.io
    }

    /// Its I/O, to act on.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// This worker for ports where each packet has a port of its own to leave through, as in a
    /// router: [`Io::egress_of`] says which. Otherwise what arrives at a port leaves at its
    /// partner.
    #[must_use]
    pub fn routed(self) -> Self {
        Self { sorted: Some(self.ports().map(|_| Batch::new(BATCH)).collect()), ..self }
    }

    /// Moves at most a batch from each port at `now`.
    #[inline]
    pub fn step(&mut self, now: Nanos) -> Activity {
        let mut step =
            Step { busy: false, blocked: false, until: Nanos::MAX, listen: PortSet::ALL };
        if self.sorted.is_some() {
            self.move_routed(now, &mut step);
        } else {
            for ingress in self.ports() {
                let egress = ingress.partner();
                self.receive(ingress, egress, now, &mut step);
                self.admit(ingress, egress, now);
                if self.depart(egress, ingress, now, &mut step) {
                    step.listen.remove(ingress);
                }
                self.reclaim(egress);
            }
        }
        let pause = Pause { until: step.until, listen: step.listen };
        if step.busy {
            Activity::Busy
        } else if step.blocked || self.io.is_unsent() {
            Activity::Blocked(pause)
        } else {
            Activity::Idle(pause)
        }
    }

    /// Receives at each port, admits the packets where they leave, and sends. It listens to every
    /// port, since what arrives next may leave through any; but not where that is unlikely
    /// ([`Lately`]) and the next departure soon wakes it up.
    #[inline(never)]
    fn move_routed(&mut self, now: Nanos, step: &mut Step) {
        for ingress in self.ports() {
            // Malformed packets leave nowhere: they count where they came.
            self.receive(ingress, ingress, now, step);
            self.sort(ingress);
            for egress in self.ports() {
                let Some(sorted) = &mut self.sorted else { return };
                if sorted[egress].is_empty() {
                    continue;
                }
                std::mem::swap(&mut self.arrivals, &mut sorted[egress]);
                sorted[egress].clear();
                self.lately[ingress].leave_through(egress, now);
                self.admit(ingress, egress, now);
                self.reclaim(egress);
            }
        }
        let mut waiting = PortSet::NONE;
        for egress in self.ports() {
            // Copies are taken from what the port itself receives into.
            if self.depart(egress, egress, now, step) {
                waiting.insert(egress);
            }
            self.reclaim(egress);
        }
        if waiting != PortSet::NONE && step.until - now <= UNSEEN_MAX {
            for ingress in self.ports() {
                if self.lately[ingress].all_leave_through(waiting, now) {
                    step.listen.remove(ingress);
                }
            }
        }
    }

    /// Sorts a router's arrivals at `ingress` by the ports where they leave. One that leaves
    /// nowhere counts where it came.
    #[inline(always)]
    fn sort(&mut self, ingress: PortId) {
        let Some(sorted) = &mut self.sorted else { return };
        // All of them first: a processor waits for several frames at once.
        for &id in self.arrivals.as_slice() {
            self.io.prefetch_egress(id);
        }
        for &id in self.arrivals.as_slice() {
            match self.io.egress_of(ingress, id) {
                Some(egress) => sorted[egress].push(id),
                None => {
                    let len = self.packets.len(id).0;
                    self.arrived[ingress].add(1, len);
                    let counters = &mut self.paths[ingress].counters;
                    counters.rx_packets += 1;
                    counters.rx_bytes += len;
                    self.packets.discard(id, DropReason::Malformed);
                }
            }
        }
        self.reclaim(ingress);
    }

    /// Receives at `ingress`, for `egress` if all leaves there.
    #[inline(always)]
    fn receive(&mut self, ingress: PortId, egress: PortId, now: Nanos, step: &mut Step) {
        self.arrivals.clear();
        self.io.receive(ingress, &mut self.packets, now, &mut self.arrivals);
        step.busy |= !self.arrivals.is_empty();
        // Malformed packets count as received, too.
        let malformed = u64::from(self.packets.unreclaimed());
        self.paths[egress].counters.rx_packets += malformed;
        self.arrived[ingress].packets += malformed;
    }

    /// Classifies the arrivals at `ingress`, and enqueues them at `egress`.
    #[inline(always)]
    fn admit(&mut self, ingress: PortId, egress: PortId, now: Nanos) {
        let (path, opposite) = (&self.paths[egress], &self.paths[ingress]);
        let reading = path.reading.beside(opposite.reading);
        let is_filtered = Filters::of(&opposite.slot, &path.slot).are_any();
        let echoes = opposite.reading.echoes;
        if is_filtered || reading != Reading::NOTHING || self.round_trips.is_some() {
            // All of them first: a processor waits for several frames at once.
            for &id in self.arrivals.as_slice() {
                self.io.prefetch(id);
            }
        }
        if let Some(round_trips) = &mut self.round_trips {
            round_trips.come(ingress, self.arrivals.as_slice(), &self.io, now);
        }
        if reading != Reading::NOTHING {
            for &id in self.arrivals.as_slice() {
                self.io.read(id, reading, &mut self.packets);
            }
            if echoes {
                let opposite = self.paths[ingress].slot.qdisc_mut();
                opposite.observe_reverse(&self.packets, self.arrivals.as_slice(), now);
            }
        }
        let mut bytes = 0;
        for &id in self.arrivals.as_slice() {
            bytes += self.packets.len(id).0;
        }
        let packets = self.arrivals.as_slice().len() as u64;
        self.arrived[ingress].add(packets, bytes);
        let counters = &mut self.paths[egress].counters;
        counters.rx_packets += packets;
        counters.rx_bytes += bytes;
        if is_filtered {
            // First the filters of the port of arrival, then those of the port where they leave.
            if let Some(members) = &mut self.members {
                members.follow();
            }
            let filters = Filters::of(&self.paths[ingress].slot, &self.paths[egress].slot)
                .with_members(self.members.as_deref());
            let (io, packets) = (&self.io, &mut self.packets);
            filters.sort_all(io, packets, &mut self.arrivals, now);
        }
        if self.arrivals.is_empty() {
            return;
        }
        let path = &mut self.paths[egress];
        let arrivals = self.arrivals.as_slice();
        let Some(spare) = self.io.spare_frames(ingress, egress) else {
            path.slot.qdisc_mut().refuse_all(&mut self.packets, arrivals);
            return;
        };
        self.packets.set_spare_frames(spare);
        if path.reading.copies {
            let (io, packets) = (&mut self.io, &mut self.packets);
            let lens = arrivals.iter().map(|id| packets.len(*id));
            path.longest = lens.fold(path.longest, Bytes::max);
            put_aside(io, ingress, path.longest, &mut self.spare, packets);
        }
        for &id in arrivals {
            probes::enqueue(egress.index(), id.0, self.packets.len(id).0);
        }
        path.slot.qdisc_mut().enqueue_all(&mut self.packets, arrivals, now);
        if path.reading.copies {
            finish_copies(&mut self.io, &mut self.spare, &mut self.packets);
        }
    }

    /// Sends what may leave through `egress`; copies of packets are made in frames of `ingress`.
    /// Returns whether no arrival can leave there before something else happens.
    #[inline(always)]
    fn depart(&mut self, egress: PortId, ingress: PortId, now: Nanos, step: &mut Step) -> bool {
        let path = &mut self.paths[egress];
        if let Some(beside) = self.io.beside(egress) {
            let bytes = beside.claim();
            if bytes != Bytes::ZERO {
                path.slot.qdisc_mut().owe(bytes, now);
            }
        }
        self.departures.clear();
        self.departures.limit(self.io.room(egress).min(BATCH));
        if path.reading.copies {
            let (io, packets) = (&mut self.io, &mut self.packets);
            put_aside(io, ingress, path.longest, &mut self.spare, packets);
        }
        let next = path.slot.qdisc_mut().dequeue(&mut self.packets, now, &mut self.departures);
        if path.reading.copies {
            finish_copies(&mut self.io, &mut self.spare, &mut self.packets);
            path.counters.copied += self.packets.take_copied();
            // A copy without a frame has none to be reclaimed.
            path.counters.drops.merge(&self.packets.take_drops());
        }
        for &id in self.departures.as_slice() {
            path.counters.tx_packets += 1;
            let len = self.packets.meta(id).len.0;
            let delay = now - self.packets.meta(id).arrival;
            path.counters.tx_bytes += u64::from(len);
            path.delays.record(delay);
            probes::dequeue(egress.index(), id.0, len, delay.0);
            if path.heaviest.is_due(len) {
                path.heaviest.look(self.io.bytes(id), len, delay, now);
            }
        }
        if let Some(round_trips) = &mut self.round_trips {
            let departures = self.departures.as_slice();
            round_trips.leave(egress, departures, &self.packets, &self.io, now);
        }
        self.io.transmit(egress, &self.packets, &self.departures);
        if let Some(beside) = self.io.beside(egress)
            && !path.slot.qdisc().backlog().is_empty()
        {
            beside.waits(now);
        }
        match next {
            Next::Empty => false,
            Next::At(time) => {
                step.until = step.until.min(time);
                true
            }
            Next::Held(time) => {
                step.until = step.until.min(time);
                false
            }
            Next::Now if self.departures.is_empty() => {
                step.blocked = true;
                true
            }
            Next::Now => {
                step.busy = true;
                false
            }
        }
    }

    /// Applies `spec` to the qdisc of `egress`, see [`Slot::take_over`]. Queued packets stay
    /// queued, in order. The delays of another qdisc are counted from here on.
    pub fn update(&mut self, egress: PortId, spec: Spec, now: Nanos) {
        let path = &mut self.paths[egress];
        if path.slot.is_replaced_by(&spec) {
            path.delays = Delays::default();
        }
        let io = &self.io;
        let classification = spec.classification.clone();
        let has_headers = path.reading.headers;
        let mut read = |id, reading, packets: &mut Packets| {
            let pace = packets.headers(id).pace;
            io.read(id, reading, packets);
            if has_headers {
                packets.headers_mut(id).pace = pace;
            }
            if let Some(classification) = &classification {
                // Its actions ran on arrival.
                path_of(classification, io, id).write(packets.meta_mut(id));
            }
        };
        let handover = Handover::new(&mut self.packets, now);
        path.slot.take_over(spec, &mut handover.reading(path.reading, &mut read));
        path.reading = path.slot.qdisc().reading();
        self.packets.prepare(path.reading);
        self.packets.set_paces(paces(&self.paths));
        self.reclaim(egress);
    }

    /// Takes out all packets queued for `egress`, in the order in which they would leave. The
    /// packets and their frames belong to the caller until they are [taken
    /// back](Worker::take_back).
    pub fn take_out(&mut self, egress: PortId) -> Vec<PacketId> {
        let path = &mut self.paths[egress];
        std::iter::from_fn(|| path.slot.qdisc_mut().drain(&mut self.packets)).collect()
    }

    /// Queues the [taken out](Worker::take_out) packets again, in order, regardless of the limit.
    pub fn take_back(&mut self, egress: PortId, ids: &[PacketId], now: Nanos) {
        let path = &mut self.paths[egress];
        for &id in ids {
            path.slot.qdisc_mut().adopt(&mut self.packets, id, now);
        }
        self.reclaim(egress);
    }

    /// Queues a packet for `egress` that another process received at `arrival`: behind all others,
    /// regardless of the limit. It counts as queued, not as received.
    pub fn adopt(&mut self, egress: PortId, id: PacketId, len: u32, arrival: Nanos, now: Nanos) {
        let path = &mut self.paths[egress];
        self.packets.arrive(id, len, arrival);
        path.longest = path.longest.max(Bytes(u64::from(len)));
        self.packets.set_headers(id, Headers::default());
        if path.reading != Reading::NOTHING {
            self.io.read(id, path.reading, &mut self.packets);
        }
        if let Some(classification) = path.slot.classification() {
            path_of(classification, &self.io, id).write(self.packets.meta_mut(id));
        }
        // Where it came in a router nobody knows any more.
        let filters = match self.sorted {
            None => Filters::of(&self.paths[egress.partner()].slot, &self.paths[egress].slot),
            Some(_) => Filters::behind(&self.paths[egress].slot),
        };
        if filters.are_any() {
            let filters = filters.with_members(self.members.as_deref());
            let pace = filters.pace_again(&self.io, &self.packets, id);
            self.packets.headers_mut(id).pace = pace;
        }
        self.paths[egress].slot.qdisc_mut().adopt(&mut self.packets, id, now);
    }

    /// The metadata of `id`, which was [taken out](Worker::take_out).
    pub fn meta(&self, id: PacketId) -> &Meta {
        self.packets.meta(id)
    }

    /// Gives up everything that is queued, for `reason`.
    pub fn abandon(&mut self, reason: DropReason) {
        for egress in self.ports() {
            while let Some(id) = self.paths[egress].slot.qdisc_mut().drain(&mut self.packets) {
                self.packets.discard(id, reason);
            }
            self.reclaim(egress);
        }
    }

    /// Drops waiting arrivals, at most a batch at each port, for `reason`. Returns whether there
    /// were any.
    pub fn refuse(&mut self, reason: DropReason, now: Nanos) -> bool {
        let mut any = false;
        for ingress in self.ports() {
            let partner = if self.sorted.is_some() { ingress } else { ingress.partner() };
            self.arrivals.clear();
            self.io.receive(ingress, &mut self.packets, now, &mut self.arrivals);
            // Malformed packets count as received, too.
            let malformed = u64::from(self.packets.unreclaimed());
            self.paths[partner].counters.rx_packets += malformed;
            self.arrived[ingress].packets += malformed;
            any |= malformed > 0 || !self.arrivals.is_empty();
            self.sort(ingress);
            for egress in self.ports() {
                // In a router each counts where it would have left.
                match &mut self.sorted {
                    Some(sorted) => {
                        std::mem::swap(&mut self.arrivals, &mut sorted[egress]);
                        sorted[egress].clear();
                    }
                    None if egress != partner => continue,
                    None => {}
                }
                self.discard_arrivals(ingress, egress, reason);
            }
        }
        any
    }

    /// Drops the arrivals at `ingress` that were to leave at `egress`.
    fn discard_arrivals(&mut self, ingress: PortId, egress: PortId, reason: DropReason) {
        for &id in self.arrivals.as_slice() {
            let len = self.packets.len(id).0;
            let counters = &mut self.paths[egress].counters;
            counters.rx_packets += 1;
            counters.rx_bytes += len;
            self.arrived[ingress].add(1, len);
            self.packets.discard(id, reason);
        }
        self.reclaim(egress);
    }

    /// The numbers of its ports.
    #[inline]
    pub fn ports(&self) -> impl DoubleEndedIterator<Item = PortId> + ExactSizeIterator + use<I> {
        PortId::first(self.paths.len())
    }

    /// The counters of packets that arrived at `ingress`.
    pub fn arrived(&self, ingress: PortId) -> Arrived {
        self.arrived[ingress]
    }

    /// The counters of packets that leave through `egress`.
    pub fn counters(&self, egress: PortId) -> PathCounters {
        self.paths[egress].counters
    }

    /// The delays of packets that left through `egress`.
    pub fn delays(&self, egress: PortId) -> &Delays {
        &self.paths[egress].delays
    }

    /// The heaviest hosts and flows through `egress` in the last window that is complete at `now`.
    pub fn heaviest(&self, egress: PortId, now: Nanos) -> HeaviestReport {
        self.paths[egress].heaviest.report(now)
    }

    /// The measurements beyond `port` at `now`, if enabled.
    pub fn beyond(&self, port: PortId, now: Nanos) -> Option<Beyond> {
        self.round_trips.as_ref().map(|round_trips| round_trips.beyond(port, now))
    }

    /// The backlog of `egress`.
    pub fn backlog(&self, egress: PortId) -> Backlog {
        self.paths[egress].slot.qdisc().backlog()
    }

    /// The figures of the qdiscs of `egress`, depth first.
    pub fn qdisc_stats(&self, egress: PortId) -> Vec<Stats> {
        let mut stats = Vec::new();
        self.paths[egress].slot.stats(&mut stats);
        stats
    }

    /// What the leaf classes of `egress` have sent, hold and dropped, if its root is a tree.
    pub fn class_counts(&self, egress: PortId) -> Vec<ClassCount> {
        let mut counts = Vec::new();
        self.paths[egress].slot.qdisc().class_counts(&mut counts);
        counts
    }

    /// Counts the packets dropped on their way to `egress` and gives their frames back.
    fn reclaim(&mut self, egress: PortId) {
        if self.packets.unreclaimed() == 0 {
            return;
        }
        self.paths[egress].counters.drops.merge(&self.packets.take_drops());
        while self.packets.unreclaimed() > 0 {
            self.dropped.clear();
            self.packets.reclaim(&mut self.dropped);
            self.io.release(&self.dropped);
        }
    }
}

/// The rates that filters give: all ports of an instance have the same actions.
fn paces(paths: &PerPort<Path>) -> Paces {
    paths.iter().find_map(|path| path.slot.paces()).cloned().unwrap_or_default()
}

/// The classes of a packet by filters alone, by the route that it takes if one asks for that.
fn path_of(classification: &Classification, io: &impl Io, id: PacketId) -> narrows_classify::Path {
    let route = classification.asks_route().then(|| io.route_of(id)).flatten();
    classification.path(io.bytes(id), route)
}

/// Puts frames aside for copies of packets that arrived at `ingress`, `longest` bytes at most.
#[cold]
fn put_aside<I: Io>(
    io: &mut I,
    ingress: PortId,
    longest: Bytes,
    spare: &mut Batch,
    packets: &mut Packets,
) {
    spare.clear();
    io.put_aside(ingress, longest, spare);
    packets.put_aside(spare.as_slice(), longest);
}

/// Copies the bytes of the copies that were made, and gives back what was put aside for others.
#[cold]
fn finish_copies<I: Io>(io: &mut I, spare: &mut Batch, packets: &mut Packets) {
    packets.copies().for_each(|(from, to)| io.copy(from, to));
    spare.clear();
    packets.take_aside(spare);
    io.release(spare);
}
