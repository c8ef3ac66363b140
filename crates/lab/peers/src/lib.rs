//! Other projects' schedulers, called from Narrows' benchmarks.
//!
//! A comparison is fair if both sides get the same packets from the same loop in the same process.
//! So a benchmark loads a peer at run time, as the unmodified shared library of the distribution.
//! Nothing here is needed to build or run Narrows. If a peer is not installed, the benchmark says
//! so and continues without it.
//!
//! All `unsafe` is in [`rte_sched`]'s module `abi`, which knows the library's binary interface.
//!
//! Non-goals: the peers' drivers, and anything that a running shaper needs.

pub mod rte_sched;
