//! What one core does: takes in what arrived, asks the qdiscs, sends what may leave.
//!
//! A [`Worker`] serves one queue of each of two ports. It does no I/O of its own and reads no
//! clock: where packets come from and go to stands behind [`Io`], and `now` is an argument.
//! The data plane runs it over AF_XDP rings in real time, the simulator on virtual cores in
//! virtual time, and it is the same code in both.
//!
//! *Non-goals.* Threads, sleeping, control: they belong to whoever steps the worker.

mod io;
mod worker;

pub use io::{Io, Side};
pub use worker::{Activity, BATCH, PathCounters, Pause, UNSEEN_MAX, Worker};
