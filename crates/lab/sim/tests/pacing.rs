//! What pacing promises, held against the scenarios of FlowBundler's figures, some of them
//! shortened.
//!
//! *Principles.* The scenarios are run as `narrows sim` runs them; only lengths, sweeps and
//! strategies are chosen here. A single wheel with slots that are too long, or a core with too
//! little time, runs in the same test, so a scenario that no longer shows a difference is noticed.

mod scenarios;

use narrows_sim::measure::{GroupMeasure, Measure, Outcome};
use narrows_sim::scenario::Case;
use narrows_sim::setup::Kind;

/// A run and its outcome.
type Row = (Case, Outcome);

/// Runs the scenario `flowbundler-NAME` with `overrides` under `strategy`: every point of its
/// sweep.
#[track_caller]
fn rows(name: &str, strategy: &str, overrides: &[&str]) -> Vec<Row> {
    let name = format!("flowbundler-{name}");
    let rows = scenarios::rows(&name, strategy, overrides);
    for (case, outcome) in &rows {
        // Seen only where a test fails.
        println!("{name}, {}: {:?}", case.label(), outcome.measures);
        // A flow that loses what it keeps in the shaper would be silent.
        assert_eq!((outcome.drops.total(), outcome.books.overflowed), (0, 0), "{}", case.label());
    }
    rows
}

#[track_caller]
fn get((case, outcome): &Row, measure: Measure) -> f64 {
    let value = outcome.measures.get(&measure);
    *value.unwrap_or_else(|| panic!("{}: no {measure:?}", case.label()))
}

/// The only point's `measure`.
#[track_caller]
fn figure(name: &str, strategy: &str, overrides: &[&str], measure: Measure) -> f64 {
    let rows = rows(name, strategy, overrides);
    assert_eq!(rows.len(), 1, "{name} has one point");
    get(&rows[0], measure)
}

#[test]
fn a_single_flow_keeps_its_rate_within_0_3_percent_over_a_millisecond() {
    let sweep = r#"sweep={"port.rate"=["1gbit","10gbit","40gbit","98gbit"]}"#;
    for row in rows("conformance", "flowbundler", &[sweep, "run.length=11ms"]) {
        assert!(get(&row, Measure::Off1ms) <= 0.3);
        assert!(get(&row, Measure::Off10ms) <= 0.1);
    }
    let sweep = r#"sweep={"port.rate"=["1gbit","2gbit","4gbit","8gbit"]}"#;
    for row in rows("conformance-kernel", "flowbundler", &[sweep, "run.length=30ms"]) {
        assert!(get(&row, Measure::Off1ms) <= 0.3);
        assert!(get(&row, Measure::Off10ms) <= 0.1);
    }
    // A slot of 100 us is a tenth of the window.
    let sweep = r#"sweep={"port.rate"=["1gbit"]}"#;
    let coarse = ["port.slot=100us", sweep];
    assert!(figure("conformance", "carousel", &coarse, Measure::Off1ms) > 0.3);
}

#[test]
fn flows_together_keep_their_rates_over_ten_milliseconds() {
    let sweep = r#"sweep=[{"port.rate"=["600mbit"],"traffic.flows.flows"=[16]},{"port.rate"=["150mbit"],"traffic.flows.flows"=[64]}]"#;
    for name in ["conformance", "conformance-kernel"] {
        for row in rows(name, "flowbundler", &[sweep, "run.length=31ms"]) {
            assert!(get(&row, Measure::Off10ms) <= 0.1);
        }
    }
}

#[test]
fn no_flow_ever_has_three_packets_at_once() {
    for name in ["gaps", "gaps-mixed"] {
        for row in rows(name, "flowbundler", &["run.length=20ms"]) {
            assert_eq!(get(&row, Measure::ThreeAtOnce), 0.0);
            let (case, outcome) = &row;
            for (group, traffic) in outcome.groups.iter().zip(&case.setup.traffic) {
                let Kind::Backlogged { pace, .. } = traffic.kind else { panic!("it has a pace") };
                // Two packets' time less a slot, which is no longer than one packet's.
                let packet_us = 1514.0 * 8e6 / pace.bits_per_sec() as f64;
                let least = group.measures[&GroupMeasure::GapLeast];
                assert!(least >= packet_us, "{}: {least} us", case.label());
            }
        }
        let coarse = rows(name, "carousel 8us", &["run.length=20ms"]);
        assert!(coarse.iter().any(|row| get(row, Measure::ThreeAtOnce) > 20.0));
    }
}

