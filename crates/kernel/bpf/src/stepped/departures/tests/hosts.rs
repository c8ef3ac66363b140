//! One limit, and hosts that share it before their flows do.

use super::host::{FRAME, Host, Load, MS, SECOND, Sender, jain};
use super::one_limit::{self, LEAF, MBIT};
use crate::tree::layout::{Class, Hosts};
use std::collections::BTreeMap;

const SECONDS: u64 = 8;

fn limit(rate: u64) -> Class {
    Class { hosts: Hosts::Destinations, ..one_limit::limit(rate) }
}

/// Flows of the host `number`, with hashes of their own.
fn host(number: u32, flows: u32, load: Load) -> impl Iterator<Item = Sender> {
    let hash = move |flow: u32| (number * 1000 + flow).wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995;
    (0..flows).map(move |flow| Sender {
        leaf: LEAF,
        hash: hash(flow),
        host: number.wrapping_mul(0x85eb_ca6b),
        load,
        from: 0,
        to: u64::MAX,
    })
}

const TCP: Load = Load::Tcp { round_trip: 10 * MS, is_ecn: true };

/// Runs hosts with so many flows each below one limit. By host, then by flow, the bytes of the last
/// seconds.
fn shares(class: Class, hosts: &[(u32, Load)]) -> Vec<Vec<u64>> {
    let senders =
        (0..).zip(hosts).flat_map(|(number, (flows, load))| host(number, *flows, *load)).collect();
    let run = Host::new(&BTreeMap::from([(LEAF, class)]), senders).run(SECONDS * SECOND);
    let bytes = |sender: Sender| run.bytes(2 * SECOND, SECONDS * SECOND, |it| *it == sender);
    (0..)
        .zip(hosts)
        .map(|(number, (flows, load))| host(number, *flows, *load).map(bytes).collect())
        .collect()
}

fn sums(shares: &[Vec<u64>]) -> Vec<u64> {
    shares.iter().map(|flows| flows.iter().sum()).collect()
}

/// The rate was used, but for a percent.
#[track_caller]
fn assert_used(shares: &[Vec<u64>], rate: u64, what: &str) {
    let (sum, due) = (sums(shares).iter().sum::<u64>(), (SECONDS - 2) * rate);
    assert!(sum.abs_diff(due) <= due / 100 + 2 * FRAME, "{what}: {sum} of {due} bytes");
}

/// The part of `rate` that each host had.
fn parts(shares: &[Vec<u64>], rate: u64) -> Vec<f64> {
    let due = ((SECONDS - 2) * rate) as f64;
    sums(shares).into_iter().map(|bytes| bytes as f64 / due).collect()
}

#[test]
fn a_host_with_many_connections_has_as_much_as_one_with_a_single_one() {
    for mbit in [50, 200] {
        for flows in [[1, 4, 16], [1, 1, 32], [8, 8, 8]] {
            let rate = mbit * MBIT;
            let shares = shares(limit(rate), &flows.map(|count| (count, TCP)));
            let (what, parts) = (format!("{flows:?} at {mbit} Mbit/s"), parts(&shares, rate));
            assert!(parts.iter().all(|part| (0.31..0.36).contains(part)), "{what}: {parts:?}");
            assert!(shares.iter().all(|flows| jain(flows) > 0.98), "{what}: {shares:?}");
            assert_used(&shares, rate, &what);
        }
    }
}

/// The least windows of sixteen connections are longer than their host's part of the limit.
#[test]
fn what_a_host_has_waiting_beyond_its_share_is_dropped() {
    let rate = 10 * MBIT;
    let parts = parts(&shares(limit(rate), &[1, 4, 16].map(|count| (count, TCP))), rate);
    assert!(parts[0] > 0.18 && parts[2] < 0.42, "{parts:?}");
    let class = one_limit::limit(rate);
    let by_flows = self::parts(&self::shares(class, &[1, 4, 16].map(|count| (count, TCP))), rate);
    assert!(by_flows[0] < 0.08 && by_flows[2] > 0.6, "{by_flows:?}");
}

#[test]
fn floods_of_a_host_share_what_the_host_has() {
    for mbit in [100, 1_000] {
        let rate = mbit * MBIT;
        let flood = Load::Udp { rate, bytes: FRAME };
        let shares = shares(limit(rate), &[(20, flood), (1, flood), (2, flood)]);
        let parts = parts(&shares, rate);
        assert!(parts.iter().all(|part| (0.32..0.345).contains(part)), "{mbit}: {parts:?}");
        assert_used(&shares, rate, "floods");
    }
}

#[test]
fn a_host_alone_has_the_whole_rate() {
    for flows in [1, 8, 32] {
        let rate = 100 * MBIT;
        assert_used(&shares(limit(rate), &[(flows, TCP)]), rate, "one host");
    }
}

/// More hosts than the table has room for: some share an entry, and with it a share.
#[test]
fn a_thousand_hosts_leave_nothing_of_the_rate() {
    let rate = 1_000 * MBIT;
    let flood = Load::Udp { rate: rate / 500, bytes: FRAME };
    let shares = shares(limit(rate), &[(1, flood); 1000]);
    assert_used(&shares, rate, "a thousand hosts");
}
