//! The commands `serve` and `history`.
//!
//! *Two programs know them.* `narrows` has their command lines, so that its help, its manual and
//! its completions are whole. `narrows-serve` does what they ask for, and alone has the web server,
//! the database and TLS. It is a package of its own: they are what a small box has no room for.
//!
//! Non-goals: what is served (`narrows_serve`), and what is kept (`narrows_history`).

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![expect(missing_docs, reason = "an option's documentation is its help")]

mod former_name;
mod history;
mod serve;

pub use history::History;
pub use serve::{Serve, names};
