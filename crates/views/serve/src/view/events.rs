//! The instance's events, each with the time at which it was first seen.
//!
//! The instance keeps its latest events without a time. Those of the first snapshot happened some
//! time before it; of the others the time is known to one interval.

use serde::Serialize;
use std::collections::VecDeque;

/// How many are kept.
const EVENTS_MAX: usize = 200;

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Event {
    /// When it was first seen, in seconds since 1970.
    time: f64,
    /// It happened before that, nobody saw when.
    is_before: bool,
    text: String,
}

/// The latest events, oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventList(VecDeque<Event>);

impl EventList {
    /// Takes the new ones of `is`, the list that the instance has at `time`; `was` is what it had
    /// before, and none if this is the first one. Returns how many are new.
    pub(crate) fn learn(&mut self, was: Option<&[String]>, is: &[String], time: f64) -> usize {
        let new = new_events(was.unwrap_or_default(), is);
        for text in &is[is.len() - new..] {
            if self.0.len() == EVENTS_MAX {
                self.0.pop_front();
            }
            self.0.push_back(Event { time, is_before: was.is_none(), text: text.clone() });
        }
        new
    }

    /// The latest, at most `most`, newest first.
    pub(crate) fn latest(&self, most: usize) -> Vec<&Event> {
        self.0.iter().rev().take(most).collect()
    }

    /// The latest that have one of these texts in them, newest first.
    pub(crate) fn about(&self, texts: &[&str], most: usize) -> Vec<&Event> {
        let is_about = |event: &&Event| texts.iter().any(|text| has_word(&event.text, text));
        self.0.iter().rev().filter(is_about).take(most).collect()
    }
}

/// Whether `word` is in `text`, and not as a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric();
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
        })
}

/// How many events in `is` are new; `was` are the latest events before. The list loses its oldest.
fn new_events(was: &[String], is: &[String]) -> usize {
    let old = (0..=is.len().min(was.len())).rev().find(|&old| was.ends_with(&is[..old]));
    is.len() - old.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn an_event_has_the_time_at_which_it_was_first_seen() {
        let mut events = EventList::default();
        let (first, second) = (list(&["start"]), list(&["start", "class 1:10 was added"]));
        assert_eq!(events.learn(None, &first, 5.0), 1);
        assert_eq!(events.learn(Some(&first), &second, 6.0), 1);
        assert_eq!(events.learn(Some(&second), &second, 7.0), 0);
        let times: Vec<_> = events.latest(9).iter().map(|it| (it.time, it.is_before)).collect();
        assert_eq!(times, [(6.0, false), (5.0, true)]);
        assert_eq!(events.about(&["1:10"], 9).len(), 1);
        assert_eq!(events.about(&["1:1", ""], 9).len(), 0, "1:10 is not 1:1");
    }

    proptest! {
        #[test]
        fn new_events_are_counted_while_old_ones_are_forgotten(
            before in 0usize..20, added in 0usize..8, room in 8usize..12,
        ) {
            let list = |until: usize| -> Vec<String> {
                (until.saturating_sub(room)..until).map(|number| number.to_string()).collect()
            };
            let mut events = EventList::default();
            let new = events.learn(Some(&list(before)), &list(before + added), 1.0);
            prop_assert_eq!(new, added);
            prop_assert_eq!(events.latest(usize::MAX).len(), added);
        }
    }
}
