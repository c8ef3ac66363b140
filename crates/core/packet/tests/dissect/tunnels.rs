//! Parsing through tunnels, and stopping at them.

use crate::frames::*;
use crate::{headers, identity, inner_headers};
use narrows_packet::Ecn;

const OUTER: V4 = V4 {
    source: [198, 51, 100, 1],
    destination: [198, 51, 100, 2],
    traffic_class: 0xb9,
    more_fragments: false,
    offset: 0,
    id: 0,
    options: Vec::new(),
};

fn outer(protocol: u8, carried: &[u8]) -> Vec<u8> {
    ethernet(IPV4, &OUTER.packet(protocol, carried))
}

fn outer6(next: u8, carried: &[u8]) -> Vec<u8> {
    ethernet(IPV6, &v6_between([1; 16], [2; 16], 0xb9, next, carried))
}

/// Every supported tunnel, around an IPv4 and an IPv6 packet with these ports.
fn tunnels(port: u16) -> Vec<(&'static str, bool, Vec<u8>)> {
    let four = v4(TCP, &tcp(port, 443, &[]));
    let six = v6(TCP, &tcp(port, 443, &[]));
    let frame = ethernet(IPV4, &four);
    let frame6 = ethernet(0x8100, &tagged(3, IPV6, &six));
    vec![
        ("IPIP", false, outer(4, &four)),
        ("6in4", true, outer(41, &six)),
        ("IPv6 in IPv6", true, outer6(41, &six)),
        ("IPv4 in IPv6", false, outer6(4, &four)),
        ("GRE", false, outer(47, &gre(0, IPV4, &four))),
        ("GRE with a key", false, outer(47, &gre(0x2000, IPV4, &four))),
        ("GRE with everything", true, outer(47, &gre(0xb000, IPV6, &six))),
        ("GRE over IPv6", false, outer6(47, &gre(0x8000, IPV4, &four))),
        ("Ethernet in GRE", false, outer(47, &gre(0, 0x6558, &frame))),
        ("a VLAN in GRE", true, outer(47, &gre(0x1000, 0x6558, &frame6))),
        ("MPLS in GRE", false, outer(47, &gre(0, 0x8847, &labelled(&four)))),
        ("VXLAN", false, outer(UDP, &vxlan(port ^ 99, &frame))),
        ("a VLAN in VXLAN over IPv6", true, outer6(UDP, &vxlan(5, &frame6))),
        ("VXLAN in IPIP", false, outer(4, &v4(UDP, &vxlan(5, &frame)))),
    ]
}

#[test]
fn a_flow_inside_of_a_tunnel_is_the_flow_without_one() {
    let plain = ethernet(IPV4, &v4(TCP, &tcp(1234, 443, &[])));
    let plain6 = ethernet(IPV6, &v6(TCP, &tcp(1234, 443, &[])));
    for (name, is_six, frame) in tunnels(1234) {
        let expected = headers(if is_six { &plain6 } else { &plain });
        let found = inner_headers(&frame);
        assert_eq!(identity(found), identity(expected), "{name}");
        let outermost = (found.dscp, found.ecn, found.network_offset);
        assert_eq!(outermost, (0x2e, Ecn::Capable1, 14), "{name}");
    }
}

#[test]
fn a_tunnel_that_is_not_looked_through_is_one_flow() {
    for ((name, _, one), (_, _, other)) in tunnels(1).into_iter().zip(tunnels(2)) {
        if name != "VXLAN" {
            assert_eq!(headers(&one), headers(&other), "{name}");
        }
        assert_ne!(inner_headers(&one), inner_headers(&other), "{name}");
    }
}

#[test]
fn looking_inside_changes_nothing_where_there_is_no_inside() {
    let whole = outer(47, &gre(0, IPV4, &v4(TCP, &tcp(1, 2, &[]))));
    let arp = ethernet(0x0806, &[0; 28]);
    let frames = [
        ethernet(IPV4, &v4(TCP, &tcp(1234, 443, &[]))),
        ethernet(IPV4, &v4(UDP, &udp(1234, 53, &[0; 40]))),
        arp.clone(),
        // A tunnel without IP, PPTP's GRE, and one that is truncated inside.
        outer(UDP, &vxlan(1, &arp)),
        outer(47, &gre(0x2001, 0x880b, &[0; 40])),
        whole[..14 + 20 + 4 + 12].to_vec(),
        // TCP to VXLAN's port.
        ethernet(IPV4, &v4(TCP, &tcp(1234, 4789, &[8; 80]))),
    ];
    for frame in frames {
        assert_eq!(inner_headers(&frame), headers(&frame));
    }
}

#[test]
fn a_fragmented_tunnel_is_not_looked_into() {
    let carried = v4(TCP, &tcp(1234, 443, &[0; 80]));
    let first = V4 { more_fragments: true, ..OUTER }.packet(4, &carried[..64]);
    let second = V4 { offset: 8, ..OUTER }.packet(4, &carried[64..]);
    let (first, second) = (ethernet(IPV4, &first), ethernet(IPV4, &second));
    assert_eq!(inner_headers(&first), inner_headers(&second));
}

#[test]
fn tunnels_are_looked_through_two_deep() {
    let within = |source: u8, carried: &[u8]| {
        V4 { source: [10, 9, 8, source], ..V4::default() }.packet(4, carried)
    };
    let innermost = within(4, &[]);
    let third = V4 { source: [10, 9, 8, 3], ..V4::default() }.packet(4, &innermost);
    let frame = ethernet(IPV4, &within(1, &within(2, &third)));
    let alone = ethernet(IPV4, &third);
    assert_eq!(inner_headers(&frame).source, headers(&alone).source);
}
