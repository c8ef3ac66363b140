//! Departure: which packet is next, whether it may leave, and whether to drop it instead.

use super::cobalt::{Candidate, Fate};
use super::flow::{DEFICIT_UNIT, Flow, Standing};
use super::limiter::Limiter;
use super::rotation::Linked;
use super::tin::Tin;
use super::{Cake, Random};
use crate::{Next, TINS_MAX};
use narrows_packet::{DropReason, Meta, PacketId, Packets};
use narrows_units::{Bytes, Nanos};

/// What has left in a batch, and is not yet counted.
#[derive(Default)]
struct Left {
    packets: usize,
    bytes: u64,
    /// Memory beyond a frame for each.
    beyond: Bytes,
}

impl Left {
    /// The freed memory, if a packet takes at least `frame`.
    #[inline]
    fn memory(&self, frame: Bytes) -> Bytes {
        Bytes(frame.0 * self.packets as u64 + self.beyond.0)
    }
}

/// The tins from which one batch chooses, one bit each. During the batch no tin gets flows, and
/// none that exceeds its threshold returns.
struct Open {
    /// Those that have flows.
    with_flows: u8,
    /// Of these, the ones within their thresholds. Meaningless if no tin has one.
    within: u8,
}

impl Open {
    #[inline(always)]
    fn of(tins: &[Tin], limiter: &Limiter, now: Nanos) -> Self {
        if tins.len() == 1 {
            // Without these the tin's flows and threshold need no check.
            return Self { with_flows: 1, within: 1 };
        }
        let (mut with_flows, mut within) = (0, 0);
        for tin in tins.iter().rev() {
            with_flows = with_flows << 1 | u8::from(tin.has_flows());
            within = within << 1 | u8::from(tin.next <= now);
        }
        // Without a rate there are no thresholds to be within.
        let within = if matches!(limiter, Limiter::Unlimited) { 0 } else { within & with_flows };
        Self { with_flows, within }
    }

    /// The most important tin within its threshold.
    #[inline(always)]
    fn first(&self) -> Option<usize> {
        self.within.checked_ilog2().map(|at| at as usize)
    }

    /// Whether the tin `at` is within its threshold.
    #[inline(always)]
    fn has_within(&self, at: usize) -> bool {
        self.within & (1 << (at % TINS_MAX)) != 0
    }

    /// A packet has left `tin`, which is `at` and not the only one.
    #[inline(always)]
    fn charged(&mut self, at: usize, tin: &Tin, now: Nanos) {
        self.within &= !(u8::from(tin.next > now) << (at % TINS_MAX));
    }

    /// A flow has left the rotation of `tin`, which is `at`, or may have.
    #[inline]
    fn turned(&mut self, at: usize, tin: &Tin) {
        if !tin.has_flows() {
            self.with_flows &= !(1 << (at % TINS_MAX));
            self.within &= self.with_flows;
        }
    }
}

impl Cake {
    /// Fills `places` with departures. Returns their number, and when there will be more.
    pub(super) fn depart(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        places: &mut [PacketId],
    ) -> (usize, Next) {
        let mut left = Left::default();
        let next = if self.tins.len() == 1 {
            self.depart_some::<true>(packets, now, places, &mut left)
        } else {
            self.depart_some::<false>(packets, now, places, &mut left)
        };
        self.backlog.packets -= left.packets as u32;
        self.backlog.bytes.0 -= left.bytes;
        self.stats.sent_packets += left.packets as u64;
        self.stats.sent_bytes += left.bytes;
        self.memory.give_back(left.memory(packets.memory_for(Bytes::ZERO)));
        match next {
            Next::Now => {}
            Next::At(_) => self.overlimits.refused(&mut self.stats, self.backlog.packets),
            Next::Held(_) | Next::Empty => {
                self.overlimits.passed(&mut self.stats, self.backlog.packets);
            }
        }
        (left.packets, next)
    }

    /// Fills `places` with departures of one tin or several, without the counters, which are
    /// updated for all of `left` together.
    #[inline(always)]
    fn depart_some<const ONE: bool>(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        places: &mut [PacketId],
        left: &mut Left,
    ) -> Next {
        let frame = packets.memory_for(Bytes::ZERO);
        let mut open = Open::of(&self.tins, &self.limiter, now);
        loop {
            let Some(place) = places.get_mut(left.packets) else { return Next::Now };
            // Where there is only one, it may have no flows.
            let at = match open.first() {
                _ if ONE => 0,
                Some(at) => at,
                None => match self.choose_beyond(&open) {
                    Some(at) => at,
                    None => return Next::Empty,
                },
            };
            let tin = &mut self.tins[at];
            let Some(id) = tin.front() else { return Next::Empty };
            let next = self.flows[id].next();
            Tin::prefetch(&self.flows, next, packets);
            let flow = &mut self.flows[id];
            let (Some(packet), true) = (flow.queue.front(), flow.deficit > 0) else {
                self.end_turn(at, id, now, &mut open);
                continue;
            };
            let meta = packets.meta_mut(packet);
            let charge = meta.charge.0;
            // A packet that goes first here goes first on the port. The least important tin may
            // use all of the rate, so a smaller share of it on this queue does not delay sparse
            // flows.
            let standing = flow.standing;
            let is_urgent =
                || if at == 0 { standing == Standing::Sparse } else { open.has_within(at) };
            if let Err(when) = self.limiter.may_leave(charge, is_urgent, now) {
                return Next::At(when);
            }
            let sojourn = now.since(meta.arrival);
            if !flow.cobalt.is_at_ease(&tin.terms, sojourn) {
                let standing = self.config.ingress.then_some(tin.bulk_flows);
                if is_to_be_dropped(tin, flow, meta, standing, &mut self.random, now) {
                    self.drop_first(packets, left, (at, id), now, &mut open);
                    continue;
                }
            }
            let len = Bytes::from(meta.len);
            flow.queue.take_front(meta);
            flow.deficit -= charge as i32 * DEFICIT_UNIT;
            tin.sent += u64::from(charge);
            if !ONE {
                tin.charge(charge, now);
                open.charged(at, tin, now);
            }
            tin.delayed(sojourn);
            tin.backlog.0 -= len.0;
            self.limiter.sent(charge, now);
            *place = packet;
            left.packets += 1;
            left.bytes += len.0;
            if len > frame {
                left.beyond += packets.memory_for(len) - frame;
            }
            if self.overflow.is_live() {
                self.ease(left.memory(frame), id);
                self.end_turn_if_over(at, id, now, &mut open);
            } else if flow.deficit <= 0 && flow.standing == Standing::Bulk {
                let rounds = tin.end_usual_turn(flow, next, &mut self.neighbours);
                tin.wheel.put(&mut self.flows, id, rounds);
            } else if flow.deficit <= 0 || flow.is_empty() {
                let (idle, neighbours) = (&mut self.idle, &mut self.neighbours);
                tin.end_turn(&mut self.flows, id, idle, neighbours, now);
                if !ONE {
                    open.turned(at, tin);
                }
            }
        }
    }

