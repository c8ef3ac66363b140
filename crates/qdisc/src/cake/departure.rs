//! A packet leaves: whose turn it is, whether it may, and whether it is to be dropped instead.

use super::cobalt::{Candidate, Fate};
use super::flow::{DEFICIT_UNIT, Flow};
use super::seat::Seat;
use super::tin::Tin;
use super::{Cake, Random};
use crate::Next;
use narrows_packet::{Backlog, DropReason, Meta, PacketId, Packets};
use narrows_units::{Bytes, Nanos};

impl Cake {
    /// Hands what leaves to `send` until that wants no more, and says when there will be more.
    #[inline(always)]
    pub(super) fn depart(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        send: impl FnMut(PacketId) -> bool,
    ) -> Next {
        let mut left = Backlog::default();
        let next = self.depart_some(packets, now, send, &mut left);
        self.backlog.packets -= left.packets;
        self.backlog.bytes.0 -= left.bytes.0;
        self.stats.sent_packets += u64::from(left.packets);
        self.stats.sent_bytes += left.bytes.0;
        next
    }

    /// The same, but for what is counted of all that has `left` together.
    #[inline(always)]
    fn depart_some(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        mut send: impl FnMut(PacketId) -> bool,
        left: &mut Backlog,
    ) -> Next {
        loop {
            let Some(at) = self.choose_tin(now) else { return Next::Empty };
            let tin = &mut self.tins[at];
            let Some(id) = tin.front() else { return Next::Empty };
            let flow = &mut self.flows[id];
            let first = flow.queue.front();
            let (Some(packet), true) = (first, flow.deficit > 0) else {
                self.end_turn(at, id, now);
                continue;
            };
            Tin::approach_next(&self.flows, id, packets);
            let meta = packets.meta_mut(packet);
            let charge = meta.charge.0;
            if let Err(when) = self.seat.may_leave(charge, now) {
                self.stats.overlimits += 1;
                return Next::At(when);
            }
            let sojourn = now.since(meta.arrival);
            let flow = &mut self.flows[id];
            if !flow.cobalt.is_at_ease(&tin.terms, sojourn) {
                let standing = self.config.ingress.then_some(tin.bulk_flows);
                if is_to_be_dropped(tin, flow, meta, standing, &mut self.random, now) {
                    self.drop_first(packets, at, id, packet, now);
                    continue;
                }
            }
            let len = Bytes::from(meta.len);
            flow.queue.take_front(meta);
            flow.deficit -= charge as i32 * DEFICIT_UNIT;
            tin.charge(charge, now, self.scheme.shares.len() > 1);
            tin.delayed(sojourn);
            tin.backlog.0 -= len.0;
            self.seat.sent(charge, now);
            left.packets += 1;
            left.bytes.0 += len.0;
            self.memory.give_back(packets.memory_for(len));
            let wants_more = send(packet);
            if self.overflow.is_live() {
                self.ease(id);
                self.end_turn_if_over(at, id, now);
            } else if flow.deficit <= 0 || flow.is_empty() {
                let (idle, neighbours) = (&mut self.idle, &mut self.neighbours);
                tin.end_turn(&mut self.flows, id, idle, neighbours, now);
            }
            if !wants_more {
                return Next::Now;
            }
        }
    }

    /// Takes out the packet that would leave next whatever the rate and however long it stood.
    pub(super) fn drain_one(&mut self, packets: &mut Packets) -> Option<PacketId> {
        // Times are of no matter: nothing is decided by them.
        let now = Nanos::ZERO;
        let (at, flow) = self.choose(now)?;
        let packet = self.flows[flow].queue.pop_front(packets)?;
        self.gone(packets, at, packet);
        let charge = packets.meta(packet).charge.0;
        let state = &mut self.flows[flow];
        state.deficit -= charge as i32 * DEFICIT_UNIT;
        if state.deficit <= 0 || state.is_empty() {
            self.end_turn(at, flow, now);
        }
        let meta = packets.meta_mut(packet);
        meta.rewrite.wash = false;
        Some(packet)
    }

    /// The tin and the flow whose turn it is, past all that may not send.
    fn choose(&mut self, now: Nanos) -> Option<(usize, u16)> {
        loop {
            let at = self.choose_tin(now)?;
            let id = self.tins[at].front()?;
            let flow = &self.flows[id];
            if flow.deficit > 0 && !flow.is_empty() {
                return Some((at, id));
            }
            self.end_turn(at, id, now);
        }
    }

