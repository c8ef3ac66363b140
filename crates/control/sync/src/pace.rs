//! When changes go to the instance.
//!
//! *Idea.* To bring changes to an instance costs time that grows with them, and something for each
//! batch, and no request is answered meanwhile. So a few changes go at once. Where many come, as
//! when a NAS is back with all of its sessions, the instance takes a quarter of the time, and the
//! answers have the rest; but no change waits for longer than [`WAIT_MAX`].

use narrows_units::Nanos;

/// From how many subscribers on the changes wait.
const MANY: usize = 50;
/// How many times as long as it took is nothing brought to the instance again.
const REST: u64 = 3;
/// For how long a change waits at most.
const WAIT_MAX: Nanos = Nanos::from_millis(500);

/// What is not in force yet, and how long the last time took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    first: Option<Nanos>,
    changes: usize,
    ended: Nanos,
    took: Nanos,
}

impl Pace {
    /// So many subscribers changed.
    pub(crate) fn changed(&mut self, now: Nanos, changes: usize) {
        self.first.get_or_insert(now);
        self.changes += changes;
    }

    /// When it is brought to the instance; none if nothing has changed.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let first = self.first?;
        if self.changes < MANY {
            return Some(first);
        }
        let rested = self.ended.0.saturating_add(self.took.0.saturating_mul(REST));
        Some(Nanos(rested.clamp(first.0, first.0.saturating_add(WAIT_MAX.0))))
    }

    /// All of it was brought there, from `began` to `ended`.
    pub(crate) fn applied(&mut self, began: Nanos, ended: Nanos) {
        *self = Self { first: None, changes: 0, ended, took: ended.since(began) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn few_changes_go_at_once_and_so_do_many_after_a_while() {
        let mut pace = Pace::default();
        assert_eq!(pace.due(), None);
        pace.changed(ms(10), 200);
        assert_eq!(pace.due(), Some(ms(10)));
        pace.applied(ms(10), ms(60));
        assert_eq!(pace.due(), None);
        pace.changed(ms(70), MANY - 1);
        assert_eq!(pace.due(), Some(ms(70)));
        pace.changed(ms(80), 1);
        assert_eq!(pace.due(), Some(ms(210)), "it became many");
        pace.applied(ms(210), ms(260));
        pace.changed(ms(5000), 200);
        assert_eq!(pace.due(), Some(ms(5000)));
    }

    #[test]
    fn many_changes_that_follow_wait_together_and_not_for_long() {
        let mut pace = Pace::default();
        pace.applied(ms(1000), ms(1100));
        pace.changed(ms(1150), 200);
        pace.changed(ms(1250), 200);
        assert_eq!(pace.due(), Some(ms(1400)), "three times as long as it took");
        pace.applied(ms(1400), ms(3400));
        pace.changed(ms(3450), 200);
        assert_eq!(pace.due(), Some(ms(3950)), "and half a second at most");
    }

    #[test]
    fn no_change_waits_longer_than_the_limit() {
        let times = [0, 1, 99, 100, 499, 500, 501, 10_000, 1 << 40];
        for took in times {
            for later in times {
                let mut pace = Pace::default();
                pace.applied(ms(7), ms(7 + took));
                let now = ms(7 + took + later);
                pace.changed(now, 200);
                let due = pace.due().unwrap();
                assert!(now <= due && due.since(now) <= WAIT_MAX, "{took} {later}");
            }
        }
    }
}
