//! Other people's schedulers, called from our benchmarks.
//!
//! A comparison is fair where both sides get the same packets from the same loop in the same
//! process. So a peer is loaded as the shared library that its distribution ships, unchanged,
//! when a benchmark asks for it: nothing here is needed to build Narrows or to run it, and where
//! a peer is not installed the benchmark says so and goes on without.
//!
//! All `unsafe` is in [`rte_sched`]'s module `abi`, which knows how the library wants to be called.
//!
//! Non-goals: the peers' drivers, and anything that a running shaper would need.

pub mod rte_sched;
