//! Fleets: the scenarios' statements, in short.

use narrows_sim::fleet;
use narrows_sim::scenario::{FleetScenario, Override, embedded};

fn scenario(name: &str, overrides: &[&str]) -> FleetScenario {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    FleetScenario::read(name, embedded(name).unwrap(), &overrides).unwrap()
}

fn row(scenario: &FleetScenario, case: &str) -> fleet::Row {
    let case = scenario.setup.cases.iter().find(|it| it.name == case).unwrap();
    let case = fleet::Case { histories: case.histories.min(2), ..case.clone() };
    fleet::run(&scenario.setup, &case, &mut |_| ())
}

#[test]
fn a_demand_that_moves_uses_the_limit_and_never_exceeds_it() {
    let scenario = scenario("fleet-move", &["length=50s"]);
    let near = row(&scenario, "20 ms apart");
    assert_eq!(near.excess_bps, 0);
    assert!(near.used >= 0.99, "{near:?}");
    assert!(near.divided < 0.5, "the peer wastes what is idle: {near:?}");
    let far = row(&scenario, "200 ms apart");
    assert!(far.used >= 0.95, "{far:?}");
}

#[test]
fn a_box_that_wakes_has_its_share_within_three_intervals() {
    let scenario = scenario("fleet-wake", &["length=26s"]);
    let row = row(&scenario, "20 ms apart");
    assert!(row.waits_ms.len() >= 10);
    assert!(row.waits_ms.last().is_some_and(|&longest| longest <= 150), "{row:?}");
    assert_eq!(row.excess_bps, 0);
}

#[test]
fn nothing_that_fails_brings_the_sum_above_the_limit() {
    let scenario = scenario("fleet-faults", &[]);
    for case in &scenario.setup.cases {
        assert_eq!(row(&scenario, &case.name).excess_bps, 0, "{}", case.name);
    }
}

#[test]
fn flows_have_equal_rates_where_they_are_counted_and_boxes_where_they_are_not() {
    let scenario = scenario("fleet-flows", &[]);
    for counted in ["12 + 4 flows", "2 + 4 + 8 + 18 flows"] {
        let by_flow = row(&scenario, counted);
        let by_box = row(&scenario, &format!("{counted}, not counted"));
        let [fair, unfair] = [&by_flow, &by_box].map(|row| row.jain.unwrap()[0]);
        assert!(fair > 0.97 && unfair < 0.76, "{counted}: {fair}, by box {unfair}");
        assert_eq!((by_flow.excess_bps, by_box.excess_bps), (0, 0));
        assert!(by_flow.used > 0.98, "{by_flow:?}");
    }
}