    /// The tin whose turn it is. Where there is only one, it may have no flows.
    #[inline(always)]
    fn choose_tin(&mut self, now: Nanos) -> Option<usize> {
        if self.tins.len() == 1 {
            return Some(0);
        }
        if matches!(self.seat, Seat::Unlimited) {
            return self.choose_tin_in_turn();
        }
        // The most important of those within their thresholds, or else whoever is so next.
        let mut chosen = None;
        let mut due = Nanos::MAX;
        for (at, tin) in self.tins.iter().enumerate() {
            if tin.has_flows() & (tin.next <= due.max(now)) {
                (chosen, due) = (Some(at), tin.next);
            }
        }
        chosen
    }

    /// Without a rate there are no thresholds to be within: deficit round robin.
    fn choose_tin_in_turn(&mut self) -> Option<usize> {
        if !self.tins.iter().any(super::Tin::has_flows) {
            return None;
        }
        loop {
            let at = self.turn;
            let tin = &mut self.tins[at];
            if tin.has_flows() {
                if tin.deficit > 0 {
                    return Some(at);
                }
                tin.deficit += i64::from(tin.quantum);
            }
            self.turn = (at + 1) % self.tins.len();
        }
    }

    /// Drops `packet`, the first of `id`.
    #[cold]
    fn drop_first(
        &mut self,
        packets: &mut Packets,
        at: usize,
        id: u16,
        packet: PacketId,
        now: Nanos,
    ) {
        let (tin, flow) = (&mut self.tins[at], &mut self.flows[id]);
        let charge = packets.meta(packet).charge.0;
        flow.queue.pop_front(packets);
        tin.figures.drops += 1;
        if self.config.ingress {
            flow.deficit -= charge as i32 * DEFICIT_UNIT;
            tin.charge(charge, now, self.scheme.shares.len() > 1);
            self.seat.dropped(charge);
        }
        self.discard(packets, at, packet, DropReason::Aqm);
        if self.overflow.is_live() {
            self.ease(id);
        }
        self.end_turn_if_over(at, id, now);
    }

    /// The flow whose turn it is has one packet less.
    fn end_turn_if_over(&mut self, at: usize, id: u16, now: Nanos) {
        let flow = &self.flows[id];
        if flow.deficit <= 0 || flow.is_empty() {
            self.end_turn(at, id, now);
        }
    }

    /// The flow whose turn it is has nothing to send, or may not.
    #[inline(never)]
    fn end_turn(&mut self, at: usize, id: u16, now: Nanos) {
        let (idle, neighbours) = (&mut self.idle, &mut self.neighbours);
        self.tins[at].end_turn(&mut self.flows, id, idle, neighbours, now);
    }

    /// Keeps up the heap of the longest, or forgets it where memory is no longer short.
    #[cold]
    fn ease(&mut self, id: u16) {
        if self.memory.is_relieved() {
            self.overflow.end(&mut self.flows);
        } else {
            self.overflow.changed(&mut self.flows, id);
        }
    }

    /// There are no packets at `now`: gives memory back once that has been so for a while.
    #[inline]
    pub(super) fn rest(&mut self, now: Nanos) {
        match self.empty_since {
            None => self.empty_since = Some(now),
            Some(since) if now.since(since) > super::REST && self.flows.memory() != 0 => {
                self.shrink();
            }
            Some(_) => {}
        }
    }
}

/// Asks queue management about the first packet of `flow`, which is about to leave, and marks it if
/// it says so. `standing` are the flows that stand, where what is dropped counts as sent.
#[inline(never)]
fn is_to_be_dropped(
    tin: &mut Tin,
    flow: &mut Flow,
    meta: &mut Meta,
    standing: Option<u32>,
    random: &mut Random,
    now: Nanos,
) -> bool {
    let candidate = Candidate {
        sojourn: now.since(meta.arrival),
        can_be_marked: meta.ecn.is_capable(),
        standing: standing.unwrap_or(0),
        random: if flow.cobalt.is_unresponsive() { random.next() } else { 0 },
    };
    match flow.cobalt.judge(&tin.terms, candidate, now) {
        Fate::Send => false,
        Fate::Mark => {
            meta.rewrite.mark = true;
            tin.figures.marks += 1;
            false
        }
        // The last packet of a flow is not dropped: its sender might never hear of it.
        Fate::Drop => flow.queue.backlog().packets > 1,
    }
}
