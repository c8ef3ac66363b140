//! The cost of a packet: the same work through every structure, side by side.
//!
//! A figure alone says more about the machine than about the code. So all [`Structure`]s do
//! the same [workload](structure), in turns within one run, and each is given as a ratio to the
//! floor, a `VecDeque`; and where a machine is too noisy to tell a nanosecond, instructions
//! a packet are counted instead (`instruction-count`, with budgets in `instructions.json`).
//!
//! The cost of `cake` is measured [beside a peer](cake), with frames whose headers are parsed; the
//! cost of holding packets until their departure, in [timing wheels](wheels) and their peers.
//!
//! The costs of tracking [the heaviest hosts and flows](heaviest) and [round trips](round_trips)
//! are measured at a packet rate.
//!
//! The cost of sharing a limit between cores is measured with [real threads](coordination), and the
//! cost of a frame in the driver, and of a packet to a [balancer](balance), by [test runs](xdp) in
//! the kernel.
//!
//! Non-goals: real NICs, which have benchmarks of their own.

#[cfg(feature = "kernel")]
pub mod balance;
pub mod cake;
pub mod callgrind;
pub mod classify;
pub mod coordination;
pub mod heaviest;
#[cfg(feature = "kernel")]
pub mod look_up;
#[cfg(feature = "kernel")]
pub mod policy;
mod processor;
pub mod qdisc;
pub mod round_trips;
pub mod structure;
pub mod tree;
pub mod wheels;
#[cfg(feature = "kernel")]
pub mod xdp;
mod zipf;

pub use structure::{Structure, Workload};
