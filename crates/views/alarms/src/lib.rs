//! Alarms: conditions in a file, and who is told when they hold.
//!
//! *Idea.* A [`File`] has rules, such as `delay p99 > 50ms for 5m`, and actions. [`Alarms`] holds
//! the rules against [`Facts`], now and then, and gives [`Notice`]s of what began and ended. An
//! [`Outbox`] gathers notices into messages, so that one cause gives one message, and limits how
//! many there are. A [`Courier`] delivers messages in a thread of its own.
//!
//! *Principles.* All but the courier is without I/O and takes the time as an argument. A condition
//! has to hold for the whole of its time, and to be gone by a margin for a while before its alarm
//! ends. What is not measured fulfils no condition. Numbers of rules, alarms and messages are
//! bounded; nothing is dropped without being counted in what is delivered.
//!
//! *Non-goals.* Schedules, silences, escalation: a database with an alert manager has these, and
//! the package has rules for Prometheus.

mod courier;
mod engine;
mod facts;
mod file;
mod outbox;
mod pattern;
mod quantity;
mod rule;

pub use courier::{Courier, SENDMAIL};
pub use engine::{ALARMS_MAX, Alarm, Alarms, Notice, State};
pub use facts::{Facts, Kind, Subject, SubjectFacts};
pub use file::{Action, File, FileError, Mistake};
pub use outbox::{Message, Outbox};
pub use rule::{Condition, Metric, Rule};
