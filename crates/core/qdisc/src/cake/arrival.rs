//! A packet arrives: which tin, which flow, and who pays if memory ends.

use super::ack_filter::superfluous;
use super::flow::{Flow, Home, Standing};
use super::load::WHOLE_HOST;
use super::rotation::{Link, Linked};
use super::slab::NONE;
use super::tables::Tables;
use super::tin::Came;
use super::ways::{Found, Known};
use super::{AckFilter, Cake, Isolation};
use crate::Verdict;
use crate::acknowledgements::Acknowledgements;
use narrows_packet::{Bytes32, DropReason, Headers, Meta, PacketId, Packets};
use narrows_units::Nanos;

/// How far a new acknowledgement looks for one that it makes superfluous: a connection's
/// acknowledgements are soon few, but searching for them behind thousands of data packets would
/// cost too much.
const ACK_SEARCH_MAX: usize = 256;

/// Where a packet belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Its flow, or [`NONE`] if that is not known.
    pub(super) flow: u16,
    pub(super) tin: u8,
    /// Whether its flow is in a way other than the one that its hash names.
    pub(super) is_indirect: bool,
}

impl Place {
    pub(super) const UNKNOWN: Self = Self::new(0, Known::NOTHING);

    const fn new(tin: u8, Known { slot, is_indirect }: Known) -> Self {
        Self { flow: slot, tin, is_indirect }
    }
}

impl Cake {
    /// Queues `id`. If memory is short, the packet that is dropped instead usually belongs to
    /// another flow.
    #[inline]
    pub(super) fn arrive(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let place = self.look_up(&packets.headers(id));
        self.arrive_at(place, packets, id, now)
    }

    fn arrive_at(
        &mut self,
        place: Place,
        packets: &mut Packets,
        id: PacketId,
        now: Nanos,
    ) -> Verdict {
        let (meta, headers) = packets.meta_and_headers(id);
        let len = meta.len;
        if let Some(estimator) = &mut self.estimator
            && let Some(rate) = estimator.arrived(len.into(), now)
        {
            self.set_rate(rate, now);
        }
        let charge = self.sizes.charge(len.into(), headers.network_offset);
        if self.limiter.is_too_long(charge) {
            self.stats.drops += 1;
            packets.discard(id, DropReason::TooLong);
            return Verdict::Dropped;
        }
        self.describe(meta, headers, charge);
        self.queue(place, packets, id, len, now);
        if self.memory.is_short() {
            self.relieve(packets, now);
            return Verdict::Dropped;
        }
        Verdict::Queued
    }

    /// Queues `id` regardless of memory.
    pub(super) fn take_in(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        let (meta, headers) = packets.meta_and_headers(id);
        let place = self.look_up(headers);
        let len = meta.len;
        let charge = self.sizes.charge(len.into(), headers.network_offset);
        self.describe(meta, headers, charge);
        Acknowledgements::forget(packets, id);
        self.queue(place, packets, id, len, now);
    }

    /// Records what departure needs to know of a packet.
    #[inline(always)]
    pub(super) fn describe(&self, meta: &mut Meta, headers: &Headers, charge: u32) {
        meta.charge = Bytes32(charge);
        meta.ecn = headers.ecn;
        meta.rewrite.wash(self.config.wash && headers.dscp != 0);
    }

