//! The instance's events: logged once, and kept for `narrows show`.

use std::collections::VecDeque;

/// How many events are kept.
const KEPT: usize = 16;

/// The latest events, oldest first.
#[derive(Default)]
pub(crate) struct Events(VecDeque<String>);

impl Events {
    /// Records that something happened.
    pub(crate) fn say(&mut self, event: String) {
        log::info!("{event}");
        self.push(event);
    }

    /// Records that something went wrong.
    pub(crate) fn warn(&mut self, event: String) {
        log::warn!("{event}");
        self.push(event);
    }

    fn push(&mut self, event: String) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    /// Events of another process.
    pub(crate) fn from_list(events: Vec<String>) -> Self {
        let mut list = Self::default();
        events.into_iter().for_each(|event| list.push(event));
        list
    }

    pub(crate) fn list(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }
}
