//! Virtual time: the data plane's own workers, qdiscs and meters on simulated cores.
//!
//! Test machines have a few cores; the claims are about forty. So the code that runs on real cores
//! runs here on virtual ones: every core has a [`Worker`](narrows_shaper::Worker) with qdiscs and
//! meters compiled from `tc` words by the same path as in the data plane. Only a worker's
//! environment is simulated: the clock, the core's time ([`engine`]), arrivals ([`traffic`],
//! [`tcp`]) and the next hop. The results are measured ([`measure`]) and reported ([`report`]).
//!
//! *Principles.* Deterministic from a seed, on any machine: integers for time, a specified
//! generator, no hash map whose order matters. No result is an input: a cost model
//! ([`setup::Costs`]) says how long a core is busy, and the simulation shows who is late because of
//! it. Every number is labelled *simulated*.
//!
//! *The model of real cores.* Each has a clock with a constant offset, wakes up late by a random
//! time, is busy for as long as its packets take, and touches shared cache lines at a moment of its
//! own, up to a bound after it has read its clock; so scans are never simultaneous and each sees
//! the others as they were a bounded, random time ago.
//!
//! There are other topologies for the pacing qdiscs: a leaf-spine [`fabric`] of hosts that pace,
//! through their calendars; a [`star`] of hosts that send to one, through whole qdiscs; a
//! single host whose [`estimator`] of rates is observed; and applications whose TCP goes through a
//! [`tree`] of classes.
//!
//! *Non-goals.* Payload (except for the TCP stack that needs it), routing.

pub mod accepted;
pub mod autorate;
pub mod engine;
pub mod estimator;
pub mod fabric;
pub mod fleet;
pub mod measure;
pub mod report;
pub mod scenario;
pub mod setup;
pub mod star;
mod tc;
pub mod tcp;
pub mod traffic;
pub mod tree;
