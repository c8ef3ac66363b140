//! Which of several waiting borrowers goes first: the one that has had the least for its weight.
//!
//! Only that one is remembered, and only until the time at which it said that it would ask again.
//! So a borrower that does not come back holds up no other.

use narrows_units::{Bytes, Nanos};

/// How late a borrower may be that said when it would ask again.
const SLACK: Nanos = Nanos::from_micros(20);

/// Times have this many binary places.
const PLACES: u32 = 16;

/// How far a borrower may be ahead of a waiting one: a quantum at weight 1.
const LEAD: u64 = 1 << PLACES;

#[derive(Clone, Copy, Default)]
struct Waiting {
    who: u32,
    time: u64,
    until: Nanos,
}

/// The waiting borrower that has had the least for its weight, and until when it waits.
#[derive(Default)]
pub(super) struct Turns {
    /// The latest virtual time of any served borrower. A newcomer starts there.
    clock: u64,
    first: Waiting,
}

impl Turns {
    /// Whether the borrower `who` of virtual time `time` may go now.
    ///
    /// # Errors
    /// The time until which another borrower goes first.
    pub(super) fn may(&self, who: u32, time: u64, now: Nanos) -> Result<(), Nanos> {
        let Waiting { who: other, time: theirs, until } = self.first;
        if other == who || until <= now || time.max(self.clock.saturating_sub(LEAD)) <= theirs {
            return Ok(());
        }
        Err(until)
    }

    /// That no borrower waits.
    ///
    /// # Errors
    /// The time until which one does.
    pub(super) fn check_idle(&self, now: Nanos) -> Result<(), Nanos> {
        if self.first.until <= now { Ok(()) } else { Err(self.first.until) }
    }

    /// `who` waits, and asks again at `until`.
    pub(super) fn wait(&mut self, who: u32, time: u64, until: Nanos, now: Nanos) {
        let time = time.max(self.clock.saturating_sub(LEAD));
        let is_first = self.first.until <= now || self.first.who == who || time < self.first.time;
        if is_first {
            self.first = Waiting { who, time, until: until + SLACK };
        }
    }

    /// Serves `bytes` to a borrower of virtual time `time` and weight `weight`. Returns its new
    /// virtual time.
    pub(super) fn serve(&mut self, time: u64, bytes: Bytes, weight: u64) -> u64 {
        let time = time.max(self.clock.saturating_sub(LEAD));
        self.clock = self.clock.max(time);
        time + (bytes.0 << PLACES) / weight.max(1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(1);
    const LATER: Nanos = Nanos(NOW.0 + 1_000);

    #[test]
    fn the_borrower_with_less_goes_first_until_it_is_overdue() {
        let mut turns = Turns::default();
        assert_eq!(turns.may(1, 5 * LEAD, NOW), Ok(()));
        turns.wait(2, LEAD, LATER, NOW);
        assert_eq!(turns.may(1, 5 * LEAD, NOW), Err(LATER + SLACK));
        assert_eq!(turns.may(1, 5 * LEAD, LATER + SLACK), Ok(()), "it did not come");
        assert_eq!(turns.may(2, LEAD, NOW), Ok(()));
        assert_eq!(turns.check_idle(NOW), Err(LATER + SLACK));
        // A borrower that has had more waits behind it.
        turns.wait(1, 5 * LEAD, LATER, NOW);
        assert_eq!(turns.may(2, LEAD, NOW), Ok(()));
    }

    #[test]
    fn a_newcomer_starts_at_the_others_time() {
        let mut turns = Turns::default();
        let time = turns.serve(7 * LEAD, Bytes(3_000), 1_000);
        assert_eq!(time, 10 * LEAD);
        assert_eq!(turns.serve(0, Bytes(0), 1), 6 * LEAD);
    }
}
