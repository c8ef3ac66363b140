//! The headers of a flow's packets.
//!
//! *Idea.* All packets of a flow have the same, so there is one entry per flow, made once and
//! shared by the cores. Hashes follow from the seed, the group and a number: a group that is added
//! changes nothing for the others. The flows of a host are neighbours by number, so that
//! `round-robin` spreads those of every host over all queues.
//!
//! *Non-goals.* Firewall marks, other link layers than Ethernet, ACKs: none passes the shaper.

use crate::setup::{Setup, Traffic};
use crate::traffic::seed::{Purpose, hash};
use narrows_packet::{Ecn, Headers};

/// Where the network layer begins in an Ethernet frame, in bytes.
const NETWORK_OFFSET: u16 = 14;

/// Of every flow of `setup`, in the order of their numbers; those of an ECN-capable flow
/// are seen by [`Offer::ect`](crate::traffic::Offer::ect).
pub(crate) fn of_flows(setup: &Setup) -> Vec<Headers> {
    let groups = (0..).zip(&setup.traffic);
    groups
        .flat_map(|(group, traffic)| {
            (0..traffic.flows).map(move |flow| of_flow(setup.seed, group, traffic, flow))
        })
        .collect()
}

fn of_flow(seed: u64, group: u64, traffic: &Traffic, flow: u32) -> Headers {
    let fields = &traffic.headers;
    // The low half of a hash is as good as all of it.
    let hash = |purpose: Purpose, number: u32| {
        hash(seed, [group, purpose as u64, u64::from(number)]) as u32
    };
    Headers {
        flow: hash(Purpose::Flows, flow),
        source: hash(Purpose::Sources, host_of(flow, traffic.flows, fields.source_hosts)),
        destination: hash(
            Purpose::Destinations,
            host_of(flow, traffic.flows, fields.destination_hosts),
        ),
        mark: 0,
        network_offset: NETWORK_OFFSET,
        dscp: fields.dscp,
        ecn: Ecn::NotCapable,
        is_arp: false,
    }
}

/// Which of `hosts` has flow number `flow` of so many.
pub(crate) fn host_of(flow: u32, flows: u32, hosts: u32) -> u32 {
    (u64::from(flow) * u64::from(hosts) / u64::from(flows.max(1))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn every_host_has_as_many_flows_as_the_others_or_one_more(
            hosts in 1u32..50,
            more in 0u32..200,
        ) {
            let flows = hosts + more;
            let mut of: BTreeMap<u32, u32> = BTreeMap::new();
            for flow in 0..flows {
                *of.entry(host_of(flow, flows, hosts)).or_default() += 1;
            }
            prop_assert_eq!(of.len() as u32, hosts);
            prop_assert!(of.values().all(|&n| n == flows / hosts || n == flows.div_ceil(hosts)));
        }
    }
}
