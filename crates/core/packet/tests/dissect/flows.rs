//! Which frames belong to the same flow.

use crate::frames::*;
use crate::{headers, identity};
use narrows_packet::Ecn;

/// A name, and two frames of one flow, or of two.
type Pair = (&'static str, Vec<u8>, Vec<u8>);

fn plain() -> Vec<u8> {
    ethernet(IPV4, &v4(TCP, &tcp(1234, 443, &[])))
}

fn plain6() -> Vec<u8> {
    ethernet(IPV6, &v6(TCP, &tcp(1234, 443, &[])))
}

#[test]
fn encapsulation_does_not_change_a_flow() {
    let packet = v4(TCP, &tcp(1234, 443, &[]));
    let packet6 = v6(TCP, &tcp(1234, 443, &[]));
    let with_options = V4 { options: vec![1; 8], ..V4::default() };
    let segment = tcp(1234, 443, &[]);
    let cases: Vec<Pair> = vec![
        ("VLAN", plain(), ethernet(0x8100, &tagged(7, IPV4, &packet))),
        ("another VLAN", plain(), ethernet(0x8100, &tagged(8, IPV4, &packet))),
        ("QinQ", plain(), ethernet(0x88a8, &tagged(9, 0x8100, &tagged(7, IPV4, &packet)))),
        ("old QinQ", plain(), ethernet(0x9100, &tagged(9, 0x9200, &tagged(7, IPV4, &packet)))),
        ("MPLS", plain(), ethernet(0x8847, &labelled(&packet))),
        ("MPLS in a VLAN", plain(), ethernet(0x8100, &tagged(7, 0x8848, &labelled(&packet)))),
        ("PPPoE", plain(), ethernet(0x8864, &pppoe(0x21, &packet))),
        ("PPPoE in a VLAN", plain(), ethernet(0x8100, &tagged(7, 0x8864, &pppoe(0x21, &packet)))),
        ("IPv6 in a VLAN", plain6(), ethernet(0x8100, &tagged(7, IPV6, &packet6))),
        ("IPv6 in MPLS", plain6(), ethernet(0x8847, &labelled(&packet6))),
        ("IPv6 in PPPoE", plain6(), ethernet(0x8864, &pppoe(0x57, &packet6))),
        ("IPv4 options", plain(), ethernet(IPV4, &with_options.packet(TCP, &segment))),
        ("payload", plain(), ethernet(IPV4, &v4(TCP, &tcp(1234, 443, &[9; 99])))),
        ("padding", plain(), [plain(), vec![0; 6]].concat()),
        ("hop-by-hop options", plain6(), ethernet(IPV6, &v6(0, &extension(TCP, 1, &segment)))),
        ("a routing header", plain6(), ethernet(IPV6, &v6(43, &extension(TCP, 3, &segment)))),
        (
            "several extension headers",
            plain6(),
            ethernet(
                IPV6,
                &v6(0, &extension(60, 2, &extension(135, 1, &extension(TCP, 1, &segment)))),
            ),
        ),
        ("authentication", plain(), ethernet(IPV4, &v4(51, &authenticated(TCP, 5, &segment)))),
        ("authentication", plain6(), ethernet(IPV6, &v6(51, &authenticated(TCP, 5, &segment)))),
        (
            "a fragment header of a whole packet",
            plain6(),
            ethernet(IPV6, &v6(44, &fragment6(TCP, 0, false, &segment))),
        ),
    ];
    for (name, one, other) in cases {
        assert_eq!(identity(headers(&one)), identity(headers(&other)), "{name}");
    }
}

#[test]
fn flow_fields_do_not_change_the_hosts() {
    let esp = |spi: u32| ethernet(IPV4, &v4(50, &spi.to_be_bytes()));
    let echo = |id: u8| ethernet(IPV4, &v4(1, &[8, 0, 0, 0, 0, id, 0, 1]));
    let echo6 = |id: u8| ethernet(IPV6, &v6(58, &[128, 0, 0, 0, 0, id, 0, 1]));
    let ports = |protocol: u8, port: u8| ethernet(IPV4, &v4(protocol, &[0, port, 0, 80, 0, 0]));
    let sealed = |spi: u32| ethernet(IPV4, &v4(51, &authenticated(59, spi, &[])));
    let cases: Vec<Pair> = vec![
        ("source port", plain(), ethernet(IPV4, &v4(TCP, &tcp(1235, 443, &[])))),
        ("destination port", plain(), ethernet(IPV4, &v4(TCP, &tcp(1234, 80, &[])))),
        ("swapped ports", plain(), ethernet(IPV4, &v4(TCP, &tcp(443, 1234, &[])))),
        ("protocol", plain(), ethernet(IPV4, &v4(UDP, &udp(1234, 443, &[0; 12])))),
        ("a port over IPv6", plain6(), ethernet(IPV6, &v6(TCP, &tcp(1235, 443, &[])))),
        ("DCCP ports", ports(33, 1), ports(33, 2)),
        ("SCTP ports", ports(132, 1), ports(132, 2)),
        ("UDP-Lite ports", ports(136, 1), ports(136, 2)),
        ("ESP's index", esp(1), esp(2)),
        ("AH's index where nothing else is there", sealed(1), sealed(2)),
        ("an echo's identifier", echo(1), echo(2)),
        ("an IPv6 echo's identifier", echo6(1), echo6(2)),
    ];
    for (name, one, other) in cases {
        let (one, other) = (headers(&one), headers(&other));
        assert_ne!(one.flow, other.flow, "{name}");
        assert_eq!((one.source, one.destination), (other.source, other.destination), "{name}");
    }
}

#[test]
fn an_errors_bytes_are_no_identifier() {
    let unreachable = |rest: u8| ethernet(IPV4, &v4(1, &[3, 1, 0, 0, 0, rest, 0, 0]));
    assert_eq!(headers(&unreachable(1)), headers(&unreachable(2)));
}

#[test]
fn the_way_back_has_the_hosts_exchanged_and_is_another_flow() {
    let back4 = V4 { source: SERVER, destination: CLIENT, ..V4::default() };
    let back4 = ethernet(IPV4, &back4.packet(TCP, &tcp(443, 1234, &[])));
    let back6 = v6_between(SERVER6, CLIENT6, 0, TCP, &tcp(443, 1234, &[]));
    let arp_back = {
        let mut frame = ethernet(0x0806, &[0; 28]);
        frame[..12].rotate_left(6);
        frame
    };
    let cases = [
        (plain(), back4),
        (plain6(), ethernet(IPV6, &back6)),
        (ethernet(0x0806, &[0; 28]), arp_back),
    ];
    for (there, back) in cases {
        let (there, back) = (headers(&there), headers(&back));
        assert_eq!((there.source, there.destination), (back.destination, back.source));
        assert_ne!(there.source, there.destination);
        assert_ne!(there.flow, back.flow);
    }
}

#[test]
fn all_fragments_of_a_packet_are_one_flow_and_have_no_ports() {
    let datagram = udp(1234, 53, &[7; 64]);
    let fragment = |offset: u16, more: bool, id: u16, bytes: &[u8]| {
        let header = V4 { offset, more_fragments: more, id, ..V4::default() };
        headers(&ethernet(IPV4, &header.packet(UDP, bytes)))
    };
    let first = fragment(0, true, 1, &datagram[..24]);
    assert_eq!(first, fragment(3, true, 1, &datagram[24..48]));
    assert_eq!(first, fragment(6, false, 1, &datagram[48..]));
    assert_eq!(first, fragment(0, true, 2, &udp(99, 99, &[])), "another packet, other ports");
    let whole = headers(&ethernet(IPV4, &v4(UDP, &datagram)));
    assert_eq!((first.source, first.destination), (whole.source, whole.destination));
    assert_ne!(first.flow, whole.flow);

    let fragment6 = |offset: u16, more: bool, bytes: &[u8]| {
        headers(&ethernet(IPV6, &v6(44, &fragment6(UDP, offset, more, bytes))))
    };
    let first = fragment6(0, true, &datagram[..24]);
    assert_eq!(first, fragment6(3, true, &datagram[24..48]));
    assert_eq!(first, fragment6(6, false, &datagram[48..]));
    let whole = headers(&ethernet(IPV6, &v6(UDP, &datagram)));
    assert_eq!((first.source, first.destination), (whole.source, whole.destination));
}

#[test]
fn a_fragment_whose_first_part_has_more_headers_stays_one_flow() {
    let of = |offset, more, bytes: &[u8]| {
        headers(&ethernet(IPV6, &v6(44, &fragment6(60, offset, more, bytes))))
    };
    let first = of(0, true, &extension(UDP, 1, &udp(5, 6, &[])));
    assert_eq!(first, of(2, false, &[0x11; 16]));
}

#[test]
fn the_network_layer_begins_behind_the_tags() {
    let packet = v4(TCP, &tcp(1234, 443, &[]));
    let cases = [
        (plain(), 14),
        (plain6(), 14),
        (ethernet(0x8100, &tagged(7, IPV4, &packet)), 18),
        (ethernet(0x88a8, &tagged(7, 0x8100, &tagged(7, IPV4, &packet))), 22),
        (ethernet(0x8847, &labelled(&packet)), 14),
        (ethernet(0x8100, &tagged(7, 0x8864, &pppoe(0x21, &packet))), 18),
        (ethernet(0x0806, &[0; 28]), 14),
        (ethernet(0x8100, &tagged(7, 0x0806, &[0; 28])), 18),
    ];
    for (frame, offset) in cases {
        assert_eq!(headers(&frame).network_offset, offset);
    }
}

#[test]
fn only_arp_is_arp() {
    assert!(headers(&ethernet(0x0806, &[0; 28])).is_arp);
    assert!(headers(&ethernet(0x8100, &tagged(7, 0x0806, &[0; 28]))).is_arp);
    for frame in [plain(), plain6(), ethernet(0x8035, &[0; 28]), ethernet(0x88cc, &[0; 46])] {
        assert!(!headers(&frame).is_arp);
    }
}

#[test]
fn code_points_are_those_of_the_outermost_ip_header() {
    for class in 0..=u8::MAX {
        let v4 = V4 { traffic_class: class, ..V4::default() }.packet(TCP, &tcp(1, 2, &[]));
        let v6 = v6_between(CLIENT6, SERVER6, class, TCP, &tcp(1, 2, &[]));
        let frames = [
            ethernet(IPV4, &v4),
            ethernet(0x8100, &tagged(7, IPV4, &v4)),
            ethernet(0x8864, &pppoe(0x57, &v6)),
            ethernet(IPV6, &v6),
        ];
        for frame in frames {
            let headers = headers(&frame);
            assert_eq!((headers.dscp, headers.ecn), (class >> 2, Ecn::of(class)));
        }
    }
}

#[test]
fn frames_without_ip_are_told_apart_by_stations_and_ether_type() {
    let lldp = ethernet(0x88cc, &[1; 46]);
    let mut of_another = lldp.clone();
    of_another[11] ^= 1;
    let eapol = ethernet(0x888e, &[1; 46]);
    assert_ne!(headers(&lldp).flow, headers(&of_another).flow);
    assert_eq!(headers(&lldp).destination, headers(&of_another).destination);
    assert_ne!(headers(&lldp).flow, headers(&eapol).flow);
    assert_eq!(headers(&lldp).source, headers(&eapol).source);
    let spanning_tree = |len: u16| headers(&ethernet(len, &[0x42; 46]));
    assert_eq!(spanning_tree(38), spanning_tree(39), "a length is no EtherType");
}

#[test]
fn the_same_bits_in_ipv4_and_ipv6_are_different_hosts() {
    let mut mapped = [0; 16];
    mapped[12..].copy_from_slice(&CLIENT);
    let six = headers(&ethernet(IPV6, &v6_between(mapped, SERVER6, 0, TCP, &tcp(1, 2, &[]))));
    assert_ne!(six.source, headers(&plain()).source);
}

#[test]
fn another_key_makes_other_hashes() {
    let other = narrows_packet::dissect::Dissector::new(1).headers(&plain(), false);
    let (flow, source, destination) = identity(headers(&plain()));
    assert!(other.flow != flow && other.source != source && other.destination != destination);
}
