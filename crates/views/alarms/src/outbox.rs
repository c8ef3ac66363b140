//! Notices, gathered into messages.
//!
//! A cause that alarms a thousand subscribers is one message: what comes within [`GATHER`] is told
//! together. Between two messages there is a [`PAUSE`], and after [`MANY`] in an hour a
//! [`LONG_PAUSE`]. What happens meanwhile waits; of what began and ended while it waited, both are
//! told. A message lists so many notices and says how many more there are.

use crate::{Notice, State};
use narrows_units::Nanos;
use serde::Serialize;
use std::collections::VecDeque;

/// How long notices are gathered.
const GATHER: Nanos = Nanos::from_secs(10);
/// The least time between two messages.
const PAUSE: Nanos = Nanos::from_secs(60);
/// Messages in an hour after which the pause is longer.
const MANY: usize = 10;
/// The longer pause.
const LONG_PAUSE: Nanos = Nanos::from_secs(600);
const HOUR: Nanos = Nanos::from_secs(3600);
/// The most notices that a message lists.
const LISTED_MAX: usize = 50;

/// What is delivered.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Message {
    /// In a few lines, for people.
    pub text: String,
    /// How many alarms began.
    pub firing: usize,
    /// How many ended.
    pub resolved: usize,
    /// The first of them.
    pub alarms: Vec<Notice>,
    /// How many more there are.
    pub more: usize,
}

/// Notices that wait.
#[derive(Debug, Default)]
pub struct Outbox {
    listed: Vec<Notice>,
    firing: usize,
    resolved: usize,
    /// Since when the first of them waits.
    waits: Option<Nanos>,
    /// When messages of the last hour were sent.
    sent: VecDeque<Nanos>,
}

impl Outbox {
    /// Adds notices at `now`.
    pub fn add(&mut self, notices: Vec<Notice>, now: Nanos) {
        for notice in notices {
            self.waits.get_or_insert(now);
            match notice.state {
                State::Resolved => self.resolved += 1,
                State::Pending | State::Firing => self.firing += 1,
            }
            if self.listed.len() < LISTED_MAX {
                self.listed.push(notice);
            }
        }
    }

    /// The message that is due at `now`, if any.
    pub fn take(&mut self, now: Nanos) -> Option<Message> {
        let waits = self.waits?;
        while self.sent.front().is_some_and(|sent| now.since(*sent) >= HOUR) {
            self.sent.pop_front();
        }
        let pause = if self.sent.len() >= MANY { LONG_PAUSE } else { PAUSE };
        let is_too_soon = self.sent.back().is_some_and(|last| now.since(*last) < pause);
        if now.since(waits) < GATHER || is_too_soon {
            return None;
        }
        self.sent.push_back(now);
        let waiting = std::mem::take(self);
        self.sent = waiting.sent;
        let (alarms, firing, resolved) = (waiting.listed, waiting.firing, waiting.resolved);
        let more = firing + resolved - alarms.len();
        let text = text(&alarms, firing, resolved, more);
        Some(Message { text, firing, resolved, alarms, more })
    }
}

impl Message {
    /// Its first line.
    pub fn title(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

/// `1 alarm`, `2 alarms`.
fn alarms(count: usize) -> String {
    if count == 1 { "1 alarm".to_owned() } else { format!("{count} alarms") }
}

fn text(listed: &[Notice], firing: usize, resolved: usize, more: usize) -> String {
    let mut text = match (firing, resolved) {
        (_, 0) => format!("Narrows: {} began", alarms(firing)),
        (0, _) => format!("Narrows: {} ended", alarms(resolved)),
        _ => format!("Narrows: {} began, {resolved} ended", alarms(firing)),
    };
    for Notice { state, rule, subject, value, .. } in listed {
        let began = if *state == State::Resolved { "ended" } else { "began" };
        let at = if subject.port.is_empty() || subject.port == subject.name {
            String::new()
        } else {
            format!(" at {}", subject.port)
        };
        let who = format!("{} {}{at}", subject.kind.name(), subject.name);
        // A name may have anything in it, and a line is one alarm.
        let line = format!("{began}: {who}: {value} ({rule})").replace(char::is_control, " ");
        text.push('\n');
        text.push_str(&line);
    }
    if more > 0 {
        text.push_str(&format!("\nand {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Subject};
    use proptest::prelude::*;

    fn notice(name: &str, state: State) -> Notice {
        Notice {
            state,
            rule: "delay p99 > 50ms".into(),
            subject: Subject { kind: Kind::Subscriber, name: name.into(), port: "eth1".into() },
            value: "80 ms".into(),
            since: 0,
        }
    }

    #[test]
    fn what_comes_together_is_told_together() {
        let mut outbox = Outbox::default();
        outbox.add(vec![notice("alice", State::Firing)], Nanos::ZERO);
        outbox.add(vec![notice("bob\nby", State::Resolved)], Nanos::from_secs(5));
        assert_eq!(outbox.take(Nanos::from_secs(9)), None);
        let message = outbox.take(Nanos::from_secs(10)).unwrap();
        assert_eq!(
            message.text,
            "Narrows: 1 alarm began, 1 ended\n\
             began: subscriber alice at eth1: 80 ms (delay p99 > 50ms)\n\
             ended: subscriber bob by at eth1: 80 ms (delay p99 > 50ms)"
        );
        assert_eq!(message.title(), "Narrows: 1 alarm began, 1 ended");
        assert_eq!(outbox.take(Nanos::from_secs(99)), None);
    }

    #[test]
    fn a_storm_is_a_few_messages() {
        let mut outbox = Outbox::default();
        let mut told = (0, 0);
        for second in 0..3600 {
            let now = Nanos::from_secs(second);
            outbox.add(vec![notice("alice", State::Firing)], now);
            if let Some(message) = outbox.take(now) {
                told = (told.0 + 1, told.1 + message.firing);
                assert_eq!(message.alarms.len() + message.more, message.firing);
            }
        }
        assert!(told.0 <= MANY + 6, "{told:?}");
        assert!(told.1 >= 3000, "{told:?}");
    }

    proptest! {
        #[test]
        fn every_notice_is_counted_once(
            steps in proptest::collection::vec((0u64..400, 0usize..80, any::<bool>()), 0..60),
        ) {
            let mut outbox = Outbox::default();
            let (mut now, mut added, mut told) = (0, 0, 0);
            for (seconds, count, over) in steps {
                now += seconds;
                let state = if over { State::Resolved } else { State::Firing };
                outbox.add(vec![notice("alice", state); count], Nanos::from_secs(now));
                added += count;
                if let Some(message) = outbox.take(Nanos::from_secs(now)) {
                    told += message.firing + message.resolved;
                }
            }
            if let Some(message) = outbox.take(Nanos::from_secs(now + 4000)) {
                told += message.firing + message.resolved;
            }
            prop_assert_eq!(added, told);
        }
    }
}
