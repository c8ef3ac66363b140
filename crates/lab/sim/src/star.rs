//! Hosts that send to one: what a bundle does where all of it meets.
//!
//! *Idea.* FlowBundler lets packets of different flows leave together because they separate before
//! they reach a bottleneck. Here they do not: every sender is linked to one switch, and all packets
//! go through its port to one receiver. The *safeguard* is that of the qdisc itself, from the
//! feedback that it gets to its reaction: every sender has a whole qdisc, compiled from `tc` words
//! by the same path as in the data plane, which parses the headers of returning packets as it does
//! there.
//!
//! *A packet's path.* A connection, which always has something to send, gives its qdisc what
//! DCTCP's window and TCP's small queue allow (`flow.rs`); the host sends what its qdisc releases
//! (`host.rs`); the switch's port marks packets that find more than its threshold
//! ([`Link`](crate::fabric)); the receiver acknowledges each segment with its mark and its time
//! stamp, over links of its own.
//!
//! *Source.* D. Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching"
//! (ToN 2025), section VI.G, Fig. 18. DCTCP: RFC 8257 ([`tcp`](crate::tcp)); time stamps: RFC 7323.
//!
//! *Principles.* Deterministic from a seed. Hosts' clocks have random constant offsets, so that
//! slots of two hosts do not coincide. Every packet is accounted for at the end, or the run has no
//! result.
//!
//! *Non-goals.* Handshakes, delayed ACKs, framing, a host's processor.

mod engine;
mod flow;
mod host;
mod outcome;
mod setup;

pub use outcome::{Measure, Outcome};
pub use setup::{Case, Setup};

use crate::traffic::seed::hash;
use engine::Engine;

/// Runs `case` in the network of `setup`, as often as configured. Returns the sum of all runs.
///
/// # Errors
/// Words that `tc` does not take, and packets of which trace was lost.
pub fn run(setup: &Setup, case: &Case) -> Result<Outcome, String> {
    let mut all = Outcome::default();
    for number in 0..setup.runs {
        let seed = hash(setup.seed, [u64::from(number), 0, 0]);
        let mut engine = Engine::new(setup, case, seed)?;
        engine.run();
        let outcome = engine.finish();
        if !outcome.books.add_up() {
            return Err(format!("packets are missing in run {number}: {:?}", outcome.books));
        }
        all.add(&outcome);
    }
    Ok(all)
}

/// Whether `tc` takes the words.
///
/// # Errors
/// The message if it does not.
pub(crate) fn check(qdisc: &[String]) -> Result<(), String> {
    host::build(qdisc).map(|_| ())
}

#[cfg(test)]
mod tests;
