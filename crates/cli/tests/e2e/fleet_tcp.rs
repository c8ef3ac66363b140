//! TCP through two boxes that share a limit, with agents between them and a real NATS cluster.

use crate::fleet_boxes::agent;
use crate::setup::{NARROWS, turn_to_measure_alone};
use narrows_testbed::{Rounds, sharing};
use std::time::Duration;

/// Looser than what the benchmark asks for, which takes the median of several rounds.
const OF_ONE_BOX: f64 = 95.0;
const JAIN: f64 = 0.95;
/// What all may receive above the limit in a tenth of a second: a twentieth of what it passes.
const ABOVE_BYTES: f64 = 25_000.0;

#[test]
fn tcp_through_two_boxes_gets_as_much_as_through_one() {
    let Some(agent) = agent() else { return };
    let Some(_turn) = turn_to_measure_alone() else { return };
    let once = Rounds { program: NARROWS.into(), window: Duration::from_secs(2), rounds: 1 };
    let report = sharing::run(&once, &agent).unwrap();
    assert!(report.of_one_box_percent >= OF_ONE_BOX, "{report}");
    assert!(report.jain >= JAIN, "{report}");
    assert_eq!(report.unaccounted, 0, "{report}");
    assert!(report.rows.iter().all(|row| row.above_bytes.max <= ABOVE_BYTES), "{report}");
    // What is divided for ever is lost where one box has all flows.
    let divided = report.rows.last().unwrap();
    assert!(divided.flows[1] == 0 && divided.of_one_box_percent.max < 55.0, "{report}");
}
