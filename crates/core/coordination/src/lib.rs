//! How much each worker may send: the only state that workers share.
//!
//! Several queues keep a [`Limit`] together. Each queue has a
//! [`Meter`](narrows_qdisc::Meter) that only its worker touches. The meters share a few cache
//! lines, which a [`Coordination`] owns. A [`Strategy`] decides how they divide the limit; each is
//! in a file of its own:
//!
//! | strategy | shared and written by many | exact in the sum | fair between queues |
//! | --- | --- | --- | --- |
//! | `lock` | a mutex, every packet | in every window | by turns |
//! | `edt` | a clock, every arrival | on the stamps | no |
//! | `equal` | nothing | once all have scanned, if all use their part | by division |
//! | `fair` | a word, every lease | in every window | max-min, by weight |
//!
//! A whole tree of limits is a [`SharedTree`]: an `htb`, kept by a [`TreeStrategy`] (`fair`,
//! `flowvalve` or `lock`), or an [`hfsc`].
//!
//! *Principles.* A meter's published state is on cache lines of its own. Only a strategy's own
//! state is contended; noticing a changed limit never is. Memory orderings are argued where they
//! are used, and every lock-free part is checked with `loom` (`RUSTFLAGS="--cfg loom" cargo test -p
//! narrows-coordination --lib --release`).
//!
//! *Non-goals.* No clocks (`now` is an argument, and all workers' must count from one epoch), no
//! threads, no packets, no allocation once a meter is taken (except that a handle at the `census`
//! allocates when it counts its first host).
//!
//! Source: the mq-cake papers (IFIP; Netdev 0x19), Algorithms 1 and 2.

mod byte_time;
mod census;
mod classes;
mod coordination;
mod destinations;
mod edt;
mod equal;
mod fair;
mod fairness;
pub mod flowvalve;
mod fluid;
pub mod hfsc;
mod label;
mod ledger;
mod limit;
mod line;
mod lock;
pub mod locked;
mod pace;
mod place;
mod policer;
mod roster;
mod strategy;
mod sync;
mod tree;
mod trees;

pub use classes::{Below, Change, Classes, topmost};
pub use coordination::Coordination;
pub use destinations::Destinations;
pub use fairness::jain;
pub use fluid::Fluid;
pub use label::{LENDERS_MAX, Label, Lenders};
pub use limit::Limit;
pub use policer::SharedPolicer;
pub use strategy::{DEFAULT_SYNC_TIME, Strategy};
pub use tree::{Spent, Tree};
pub use trees::{SharedTree, TreeKind, TreeStrategy};
