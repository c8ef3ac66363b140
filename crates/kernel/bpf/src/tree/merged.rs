//! The size of packets that are to be cut, on random stacks of headers and on random bytes.

use super::tests::{OTHER, OWN};
use super::*;
use crate::attach::XdpMode;
use crate::test_run::run_merged;
use proptest::collection::vec;
use proptest::prelude::*;

/// The program at tcx; `None` without privileges.
fn at_tcx() -> Option<Tree> {
    match Tree::load(OWN, false, Entry::Own, Hook::Xdp(XdpMode::Native)) {
        Err(TreeError::Load(error @ LoadError::NotPermitted)) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        loaded => {
            let mut tree = loaded.unwrap();
            tree.move_to(Hook::Tcx).unwrap();
            tree.connect(OTHER).unwrap();
            Some(tree)
        }
    }
}

/// The packets and bytes that the program counts for a packet.
fn counted(tree: &Tree, packet: &[u8], cut: u32, said: u32) -> (u64, u64) {
    let before = tree.totals().unwrap();
    run_merged(tree.program(), packet, cut, said).unwrap();
    let after = tree.totals().unwrap();
    (after.sent_packets - before.sent_packets, after.sent_bytes - before.sent_bytes)
}

/// A header with the EtherType, or protocol number, that it has in the one before it.
#[derive(Clone, Debug)]
enum Header {
    Tag(u16),
    Labels(usize),
    Pppoe,
    V4(usize),
    V6,
    Options(u8, usize),
    Authentication(usize),
    Gre(u16),
    Vxlan,
    Tcp(usize),
    Udp,
}

/// Headers in an order that a packet may have: link, IP and extensions, perhaps a tunnel and the
/// same again, transport.
fn stacks() -> impl Strategy<Value = Vec<Header>> {
    let tag = prop_oneof![Just(0x8100), Just(0x88a8), Just(0x9100), Just(0x9200)];
    let link = (
        vec(tag.prop_map(Header::Tag), 0..5),
        prop_oneof![
            4 => Just(None), 1 => (1_usize..5).prop_map(|of| Some(Header::Labels(of))),
            1 => Just(Some(Header::Pppoe)),
        ],
    );
    let network = || {
        let options = prop_oneof![Just(0), Just(43), Just(60), Just(135)];
        let extension = prop_oneof![
            3 => (options, 1_usize..9).prop_map(|(of, units)| Header::Options(of, units)),
            1 => (1_usize..6).prop_map(Header::Authentication),
        ];
        prop_oneof![
            (5_usize..16).prop_map(|words| vec![Header::V4(words)]),
            vec(extension, 0..4).prop_map(|all| [vec![Header::V6], all].concat()),
        ]
    };
    let tunnel = prop_oneof![
        Just(None),
        Just(Some(vec![])),
        (0_u16..8).prop_map(|flags| Some(vec![Header::Gre(flags)])),
        Just(Some(vec![Header::Vxlan])),
    ];
    let tunnel = (tunnel, network()).prop_map(|(tunnel, inner)| match tunnel {
        Some(tunnel) => [tunnel, inner].concat(),
        None => vec![],
    });
    let transport = prop_oneof![(5_usize..16).prop_map(Header::Tcp), Just(Header::Udp)];
    (link, network(), tunnel, transport).prop_map(|((tags, label), outer, inner, transport)| {
        [tags, label.into_iter().collect(), outer, inner, vec![transport]].concat()
    })
}

/// How the header `next` is named by the one before it.
fn number_of(next: &Header) -> (u16, u8) {
    match next {
        Header::Tag(ether_type) => (*ether_type, 0),
        Header::Labels(_) => (0x8847, 0),
        Header::Pppoe => (0x8864, 0),
        Header::V4(_) => (0x0800, 4),
        Header::V6 => (0x86dd, 41),
        Header::Options(number, _) => (0, *number),
        Header::Authentication(_) => (0, 51),
        Header::Gre(_) => (0, 47),
        Header::Vxlan | Header::Udp => (0, 17),
        Header::Tcp(_) => (0, 6),
    }
}

