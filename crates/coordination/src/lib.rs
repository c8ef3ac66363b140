//! Who may send how much: the only state that workers share.
//!
//! A [`Limit`] is kept by several queues together. Each queue has a seat at it, a
//! [`Meter`](narrows_qdisc::Meter) that only its worker touches; what the seats need to know of
//! each other stands in a few cache lines that a [`Coordination`] owns. How they divide the
//! limit is a [`Strategy`], each in a file of its own:
//!
//! | strategy | shared and written by many | exact in the sum | fair between queues |
//! | --- | --- | --- | --- |
//! | `lock` | a mutex, every packet | in every window | by turns |
//! | `edt` | a clock, every arrival | on the stamps | no |
//! | `equal` | nothing | once all have scanned, if all use their part | by division |
//! | `fair` | a word, every lease | in every window | max-min, by weight |
//!
//! *Principles.* A seat's published state stands on cache lines of its own. Only what a
//! strategy says of itself is contended; following a change of the limit never is. Memory
//! orderings are argued where they stand, and every lock-free part is checked with `loom`
//! (`RUSTFLAGS="--cfg loom" cargo test -p narrows-coordination --lib --release`).
//!
//! *Non-goals.* No clocks (`now` is an argument, and all workers' must count from one epoch),
//! no threads, no packets, no allocation once a seat is taken (but for what a seat at the
//! `census` needs to count its first host).
//!
//! Source: the mq-cake papers (IFIP; Netdev 0x19), Algorithms 1 and 2.

mod census;
mod coordination;
mod destinations;
mod edt;
mod equal;
mod fair;
mod fairness;
mod limit;
mod line;
mod lock;
mod pace;
mod place;
mod strategy;
mod sync;
mod tree;

pub use coordination::Coordination;
pub use destinations::Destinations;
pub use fairness::jain;
pub use limit::Limit;
pub use strategy::{DEFAULT_SYNC_TIME, Strategy};
pub use tree::{Below, Tree};
