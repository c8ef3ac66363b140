//! Departure: which flow is next, and whether its time has come.

use super::Fq;
use super::flow::Standing;
use super::pace::{self, Pace};
use crate::Next;
use narrows_packet::{PacketId, Packets};
use narrows_units::Nanos;

/// The average lateness moves by one part in 2 to this towards each observation.
const FOLLOWS: u32 = 3;

impl Fq {
    /// Takes out the packet that leaves next at `now`.
    #[inline]
    pub(super) fn depart(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        self.now = now;
        if let Some(id) = self.control.pop_front(packets) {
            self.gone(packets, id);
            self.sent(packets, id);
            return Ok(id);
        }
        if self.held.first().is_some_and(|at| at <= now) {
            self.let_go(now);
        }
        loop {
            let Some(band) = self.bands.turn() else { return Err(self.when()) };
            let Some((at, is_new)) = band.front() else { return Err(self.when()) };
            let flow = &mut self.table.flows[at as usize];
            if flow.credit <= 0 {
                flow.credit += self.config.quantum as i32;
                flow.is_open = false;
                self.line_up(at);
                continue;
            }
            let Some(id) = flow.queue.front() else {
                self.retire(at, is_new, now);
                continue;
            };
            let meta = packets.meta(id);
            let ready = if flow.is_open { meta.edt } else { meta.edt.max(flow.due) };
            if ready > now {
                self.hold(at, ready);
                continue;
            }
            let expected = meta.edt.max(meta.arrival).max(flow.due);
            flow.is_open = true;
            flow.queue.pop_front(packets);
            self.counted.inactive_flows += u32::from(flow.queue.front().is_none());
            let len = packets.len(id);
            flow.credit = flow.credit.saturating_sub_unsigned(len.0 as u32);
            if let Some(pace) = Pace::of_packet(self.pace, packets, id, &self.config) {
                pace.pay(flow, len, now);
            }
            band.charge(len.0);
            if let Some(threshold) = self.config.ce_threshold
                && now.since(expected) > threshold
                && packets.headers(id).ecn.is_capable()
            {
                packets.meta_mut(id).rewrite.mark();
                self.counted.ce_marks += 1;
            }
            self.leaves_band(packets, id);
            self.gone(packets, id);
            self.sent(packets, id);
            return Ok(id);
        }
    }

    /// When to ask again where no flow may send. If several wait, slightly later than the first: it
    /// catches up, and others leave with it.
    fn when(&self) -> Next {
        match self.held.first() {
            Some(at) if self.held.len() > 1 => Next::Held(at + self.config.timer_slack),
            Some(at) => Next::Held(at),
            None => Next::Empty,
        }
    }

    /// Flows whose time has come take turns again.
    #[inline(never)]
    fn let_go(&mut self, now: Nanos) {
        let first = self.held.first().unwrap_or(now);
        let latency = &mut self.counted.latency.0;
        *latency = *latency - (*latency >> FOLLOWS) + (now.since(first).0 >> FOLLOWS);
        while self.held.first().is_some_and(|at| at <= now) {
            self.release();
        }
    }

    /// The first that waits takes turns again, whatever its time.
    fn release(&mut self) {
        let Some((_, at)) = self.held.pop() else { return };
        let flow = &mut self.table.flows[at as usize];
        flow.standing = Standing::Listed;
        self.bands.get_mut(flow.band).line_up(&mut self.table.flows, at);
    }

    /// The current flow, `at`, waits for its next turn.
    #[inline]
    fn line_up(&mut self, at: u32) {
        if let Some(band) = self.bands.turn() {
            band.pop(&self.table.flows);
        }
        let band = self.table.flows[at as usize].band;
        self.bands.get_mut(band).line_up(&mut self.table.flows, at);
    }

    /// The current flow, `at`, waits until `ready`.
    #[inline]
    fn hold(&mut self, at: u32, ready: Nanos) {
        if let Some(band) = self.bands.turn() {
            band.pop(&self.table.flows);
        }
        self.table.flows[at as usize].standing = Standing::Held;
        self.held.insert(ready, at);
        self.counted.throttled += 1;
    }

    /// The current flow, `at`, has no packets. A new flow waits for one more turn, so that it does
    /// not count as new repeatedly and starve the old ones.
    fn retire(&mut self, at: u32, is_new: bool, now: Nanos) {
        if is_new {
            self.line_up(at);
            return;
        }
        if let Some(band) = self.bands.turn() {
            band.pop(&self.table.flows);
        }
        self.table.rest(at, now);
    }

    /// Takes out a packet regardless of its time: from a flow that takes turns, or else from the
    /// one with the earliest time.
    pub(super) fn drain_one(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = self.control.pop_front(packets).or_else(|| self.drain_flow(packets))?;
        self.gone(packets, id);
        Some(id)
    }

    fn drain_flow(&mut self, packets: &mut Packets) -> Option<PacketId> {
        loop {
            let Some(band) = self.bands.any() else {
                self.held.first()?;
                self.release();
                continue;
            };
            let (at, _) = band.front()?;
            let flow = &mut self.table.flows[at as usize];
            let Some(id) = flow.queue.pop_front(packets) else {
                band.pop(&self.table.flows);
                self.table.rest(at, self.now);
                continue;
            };
            self.counted.inactive_flows += u32::from(flow.queue.front().is_none());
            self.leaves_band(packets, id);
            return Some(id);
        }
    }

    /// The pace has changed at `now`: no flow waits for longer than a quantum takes from now on,
    /// and all are checked again.
    pub(super) fn repace(&mut self, packets: &Packets, now: Nanos) {
        for flow in self.table.flows.iter_mut() {
            let own = |id| Pace::of_packet(self.pace, packets, id, &self.config);
            let pace = flow.queue.front().map_or(self.pace, own);
            flow.due = flow.due.min(pace.map_or(now, |pace| now + pace.round()));
        }
        self.release_all();
    }

    /// Follows the rates that filters give. Called once for each batch.
    #[inline]
    pub(super) fn follow_paces(&mut self, packets: &Packets, now: Nanos) {
        if self.paces.is(packets.paces()) {
            return;
        }
        let before = std::mem::replace(&mut self.paces, packets.paces().clone());
        let Self { table, pace, config, .. } = self;
        if pace::bring_forward(table, *pace, &before, packets, config, now) {
            self.release_all();
        }
    }

    fn release_all(&mut self) {
        while self.held.len() > 0 {
            self.release();
        }
    }

    /// `id` has left its band.
    #[inline]
    fn leaves_band(&mut self, packets: &Packets, id: PacketId) {
        let band = self.bands.of(packets.headers(id).dscp);
        self.bands.get_mut(band).discount();
    }

    /// `id` has left the backlog.
    #[inline]
    fn gone(&mut self, packets: &Packets, id: PacketId) {
        self.backlog.packets -= 1;
        self.backlog.bytes.0 -= packets.len(id).0;
    }

    #[inline]
    fn sent(&mut self, packets: &Packets, id: PacketId) {
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += packets.len(id).0;
    }
}
