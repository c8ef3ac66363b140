//! The parsing of TCP acknowledgements.

use crate::frames::*;
use etherparse::{TcpHeader, TcpOptionElement};
use narrows_packet::Acknowledgement;
use narrows_packet::dissect::Dissector;

fn read(frame: &[u8]) -> Acknowledgement {
    Dissector::new(0x5eed).acknowledgement(frame)
}

/// A segment with these bytes as options, padded with "end" to a multiple of four.
fn segment(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut header = TcpHeader::new(1234, 443, 1000, 500);
    header.ack = true;
    header.acknowledgment_number = 7_000_000;
    header.set_options_raw(options).unwrap();
    [&header.to_bytes(), payload].concat()
}

fn over_v4(segment: &[u8]) -> Vec<u8> {
    ethernet(IPV4, &v4(TCP, segment))
}

fn elements(options: &[TcpOptionElement]) -> Vec<u8> {
    let mut header = TcpHeader::default();
    header.set_options(options).unwrap();
    header.options.as_slice().to_vec()
}

const NONE: Acknowledgement = Acknowledgement {
    connection: 0,
    number: 0,
    flags: 0,
    is_empty: false,
    has_plain_options: false,
    time_stamp: None,
    block_count: 0,
    blocks: [(0, 0); 4],
};

#[test]
fn a_pure_acknowledgement_is_read_over_either_ip_and_any_link() {
    let segment = segment(&[], &[]);
    let six = v6(0, &extension(TCP, 1, &segment));
    let frames = [
        over_v4(&segment),
        ethernet(0x8100, &tagged(5, IPV4, &v4(TCP, &segment))),
        ethernet(0x8864, &pppoe(0x21, &v4(TCP, &segment))),
        ethernet(IPV6, &six),
        // Ethernet pads short frames: the padding is no data.
        [over_v4(&segment), vec![0; 6]].concat(),
    ];
    for frame in frames {
        let read = read(&frame);
        assert_ne!(read.connection, 0);
        assert_eq!((read.number, read.flags), (7_000_000, 0x10));
        assert!(read.is_empty && read.has_plain_options);
        assert_eq!((read.time_stamp, read.blocks()), (None, &[][..]));
    }
}

#[test]
fn a_segment_with_data_is_not_empty_even_where_the_data_is_cut_off() {
    let frame = over_v4(&segment(&[], &[1; 100]));
    assert!(!read(&frame).is_empty);
    let cut = &frame[..14 + 20 + 20];
    assert_eq!(read(cut), read(&frame));
}

#[test]
fn all_twelve_flags_are_told() {
    for bit in 0..12 {
        let mut frame = over_v4(&segment(&[], &[]));
        let flags = 1_u16 << bit;
        let place = 14 + 20 + 12;
        frame[place] = 0x50 | (flags >> 8) as u8;
        frame[place + 1] = flags as u8;
        assert_eq!(read(&frame).flags, flags);
    }
}

#[test]
fn time_stamps_and_blocks_are_those_that_were_sent() {
    use TcpOptionElement::{Noop, SelectiveAcknowledgement, Timestamp};
    let three = [Some((3, 4)), Some((5, u32::MAX)), Some((7, 8))];
    let cases = [
        (vec![Noop, Noop, Timestamp(5, 6)], Some((5, 6)), vec![]),
        (
            vec![Noop, Noop, SelectiveAcknowledgement((1, 2), three)],
            None,
            vec![(1, 2), (3, 4), (5, u32::MAX), (7, 8)],
        ),
        (
            vec![Timestamp(9, 8), SelectiveAcknowledgement((1, 2), [Some((3, 4)), None, None])],
            Some((9, 8)),
            vec![(1, 2), (3, 4)],
        ),
    ];
    for (options, time_stamp, blocks) in cases {
        let read = read(&over_v4(&segment(&elements(&options), &[])));
        assert!(read.has_plain_options);
        assert_eq!((read.time_stamp, read.blocks()), (time_stamp, &blocks[..]));
    }
}

