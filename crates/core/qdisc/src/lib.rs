//! Queueing disciplines: which packets wait, leave next, or are dropped.
//!
//! One trait, [`Qdisc`], shaped like the kernel's `struct Qdisc_ops`, so that anyone who
//! knows `net/sched` can read it. A qdisc does no I/O, starts no thread, reads no clock
//! (`now` is an argument) and allocates nothing per packet; one worker owns it outright.
//! The only things that it may share are a [`Meter`] at a limit that several
//! workers keep together, and shared counts and feedback: a [`Census`], a [`Feedback`].
//!
//! A qdisc is described by a [`Spec`] (what to build, with which parameters and meters) and
//! made by [`Spec::build`]. Under load it is changed in its [`Slot`]: new parameters by
//! [`Qdisc::retune`], another qdisc by handing the queued packets over with [`Qdisc::drain`] and
//! [`Qdisc::adopt`]. Neither loses a packet.

mod acknowledgements;
mod census;
mod class;
mod coalescing;
mod config;
mod detail;
mod draining;
mod feedback;
mod flow_table;
mod heap;
mod held;
mod inner;
mod lengths;
mod meter;
mod overlimits;
mod places;
mod probe;
mod qdisc;
mod rotation;
mod sink;
mod slot;

pub mod bands;
pub mod bucket;
pub mod cake;
mod class_queue;
pub mod codel;
pub mod fifo;
pub mod fq;
pub mod fq_codel;
pub mod hfsc;
pub mod htb;
pub mod netem;
pub mod pacing;
pub mod red;
pub mod sfq;
mod stab;
pub mod tbf;

pub use census::{Census, HostKey, TINS_MAX, TinCensus};
pub use class::Class;
pub use config::{Config, Ends, Metering, Spec};
pub use detail::Detail;
pub use feedback::{Alone, DESTINATIONS, Feedback, Word};
pub use held::Above;
pub use meter::{Contact, Meter, OWED_MAX, Share, Take, Weight};
pub use probe::{Contacts, Probe};
pub use qdisc::{Next, Qdisc, RANKS, Ranking, Stats, Verdict};
pub use slot::{Handover, NodeId, ReadHeaders, Slot};
