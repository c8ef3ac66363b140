//! A host whose connections have rates of their own, and FlowBundler's estimates of their
//! destinations' rates.
//!
//! *Idea.* If the total rate to a host is not configured, `flowbundler` estimates it from
//! departures, and the estimate determines the wheel in which packets are held. So here *holding*
//! and *estimating* are the qdisc's own code ([`Mltw`](narrows_qdisc::pacing::Mltw),
//! [`Bundles`](narrows_qdisc::pacing::Bundles)), called as the qdisc calls them. Only the
//! *stamping* is simulated, since the qdisc gives all its flows one rate and the paper's
//! connections have several: one each, and then one for all together.
//!
//! *A packet's path.* A connection always has some packets in the host. Each is stamped a packet's
//! time behind the previous one, of its connection or of all; its slot is as long as the estimate
//! allows; when it leaves, the estimate is updated and the connection sends another one.
//!
//! *Source.* D. Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching"
//! (ToN 2025), section VI.G, Fig. 16.
//!
//! *Cost.* Two steps of a wheel per packet; memory for every change of an estimate.
//!
//! *Non-goals.* A network, TCP: connections are as fast as they may be.

mod host;
mod outcome;
mod setup;

pub use outcome::{Near, Row};
pub use setup::{Case, Phase, Setup, Shaping};

/// The result for each host in each phase of `case`.
pub fn run(setup: &Setup, case: &Case) -> Vec<Row> {
    let course = host::run(setup, case);
    outcome::rows(setup, case, &course)
}
