//! The `tc` grammar: command lines into edits of a policy, and a policy with its figures back
//! into what `tc` prints.
//!
//! The grammar is that of `tc(8)`: the same words, abbreviations, units, handles, exit codes,
//! text and JSON as iproute2 6.1, so that scripts, exporters and fingers need nothing new.
//! Where Narrows goes beyond `tc` it adds words (`coordination`, `sync`, `linklayer ptm`) and
//! changes no meanings. `docs/tc.md` lists what is spoken, added and different.
//!
//! [`execute`] runs one command line and [`execute_batch`] a file of them, against a [`Host`]: a
//! running instance, or a policy file ([`OfflineHost`], [`offline`]). [`load`] reads a policy file
//! as a whole. Where several instances run, [`route`] says which of them a command is for.
//!
//! *Principles.* No I/O but in `offline.rs` and `file.rs`. A line that fails changes nothing, says
//! which word is at fault and what to type instead, and no input whatsoever panics. What is printed
//! from numbers is what the kernel would report, down to the rounding of its clock ticks; what is
//! saved ([`save`]) is exact.
//!
//! *Non-goals.* Other kinds than the policy has; colour.

mod action;
mod batch;
mod class;
mod command;
mod complaint;
mod file;
mod filter;
mod graph;
mod host;
mod kinds;
mod listing;
mod names;
mod notation;
pub mod number;
mod offline;
mod qdisc;
mod render;
mod route;
mod save;
mod show;
mod stats;
mod ticks;
mod words;

pub use batch::{Batch, execute_batch, load};
pub use command::{CommandLine, Options, execute, execute_named};
pub use complaint::Outcome;
pub use file::replace;
pub use host::Host;
pub use listing::{classes, qdiscs};
pub use names::{ClassNames, NAMES_FILE};
pub use offline::{OfflineHost, offline, read_names};
pub use route::{Leg, Recipients, gather, recipients, route};
pub use save::save;
