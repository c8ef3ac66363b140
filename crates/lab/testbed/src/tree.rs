//! A small provider's tree with real traffic: [shown](demo), and measured beside Linux's, on an
//! [otherwise idle machine](real) and on a [busy one](busy). And [a larger one's](many), of many
//! classes at their ceilings, where the machine is the limit. And how long packets are under way
//! through a tree of [four applications](delay).
//!
//! Two sites share a link, six subscribers the sites, three applications each subscriber
//! (`provider`). In each phase they ask for other rates (`phase`); one thread sends all of
//! it (`load`), another notes what arrives (`arrivals`).
//!
//! *Asked* is the offered rate, counted at the senders. *Due* is the rate by HTB's rules, from a
//! [fluid model](narrows_coordination::Fluid) that is not part of the shaper. *Delivered* is the
//! rate at the far end. All three are medians over windows of half a second, which leave out the
//! first [`SETTLING`] of a phase, in which full buckets and the queues of stopped senders drain.
//!
//! Non-goals: TCP, whose senders would make of a tree what their own control makes of it, and, with
//! this tree, rates at which the machine is the limit.

mod arrivals;
pub mod busy;
pub mod delay;
pub mod demo;
mod load;
pub mod many;
mod phase;
mod provider;
pub mod real;
mod share;

use std::time::Duration;

/// The time that is left out at the start of each phase.
pub(crate) const SETTLING: Duration = Duration::from_millis(100);
