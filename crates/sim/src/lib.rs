//! Virtual time: the data plane's own workers, qdiscs and seats on simulated cores.
//!
//! The machines at hand have a few cores; the claims are about forty. So the very code that
//! runs on real cores runs here on virtual ones: every core has a
//! [`Worker`](narrows_shaper::Worker) with qdiscs and seats compiled from `tc` words by the
//! same path as in the data plane. Only what surrounds a worker is simulated: the clock, the
//! core's time ([`engine`]), the packets that come in ([`traffic`], [`tcp`]) and the next hop.
//! What comes out is measured ([`measure`]) and reported ([`report`]).
//!
//! *Principles.* Deterministic from a seed, on any machine: integers for time, a generator
//! that is specified, no hash map whose order matters. Nothing of a result is put in:
//! a cost model ([`setup::Costs`]) says how long a core is busy, and who is late because of
//! it comes out. Every number is labelled *simulated*.
//!
//! *What is modelled of real cores.* Each has a clock that is off by a constant, wakes up late
//! by a random time, is busy for as long as its packets take, and touches shared cache lines at
//! a moment of its own, up to a bound after it has read its clock; so scans are never
//! simultaneous and each sees the others as they were a bounded, random time ago.
//!
//! Beside it there are other topologies for the pacing qdiscs: a leaf-spine [`fabric`] of hosts
//! that pace, through their calendars; a [`star`] of hosts that send to one, through whole qdiscs;
//! and a single host whose [`estimator`] of rates is watched.
//!
//! *Non-goals.* Payload (but for the TCP stack that needs it), routing.

pub mod engine;
pub mod estimator;
pub mod fabric;
pub mod measure;
pub mod report;
pub mod scenario;
pub mod setup;
pub mod star;
mod tc;
pub mod tcp;
pub mod traffic;
