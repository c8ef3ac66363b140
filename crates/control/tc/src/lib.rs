//! The `tc` grammar: parses command lines into edits of a policy, and prints a policy with its
//! statistics as `tc` does.
//!
//! The grammar is that of `tc(8)`: the same words, abbreviations, units, handles, exit codes, text
//! and JSON as iproute2 6.1, so that scripts, exporters and habits still work. Extensions add words
//! (`coordination`, `sync`, `linklayer ptm`) and change no meanings. `docs/tc.md` lists what is
//! supported, added and different.
//!
//! [`execute`] runs one command line and [`execute_batch`] a file of them, against a [`Host`]: a
//! running instance, or a policy file ([`OfflineHost`], [`offline`]). [`load`] reads a policy file
//! as a whole, and [`part`] divides one that names patterns of devices. If several instances run,
//! [`route`] finds the one that a command is for.
//!
//! *Principles.* No I/O except in `offline.rs`, `file.rs`, `input.rs` and `lock.rs`. A line that
//! fails changes nothing, names the faulty word, and says what to type instead. No input panics.
//! Printed numbers are what the kernel would report, including the rounding to its clock ticks;
//! saved ones ([`save`]) are exact.
//!
//! *Non-goals.* Kinds that the policy does not have; colour.

mod action;
mod batch;
mod class;
mod command;
mod complaint;
mod device;
mod figures;
mod file;
mod filter;
mod graph;
mod handles;
mod host;
mod input;
mod intermediate;
mod kinds;
mod lines;
mod listing;
mod lock;
mod names;
mod notation;
pub mod number;
mod oddities;
mod offline;
mod options;
mod overhead;
mod part;
mod protocols;
mod qdisc;
mod render;
mod route;
mod save;
mod stats;
mod ticks;
mod verb;
mod words;

pub use batch::{Batch, Mark, execute_batch, load};
pub use command::{CommandLine, execute, execute_named, help, shows};
pub use complaint::{Outcome, refusal};
pub use device::check_name as check_device_name;
pub use file::replace;
pub use host::{Editing, Host};
pub use input::{INPUT_MAX, read_input};
pub use kinds::link_overhead;
pub use listing::{classes, qdiscs};
pub use lock::Lock;
pub use names::{ClassNames, NAMES_FILE};
pub use oddities::warnings;
pub use offline::{OfflineHost, offline, read_names};
pub use options::Options;
pub use overhead::framing_name;
pub use part::part;
pub use route::{Leg, Recipients, gather, recipients, route};
pub use save::save;