#[test]
fn options_that_matter_to_others_or_are_malformed_are_not_plain() {
    let cases: [(&str, &[u8]); 15] = [
        ("segment size", &[2, 4, 5, 0xb4]),
        ("window scale", &[1, 3, 3, 7]),
        ("selective acknowledgements permitted", &[1, 1, 4, 2]),
        ("MD5", &[19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]),
        ("multipath", &[30, 4, 0, 0]),
        ("fast open", &[34, 2, 1, 1]),
        ("an unknown one", &[200, 4, 0, 0]),
        ("a length of none", &[8, 0, 1, 1]),
        ("a length of one", &[5, 1, 1, 1]),
        ("a time stamp too short", &[8, 6, 0, 0, 0, 0, 1, 1]),
        ("a time stamp that ends outside", &[1, 8, 10, 0]),
        ("half a block", &[5, 6, 0, 0, 0, 0, 1, 1]),
        ("no block", &[5, 2, 1, 1]),
        ("no length at all", &[1, 1, 1, 8]),
        ("two time stamps", &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]),
    ];
    for (name, options) in cases {
        let read = read(&over_v4(&segment(options, &[])));
        assert!(!read.has_plain_options, "{name}");
        assert_ne!(read.connection, 0, "{name}");
    }
}

#[test]
fn bytes_after_the_end_of_options_are_not_read() {
    assert!(read(&over_v4(&segment(&[1, 0, 2, 9], &[]))).has_plain_options);
}

#[test]
fn a_truncated_tcp_header_is_ignored() {
    let whole = over_v4(&segment(&[1; 12], &[]));
    let fragment = |offset, more_fragments| {
        let header = V4 { offset, more_fragments, ..V4::default() };
        ethernet(IPV4, &header.packet(TCP, &segment(&[], &[])))
    };
    let with_offset = |words: u8| {
        let mut frame = over_v4(&segment(&[], &[]));
        frame[14 + 20 + 12] = words << 4;
        frame
    };
    let with_total = |len: u16| {
        let mut frame = over_v4(&segment(&[], &[]));
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        frame
    };
    let cases = [
        ("UDP", ethernet(IPV4, &v4(UDP, &udp(1, 2, &[0; 40])))),
        ("ARP", ethernet(0x0806, &[0; 28])),
        ("a first fragment", fragment(0, true)),
        ("a later fragment", fragment(3, false)),
        ("options cut off", whole[..whole.len() - 1].to_vec()),
        ("the header cut off", whole[..14 + 20 + 19].to_vec()),
        ("a header too short", with_offset(4)),
        ("a header beyond the packet", with_offset(6)),
        ("an IP length that ends within", with_total(39)),
        ("a tunnel", ethernet(IPV4, &v4(4, &v4(TCP, &segment(&[], &[]))))),
        ("nothing", Vec::new()),
    ];
    for (name, frame) in cases {
        assert_eq!(read(&frame), NONE, "{name}");
    }
}

#[test]
fn a_connection_is_its_addresses_and_ports_in_one_direction() {
    let of = |source: [u8; 4], destination, segment: &[u8]| {
        let header = V4 { source, destination, ..V4::default() };
        read(&ethernet(IPV4, &header.packet(TCP, segment))).connection
    };
    let this = of(CLIENT, SERVER, &tcp(1, 2, &[]));
    assert_eq!(this, of(CLIENT, SERVER, &tcp(1, 2, &[5; 9])));
    let others = [
        of(CLIENT, SERVER, &tcp(1, 3, &[])),
        of(CLIENT, SERVER, &tcp(3, 2, &[])),
        of(SERVER, SERVER, &tcp(1, 2, &[])),
        of(SERVER, CLIENT, &tcp(2, 1, &[])),
    ];
    assert!(!others.contains(&this));
}
