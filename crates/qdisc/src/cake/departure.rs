//! A packet leaves: whose turn it is, whether it may, and whether it is to be dropped instead.

use super::Cake;
use super::cobalt::{Candidate, Fate};
use super::flow::DEFICIT_UNIT;
use super::seat::Seat;
use crate::Next;
use narrows_packet::{DropReason, PacketId, Packets};
use narrows_units::Nanos;

impl Cake {
    /// Takes out the packet that leaves next.
    ///
    /// # Errors
    /// When there will be one.
    #[inline(always)]
    pub(super) fn depart(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        loop {
            let (at, flow, head) = self.choose(now).ok_or(Next::Empty)?;
            let charge = packets.meta(head).charge.0;
            if let Err(when) = self.seat.may_leave(charge, now) {
                self.stats.overlimits += 1;
                return Err(Next::At(when));
            }
            if let Some(packet) = self.send_or_drop(packets, at, flow, now) {
                return Ok(packet);
            }
        }
    }

    /// Takes out the packet that would leave next whatever the rate and however long it stood.
    pub(super) fn drain_one(&mut self, packets: &mut Packets) -> Option<PacketId> {
        // Times are of no matter: nothing is decided by them.
        let now = Nanos::ZERO;
        let (at, flow, _) = self.choose(now)?;
        let packet = self.flows[flow].queue.pop_front(packets)?;
        self.gone(packets, at, packet);
        let charge = packets.meta(packet).charge.0;
        let state = &mut self.flows[flow];
        state.deficit -= charge as i32 * DEFICIT_UNIT;
        if state.deficit <= 0 || state.is_empty() {
            self.end_idle_turn(at, flow, now);
        }
        let meta = packets.meta_mut(packet);
        meta.rewrite.wash = false;
        Some(packet)
    }

    /// The tin and the flow whose turn it is, and the flow's first packet.
    #[inline(always)]
    fn choose(&mut self, now: Nanos) -> Option<(usize, u16, PacketId)> {
        loop {
            let at = self.choose_tin(now)?;
            let Some(id) = self.tins[at].front() else { continue };
            let flow = &self.flows[id];
            match flow.queue.front() {
                Some(head) if flow.deficit > 0 => return Some((at, id, head)),
                _ => self.end_idle_turn(at, id, now),
            }
        }
    }

    /// The tin whose turn it is.
    #[inline(always)]
    fn choose_tin(&mut self, now: Nanos) -> Option<usize> {
        if let [tin] = self.tins.as_slice() {
            return tin.has_flows().then_some(0);
        }
        if matches!(self.seat, Seat::Unlimited) {
            return self.choose_tin_in_turn();
        }
        // The most important of those within their thresholds, or else whoever is so next.
        let mut chosen = None;
        let mut due = Nanos::MAX;
        for (at, tin) in self.tins.iter().enumerate() {
            if tin.has_flows() && (tin.next <= now || tin.next <= due) {
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

    /// Sends the first packet of `flow`, or drops it.
    #[inline(always)]
    fn send_or_drop(
        &mut self,
        packets: &mut Packets,
        at: usize,
        id: u16,
        now: Nanos,
    ) -> Option<PacketId> {
        let tin = &mut self.tins[at];
        tin.approach_next(&self.flows, id, packets);
        let flow = &mut self.flows[id];
        let packet = flow.queue.pop_front(packets)?;
        let meta = packets.meta_mut(packet);
        let charge = meta.charge.0;
        let sojourn = now.since(meta.arrival);
        let candidate = Candidate {
            sojourn,
            can_be_marked: meta.ecn.is_capable(),
            standing: if self.config.ingress { tin.bulk_flows } else { 0 },
            random: if flow.cobalt.is_unresponsive() { self.random.next() } else { 0 },
        };
        let fate = flow.cobalt.judge(&tin.terms, candidate, now);
        if fate == Fate::Mark {
            meta.rewrite.mark = true;
            tin.figures.marks += 1;
        }
        // The last packet of a flow is not dropped: its sender might never hear of it.
        let is_dropped = fate == Fate::Drop && !flow.is_empty();
        if !is_dropped || self.config.ingress {
            flow.deficit -= charge as i32 * DEFICIT_UNIT;
            tin.charge(charge, now, self.scheme.shares.len() > 1);
        }
        if is_dropped {
            tin.figures.drops += 1;
            if self.config.ingress {
                self.seat.dropped(charge);
            }
            self.discard(packets, at, packet, DropReason::Aqm);
        } else {
            tin.delayed(sojourn);
            self.seat.sent(charge, now);
            self.stats.sent_packets += 1;
            self.stats.sent_bytes += packets.len(packet).0;
            self.gone(packets, at, packet);
        }
        if self.overflow.is_live() {
            self.ease(id);
        }
        let flow = &self.flows[id];
        if flow.deficit <= 0 || flow.is_empty() {
            let (idle, neighbours) = (&mut self.idle, &mut self.neighbours);
            self.tins[at].end_turn(&mut self.flows, id, idle, neighbours, now);
        }
        (!is_dropped).then_some(packet)
    }

    /// The flow whose turn it is has nothing to send, or may not.
    #[inline(never)]
    fn end_idle_turn(&mut self, at: usize, id: u16, now: Nanos) {
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
