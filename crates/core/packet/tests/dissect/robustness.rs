//! Bytes that are not a valid frame.

use crate::frames::*;
use crate::{headers, identity, inner_headers};
use narrows_packet::dissect::{Dissector, rewrite};
use narrows_packet::{Acknowledgement, Rewrite};
use proptest::prelude::*;

/// Runs every operation on a frame.
fn touch(frame: &[u8]) {
    let dissector = Dissector::new(3);
    for inner in [false, true] {
        let read = dissector.headers(frame, inner);
        assert!(read.dscp < 64);
        assert!(usize::from(read.network_offset) <= frame.len().max(14));
    }
    let read = dissector.acknowledgement(frame);
    assert!(read.connection != 0 || read == Acknowledgement::default());
    assert!(read.block_count <= 4);
    for (mark, wash) in [(false, true), (true, false), (true, true)] {
        let mut written = frame.to_vec();
        let before = dissector.headers(frame, false);
        assert!(rewrite(&mut written, Rewrite::new(mark, wash)) || written == frame);
        let after = dissector.headers(&written, false);
        assert_eq!(identity(after), identity(before));
    }
    for flip in [1, Rewrite::PLACES / 2, Rewrite::PLACES - 1] {
        let mut written = frame.to_vec();
        rewrite(&mut written, Rewrite::flipping(flip));
        let bits = |(before, after): (&u8, &u8)| (before ^ after).count_ones();
        let turned: u32 = frame.iter().zip(&written).map(bits).sum();
        assert_eq!(turned, u32::from(!frame.is_empty()));
    }
}

/// One valid frame of each kind.
fn honest() -> Vec<Vec<u8>> {
    let four = v4(TCP, &tcp(1234, 443, &[3; 8]));
    let six = v6(0, &extension(44, 2, &fragment6(TCP, 0, false, &tcp(1, 2, &[]))));
    let frame = ethernet(IPV4, &four);
    vec![
        ethernet(0x88a8, &tagged(1, 0x8100, &tagged(2, IPV4, &four))),
        ethernet(0x8847, &labelled(&six)),
        ethernet(0x8864, &pppoe(0x21, &four)),
        ethernet(IPV6, &six),
        ethernet(IPV4, &v4(UDP, &vxlan(7, &frame))),
        ethernet(IPV4, &v4(47, &gre(0xb000, 0x6558, &frame))),
        ethernet(IPV6, &v6(51, &authenticated(4, 7, &four))),
        frame,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        touch(&bytes);
    }

    #[test]
    fn no_damaged_frame_panics(
        which in 0_usize..8, cut in 0_usize..200,
        damage in proptest::collection::vec((0_usize..200, any::<u8>()), 0..6),
    ) {
        let mut frame = honest().swap_remove(which);
        for (place, byte) in damage {
            let len = frame.len();
            frame[place % len] = byte;
        }
        frame.truncate(cut.max(1));
        touch(&frame);
    }
}

#[test]
fn a_frame_that_is_cut_off_keeps_the_hosts_as_long_as_they_are_there() {
    for frame in honest() {
        let whole = headers(&frame);
        for len in 0..frame.len() {
            let cut = headers(&frame[..len]);
            let has_hosts = cut.source == whole.source;
            assert!(!has_hosts || cut.destination == whole.destination);
            assert!(!has_hosts || (cut.dscp, cut.ecn) == (whole.dscp, whole.ecn));
            touch(&frame[..len]);
        }
        assert_eq!(headers(&frame[..frame.len() - 1]).source, whole.source);
    }
}

#[test]
fn a_length_that_lies_does_not_hide_the_ports() {
    let whole = ethernet(IPV4, &v4(TCP, &tcp(1234, 443, &[])));
    for len in [0_u16, 19, 41, 1500, u16::MAX] {
        let mut frame = whole.clone();
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        assert_eq!(headers(&frame), headers(&whole), "a total length of {len}");
    }
    let whole = ethernet(IPV6, &v6(TCP, &tcp(1234, 443, &[])));
    for len in [0_u16, 21, u16::MAX] {
        let mut frame = whole.clone();
        frame[18..20].copy_from_slice(&len.to_be_bytes());
        assert_eq!(headers(&frame), headers(&whole), "a payload length of {len}");
    }
}

#[test]
fn padding_is_not_read_as_ports() {
    let of = |padding: u8| [ethernet(IPV4, &v4(UDP, &[])), vec![padding; 26]].concat();
    assert_eq!(headers(&of(1)), headers(&of(2)));
}

#[test]
fn endless_towers_of_headers_end() {
    let mut tags = v4(TCP, &tcp(1, 2, &[]));
    let mut extensions = tcp(1, 2, &[]);
    let mut tunnels = v4(TCP, &tcp(1, 2, &[]));
    let mut next = TCP;
    for layer in 0..200 {
        tags = tagged(1, if layer == 0 { IPV4 } else { 0x8100 }, &tags);
        extensions = extension(next, 1, &extensions);
        next = 60;
        tunnels = v4(4, &tunnels);
    }
    let labels = [vec![0; 4000], v4(TCP, &[])].concat();
    let frames = [
        ethernet(0x8100, &tags),
        ethernet(IPV6, &v6(60, &extensions)),
        ethernet(IPV4, &tunnels),
        ethernet(0x8847, &labels),
    ];
    for frame in frames {
        touch(&frame);
        // Bytes beyond the bound must not matter.
        let mut other = frame.clone();
        *other.last_mut().unwrap() ^= 0xff;
        assert_eq!(inner_headers(&frame), inner_headers(&other));
    }
}
