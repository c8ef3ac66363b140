use super::*;
use crate::setup::{Cores, Costs, NextHop, Port, Run, Sends};
use narrows_units::Bytes;

fn setup(group: Traffic) -> Setup {
    let costs = Costs {
        step_ns: 0.,
        packet_ns: 0.,
        drop_ns: 0.,
        line_read_ns: 0.,
        line_update_ns: 0.,
        lock_handover_ns: 0.,
        qdisc_handover_ns: 0.,
    };
    Setup {
        seed: 1,
        port: Port {
            queues: 4,
            rate: Rate::from_bits_per_sec(1_000_000_000),
            qdisc: Vec::new(),
            weights: Vec::new(),
            lock: Default::default(),
            sends: Sends::AllDue,
        },
        cores: Cores {
            jitter: Nanos::ZERO,
            clock_offset: Nanos::ZERO,
            staleness: Nanos::ZERO,
            costs,
        },
        traffic: vec![group],
        next_hop: None,
        run: Run { warmup: Nanos::ZERO, length: Nanos::from_secs(1), event: None },
        faults: Vec::new(),
        changes: Vec::new(),
        traces: Vec::new(),
    }
}

fn group() -> Traffic {
    Traffic {
        name: "bulk".into(),
        kind: Kind::Constant(Rate::from_bits_per_sec(1_000_000)),
        flows: 4,
        start: Nanos::ZERO,
        stop: Nanos::MAX,
        sizes: vec![(1514, 1.0)],
        spread: Spread::RoundRobin,
        respread: None,
        lifetime: None,
        headers: Default::default(),
    }
}

fn tcp(stack: Stack, control: Control) -> Traffic {
    Traffic { kind: Kind::Tcp { stack, control, rtt: Nanos::from_millis(10) }, ..group() }
}

#[track_caller]
fn refused(group: Traffic, why: &str) {
    let complaint = validate(&setup(group)).expect_err("is refused");
    assert!(complaint.contains("\"bulk\"") && complaint.contains(why), "{complaint}");
}

#[test]
fn valid_setups_are_accepted() {
    validate(&setup(group())).unwrap();
    validate(&setup(Traffic { sizes: Vec::new(), ..tcp(Stack::Model, Control::Cubic) })).unwrap();
    validate(&setup(Traffic { spread: Spread::Parts(vec![0.8, 0.0, 0.2]), ..group() })).unwrap();
}

#[test]
fn a_port_without_queues_or_with_too_many_is_refused() {
    for queues in [0, MAX_QUEUES + 1] {
        let mut setup = setup(group());
        setup.port.queues = queues;
        let complaint = validate(&setup).expect_err("is refused");
        assert!(complaint.contains("1 to 128"), "{complaint}");
    }
}

#[test]
fn groups_without_flows_lengths_or_time_are_refused() {
    refused(Traffic { flows: 0, ..group() }, "no flows");
    refused(Traffic { sizes: Vec::new(), ..group() }, "no frame lengths");
    refused(Traffic { stop: Nanos::ZERO, ..group() }, "stops at");
}

#[test]
fn lengths_that_no_frame_has_are_refused() {
    refused(Traffic { sizes: vec![(59, 1.0)], ..group() }, "59 bytes");
    refused(Traffic { sizes: vec![(9217, 1.0)], ..group() }, "9217 bytes");
    refused(Traffic { sizes: vec![(64, -1.0)], ..group() }, "weight -1");
    refused(Traffic { sizes: vec![(64, 0.0)], ..group() }, "weight 0");
}

#[test]
fn parts_that_are_nothing_or_too_many_are_refused() {
    let parts = |parts: &[f64]| Traffic { spread: Spread::Parts(parts.to_vec()), ..group() };
    refused(parts(&[0.0, 0.0]), "no queue has a part");
    refused(parts(&[1.0, -1.0]), "a part of -1");
    refused(parts(&[1.0; 5]), "5 parts for 4 queues");
    refused(Traffic { flows: 1, ..parts(&[1.0, 1.0]) }, "1 flows cannot load 2 queues");
    refused(Traffic { spread: Spread::Dirichlet(0.0), ..group() }, "a concentration of 0");
}

#[test]
fn rates_and_intervals_of_zero_are_refused() {
    let kind = |kind| Traffic { kind, ..group() };
    let zero = Rate::default();
    refused(kind(Kind::Constant(zero)), "a rate of zero");
    refused(kind(Kind::Uneven(zero)), "a rate of zero");
    refused(kind(Kind::Poisson(zero)), "a rate of zero");
    let (on, off) = (Nanos::from_millis(1), Nanos::from_millis(1));
    refused(kind(Kind::OnOff { rate: zero, on, off }), "a rate of zero");
    let pace = Rate::from_bits_per_sec(1_000_000);
    let backlogged = |queued, pace| kind(Kind::Backlogged { pace, queued });
    validate(&setup(backlogged(4, pace))).unwrap();
    refused(backlogged(0, pace), "0 packets of each flow");
    refused(backlogged(4, Rate::default()), "a rate of zero");
    let sizes = vec![(60, 1.0), (1514, 1.0)];
    refused(Traffic { sizes, ..backlogged(4, pace) }, "one length");
    refused(kind(Kind::Ping { interval: Nanos::ZERO }), "the shortest interval");
}

#[test]
fn flows_cannot_move_if_parts_or_connections_would_break() {
    let lifetime = Some(Nanos::from_millis(10));
    refused(Traffic { lifetime, spread: Spread::Parts(vec![1.0]), ..group() }, "spread by hash");
    refused(Traffic { lifetime, ..tcp(Stack::Model, Control::Reno) }, "stay where they are");
}

#[test]
fn dctcp_needs_the_model_and_marks() {
    refused(tcp(Stack::Smoltcp, Control::Dctcp), "has no DCTCP");
    refused(tcp(Stack::Model, Control::Dctcp), "mark_above");
    let rate = Rate::from_bits_per_sec(1_000_000_000);
    let hop = NextHop { rate, buffer: Bytes(1_000_000), mark_above: Some(Bytes(100_000)) };
    let group = tcp(Stack::Model, Control::Dctcp);
    validate(&Setup { next_hop: Some(hop), ..setup(group) }).unwrap();
}

#[test]
fn many_flows_of_smoltcp_are_sent_to_the_model() {
    let group = Traffic { flows: 17, ..tcp(Stack::Smoltcp, Control::Cubic) };
    refused(group, "The model does as many");
}

#[test]
fn headers_give_ecn_capability() {
    let headers = |headers| Traffic { headers, ..group() };
    let some = HeaderFields { source_hosts: 4, ecn: true, dscp: 63, ..Default::default() };
    validate(&setup(headers(some))).unwrap();
    refused(headers(HeaderFields { source_hosts: 5, ..some }), "5 hosts");
    refused(headers(HeaderFields { destination_hosts: 0, ..some }), "0 hosts");
    refused(headers(HeaderFields { dscp: 64, ..some }), "code point of 64");
    let filter_rate = Some(Rate::default());
    refused(headers(HeaderFields { filter_rate, ..some }), "a rate of zero");
    let smoltcp = tcp(Stack::Smoltcp, Control::Reno);
    refused(Traffic { headers: some, ..smoltcp }, "answer to marks");
}
