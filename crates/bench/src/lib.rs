//! What a packet costs: the same work through every structure, side by side.
//!
//! A figure alone says more about the machine than about the code. So all [`Structure`]s do
//! the same [workload](structure), in turns within one run, and each is given as a ratio to the
//! floor, a `VecDeque`; and where a machine is too noisy to tell a nanosecond, instructions
//! a packet are counted instead (`instruction-count`, with budgets in `instructions.json`).
//!
//! What `cake` costs is measured [beside a peer](cake), with frames whose headers are read; what
//! it costs to hold packets until their departure, in [timing wheels](wheels) and beside them.
//!
//! What it costs to find the heaviest hosts and flows is measured [at a rate](heaviest), and so are
//! [round trips](round_trips).
//!
//! What it costs that cores share a limit is measured apart, with [real threads](coordination);
//! what a frame costs in the driver, by [test runs](xdp) of the kernel.
//!
//! Non-goals: real NICs, which have benchmarks of their own.

pub mod cake;
pub mod callgrind;
pub mod classify;
pub mod coordination;
pub mod heaviest;
pub mod policy;
mod processor;
pub mod qdisc;
pub mod round_trips;
pub mod structure;
pub mod tree;
pub mod wheels;
pub mod xdp;
mod zipf;

pub use structure::{Structure, Workload};
