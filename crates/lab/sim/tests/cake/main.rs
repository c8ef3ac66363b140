//! What CAKE promises, in virtual time: the scenarios `cake-*`, some of them shortened or at
//! another rate, with what each has to reach.
//!
//! *Principles.* The scenarios are run as `narrows sim` runs them. A peer that CAKE must beat runs
//! in the same test, so a scenario that no longer shows a difference is noticed.
//!
//! *Non-goals.* Time on real cores, and what `tc` prints.

mod control;
mod faults;
mod harness;
mod many;
#[path = "../scenarios/mod.rs"]
mod scenarios;
mod sharing;
mod tins;
mod yardstick;
