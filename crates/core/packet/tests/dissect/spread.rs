//! Hashes are evenly distributed, also for consecutive addresses and ports.

use crate::frames::*;
use narrows_packet::Headers;
use narrows_packet::dissect::Dissector;

const BUCKETS: usize = 1024;
const SAMPLES: u32 = 65_536;

/// How unevenly `hashes` fill the buckets that their bits from `shift` on select. For a uniform
/// distribution this is 1023 on average with a standard deviation of 45.
fn unevenness(hashes: &[u32], shift: u32) -> f64 {
    let mut counts = [0_u32; BUCKETS];
    for hash in hashes {
        counts[(hash >> shift) as usize % BUCKETS] += 1;
    }
    let expected = hashes.len() as f64 / BUCKETS as f64;
    counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
}

fn assert_even(what: &str, of: impl Fn(Headers) -> u32, frame: impl Fn(u32) -> Vec<u8>) {
    for key in [0, 1, 0x1234_5678_9abc_def0] {
        let dissector = Dissector::new(key);
        let hashes: Vec<u32> =
            (0..SAMPLES).map(|index| of(dissector.headers(&frame(index), false))).collect();
        for shift in [0, 7, 14, 22] {
            let found = unevenness(&hashes, shift);
            assert!(found < 1350.0, "{what}, key {key:x}, bits from {shift}: {found}");
        }
    }
}

fn from(source: [u8; 4], port: u16) -> Vec<u8> {
    let packet = V4 { source, ..V4::default() }.packet(UDP, &udp(port, 53, &[]));
    ethernet(IPV4, &packet)
}

fn from6(index: u32, at: usize) -> Vec<u8> {
    let mut source = CLIENT6;
    source[at..at + 4].copy_from_slice(&index.to_be_bytes());
    ethernet(IPV6, &v6_between(source, SERVER6, 0, UDP, &udp(1, 53, &[])))
}

#[test]
fn neighbouring_addresses_spread_evenly() {
    let address = |index: u32| (0x0a00_0000 + index).to_be_bytes();
    assert_even("IPv4 hosts", |h| h.source, |index| from(address(index), 1));
    assert_even("IPv4 flows", |h| h.flow, |index| from(address(index), 1));
    assert_even("IPv6 hosts", |h| h.source, |index| from6(index, 12));
    assert_even("IPv6 prefixes", |h| h.source, |index| from6(index, 4));
    assert_even("IPv6 flows", |h| h.flow, |index| from6(index, 12));
}

#[test]
fn every_256th_address_spreads_evenly() {
    assert_even("IPv4 hosts", |h| h.source, |index| from((index << 8).to_be_bytes(), 1));
}

#[test]
fn neighbouring_ports_spread_evenly() {
    assert_even("flows", |h| h.flow, |index| from(CLIENT, index as u16));
    assert_even(
        "flows of ports that count up together",
        |h| h.flow,
        |index| ethernet(IPV4, &v4(UDP, &udp(index as u16, index as u16, &[]))),
    );
}

#[test]
fn hosts_and_ports_together_spread_evenly() {
    assert_even(
        "flows",
        |h| h.flow,
        |index| from([10, 0, 0, (index >> 8) as u8], 40_000 + (index & 0xff) as u16),
    );
}