/// Time a packet of flows that share 10 Gbit/s.
fn ns_per_packet(strategy: &str, (flows, pace): (u32, &str)) -> f64 {
    let sweep = format!(r#"sweep={{"port.pace"=["{pace}"],"traffic.flows.flows"=[{flows}]}}"#);
    figure("batches", strategy, &[&sweep, "run.length=20ms"], Measure::NsPerPacket)
}

#[test]
fn batches_of_many_flows_save_time_and_one_flow_costs_no_more() {
    let of_carousel =
        |flows| ns_per_packet("carousel", flows) / ns_per_packet("flowbundler", flows);
    let alone = of_carousel((1, "10gbit"));
    assert!((0.99..1.01).contains(&alone), "{alone}");
    let sixteen = of_carousel((16, "625mbit"));
    assert!(sixteen > 2.0, "{sixteen}");
    let thousand = of_carousel((1024, "9765625bit"));
    assert!(thousand > 4.0, "{thousand}");
}

#[test]
fn a_core_without_time_to_spare_keeps_the_rates_and_one_without_enough_does_not() {
    let off = |strategy, rate: &str, pace: &str| {
        let sweep = format!(r#"sweep={{"port.rate"=["{rate}"],"port.pace"=["{pace}"]}}"#);
        figure("max-rate", strategy, &[&sweep, "run.length=10ms"], Measure::Off1ms)
    };
    for strategy in ["flowbundler", "carousel", "eiffel"] {
        assert!(off(strategy, "58gbit", "14500mbit") < 1.0);
        assert!(off(strategy, "60gbit", "15gbit") > 1.0);
    }
}

#[test]
fn slot_by_slot_a_core_keeps_more_than_twice_as_much_with_bundles_as_with_a_single_wheel() {
    let off = |strategy, rate: &str, pace: &str| {
        let sweep = format!(r#"sweep={{"port.rate"=["{rate}"],"port.pace"=["{pace}"]}}"#);
        figure("slot-by-slot", strategy, &[&sweep, "run.length=10ms"], Measure::Off1ms)
    };
    assert!(off("flowbundler", "23gbit", "5750mbit") < 1.0);
    for strategy in ["carousel", "eiffel"] {
        assert!(off(strategy, "8gbit", "2gbit") < 1.0);
        assert!(off(strategy, "9gbit", "2250mbit") > 1.0);
    }
}

#[test]
fn a_core_s_load_depends_on_batches_and_not_on_the_number_of_flows() {
    let load = |strategy, (flows, pace): (u32, &str)| {
        let sweep = format!(r#"sweep={{"port.pace"=["{pace}"],"traffic.flows.flows"=[{flows}]}}"#);
        let short = ["run.length=40ms", &sweep];
        figure("connections", strategy, &short, Measure::CpuPercent)
    };
    let (few, many) = ((100, "30mbit"), (1000, "3mbit"));
    assert!(load("flowbundler", many) < load("flowbundler", few) * 1.1);
    assert!(load("carousel", many) > load("flowbundler", many) * 5.0);
    // A batch of a slot's packets, whatever flow they are of.
    let load = |slot: &str| {
        let sweep = format!(r#"sweep={{"port.slot"=["{slot}"]}}"#);
        figure("batch-size", "carousel", &[&sweep, "run.length=10ms"], Measure::CpuPercent)
    };
    assert!(load("24224ns") < load("6056ns") / 2.0);
}

#[test]
fn a_hundred_thousand_flows_keep_their_rates() {
    let sweep = r#"sweep={"port.pace"=["500kbit"],"traffic.flows.flows"=[100000]}"#;
    let row = &rows("scalability", "flowbundler", &[sweep, "run.length=125ms"])[0];
    assert!(get(row, Measure::AllOff100ms) < 0.1);
    assert!(get(row, Measure::Off100ms) < 0.1);
    assert!(get(row, Measure::PacketsPerBatch) > 32.0);
}
