//! `narrows top`: an instance, live, in a terminal.
//!
//! *Idea.* A snapshot is fetched at an interval over the control socket. An [`App`] takes snapshots
//! and keys and holds the state of the screen; [`text`] and [`draw`] turn it into lines. Both are
//! pure: they read no clock, no terminal and no socket, so tests can drive them.
//!
//! *Principles.* Rates are differences of two snapshots over the uptime between them. Colour never
//! carries information alone, so the screen is the same without it. Only cells that change are
//! sent, so it works over a slow line. When the instance disappears, the last figures stay and the
//! first line says so until it returns.
//!
//! *Non-goals.* Changing anything (`narrows tc`); history beyond a sparkline (`narrows serve`).

mod app;
mod cell;
mod chart;
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
pub use text::{Excerpt, once};
pub use view::View;

/// Why `narrows top` cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// No instance answers.
    #[error(transparent)]
    Control(#[from] narrows_control::ControlError),
    /// More than one instance runs here, and none was named.
    #[error("several instances run here ({0}); name a port of one: narrows top DEV")]
    Several(String),
    /// No agent answers at the socket that was named.
    #[error(transparent)]
    NoAgent(#[from] narrows_control::fleet_agent::NoAgent),
    /// Standard output is not a terminal.
    #[error("standard output is no terminal; `narrows top --once` prints one frame anywhere")]
    NoTerminal,
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] std::io::Error),
}
