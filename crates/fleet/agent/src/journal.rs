//! What happened: to the log, and the last of it for `show`.
//!
//! Another box can make events happen, so only so many lines a second go to the log, and memory is
//! bounded. What is the same as before is said once.

use narrows_snapshot::fleet_agent::Past;
use narrows_units::counted;
use std::collections::VecDeque;

/// The events that are kept.
const KEPT: usize = 64;
/// The lines of the log in a second.
const LINES_A_SECOND: u32 = 20;
const SECOND_NS: u64 = 1_000_000_000;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// As it should be.
    Usual,
    /// Somebody should look.
    Trouble,
}

/// The last events.
#[derive(Debug, Default)]
pub struct Journal {
    /// With their times, the oldest first.
    events: VecDeque<(u64, String)>,
    second: u64,
    lines: u32,
    unsaid: u32,
}

impl Journal {
    /// Notes that `what` happened at `now`.
    pub fn note(&mut self, now: u64, weight: Weight, what: String) {
        if self.events.back().is_some_and(|(_, last)| *last == what) {
            return;
        }
        self.say(now, weight, &what);
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back((now, what));
    }

    fn say(&mut self, now: u64, weight: Weight, what: &str) {
        if now / SECOND_NS != self.second {
            if self.unsaid > 0 {
                log::warn!("{} in a second", counted(self.unsaid, "more event"));
            }
            (self.second, self.lines, self.unsaid) = (now / SECOND_NS, 0, 0);
        }
        self.lines += 1;
        if self.lines > LINES_A_SECOND {
            self.unsaid += 1;
            return;
        }
        match weight {
            Weight::Usual => log::info!("{what}"),
            Weight::Trouble => log::warn!("{what}"),
        }
    }

    /// The last events as seen at `now`, the oldest first.
    pub fn past(&self, now: u64) -> Vec<Past> {
        let past = |(at, what): &(u64, String)| Past {
            ms_ago: now.saturating_sub(*at) / 1_000_000,
            what: what.clone(),
        };
        self.events.iter().map(past).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_is_kept_once_and_the_oldest_go() {
        let mut journal = Journal::default();
        for number in 0..2 * KEPT {
            journal.note(number as u64, Weight::Usual, format!("event {number}"));
            journal.note(number as u64, Weight::Usual, format!("event {number}"));
        }
        let past = journal.past(3_000_000);
        assert_eq!(past.len(), KEPT);
        assert_eq!(past[0].what, format!("event {KEPT}"));
        assert_eq!(past[KEPT - 1].ms_ago, 2);
    }
}
