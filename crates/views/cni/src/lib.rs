//! The plugin `narrows-cni`: limits of a pod, from what a container runtime says of it.
//!
//! *Idea.* A chained CNI plugin runs after the one that has made the pod's interface. This one
//! finds the end of the pod's veth on the host, and tells the host plane that has it, over its
//! control socket, which rates hold there. What is sent into a pod leaves through that end and
//! waits in a queue; what a pod sends arrives there and is policed.
//!
//! *Principles.* No state of its own: everything is at the device, and goes with it. The words are
//! those of `tc`, so `narrows tc show` shows a pod's limits as anybody else's, and a change is made
//! whole or not at all. `ADD` twice is the same as once, and `DEL` succeeds when there is nothing
//! left. What cannot be done is refused before anything is changed. No input panics; it has a
//! bound.
//!
//! *Non-goals.* Making interfaces and addresses; starting the host plane; what pods share with each
//! other, which belongs to a tree at the port that they share.
//!
//! Source: the CNI specification 1.1.0, and its conventions for the capability `bandwidth`.

mod attachment;
mod command;
mod config;
mod device;
mod error;
mod host_plane;
mod limits;
mod quantity;
mod result;
mod version;
mod wishes;
mod words;

pub use command::{Answer, run};
pub use config::Config;
pub use error::CniError;
pub use limits::{Class, Limits, Policer, Queue};
pub use words::{set, unset};

/// What the program prints without `CNI_COMMAND`.
pub const HELP: &str = include_str!("help.txt");

#[cfg(test)]
mod tests;
