//! When a process that has ended by itself is started again.

use narrows_units::Nanos;

/// How long the first wait is.
const SHORTEST: Nanos = Nanos::from_secs(1);
/// How long no wait exceeds. A process that has run for so long is as good as a new one.
const LONGEST: Nanos = Nanos::from_secs(30);

/// The waits of one process: each twice as long as the one before.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// The last wait.
    wait: Nanos,
    /// When the process may be started.
    next: Nanos,
    /// Why it ended the last time.
    cause: Option<String>,
}

impl Backoff {
    /// Notes that the process has ended `now` for this `cause`, after it had run for a while.
    /// Returns whether this is worth a word: it did not end for that cause the last time.
    pub(super) fn ended(&mut self, cause: &str, ran: Nanos, now: Nanos) -> bool {
        if ran >= LONGEST {
            *self = Self::default();
        }
        self.wait = Nanos(self.wait.0.saturating_mul(2)).clamp(SHORTEST, LONGEST);
        self.next = now + self.wait;
        self.cause.replace(cause.to_owned()).as_deref() != Some(cause)
    }

    /// When the process may be started.
    pub(super) fn next(&self) -> Nanos {
        self.next
    }

    /// How long it waits for that, from its end on.
    pub(super) fn wait(&self) -> Nanos {
        self.wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRIEFLY: Nanos = Nanos::from_millis(5);

    #[test]
    fn waits_double_from_one_second_to_thirty() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(), Nanos::ZERO);
        let now = Nanos::from_secs(100);
        let waits: Vec<u64> = (0..7)
            .map(|_| {
                backoff.ended("signal", BRIEFLY, now);
                backoff.next().since(now).0 / 1_000_000_000
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn a_process_that_ran_for_long_begins_anew() {
        let mut backoff = Backoff::default();
        assert!(backoff.ended("signal", BRIEFLY, Nanos::ZERO));
        backoff.ended("signal", BRIEFLY, Nanos::ZERO);
        assert!(backoff.ended("signal", LONGEST, Nanos::ZERO), "it is said again");
        assert_eq!(backoff.wait(), SHORTEST);
    }

    #[test]
    fn a_cause_is_said_once_until_there_is_another() {
        let mut backoff = Backoff::default();
        let mut said = |cause| backoff.ended(cause, BRIEFLY, Nanos::ZERO);
        assert_eq!(
            [said("a"), said("a"), said("b"), said("b"), said("a")],
            [true, false, true, false, true]
        );
    }
}
