//! `narrows top`: an instance, live, in a terminal.
//!
//! *Idea.* A snapshot is fetched at an interval over the control socket. An [`App`] is fed with
//! snapshots and keys and knows what is to be seen; [`text`] and [`draw`] put it into lines. Both
//! are pure: they read no clock, no terminal and no socket, so tests feed and read them.
//!
//! *Principles.* Rates are differences of two snapshots over the uptime between them. What can be
//! said in a word is not said by colour alone, so it reads the same without colour; only cells that
//! change are sent, so it works over a slow line. When the instance goes away the last figures stay
//! and the first line says so, until it is back.
//!
//! *Non-goals.* Changing anything (`narrows tc`); history beyond a sparkline (`narrows serve`).

mod app;
mod cell;
mod draw;
mod look;
mod number;
mod source;
mod spark;
mod table;
mod terminal;
mod text;
mod view;

pub use app::{App, Feed};
pub use draw::draw;
pub use look::Look;
pub use source::Source;
pub use terminal::run;
pub use text::once;
pub use view::View;

/// What keeps `narrows top` from showing anything.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// No instance can be asked.
    #[error(transparent)]
    Control(#[from] narrows_dataplane::control::ControlError),
    /// More than one instance runs here, and none was named.
    #[error("several instances run here ({0}); name a port of one: narrows top DEV")]
    Several(String),
    /// Standard output is no terminal.
    #[error("standard output is no terminal; `narrows top --once` prints one frame anywhere")]
    NoTerminal,
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] std::io::Error),
}