    /// Takes out the packet that would leave next, ignoring the rate and its sojourn time.
    pub(super) fn drain_one(&mut self, packets: &mut Packets) -> Option<PacketId> {
        // Times do not matter: no decision depends on them.
        let now = Nanos::ZERO;
        let (at, flow) = self.choose(now)?;
        let packet = self.flows[flow].queue.pop_front(packets)?;
        self.gone(packets, at, packet);
        if self.overflow.is_live() {
            self.ease(Bytes::ZERO, flow);
        }
        let charge = packets.meta(packet).charge.0;
        let state = &mut self.flows[flow];
        state.deficit -= charge as i32 * DEFICIT_UNIT;
        if state.deficit <= 0 || state.is_empty() {
            let mut open = Open::of(&self.tins, &self.limiter, now);
            self.end_turn(at, flow, now, &mut open);
        }
        let meta = packets.meta_mut(packet);
        meta.rewrite.wash(false);
        Some(packet)
    }

    /// The next tin and flow, past all that may not send.
    fn choose(&mut self, now: Nanos) -> Option<(usize, u16)> {
        let mut open = Open::of(&self.tins, &self.limiter, now);
        loop {
            let at = open.first().or_else(|| self.choose_beyond(&open))?;
            let id = self.tins[at].front()?;
            let flow = &self.flows[id];
            if flow.deficit > 0 && !flow.is_empty() {
                return Some((at, id));
            }
            self.end_turn(at, id, now, &mut open);
        }
    }

    /// The next tin if none is within its threshold: the one that is within it soonest; of two, the
    /// more important.
    #[inline(never)]
    fn choose_beyond(&mut self, open: &Open) -> Option<usize> {
        if matches!(self.limiter, Limiter::Unlimited) {
            return self.choose_tin_in_turn();
        }
        let mut chosen = None;
        let mut due = Nanos::MAX;
        let mut rest = open.with_flows;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let next = self.tins[at].next;
            if next <= due {
                (chosen, due) = (Some(at), next);
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

    /// Drops the first packet of `id`, which is in the tin `at`.
    #[cold]
    fn drop_first(
        &mut self,
        packets: &mut Packets,
        left: &Left,
        (at, id): (usize, u16),
        now: Nanos,
        open: &mut Open,
    ) {
        let (tin, flow) = (&mut self.tins[at], &mut self.flows[id]);
        let Some(packet) = flow.queue.pop_front(packets) else { return };
        let charge = packets.meta(packet).charge.0;
        tin.figures.drops += 1;
        if self.config.ingress {
            flow.deficit -= charge as i32 * DEFICIT_UNIT;
            tin.sent += u64::from(charge);
            if self.scheme.shares.len() > 1 {
                tin.charge(charge, now);
                open.charged(at, tin, now);
            }
            self.limiter.dropped(charge);
        }
        self.discard(packets, at, packet, DropReason::Aqm);
        if self.overflow.is_live() {
            self.ease(left.memory(packets.memory_for(Bytes::ZERO)), id);
        }
        self.end_turn_if_over(at, id, now, open);
    }

    /// The current flow has one packet less.
    fn end_turn_if_over(&mut self, at: usize, id: u16, now: Nanos, open: &mut Open) {
        let flow = &self.flows[id];
        if flow.deficit <= 0 || flow.is_empty() {
            self.end_turn(at, id, now, open);
        }
    }

    /// The current flow has nothing to send, or may not send.
    #[inline(never)]
    fn end_turn(&mut self, at: usize, id: u16, now: Nanos, open: &mut Open) {
        let tin = &mut self.tins[at];
        tin.end_turn(&mut self.flows, id, &mut self.idle, &mut self.neighbours, now);
        open.turned(at, tin);
    }

    /// Keeps up the heap of the longest, or forgets it where memory is no longer short: `free` has
    /// become so and is not yet given back.
    #[cold]
    fn ease(&mut self, free: Bytes, id: u16) {
        if self.memory.is_relieved(free) {
            self.overflow.end(&mut self.flows);
        } else {
            self.overflow.changed(&mut self.flows, id);
        }
    }

    /// There are no packets at `now`: frees memory once that has lasted for a while.
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
/// required. `standing` are the backlogged flows, if dropped packets count as sent.
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
            meta.rewrite.mark();
            tin.figures.marks += 1;
            false
        }
        // The last packet of a flow is not dropped: its sender might never notice.
        Fate::Drop => flow.queue.backlog().packets > 1,
    }
}
