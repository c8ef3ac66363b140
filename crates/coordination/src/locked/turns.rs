//! Which of several waiting borrowers goes first: the one that has had the least for its weight.
//!
//! Only that one is remembered, and only until the time at which it said that it would ask again.
//! So a borrower that does not come back holds up no other.

use narrows_units::{Bytes, Nanos};

/// By how much one may be late who said when he would ask again.
const SLACK: Nanos = Nanos::from_micros(20);

/// Times have this many binary places.
const PLACES: u32 = 16;

/// By so much one may be ahead of him who waits: a quantum of those who weigh one.
const LEAD: u64 = 1 << PLACES;

#[derive(Clone, Copy, Default)]
struct Waiting {
    who: u32,
    time: u64,
    until: Nanos,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Turns {
    /// The latest time of anybody who was served: who comes anew begins there.
    clock: u64,
    first: Waiting,
}

impl Turns {
    /// Whether `who`, whose time is `time`, may go now.
    ///
    /// # Errors
    /// Until when somebody else is to be let go first.
    pub(super) fn may(&self, who: u32, time: u64, now: Nanos) -> Result<(), Nanos> {
        let Waiting { who: other, time: theirs, until } = self.first;
        if other == who || until <= now || time.max(self.clock.saturating_sub(LEAD)) <= theirs {
            return Ok(());
        }
        Err(until)
    }

    /// Nobody waits.
    ///
    /// # Errors
    /// Until when somebody does.
    pub(super) fn nobody_waits(&self, now: Nanos) -> Result<(), Nanos> {
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

    /// One whose time is `time`, and who weighs `weight`, is served `bytes`: his time from now on.
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
    fn who_has_had_less_goes_first_until_he_was_to_ask_again() {
        let mut turns = Turns::default();
        assert_eq!(turns.may(1, 5 * LEAD, NOW), Ok(()));
        turns.wait(2, LEAD, LATER, NOW);
        assert_eq!(turns.may(1, 5 * LEAD, NOW), Err(LATER + SLACK));
        assert_eq!(turns.may(1, 5 * LEAD, LATER + SLACK), Ok(()), "he did not come");
        assert_eq!(turns.may(2, LEAD, NOW), Ok(()));
        assert_eq!(turns.nobody_waits(NOW), Err(LATER + SLACK));
        // One who has had more waits behind him.
        turns.wait(1, 5 * LEAD, LATER, NOW);
        assert_eq!(turns.may(2, LEAD, NOW), Ok(()));
    }

    #[test]
    fn who_comes_anew_begins_where_the_others_are() {
        let mut turns = Turns::default();
        let time = turns.serve(7 * LEAD, Bytes(3_000), 1_000);
        assert_eq!(time, 10 * LEAD);
        assert_eq!(turns.serve(0, Bytes(0), 1), 6 * LEAD);
    }
}
