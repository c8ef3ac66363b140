//! Future events, in order of time.
//!
//! Ties are broken by order of insertion, so that a run is the same on every machine.

use narrows_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A core executes its step, unless it has been given another time since.
    Step {
        /// Which core.
        core: usize,
        /// Its count of appointments when this one was made.
        appointment: u64,
    },
    /// Closed-loop traffic acts, unless it has been given another time since.
    Act {
        /// Which.
        closed: usize,
        /// Its count of appointments when this one was made.
        appointment: u64,
    },
    /// A fault begins.
    Fault {
        /// Its index in the setup.
        fault: usize,
    },
    /// The operator changes something.
    Change {
        /// Its index in the setup.
        change: usize,
    },
}

/// A calendar of events.
#[derive(Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    entered: u64,
}

impl Agenda {
    /// Enters `event`; what would be at [`Nanos::MAX`] never happens and is not.
    pub(super) fn enter(&mut self, at: Nanos, event: Event) {
        if at != Nanos::MAX {
            self.heap.push(Reverse((at, self.entered, event)));
            self.entered += 1;
        }
    }

    /// When the next one is; [`Nanos::MAX`] if there is none.
    #[inline]
    pub(super) fn next_at(&self) -> Nanos {
        self.heap.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at)
    }

    /// Takes it.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Event> {
        self.heap.pop().map(|Reverse((_, _, event))| event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simultaneous_events_happen_in_the_order_of_entry() {
        let mut agenda = Agenda::default();
        agenda.enter(Nanos(5), Event::Fault { fault: 9 });
        agenda.enter(Nanos(5), Event::Fault { fault: 1 });
        agenda.enter(Nanos(3), Event::Fault { fault: 2 });
        agenda.enter(Nanos::MAX, Event::Fault { fault: 3 });
        assert_eq!(agenda.next_at(), Nanos(3));
        let faults = [2, 9, 1].map(|fault| Some(Event::Fault { fault }));
        assert_eq!([agenda.take(), agenda.take(), agenda.take()], faults);
        assert_eq!((agenda.next_at(), agenda.take()), (Nanos::MAX, None));
    }
}
