//! What a plan is at work: what each core does, and what all of them share.
//!
//! An [`Installation`] makes of a plan what each queue's worker is to run, with its seats at the
//! limits that queues share, and reconciles a changed plan with what runs.
//!
//! A [`Worker`] serves one queue of each of two ports. It does no I/O of its own and reads no
//! clock: where packets come from and go to stands behind [`Io`], and `now` is an argument.
//! The data plane runs it over AF_XDP rings in real time, the simulator on virtual cores in
//! virtual time, and it is the same code in both.
//!
//! *Non-goals.* Threads, sleeping, control: they belong to whoever steps the worker.

mod installation;
mod io;
mod worker;

pub use installation::Installation;
pub use io::{Io, Side};
pub use worker::{Activity, BATCH, PathCounters, Pause, UNSEEN_MAX, Worker};
