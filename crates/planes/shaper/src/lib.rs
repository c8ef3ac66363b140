//! A running plan: what each core does, and what all of them share.
//!
//! An [`Installation`] derives from a plan the specification for each queue's worker, with its
//! meters at the limits that queues share, and reconciles a changed plan with the running one.
//!
//! A [`Worker`] serves one queue of each port. It does no I/O of its own and reads no
//! clock: [`Io`] provides and takes packets, and `now` is an argument. The data plane runs it over
//! AF_XDP rings in real time, the simulator on virtual cores in virtual time; it is the same code
//! in both.
//!
//! *Non-goals.* Threads, sleeping, control: the caller of the worker has them.

mod delays;
mod filters;
mod heaviest;
mod installation;
mod io;
mod lately;
mod round_trips;
mod summary;
mod worker;

pub use delays::Delays;
pub use heaviest::{Flow, Heaviest, HeaviestReport, Host, WINDOW};
pub use installation::{Installation, Used};
pub use io::{Beside, Io};
pub use round_trips::Beyond;
pub use summary::{Entry, SIZE as HEAVIEST_MAX};
pub use worker::{Activity, Arrived, BATCH, PathCounters, Pause, UNSEEN_MAX, Worker};
