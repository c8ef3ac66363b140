//! The instance's events: logged once, and kept for `narrows show`.

use log::Level;
use std::collections::VecDeque;

/// How many events are kept.
const KEPT: usize = 16;

/// The latest events.
#[derive(Default)]
pub(crate) struct Events {
    /// Oldest first.
    list: VecDeque<String>,
    /// Those of a start that may still be refused. Then everything is restored, and all that a
    /// person needs is the reason.
    held: Option<Vec<(Level, String)>>,
}

impl Events {
    /// Records that something happened.
    pub(crate) fn say(&mut self, event: String) {
        self.push(Level::Info, event);
    }

    /// Records that something went wrong.
    pub(crate) fn warn(&mut self, event: String) {
        self.push(Level::Warn, event);
    }

    fn push(&mut self, level: Level, event: String) {
        match &mut self.held {
            Some(held) => held.push((level, event.clone())),
            None => log::log!(level, "{event}"),
        }
        self.keep(event);
    }

    fn keep(&mut self, event: String) {
        if self.list.len() == KEPT {
            self.list.pop_front();
        }
        self.list.push_back(event);
    }

    /// Logs nothing until [`release`](Self::release).
    pub(crate) fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Logs what was held.
    pub(crate) fn release(&mut self) {
        for (level, event) in self.held.take().unwrap_or_default() {
            log::log!(level, "{event}");
        }
    }

    /// Events of another process.
    pub(crate) fn from_list(events: Vec<String>) -> Self {
        let mut list = Self::default();
        events.into_iter().for_each(|event| list.keep(event));
        list
    }

    /// The events that are kept, oldest first.
    pub(crate) fn list(&self) -> Vec<String> {
        self.list.iter().cloned().collect()
    }
}
