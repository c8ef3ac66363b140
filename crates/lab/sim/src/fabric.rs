//! A leaf-spine network of hosts that pace: the effect of batches on flows.
//!
//! *Idea.* Whether packets that leave a host together harm others shows where they meet: in the
//! queues of switches, in DCTCP's response to their marks, and in flow completion times. So here
//! the *structure* that holds packets until their time,
//! [`Carousel`](narrows_qdisc::pacing::Carousel) or [`Mltw`](narrows_qdisc::pacing::Mltw), is our
//! own code, called as a qdisc calls it, once for each host; everything around it is simulated:
//! TCP, the line, links, switches.
//!
//! *A packet's path.* TCP hands a packet with a departure time to the host's calendar (`flow.rs`),
//! the host takes all due packets together, and the line sends one packet after the other
//! (`host.rs`); then over two or four links (`topology.rs`, `link.rs`) to the other host, which
//! acknowledges each segment. ACKs are not paced; they share lines and queues with data.
//!
//! *Source.* D. Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching"
//! (ToN 2025), section VI.F, who used ns-3. DCTCP: RFC 8257 ([`tcp`](crate::tcp)).
//!
//! *Principles.* Deterministic from a seed, on any machine: times are integers, ties are broken by
//! number. Every structure gets the same flows. At the end every packet is accounted for, or the
//! run has no result.
//!
//! *Cost.* An event for each link on a packet's path, one for each look at a calendar, one for each
//! packet that a device has sent; none for queues. The next event is found among a fixed number of
//! sources (`sources.rs`). Memory is for flows that are not complete.
//!
//! *Non-goals.* Handshakes, delayed ACKs, framing, a host's processor, more than one queue per
//! port, routes that change, any congestion control but DCTCP.

pub(crate) mod device;
mod engine;
mod flow;
mod host;
pub(crate) mod link;
mod outcome;
pub(crate) mod packet;
mod setup;
pub(crate) mod sources;
mod topology;
mod workload;

pub use link::Buffer;
pub use narrows_trace::Sizes;
pub use outcome::{Batches, Books, Class, Completion, Outcome};
pub use setup::{Late, Setup, Structure};
pub use topology::Topology;
pub use workload::{Pattern, Traffic};

use engine::Engine;

/// Runs `setup` with `structure` in every host. Reports the completed part (0 to 1) of all flows to
/// `progress`.
///
/// # Errors
/// If hosts hold more packets than there can be, or a packet was lost trace of.
pub fn run(
    setup: &Setup,
    structure: Structure,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, String> {
    let mut engine = Engine::new(setup, structure);
    engine.run(progress)?;
    let outcome = engine.finish();
    if !outcome.books.add_up() {
        return Err(format!("packets are missing: {:?}", outcome.books));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests;