    /// A packet arrives at an empty instance.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.limiter.awake(now);
        self.empty_since = None;
        self.follow_time(now);
    }

    /// The place of a packet, as far as known.
    #[inline]
    fn look_up(&self, headers: &Headers) -> Place {
        let hash = hash_of(self.config.isolation, headers);
        let at = self.scheme.tin(headers);
        let tables = self.tins[at].tables.as_ref();
        let known = tables.map_or(Known::NOTHING, |tables| tables.ways.known(hash));
        Place::new(at as u8, known)
    }

    /// Prefetches the flow of a packet with these `headers`, if it is known. With many instances
    /// neither the flow nor the table that finds it is in the cache, so these misses overlap.
    #[inline]
    pub(super) fn expect_arrival(&self, headers: &Headers) {
        if let Some(flow) = self.flows.get(self.look_up(headers).flow) {
            narrows_cpu::prefetch_all(flow);
        }
    }

    /// Puts `packet`, of `len` bytes, at the end of its flow.
    fn queue(
        &mut self,
        mut place: Place,
        packets: &mut Packets,
        packet: PacketId,
        len: Bytes32,
        now: Nanos,
    ) {
        if self.backlog.is_empty() {
            self.begin(now);
            self.memory.follow_frames(packets);
        }
        self.memory.take(packets.memory_for(len.into()));
        if place.flow == NONE {
            place = self.unknown(place.tin, &packets.headers(packet), now);
        }
        self.append(place, packets, packet, len, now);
        let (at, id) = (usize::from(place.tin), place.flow);
        if self.config.ack_filter != AckFilter::Off {
            self.filter(packets, at, id, packet);
        }
        if self.overflow.is_live() {
            self.overflow.changed(&mut self.flows, id);
        }
    }

    /// Puts `packet`, of `len` bytes, behind all others of its flow, which is known.
    fn append(
        &mut self,
        Place { flow: id, tin, is_indirect }: Place,
        packets: &mut Packets,
        packet: PacketId,
        len: Bytes32,
        now: Nanos,
    ) {
        let at = usize::from(tin);
        let tin = &mut self.tins[at];
        tin.receive(Came { packets: 1, bytes: len.0.into(), longest: len.0 }, now);
        tin.figures.way_indirect_hits += u64::from(is_indirect);
        self.backlog.bytes += len.into();
        self.line_up(at, id, packets, packet, len, now);
    }

    /// Puts `packet` behind all others of its flow, without the tin's counters and the sum of
    /// bytes.
    #[inline(always)]
    pub(super) fn line_up(
        &mut self,
        at: usize,
        id: u16,
        packets: &mut Packets,
        packet: PacketId,
        len: Bytes32,
        now: Nanos,
    ) {
        self.backlog.packets += 1;
        let flow = &mut self.flows[id];
        flow.queue.push_back_of(packets, packet, len.into());
        if flow.standing < Standing::Sparse {
            self.join(at, id, now);
        }
    }

    /// The flow of a packet whose hash was in no way when it was looked up. A new flow is in no
    /// list yet.
    #[inline(never)]
    pub(super) fn unknown(&mut self, tin: u8, headers: &Headers, now: Nanos) -> Place {
        let at = usize::from(tin);
        let isolation = self.config.isolation;
        let has_siblings = self.neighbours.is_some();
        let tin = &mut self.tins[at];
        let window = self.windows.number();
        let tables =
            tin.tables.get_or_insert_with(|| Tables::new(isolation, has_siblings, at, window));
        let (way, found) = tables.ways.find(hash_of(isolation, headers), false);
        let mut slot = tables.ways.slot(way);
        match found {
            Found::Free => {
                tin.figures.way_misses += 1;
                slot = self.new_flow(Home::new(at, way), headers, slot, now);
            }
            Found::Collision => {
                tin.figures.way_collisions += 1;
                self.displaced = slot;
            }
            Found::Direct | Found::Indirect => {}
        }
        Place { flow: slot, tin: at as u8, is_indirect: found == Found::Indirect }
    }

    /// A flow for `home`, which `slot` rests in if it is any.
    fn new_flow(&mut self, home: Home, headers: &Headers, slot: u16, now: Nanos) -> u16 {
        let id = if slot == NONE { self.place(now) } else { self.forget(slot) };
        let isolation = self.config.isolation;
        let tin = &mut self.tins[home.tin()];
        let mut flow = Flow { home, standing: Standing::New, ..Flow::default() };
        if let Some(tables) = &mut tin.tables {
            tables.ways.hold(home.way(), id);
            if let Some(hosts) = &mut tables.sources {
                flow.source = hosts.enter(match isolation {
                    Isolation::Hosts => hash_of(isolation, headers),
                    _ => headers.source,
                });
            }
            if let Some(hosts) = &mut tables.destinations {
                flow.destination = hosts.enter(headers.destination);
            }
        }
        self.flows[id] = flow;
        id
    }

    /// A place for a flow: a free one, or that of the flow that has been idle longest, or a new one
    /// if even that flow is still needed.
    fn place(&mut self, now: Nanos) -> u16 {
        if !self.flows.has_free()
            && let Some(oldest) = self.idle.front()
        {
            let flow = &self.flows[oldest];
            if flow.cobalt.is_at_rest(&self.tins[flow.home.tin()].terms, now) {
                return self.forget(oldest);
            }
        }
        self.flows.take()
    }

    /// Forgets a flow that rests; its place is free for another.
    fn forget(&mut self, id: u16) -> u16 {
        self.displaced = id;
        self.idle.remove(&mut self.flows, id);
        let flow = &self.flows[id];
        let tin = &mut self.tins[flow.home.tin()];
        tin.unresponsive -= u32::from(flow.cobalt.is_unresponsive());
        if let Some(tables) = &mut tin.tables {
            tables.ways.hold(flow.home.way(), NONE);
            if let Some(hosts) = &mut tables.sources {
                hosts.leave(flow.source);
            }
            if let Some(hosts) = &mut tables.destinations {
                hosts.leave(flow.destination);
            }
        }
        id
    }

    /// Puts a flow that got a packet into the rotation.
    #[inline(never)]
    fn join(&mut self, at: usize, id: u16, now: Nanos) {
        match self.flows[id].standing {
            Standing::Sparse | Standing::Bulk => return,
            Standing::SparseWait => {
                let tin = &mut self.tins[at];
                tin.sparse_flows -= 1;
                tin.begin_to_stand(&mut self.flows[id]);
                return;
            }
            Standing::New => {}
            Standing::Idle => self.idle.remove(&mut self.flows, id),
        }
        self.awake(at, id, now);
    }

    #[inline(always)]
    fn awake(&mut self, at: usize, id: u16, now: Nanos) {
        let tin = &mut self.tins[at];
        let flow = &mut self.flows[id];
        if flow.cobalt.is_unresponsive() {
            flow.cobalt.rest(&tin.terms, now);
            tin.unresponsive -= u32::from(!flow.cobalt.is_unresponsive());
        } else {
            flow.cobalt.rest(&tin.terms, now);
        }
        if let Some(tables) = &mut tin.tables {
            tables.ways.set_busy(flow.home.way(), true);
            flow.load = match &self.neighbours {
                None => tables.own_load(flow),
                Some(neighbours) => tables.load(flow, neighbours),
            };
        }
        flow.standing = Standing::Sparse;
        flow.deficit = tin.quantum_of(flow.load).get() as i32;
        *flow.link_mut() = Link::NOBODY;
        if let Some(neighbours) = &mut self.neighbours {
            // The packets of other tins may have used up those tins' weight; this one's is larger.
            if !tin.has_flows() && self.backlog.packets > 1 {
                neighbours.make_due();
            }
            tin.weight += WHOLE_HOST / u64::from(flow.load);
        }
        tin.sparse_flows += 1;
        tin.sparse.append(&mut self.flows, id);
    }

    /// Drops the acknowledgement that `newest`, the last of `flow`, makes superfluous, if there is
    /// one.
    fn filter(&mut self, packets: &mut Packets, at: usize, flow: u16, newest: PacketId) {
        let acknowledgements = self.acknowledgements;
        let queue = &mut self.flows[flow].queue;
        let last = acknowledgements.of(packets, newest);
        if queue.backlog().packets < 2 || last.connection == 0 {
            return;
        }
        let ids = || {
            let behind = |id: &PacketId| queue.behind(packets, *id);
            std::iter::successors(queue.front(), behind).take_while(|id| *id != newest)
        };
        let queued = ids().take(ACK_SEARCH_MAX).map(|id| acknowledgements.of(packets, id));
        // If the search ends early, the packet directly before the newest is unknown.
        let is_whole = queue.backlog().packets as usize <= ACK_SEARCH_MAX + 1;
        let aggressive = self.config.ack_filter == AckFilter::Aggressive && is_whole;
        let Some(place) = superfluous(queued, &last, aggressive) else { return };
        let before = place.checked_sub(1).and_then(|before| ids().nth(before));
        let Some(dropped) = queue.remove_behind(packets, before) else { return };
        self.tins[at].figures.ack_drops += 1;
        self.discard(packets, at, dropped, DropReason::Acknowledged);
    }

    /// Drops from the longest queues until memory suffices.
    #[cold]
    fn relieve(&mut self, packets: &mut Packets, now: Nanos) {
        if !self.overflow.is_live() {
            self.overflow.begin(&mut self.flows);
        }
        self.limiter.overflowed();
        while self.memory.is_short() {
            let Some(longest) = self.overflow.longest() else { return };
            let flow = &mut self.flows[longest];
            let Some(dropped) = flow.queue.pop_front(packets) else { return };
            let at = flow.home.tin();
            let tin = &mut self.tins[at];
            let was_unresponsive = flow.cobalt.is_unresponsive();
            flow.cobalt.overflowed(&tin.terms, now);
            tin.unresponsive += u32::from(!was_unresponsive && flow.cobalt.is_unresponsive());
            tin.figures.drops += 1;
            self.overflow.changed(&mut self.flows, longest);
            self.discard(packets, at, dropped, DropReason::Limit);
        }
    }

    /// Drops `id`, which is no longer in a queue.
    pub(super) fn discard(
        &mut self,
        packets: &mut Packets,
        at: usize,
        id: PacketId,
        reason: DropReason,
    ) {
        self.stats.drops += 1;
        self.gone(packets, at, id);
        packets.discard(id, reason);
    }

    /// `id` has left the backlog.
    #[inline]
    pub(super) fn gone(&mut self, packets: &Packets, at: usize, id: PacketId) {
        let len = packets.len(id);
        self.backlog.packets -= 1;
        self.backlog.bytes.0 -= len.0;
        self.tins[at].backlog.0 -= len.0;
        self.memory.give_back(packets.memory_for(len));
    }
}

/// The hash that identifies a flow.
#[inline]
fn hash_of(isolation: Isolation, headers: &Headers) -> u32 {
    if isolation.tells_flows_apart() {
        return headers.flow;
    }
    match isolation {
        Isolation::Srchost => headers.source,
        Isolation::Dsthost => headers.destination,
        // Asymmetric, because otherwise all hosts that send to themselves would collide.
        Isolation::Hosts => headers.source ^ headers.destination.rotate_left(13),
        _ => 0,
    }
}
