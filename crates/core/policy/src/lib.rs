//! The operator's configuration, as a typed and validated tree.
//!
//! A [`Policy`] holds a tree of qdiscs for each port, in the terms of `tc`: kinds, handles,
//! parents. An [`Edit`] changes it. An edit has the flags of an rtnetlink request and follows the
//! kernel's rules (`net/sched/sch_api.c`, `tc_modify_qdisc()`): what the kernel refuses is refused
//! here, with the kernel's words and what to type instead. [`Plan::of`] lays out the tree of one
//! port over its queues.
//!
//! *Principles.* Plain data: no I/O, no clock, no thread. An edit works on a copy and returns a
//! whole new policy or an error, so nothing is ever half applied. A rate at the root is the rate of
//! the port: every `tbf` and `cake` above all queues has one limit that the queues share. Under
//! `mq`, each queue has a limit of its own.
//!
//! *To add a kind:* a module with its rules, a variant of [`Kind`] and one of [`Params`] (see
//! `kind.rs`); the compiler names the places.
//!
//! *Non-goals.* Notation: the `tc` layer parses and prints.

mod action;
mod assignments;
mod automatic;
mod autorate;
mod cake;
mod class_tree;
mod classful;
mod codel;
mod drr;
mod edit;
mod error;
mod ets;
mod facts;
mod fifo;
mod filter;
mod fleet;
mod fq;
mod fq_codel;
mod front;
mod handle;
mod hfsc;
mod htb;
mod kind;
mod label;
mod mq;
mod netem;
mod pacing;
mod plan;
mod prio;
mod red;
mod redirect;
mod reuse;
mod sfq;
mod shared;
mod stab;
mod tbf;
mod tree;

pub use action::{ActionDraft, ActionFlags, BoundAction, Cookie};
pub use autorate::{Autorate, REFLECTORS_MAX};
pub use cake::{Cake, CakeOptions, CakeParams};
pub use class_tree::{ClassTree, TreeClass};
pub use classful::{CLASSFUL_DEPTH, Classful};
pub use codel::CodelQueueOptions;
pub use drr::Drr;
pub use edit::{Edit, Verb};
pub use error::PolicyError;
pub use ets::{Ets, EtsOptions};
pub use facts::PortFacts;
pub use fifo::{Fifo, FifoUnit};
pub use filter::{Ends, FilterEdit, FilterPlace};
pub use fleet::{FLEET_LEAST, Fleet, FleetLimit, FleetName, FleetPlace, SafeShare};
pub use fq::{FqOptions, FqParams};
pub use fq_codel::FqCodelOptions;
pub use front::{FRONT_LOOK_UPS_MAX, FRONT_TERMS_MAX, FrontTerm, Reach, SetLookUp};
pub use handle::{ClassId, Handle, Parent};
pub use hfsc::{Hfsc, HfscClass, HfscClasses, HfscCurves, HfscSum};
pub use htb::{ClassEdit, ClassParams, Htb, HtbClass, HtbClasses, HtbOptions, HtbParams};
pub use kind::{Classes, KINDS, Kind, Params};
pub use label::HtbLabel;
pub use pacing::{CodelOptions, PacingOptions};
pub use plan::{
    Key, NodeStats, Plan, PlanClass, PlanNode, PortLimit, SharedLimit, Within, filling,
};
pub use prio::{Prio, PrioParams, Priomap};
pub use redirect::is_intermediate;
pub use sfq::SfqOptions;
pub use stab::Stab;
pub use tbf::TbfParams;
pub use tree::{MAX_DEPTH, Node, Policy, PortPolicy};
