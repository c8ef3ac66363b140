//! The harness of `narrows chaos` itself: it accepts normal operation, and finds planted faults.

use crate::fleet_boxes::agent;
use crate::setup::{NARROWS, turn_to_count, turn_to_measure_alone};
use narrows_testbed::chaos::fleet;
use narrows_testbed::chaos::{Forwarding, Kind, Options, Plane, Planted, Report, run};
use std::time::Duration;

/// One epoch of normal operation.
fn calm(forwarding: Forwarding, plane: Plane, planted: Option<Planted>) -> Report {
    let options = Options {
        program: NARROWS.into(),
        seed: 1,
        duration: Duration::from_millis(1),
        forwarding,
        plane,
        hook: None,
        kinds: vec![Kind::Calm],
        planted,
    };
    run(&options).unwrap()
}

#[test]
fn chaos_finds_every_packet_of_a_calm_run() {
    let Some(_turn) = turn_to_count() else { return };
    for forwarding in [Forwarding::Wire, Forwarding::Router] {
        for plane in [Plane::Xsk, Plane::Xdp] {
            let report = calm(forwarding, plane, None);
            assert_eq!(report.unaccounted(), 0, "{report}");
        }
    }
}

#[test]
fn chaos_finds_planted_errors() {
    let Some(_turn) = turn_to_count() else { return };
    let (wire, router) = (Forwarding::Wire, Forwarding::Router);
    for (forwarding, planted, said) in [
        (wire, Planted::Lost, "back: 1 packets unaccounted"),
        (wire, Planted::Doubled, "back: 1 packets arrived more than once"),
        (wire, Planted::Reordered, "out of their flow's order in normal operation"),
        (wire, Planted::Burst, "of what the limit passes in 10 ms"),
        (router, Planted::Misled, "forth: 1 packets by a route that was not in force"),
    ] {
        let report = calm(forwarding, Plane::Xsk, Some(planted));
        assert!(!report.is_good(), "{planted:?} is not found: {report}");
        assert!(report.broken().any(|broken| broken.contains(said)), "{planted:?}: {report}");
    }
}

#[test]
fn chaos_finds_a_box_of_a_fleet_that_has_the_limit_for_itself() {
    let Some(agent) = agent() else { return };
    let Some(_turn) = turn_to_measure_alone() else { return };
    let run = |is_greedy| {
        fleet::run(&fleet::Options {
            program: NARROWS.into(),
            agent: agent.clone(),
            boxes: 3,
            seed: 1,
            duration: Duration::from_millis(1),
            kinds: vec![fleet::Kind::Calm],
            is_greedy,
        })
        .unwrap()
    };
    let report = run(false);
    assert!(report.is_good(), "{report}");
    let report = run(true);
    assert!(report.broken().any(|broken| broken.contains("above the limit")), "{report}");
}
