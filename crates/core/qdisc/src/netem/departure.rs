//! What has been under way for long enough leaves: at once, in slots, or as fast as the rate lets
//! it.

use super::{Below, LEAST_QUEUE, Limiter, Netem};
use crate::sink::Sink;
use crate::{Next, Qdisc, Take, Verdict};
use narrows_packet::{DropReason, PacketId, Packets};
use narrows_units::Nanos;

impl Netem {
    /// Moves packets that may leave at `now` into `out`.
    #[inline]
    pub(super) fn release(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        out: &mut impl Sink,
    ) -> Next {
        if self.below.is_some() || self.ready.front().is_some() {
            return self.through_below(packets, now, out);
        }
        self.pass(packets, now, out)
    }

    /// Moves packets that have passed the delay and the rate at `now` into `out`.
    #[inline]
    fn pass(&mut self, packets: &mut Packets, now: Nanos, out: &mut impl Sink) -> Next {
        // After a change some packets may still wait for a former rate.
        let has_rate = self.limiter.is_some() || self.queue.front().is_some();
        if has_rate { self.by_rate(packets, now, out) } else { self.at_once(packets, now, out) }
    }

    /// Moves packets that have passed the delay and the rate at `now` into `out`, by way of the
    /// qdisc below.
    #[inline(never)]
    fn through_below(&mut self, packets: &mut Packets, now: Nanos, out: &mut impl Sink) -> Next {
        while out.has_room() {
            let Some(id) = self.ready.pop_front(packets) else { break };
            self.send(packets, id, out);
        }
        let Some(mut below) = self.below.take() else {
            return self.pass(packets, now, out);
        };
        let arrives = self.enter(&mut below, packets, now);
        let mut left = below.inner.backlog().packets;
        let stats = &mut self.stats;
        let leaves = below.inner.release(packets, now, out, |packets, id| {
            left = left.saturating_sub(1);
            stats.sent_packets += 1;
            stats.sent_bytes += packets.len(id).0;
        });
        // What it has dropped by itself.
        self.stats.drops += u64::from(left.saturating_sub(below.inner.backlog().packets));
        self.below = Some(below);
        match (leaves, arrives) {
            (Next::Now, _) if self.backlog().is_empty() => Next::Empty,
            (Next::Now, _) => Next::Now,
            (Next::At(one) | Next::Held(one), Next::At(other) | Next::Held(other)) => {
                Next::Held(one.min(other))
            }
            // Not `At`: an arrival starts its delay at once, whatever else waits here.
            (Next::At(at), _) | (Next::Empty, Next::At(at)) => Next::Held(at),
            (Next::Empty, arrives) => arrives,
            (leaves, _) => leaves,
        }
    }

    /// Moves packets that have passed the delay and the rate at `now` into `below`. Returns when
    /// there will be more.
    fn enter(&mut self, below: &mut Below, packets: &mut Packets, now: Nanos) -> Next {
        let Below { inner, entering } = below;
        // They are sent when they leave it.
        let sent = (self.stats.sent_packets, self.stats.sent_bytes);
        let next = loop {
            entering.clear();
            let next = self.pass(packets, now, entering);
            for &id in entering.as_slice() {
                let there = inner.backlog().packets + 1;
                if inner.enqueue(packets, id, now) == Verdict::Dropped {
                    let left = inner.backlog().packets;
                    self.stats.drops += u64::from(there.saturating_sub(left));
                }
            }
            if next != Next::Now {
                break next;
            }
        };
        (self.stats.sent_packets, self.stats.sent_bytes) = sent;
        next
    }

    fn at_once(&mut self, packets: &mut Packets, now: Nanos, out: &mut impl Sink) -> Next {
        while out.has_room() {
            match self.arrived(packets, now) {
                Ok((_, id)) => self.send(packets, id, out),
                Err(next) => return next,
            }
        }
        if self.line.backlog().is_empty() { Next::Empty } else { Next::Now }
    }

    fn by_rate(&mut self, packets: &mut Packets, now: Nanos, out: &mut impl Sink) -> Next {
        let later = loop {
            match self.arrived(packets, now) {
                Ok((at, id)) => self.line_up(packets, id, at),
                Err(next) => break next,
            }
        };
        let next = loop {
            let Some(id) = self.queue.front() else { break later };
            if !out.has_room() {
                break Next::Now;
            }
            match self.take(packets, id, now) {
                Take::Granted => {
                    self.queue.pop_front(packets);
                    packets.meta_mut(id).edt = Nanos::ZERO;
                    self.send(packets, id, out);
                }
                // Not `At`: an arrival starts its delay at once, whatever else waits here.
                Take::Wait(at) => match later {
                    Next::Held(later) => break Next::Held(at.min(later)),
                    _ => break Next::Held(at),
                },
            }
        };
        // The batch is over: exchanges demands with the siblings.
        if let Some(Limiter::Shared(meter)) = &mut self.limiter {
            meter.report(self.queue.backlog(), now);
            self.follow_meter();
        }
        next
    }

    /// `id`, which arrived at the bottleneck at `at`, waits for the rate.
    fn line_up(&mut self, packets: &mut Packets, id: PacketId, at: Nanos) {
        if self.queue.backlog().packets < self.part.max(LEAST_QUEUE) {
            packets.meta_mut(id).edt = at;
            self.queue.push_back(packets, id);
            return;
        }
        self.discard(packets, id, DropReason::Limit);
        if let Some(Limiter::Shared(meter)) = &mut self.limiter {
            meter.overflowed();
        }
    }

    /// Whether `id` may pass the bottleneck at `now`.
    fn take(&mut self, packets: &Packets, id: PacketId, now: Nanos) -> Take {
        let (Some(rate), Some(limiter)) = (&self.config.rate, &mut self.limiter) else {
            return Take::Granted;
        };
        let meta = packets.meta(id);
        match limiter {
            Limiter::Shared(meter) => meter.take(rate.cost(meta.len.into()), Nanos::ZERO, now),
            Limiter::Own(passed) => {
                // The time that it takes itself is in its delay already.
                let passes = (*passed + rate.time(meta.len.into())).max(meta.edt);
                if passes > now {
                    return Take::Wait(passes);
                }
                *passed = passes;
                Take::Granted
            }
        }
    }

    /// The next packet that has arrived at `now`, or when there will be one.
    #[inline]
    fn arrived(&mut self, packets: &mut Packets, now: Nanos) -> Result<(Nanos, PacketId), Next> {
        let Some(slotting) = &self.config.slots else {
            let popped = self.line.pop(packets, now);
            return popped.ok_or_else(|| self.line.first(packets).map_or(Next::Empty, Next::Held));
        };
        let first = self.line.first(packets).ok_or(Next::Empty)?;
        let opens = self.slots.open(slotting, first, now, &mut self.chances);
        if opens > now {
            return Err(Next::Held(opens));
        }
        let (at, id) = self.line.pop(packets, now).ok_or(Next::Empty)?;
        self.slots.leaves(slotting, packets.meta(id).len.0, now, &mut self.chances);
        Ok((at, id))
    }

    #[inline]
    fn send(&mut self, packets: &Packets, id: PacketId, out: &mut impl Sink) {
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += packets.len(id).0;
        out.push(id);
    }
}
