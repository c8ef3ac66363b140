//! What the operator asked for, as a typed and validated tree.
//!
//! A [`Policy`] holds a tree of qdiscs for each port, in the terms of `tc`: kinds, handles,
//! parents. It changes the way the kernel's trees do, by an [`Edit`] with the flags of an
//! rtnetlink request, and under the kernel's rules (`net/sched/sch_api.c`,
//! `tc_modify_qdisc()`): what the kernel refuses is refused here, with its words and what to
//! type instead. [`Installed::compile`] turns the tree of one port into what each worker is to
//! build, and says what can be retuned in place; [`Installed::gather`] leads the workers'
//! figures back to the tree.
//!
//! *Principles.* Plain data: no I/O, no clock, no thread. An edit works on a copy and yields a
//! whole new policy or an error, so nothing is ever half applied. A rate at the root is the
//! rate of the port: every `tbf` and `cake` that stands above all queues shares one limit between
//! them; under `mq` each queue's is its own.
//!
//! *To add a kind:* a variant of [`Kind`] and one of [`Params`] (`tree.rs`), how it is made and
//! changed (`edit.rs`), and what a worker builds for it (`compile.rs`); the compiler
//! names the places.
//!
//! *Non-goals.* Notation: parsing and printing are the `tc` layer's. Classes and filters come
//! with the first kind that has them.

mod automatic;
mod cake;
mod compile;
mod edit;
mod error;
mod facts;
mod fq;
mod gather;
mod handle;
mod pacing;
mod tbf;
mod tree;

pub use cake::{Cake, CakeOptions, CakeParams};
pub use compile::{Installed, Update};
pub use edit::{Edit, Verb};
pub use error::PolicyError;
pub use facts::PortFacts;
pub use fq::{FqOptions, FqParams};
pub use gather::NodeStats;
pub use handle::{ClassId, Handle, Parent};
pub use pacing::{CodelOptions, PacingOptions};
pub use tbf::{Tbf, TbfParams};
pub use tree::{Fifo, FifoUnit, Kind, MAX_DEPTH, Mq, Node, Params, Policy, PortPolicy};
