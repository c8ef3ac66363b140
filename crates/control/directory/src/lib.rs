//! The directory of a provider: its sites and subscribers.
//!
//! *Idea.* Plain data that says who there is, at which site, with which plan and addresses. All
//! sources (files, APIs, sessions) produce it, and it compiles into the policy of two ports.
//!
//! | step | here |
//! | --- | --- |
//! | what there is | [`Directory`] |
//! | is it sound? | [`Directory::check`] |
//! | what differs between two, in people's words | [`changes`] |
//! | its classes, queues and filters at both ports | [`compile`], [`Compiled`] |
//! | the policy file, and the file of names | [`Compiled::write`], [`Compiled::names`] |
//! | the `tc` commands from one to another | [`Form`], [`Form::towards`] |
//! | the same of a few changed subscribers, at their cost | [`Incremental`] |
//!
//! *Principles.* No I/O, no clock. An identity (a key of [`Directory::subscribers`]) never changes:
//! a subscriber keeps its class, counters, queues and history under it, whatever other rows come
//! and go. A class has one number at both ports, and [`Numbers`] keeps it.
//!
//! *Non-goals.* Reading files and APIs, and talking to an instance: `narrows-import` and
//! `narrows-sync` do.

mod changes;
mod check;
mod commands;
mod compile;
mod draft;
mod form;
mod incremental;
mod json;
mod model;
mod numbers;
mod prefix;
mod rates;
mod said;
mod tree;
mod write;

pub use changes::{Change, Changes, changes};
pub use check::{CLASSES_MAX, LEVELS_MAX};
pub use commands::Command;
pub use compile::{Compiled, Entry, Options, Ports, Row, Rows, compile, compile_rows};
pub use draft::{Draft, Note, Report};
pub use form::{ClassForm, FilterForm, Form, Leaf, PortForm};
pub use incremental::Incremental;
pub use model::{Directory, Plan, Prefix, Queueing, Site, Subscriber};
pub use numbers::{Numbers, NumbersError};
pub use prefix::PrefixError;
pub use said::{printable, rate_words};
pub use tree::{DEFAULT, Place, ROOT, Tree};
