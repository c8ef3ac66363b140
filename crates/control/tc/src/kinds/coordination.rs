//! `coordination` and `sync`: how the queues of a port share the rate of a qdisc. Narrows' own
//! words, the same for every kind with a rate.

use super::legal::legal;
use crate::complaint::Complaint;
use crate::number;
use crate::render::{Json, Line};
use crate::words::Words;
use narrows_coordination::{DEFAULT_SYNC_TIME, Strategy};
use narrows_units::Nanos;

/// What has been parsed so far.
#[derive(Default)]
pub(super) struct Draft {
    strategy: Option<Strategy>,
    sync: Option<Nanos>,
}

impl Draft {
    /// Parses the value of `coordination`.
    pub(super) fn strategy(&mut self, kind: &str, words: &mut Words) -> Result<(), Complaint> {
        once(kind, "coordination", self.strategy.is_some())?;
        let value = words.value("coordination", "fair")?;
        let hint = format!("queues share a rate by {}", names());
        self.strategy = Some(legal(kind, "coordination", value, Strategy::from_name, &hint)?);
        Ok(())
    }

    /// Parses the value of `sync`.
    pub(super) fn sync(&mut self, kind: &str, words: &mut Words) -> Result<(), Complaint> {
        once(kind, "sync", self.sync.is_some())?;
        let value = words.value("sync", "200us")?;
        let hint = "a time of at least 1us, as 200us, or 0";
        self.sync = Some(legal(kind, "sync", value, sync_time, hint)?);
        Ok(())
    }

    /// The strategy that both words describe.
    pub(super) fn finish(self, kind: &str) -> Result<Option<Strategy>, Complaint> {
        match (self.strategy, self.sync) {
            (Some(Strategy::Equal { .. }), Some(sync_time)) => {
                Ok(Some(Strategy::Equal { sync_time }))
            }
            (None | Some(Strategy::Fair { .. }), Some(Nanos::ZERO)) => {
                Err(Complaint::wrong(format!(
                    "{kind}: \"sync 0\" counts queues anew for each packet, which only \"coordination equal\" can: write a time of at least 1us, or leave \"sync\" out."
                )))
            }
            (None | Some(Strategy::Fair { .. }), sync_time @ Some(_)) => {
                Ok(Some(Strategy::Fair { sync_time }))
            }
            (strategy, None) => Ok(strategy),
            (_, Some(_)) => Err(Complaint::wrong(format!(
                "{kind}: \"sync\" is the time for which shares hold: write it with \"coordination fair\" or \"coordination equal\"."
            ))),
        }
    }
}

/// A time in whole microseconds. Less than one of them is none, but nothing is.
fn sync_time(word: &str) -> Option<Nanos> {
    let is_nothing = !word.contains(|digit| matches!(digit, '1'..='9'));
    number::time(word).filter(|time| *time != Nanos::ZERO || is_nothing)
}

/// All strategies, the default first, as a sentence names them.
fn names() -> String {
    let mut names = Strategy::ALL.map(Strategy::name);
    names.reverse();
    let [others @ .., last] = names;
    format!("{} or {last}", others.join(", "))
}

/// Refuses a repeated word.
pub(super) fn once(kind: &str, name: &str, given: bool) -> Result<(), Complaint> {
    if !given {
        return Ok(());
    }
    Err(Complaint::wrong(format!("{kind}: duplicate \"{name}\" specification: give it once.")))
}

/// The sync time of a strategy, if it has one and that is not the default.
fn unusual_sync_time(strategy: Strategy) -> Option<Nanos> {
    match strategy {
        Strategy::Lock | Strategy::Edt => None,
        Strategy::Equal { sync_time } => Some(sync_time).filter(|time| *time != DEFAULT_SYNC_TIME),
        Strategy::Fair { sync_time } => sync_time,
    }
}

/// Prints a strategy as words that can be typed again.
pub(super) fn show(strategy: Strategy, line: &mut Line) {
    let name = strategy.name();
    line.add("coordination", Json::Text(name.to_owned()), &format!("coordination {name} "));
    if let Some(sync) = unusual_sync_time(strategy) {
        let micros = sync.0 / 1_000;
        line.add("sync_time", Json::Number(micros), &format!("sync {micros}us "));
    }
}

/// The strategy as words, each after a space.
pub(super) fn save(strategy: Strategy) -> String {
    let name = strategy.name();
    match unusual_sync_time(strategy) {
        Some(sync) => format!(" coordination {name} sync {}us", sync.0 / 1_000),
        None => format!(" coordination {name}"),
    }
}