/// These headers as they are in a frame.
fn written(stack: &[Header]) -> Vec<u8> {
    let mut frame = vec![4; 12];
    let first = number_of(&stack[0]).0;
    frame.extend(first.to_be_bytes());
    for (at, header) in stack.iter().enumerate() {
        let (ether_type, protocol) = stack.get(at + 1).map_or((0, 0), number_of);
        let two = ether_type.to_be_bytes();
        let mut bytes = match header {
            Header::Tag(_) => vec![0, 7, two[0], two[1]],
            Header::Labels(of) => {
                let mut labels = [0, 1, 0, 64].repeat(*of);
                labels[4 * of - 2] = 1;
                labels
            }
            Header::Pppoe => {
                let ppp = if ether_type == 0x0800 { 0x21 } else { 0x57 };
                vec![0x11, 0, 0, 1, 0, 0, 0, ppp]
            }
            Header::V4(words) => {
                let mut ip = vec![0; words * 4];
                (ip[0], ip[8], ip[9]) = (0x40 | *words as u8, 64, protocol);
                ip
            }
            Header::V6 => {
                let mut ip = vec![0; 40];
                (ip[0], ip[6], ip[7]) = (0x60, protocol, 64);
                ip
            }
            Header::Options(_, units) => {
                let mut options = vec![0; units * 8];
                (options[0], options[1]) = (protocol, *units as u8 - 1);
                options
            }
            Header::Authentication(more) => {
                let mut header = vec![0; 8 + more * 4];
                (header[0], header[1]) = (protocol, *more as u8);
                header
            }
            Header::Gre(flags) => {
                let mut gre = vec![0; 4 + 4 * flags.count_ones() as usize];
                let flags = (flags & 1) << 15 | (flags & 2) << 12 | (flags & 4) << 10;
                gre[..2].copy_from_slice(&flags.to_be_bytes());
                gre[2..4].copy_from_slice(&two);
                gre
            }
            Header::Vxlan => {
                let mut vxlan = vec![0; 16 + 14];
                vxlan[2..4].copy_from_slice(&4789_u16.to_be_bytes());
                vxlan[8] = 8;
                vxlan[28..30].copy_from_slice(&two);
                vxlan
            }
            Header::Tcp(words) => {
                let mut tcp = vec![0; words * 4];
                tcp[12] = (*words as u8) << 4;
                tcp
            }
            Header::Udp => vec![0; 8],
        };
        frame.append(&mut bytes);
    }
    frame
}

#[test]
fn a_packet_to_be_cut_is_as_large_as_its_frames_whatever_their_headers() {
    let Some(tree) = at_tcx() else { return };
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
    let cases = (stacks(), 1_usize..2400, 20_usize..1500, any::<bool>());
    let outcome = runner.run(&cases, |(stack, payload, cut, says)| {
        let mut frame = written(&stack);
        let headers = frame.len();
        frame.resize(headers + payload, 0);
        let packets = payload.div_ceil(cut);
        let bytes = payload + packets * headers;
        let said = if says { packets } else { 0 };
        let counted = counted(&tree, &frame, cut as u32, said as u32);
        prop_assert_eq!(counted, (packets as u64, bytes as u64));
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn no_number_of_a_sender_makes_more_of_a_packet_than_can_be_on_the_wire() {
    let Some(tree) = at_tcx() else { return };
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
    let bytes = prop_oneof![vec(any::<u8>(), 60..400), vec(any::<u8>(), 14..70)];
    let numbers =
        || prop_oneof![Just(0_u32), Just(1), Just(0xffff), any::<u16>().prop_map(u32::from)];
    let cases = (stacks(), bytes, any::<prop::sample::Index>(), numbers(), numbers());
    let outcome = runner.run(&cases, |(stack, bytes, end, cut, said)| {
        let mut frame = written(&stack);
        // The kernel takes nothing shorter. Any header may reach beyond the end, and any byte be
        // wrong.
        frame.extend(&bytes);
        frame.truncate(54.max(end.index(frame.len()) + 1));
        for (at, byte) in bytes.chunks_exact(8).map(|some| (usize::from(some[0]), some[1])) {
            if at >= 12 && at < frame.len() {
                frame[at] = byte;
            }
        }
        let len = frame.len() as u64;
        let (packets, bytes) = counted(&tree, &frame, cut, said);
        prop_assert!((1..=len).contains(&packets), "{} packets of {} bytes", packets, len);
        prop_assert!(bytes >= len && bytes <= packets * len, "{} bytes of {}", bytes, len);
        Ok(())
    });
    outcome.unwrap();
}
