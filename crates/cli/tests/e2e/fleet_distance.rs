//! A box of a fleet that wakes, 20 ms from the others, with agents and a real NATS cluster.

use crate::fleet_boxes::agent;
use crate::setup::{NARROWS, turn_to_measure_alone};
use narrows_testbed::Rounds;
use narrows_testbed::distance::{self, TWENTY_MS};
use std::time::Duration;

/// The shortest round trip.
const ROUND_TRIP_MS: f64 = 40.0;
/// Far more than it takes on a quiet machine. A share that comes with the end of a lease, 2 s
/// later, is too late.
const WAIT_MS: f64 = 1_000.0;

#[test]
fn a_box_that_wakes_has_its_share_also_20_ms_from_the_others() {
    let Some(agent) = agent() else { return };
    let Some(_turn) = turn_to_measure_alone() else { return };
    let once = Rounds { program: NARROWS.into(), window: Duration::from_secs(2), rounds: 1 };
    let report = distance::run(&once, &agent, &[TWENTY_MS]).unwrap();
    assert_eq!((report.exceeded_percent, report.unaccounted), (0.0, 0), "{report}");
    let [shared, divided] = &report.rows[..] else { panic!("{report}") };
    assert!(shared.round_trip_ms.unwrap().min >= ROUND_TRIP_MS, "{report}");
    assert!(shared.wait_ms.unwrap().max < WAIT_MS, "{report}");
    // What a box that sleeps does not need is lost where each has a quarter.
    assert!(shared.used_percent.min > divided.used_percent.max + 3.0, "{report}");
}
