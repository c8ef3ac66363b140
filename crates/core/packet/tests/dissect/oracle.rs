//! Two frames have the same hashes if and only if another parser reads the same fields from both.

use crate::frames::*;
use crate::headers;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

/// The fields that `etherparse` reads: source, destination, protocol, ports, traffic class.
#[derive(PartialEq, Debug)]
struct Read {
    source: Vec<u8>,
    destination: Vec<u8>,
    protocol: u8,
    ports: (u16, u16),
    traffic_class: u8,
}

fn oracle(frame: &[u8]) -> Read {
    let sliced = SlicedPacket::from_ethernet(frame).expect("an honest frame");
    let ports = match &sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port()),
        Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port()),
        _ => (0, 0),
    };
    match sliced.net.expect("an IP header") {
        NetSlice::Ipv4(ip) => Read {
            source: ip.header().source().to_vec(),
            destination: ip.header().destination().to_vec(),
            protocol: ip.payload_ip_number().0,
            ports,
            traffic_class: ip.header().dcp().value() << 2 | ip.header().ecn().value(),
        },
        NetSlice::Ipv6(ip) => Read {
            source: ip.header().source().to_vec(),
            destination: ip.header().destination().to_vec(),
            protocol: ip.payload().ip_number.0,
            ports,
            traffic_class: ip.header().traffic_class(),
        },
        NetSlice::Arp(_) => unreachable!("none was made"),
    }
}

/// The parameters of a frame. Each has few values, so that two frames often have some in common.
#[derive(Clone, Debug)]
struct Plan {
    is_six: bool,
    tags: usize,
    hosts: (u8, u8),
    class: u8,
    protocol: u8,
    ports: (u16, u16),
    options: usize,
    fragment: Option<(u16, bool)>,
    is_sealed: bool,
}

fn plans() -> impl Strategy<Value = Plan> {
    let fragments = prop_oneof![3 => Just(None), 1 => (0_u16..2, any::<bool>()).prop_map(Some)];
    (
        any::<bool>(),
        0_usize..3,
        (0_u8..2, 0_u8..2),
        any::<u8>(),
        prop_oneof![Just(TCP), Just(UDP), Just(253)],
        (1_u16..3, 1_u16..3),
        0_usize..3,
        fragments,
        any::<bool>(),
    )
        .prop_map(
            |(is_six, tags, hosts, class, protocol, ports, options, fragment, is_sealed)| Plan {
                is_six,
                tags,
                hosts,
                class,
                protocol,
                ports,
                options,
                fragment,
                is_sealed,
            },
        )
}

fn build(plan: &Plan) -> Vec<u8> {
    let transport = match plan.protocol {
        TCP => tcp(plan.ports.0, plan.ports.1, &[0x55; 12]),
        UDP => udp(plan.ports.0, plan.ports.1, &[0x55; 24]),
        _ => vec![0x55; 32],
    };
    let is_fragment = plan.fragment.is_some_and(|(offset, more)| offset != 0 || more);
    let sealed = |carried: &[u8]| {
        // In front of a fragment header, each fragment would be another flow.
        if plan.is_sealed && plan.protocol != 253 && !is_fragment {
            (51, authenticated(plan.protocol, 9, carried))
        } else {
            (plan.protocol, carried.to_vec())
        }
    };
    let (mut ether_type, mut carried) = if plan.is_six {
        let (mut next, mut carried) = sealed(&transport);
        if let Some((offset, more)) = plan.fragment {
            (next, carried) = (44, fragment6(next, offset, more, &carried));
        }
        for units in 1..=plan.options as u8 {
            let sort = if units == 1 { 60 } else { 43 };
            (next, carried) = (sort, extension(next, units, &carried));
        }
        let (mut source, mut destination) = (CLIENT6, SERVER6);
        source[15] = plan.hosts.0;
        destination[3] = plan.hosts.1;
        (IPV6, v6_between(source, destination, plan.class, next, &carried))
    } else {
        let (offset, more_fragments) = plan.fragment.unwrap_or_default();
        let header = V4 {
            source: [10, 0, 0, plan.hosts.0],
            destination: [plan.hosts.1, 0, 2, 7],
            traffic_class: plan.class,
            offset,
            more_fragments,
            id: 77,
            options: vec![1; plan.options * 4],
        };
        let (next, carried) = sealed(&transport);
        (IPV4, header.packet(next, &carried))
    };
    for tag in 0..plan.tags {
        carried = tagged(tag as u16, ether_type, &carried);
        ether_type = if tag == 0 { 0x8100 } else { 0x88a8 };
    }
    ethernet(ether_type, &carried)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn two_frames_hash_alike_where_they_read_alike(one in plans(), other in plans()) {
        let frames = [build(&one), build(&other)];
        let [(one, first), (other, second)] =
            frames.each_ref().map(|frame| (oracle(frame), headers(frame)));
        prop_assert_eq!(one.source == other.source, first.source == second.source);
        prop_assert_eq!(
            one.destination == other.destination,
            first.destination == second.destination
        );
        let is_same = |a: &Read, b: &Read| {
            (&a.source, &a.destination, a.protocol, a.ports)
                == (&b.source, &b.destination, b.protocol, b.ports)
        };
        prop_assert_eq!(is_same(&one, &other), first.flow == second.flow);
        prop_assert_eq!(first.dscp << 2 | first.ecn as u8, one.traffic_class);
    }
}
