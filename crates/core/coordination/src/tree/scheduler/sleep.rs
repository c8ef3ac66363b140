//! Until when the worker may sleep.
//!
//! What a leaf or a lender waits for may have been sold meanwhile: by other queues, or by this one
//! to classes that go first. To wake up only to be refused costs more than to compute the time once
//! more. So the worker does that for whatever comes first, each time before it sleeps. A time only
//! becomes later.

use super::Scheduler;
use super::event::Event;
use super::leaf::State;
use narrows_units::Nanos;

impl Scheduler {
    /// The next time at which something comes.
    pub(super) fn next_time(&mut self, now: Nanos) -> Option<Nanos> {
        loop {
            let (at, number) = self.times.first()?;
            if at <= now {
                return Some(at);
            }
            let event = Event::of_number(number);
            let is_needed = match event {
                Event::Leaf(place) => {
                    self.postpone_leaf(place, at, now);
                    self.asks_by(place, at, at)
                }
                Event::Lends(queue) => {
                    self.postpone_lender(queue, at, now);
                    self.lends_by(queue, at, at)
                }
                Event::Opens(queue) => match self.opens_from(queue, at) {
                    Some(later) if later > at => {
                        self.times.insert(later, number);
                        false
                    }
                    needed => needed.is_some(),
                },
                Event::Releases(inner) => self.holds(inner) || self.lets_pass_at(at),
            };
            if is_needed {
                return Some(at);
            }
            self.times.take_first(at, number);
        }
    }

    /// When the wait queue `at` has to open, of which the ceiling lets borrowers pass at `time`: as
    /// soon as a class above lends. `None` if it is open, or has another time. It opens at once if
    /// nobody waits in it.
    #[inline(never)]
    fn opens_from(&mut self, at: u32, time: Nanos) -> Option<Nanos> {
        let queue = &self.queues[at as usize];
        if !queue.is_closed() || queue.closed_until > time {
            return None;
        }
        if queue.waiting == 0 {
            self.attach(at);
            return None;
        }
        let mut above = queue.above;
        let mut first = Nanos::MAX;
        while let Some(queue) = self.queues.get(above as usize) {
            first = first.min(queue.lends_from);
            above = queue.above;
        }
        Some(first.max(time))
    }

    /// The leaf at `place`, which is to be looked at at `at`, asks later if what it waits for comes
    /// later.
    #[inline(never)]
    fn postpone_leaf(&mut self, place: u32, at: Nanos, now: Nanos) {
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        if leaf.looked_at != at || leaf.until != at {
            return;
        }
        let (handle, least) = (&leaf.handle, leaf.least());
        let state = self.marks[place as usize].state;
        let until = match state {
            State::Borrows if handle.is_shared() => handle.own_due(least, now),
            State::Closed if handle.is_shared() => handle.ceil_due(least, now),
            State::Aside => handle.own_due(least, now).min(self.lent_from(place, now)),
            _ => return,
        };
        let Some(leaf) = self.leaf_mut(place) else { return };
        if until > at {
            leaf.until = until;
            match state {
                State::Closed => leaf.handle.announce(until, now),
                _ => self.announce_to_queues(place, now),
            }
        }
    }

    /// When a class above the leaf at `place`, which stands aside, lends to it.
    #[inline(never)]
    fn lent_from(&mut self, place: u32, now: Nanos) -> Nanos {
        let mut until = Nanos::MAX;
        let Some(Some(leaf)) = self.leaves.get(place as usize) else { return until };
        let (mut at, least, mut steps) = (leaf.queue, leaf.least(), 1);
        while let Some(queue) = self.queues.get(at as usize) {
            let (above, lends_from) = (queue.above, queue.lends_from);
            if lends_from > now {
                until = until.min(lends_from);
            } else if let Some(Some(leaf)) = self.leaves.get(place as usize) {
                let Some(lack) = leaf.handle.lacks(steps, least, now) else { return now };
                until = until.min(lack.until);
                self.announce_lack(place, steps, lack, now);
            }
            (at, steps) = (above, steps + 1);
        }
        until
    }

    /// The class of the wait queue `at`, which is to be looked at at `time`, lends later if the
    /// first who waits for it gets nothing before.
    #[inline(never)]
    fn postpone_lender(&mut self, at: u32, time: Nanos, now: Nanos) {
        if !self.lends_by(at, time, time) {
            return;
        }
        let queue = &self.queues[at as usize];
        // Another may have become the first: what it lacks is nearly the same.
        let place = queue.first;
        let Some(Some(leaf)) = self.leaves.get(place as usize) else { return };
        if self.marks[place as usize].state != State::Borrows {
            return;
        }
        let steps = leaf.node().depth() - queue.depth();
        if let Some(lack) = leaf.handle.lacks(steps, leaf.least(), now)
            && lack.steps >= steps
            && !lack.is_late
            && lack.until > time
        {
            self.announce_lack(place, steps, lack, now);
            self.refuse(at, place, lack.until);
        }
    }
}
