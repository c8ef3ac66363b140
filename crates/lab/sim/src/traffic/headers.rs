//! The headers of a flow's packets.
//!
//! *Idea.* All packets of a flow have the same, so there is one entry per flow, made once and
//! shared by the cores. Hashes follow from the seed, the group and a number: a group that is added
//! changes nothing for the others. The flows of a host are neighbours by number, so that
//! `round-robin` spreads those of every host over all queues.
//!
//! *Rates by filters.* Frames have no bytes that filters could match; a flow's packets have the
//! rate that a filter would give them, as [that of a set's member](PaceId::of).
//!
//! *Non-goals.* Firewall marks, other link layers than Ethernet, ACKs: none passes the shaper.

use crate::setup::{Kind, Setup, Traffic};
use crate::traffic::seed::{Purpose, hash};
use narrows_packet::{Ecn, Headers, PaceId};

/// Where the network layer begins in an Ethernet frame, in bytes.
const NETWORK_OFFSET: u16 = 14;

/// The group number of common hosts.
const ALL_GROUPS: u64 = u64::MAX;

/// Of every flow of `setup`, in the order of their numbers; those of an ECN-capable flow
/// are seen by [`Offer::ect`](crate::traffic::Offer::ect).
pub(crate) fn of_flows(setup: &Setup) -> Vec<Headers> {
    let groups = (0..).zip(&setup.traffic);
    groups
        .flat_map(|(group, traffic)| {
            (0..traffic.flows).map(move |flow| match traffic.kind {
                Kind::Trace { number, .. } => setup.traces[number].flows()[flow as usize],
                _ => of_flow(setup.seed, group, traffic, flow),
            })
        })
        .collect()
}

fn of_flow(seed: u64, group: u64, traffic: &Traffic, flow: u32) -> Headers {
    let fields = &traffic.headers;
    let host_group = if fields.common_hosts { ALL_GROUPS } else { group };
    // The low half of a hash is as good as all of it.
    let hash = |group: u64, purpose: Purpose, number: u32| {
        hash(seed, [group, purpose as u64, u64::from(number)]) as u32
    };
    let host = |purpose: Purpose, hosts: u32| {
        hash(host_group, purpose, host_of(flow, traffic.flows, hosts))
    };
    Headers {
        flow: hash(group, Purpose::Flows, flow),
        source: host(Purpose::Sources, fields.source_hosts),
        destination: host(Purpose::Destinations, fields.destination_hosts),
        mark: 0,
        network_offset: NETWORK_OFFSET,
        dscp: fields.dscp,
        ecn: Ecn::NotCapable,
        is_arp: false,
        pace: fields.filter_rate.and_then(PaceId::of).unwrap_or_default(),
    }
}

/// The one of `hosts` that has flow number `flow` of `flows`.
pub(crate) fn host_of(flow: u32, flows: u32, hosts: u32) -> u32 {
    (u64::from(flow) * u64::from(hosts) / u64::from(flows.max(1))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{HeaderFields, Spread};
    use narrows_units::Nanos;
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

    #[test]
    fn hosts_are_a_groups_own_or_common_and_flows_are_always_its_own() {
        let of_group = |group, common_hosts| {
            let traffic = Traffic {
                name: "group".into(),
                kind: Kind::Ping { interval: Nanos(1) },
                flows: 1,
                start: Nanos::ZERO,
                stop: Nanos::MAX,
                sizes: vec![(60, 1.0)],
                spread: Spread::RoundRobin,
                respread: None,
                lifetime: None,
                headers: HeaderFields { common_hosts, ..HeaderFields::default() },
            };
            of_flow(1, group, &traffic, 0)
        };
        let hosts = |headers: &Headers| (headers.source, headers.destination);
        for common in [false, true] {
            let [one, other] = [0, 1].map(|group| of_group(group, common));
            assert_eq!(hosts(&one) == hosts(&other), common);
            assert_ne!(one.flow, other.flow);
        }
    }
}
