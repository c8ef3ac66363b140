//! Applications that send through a tree of classes: FlowValve's experiments.
//!
//! *Idea.* Some applications, each on a queue of its own, send over TCP what a policy file allows.
//! They come and go in phases, and the rate of each is compared with the policy. The tree, its
//! strategies and the qdiscs are those of the data plane, from the file's words by the same path;
//! TCP is the model over whole segments ([`tcp`](crate::tcp)); the line is a rate.
//!
//! *Two ways to enforce a tree.* In a qdisc packets wait in their class's queue, and the line takes
//! one after the other from the queues in turn, as a device does. On FlowValve's network processor
//! nothing waits: a packet that gets no token is dropped when it comes (*specialised tail drop*),
//! and any other goes into one FIFO in front of the line. There the same meters at the tree are
//! asked, packet by packet.
//!
//! *The XDP plane* ([`driver`]) also drops excess traffic. It runs the program's own C code,
//! compiled for the host.
//!
//! *Before the tree.* A scheduler may have applications that go before all others without a class,
//! as with `prio` above `htb` in the paper's comparison.
//!
//! *How many packets* a tree can decide about in a second is another question ([`capacity`]): there
//! cores cost time, and here they do not.
//!
//! *Source.* S. Xi, F. Li, X. Wang, "FlowValve: Packet Scheduling Offloaded on NP-based SmartNICs",
//! sections II and V.
//!
//! *Principles.* Deterministic from a seed. Every packet is accounted for at the end, or the run
//! has no result.
//!
//! *Non-goals.* Filters: a packet comes with its class. The cost of a kernel lock, and its effects
//! that were observed in Linux.

pub mod capacity;
mod departs;
mod driver;
mod engine;
mod flow;
mod gate;
mod leaves;
mod outcome;
mod setup;

pub use outcome::{Books, Outcome};
pub use setup::{App, Keeper, Phase, Scheduler, Setup};

use engine::Engine;

/// Runs the applications of `setup` through `scheduler`.
///
/// # Errors
/// A policy that is none, a class that it does not have, and packets of which trace was lost.
pub fn run(
    setup: &Setup,
    scheduler: &Scheduler,
    tell: &mut dyn FnMut(f64),
) -> Result<Outcome, String> {
    let mut engine = Engine::new(setup, scheduler)?;
    engine.run(tell);
    let outcome = engine.finish();
    if !outcome.books.add_up() {
        return Err(format!("packets are missing: {:?}", outcome.books));
    }
    Ok(outcome)
}

/// Whether `scheduler` can run with this many queues.
///
/// # Errors
/// The message of `tc` about its policy.
pub(crate) fn check(scheduler: &Scheduler, queues: usize) -> Result<(), String> {
    match scheduler.keeper {
        Keeper::Workers(_) => gate::lay_out(scheduler, queues).map(|_| ()),
        Keeper::Driver(_) => driver::check(scheduler, queues),
        Keeper::Departures => departs::check(scheduler, queues),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod valves;
