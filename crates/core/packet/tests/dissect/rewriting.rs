//! Marking and washing.

use crate::frames::*;
use crate::headers;
use narrows_packet::dissect::rewrite;
use narrows_packet::{Ecn, Rewrite};
use proptest::prelude::*;

/// The sum of all 16-bit words of a header with a correct checksum.
fn sum(header: &[u8]) -> u16 {
    let mut sum: u32 =
        header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The expected traffic class.
fn expected(class: u8, how: Rewrite) -> u8 {
    let (dscp, ecn) = (class & 0xfc, class & 3);
    let ecn = if how.marks() && ecn != 0 { 3 } else { ecn };
    if how.washes() { ecn } else { dscp | ecn }
}

const ALL: [Rewrite; 4] = [
    Rewrite::new(false, false),
    Rewrite::new(true, false),
    Rewrite::new(false, true),
    Rewrite::new(true, true),
];

proptest! {
    #[test]
    fn an_ipv4_header_changes_in_its_class_and_checksum_only(
        class: u8, id: u16, source: [u8; 4], words in 0_usize..=10, which in 0_usize..4,
        is_tagged: bool, payload in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let options = vec![1; words * 4];
        let header = V4 { traffic_class: class, id, source, options, ..V4::default() };
        let packet = header.packet(UDP, &udp(1, 2, &payload));
        let mut frame = if is_tagged {
            ethernet(0x8100, &tagged(7, IPV4, &packet))
        } else {
            ethernet(IPV4, &packet)
        };
        let at = frame.len() - packet.len();
        let before = frame.clone();
        prop_assert!(rewrite(&mut frame, ALL[which]));
        prop_assert_eq!(frame[at + 1], expected(class, ALL[which]));
        prop_assert_eq!(sum(&frame[at..at + 20 + 4 * words]), 0xffff);
        for (index, (was, is)) in before.iter().zip(&frame).enumerate() {
            prop_assert!(was == is || [at + 1, at + 10, at + 11].contains(&index));
        }
    }

    #[test]
    fn an_ipv6_header_changes_in_its_class_only(
        class: u8, which in 0_usize..4, label in 0_u32..1 << 20, in_session: bool,
    ) {
        let mut packet = v6_between(CLIENT6, SERVER6, class, UDP, &udp(1, 2, &[]));
        packet[1] |= (label >> 16) as u8;
        packet[2..4].copy_from_slice(&(label as u16).to_be_bytes());
        let mut frame = if in_session {
            ethernet(0x8864, &pppoe(0x57, &packet))
        } else {
            ethernet(IPV6, &packet)
        };
        let at = frame.len() - packet.len();
        let mut wanted = frame.clone();
        let class = expected(class, ALL[which]);
        wanted[at] = 0x60 | class >> 4;
        wanted[at + 1] = class << 4 | wanted[at + 1] & 0x0f;
        prop_assert!(rewrite(&mut frame, ALL[which]));
        prop_assert_eq!(frame, wanted);
    }
}

#[test]
fn a_bit_is_turned_over_where_it_is_said() {
    let whole = ethernet(IPV4, &v4(UDP, &udp(1, 2, &[0; 22])));
    assert_eq!(whole.len(), 64);
    for (flip, byte, bit) in [(1, 0, 0), (Rewrite::PLACES / 2, 32, 0), (Rewrite::PLACES - 1, 63, 7)]
    {
        let mut frame = whole.clone();
        assert!(rewrite(&mut frame, Rewrite::flipping(flip)));
        let mut wanted = whole.clone();
        wanted[byte] ^= 1 << bit;
        assert_eq!(frame, wanted);
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut frame = ethernet(IPV4, &V4 { traffic_class: 0xba, ..V4::default() }.packet(UDP, &[]));
    frame[24] ^= 0x40;
    assert!(rewrite(&mut frame, ALL[3]));
    assert_ne!(sum(&frame[14..34]), 0xffff);
}

#[test]
fn frames_without_an_ip_header_are_left_alone() {
    let whole = ethernet(IPV4, &v4(UDP, &udp(1, 2, &[])));
    let six = ethernet(IPV6, &v6(UDP, &[]));
    let frames = [
        ethernet(0x0806, &[0x22; 28]),
        whole[..33].to_vec(),
        six[..53].to_vec(),
        ethernet(IPV6, &v4(UDP, &udp(1, 2, &[0; 40]))),
        whole[..13].to_vec(),
        Vec::new(),
    ];
    for frame in frames {
        let mut written = frame.clone();
        assert!(!rewrite(&mut written, ALL[3]));
        assert_eq!(written, frame);
    }
}

#[test]
fn only_the_outermost_header_is_written() {
    let inside = V4 { traffic_class: 0xba, ..V4::default() }.packet(UDP, &udp(1, 2, &[]));
    let around = V4 { traffic_class: 0xb9, ..V4::default() }.packet(4, &inside);
    let mut frame = ethernet(IPV4, &around);
    assert!(rewrite(&mut frame, ALL[3]));
    assert_eq!(frame[14 + 20..], inside);
    assert_eq!((headers(&frame).dscp, headers(&frame).ecn), (0, Ecn::Experienced));
}
