//! A box is off: an operator says so, the others use its share, and it has it back. Real packets,
//! agents and NATS servers.

use crate::fleet_boxes::{Boxes, LIMIT, agent};
use crate::setup::turn_to_measure_alone;

/// What each of three boxes owns.
const SAFE: f64 = LIMIT / 3.0;
/// The box that is off.
const OFF: usize = 2;

#[test]
fn the_others_use_the_share_of_a_box_that_is_off_until_it_is_back() {
    let Some(program) = agent() else { return };
    let Some(_turn) = turn_to_measure_alone() else { return };
    let mut boxes = Boxes::up(&program, 3, "boxes 3 rejoin");
    let first = boxes.flood(0);
    boxes.wait_for("without agents, a box that rejoins waits", [0.0; 3]);
    boxes.fleet.start_agents().unwrap();
    boxes.wait_for("the first box alone has the limit", [LIMIT, 0.0, 0.0]);
    let forget = |boxes: &Boxes, number| boxes.fleet.run(number, &["forget", "box3"]);
    let refused = format!("{:#}", forget(&boxes, 0).unwrap_err());
    assert!(refused.contains("box3 is heard, so it is not off"), "{refused}");

    boxes.kill(OFF);
    boxes.wait_for("what the dead box owns is unused", [2.0 * SAFE, 0.0, 0.0]);
    let noted = forget(&boxes, 0).unwrap();
    assert!(noted.contains("noted: box3 is off"), "{noted}");
    boxes.wait_until_shown(0, "OFF, its share is used");
    boxes.wait_for("all of the limit is used", [LIMIT, 0.0, 0.0]);
    let second = boxes.flood(1);
    boxes.wait_for("two boxes have half each", [LIMIT / 2.0, LIMIT / 2.0, 0.0]);
    second.stop().unwrap();
    boxes.wait_for("the first has all of it again", [LIMIT, 0.0, 0.0]);

    boxes.fleet.kill_agent(0).unwrap();
    boxes.wait_for("without its agent, it has what it owns", [SAFE, 0.0, 0.0]);
    boxes.fleet.start_agent(0).unwrap();
    boxes.wait_for("a new agent goes on with what was said", [LIMIT, 0.0, 0.0]);

    // Its instance is back, and its agent is not: it must not take what the first one uses.
    let third = boxes.flood(OFF);
    boxes.start_instance(OFF);
    boxes.wait_for("without its agent, it waits", [LIMIT, 0.0, 0.0]);
    boxes.fleet.start_server(OFF).unwrap();
    boxes.fleet.start_agent(OFF).unwrap();
    boxes.wait_for("it has its share back", [LIMIT / 2.0, 0.0, LIMIT / 2.0]);
    first.stop().unwrap();
    boxes.wait_for("it borrows what the others do not use", [0.0, 0.0, LIMIT]);
    let shown = boxes.fleet.show(0).unwrap();
    assert!(shown["view"]["boxes"][OFF]["off"].is_null(), "{shown:#}");
    third.stop().unwrap();
    boxes.assert_limit_was_kept();
}

#[test]
fn of_two_boxes_that_are_told_one_has_the_share() {
    let Some(program) = agent() else { return };
    let Some(_turn) = turn_to_measure_alone() else { return };
    let mut boxes = Boxes::up(&program, 3, "boxes 3 rejoin");
    boxes.fleet.start_agents().unwrap();
    let loads = [boxes.flood(0), boxes.flood(1)];
    boxes.wait_for("two have half each", [LIMIT / 2.0, LIMIT / 2.0, 0.0]);
    boxes.kill(OFF);
    boxes.wait_for("what the dead box owns is unused", [SAFE, SAFE, 0.0]);
    boxes.fleet.run(0, &["forget", "box3"]).unwrap();
    boxes.wait_until_shown(0, "OFF, its share is used");
    boxes.fleet.run(1, &["forget", "box3"]).unwrap();
    boxes.wait_until_shown(1, "box3 is off, and box1 has its share");
    boxes.wait_for("both use it all the same", [LIMIT / 2.0, LIMIT / 2.0, 0.0]);
    for load in loads {
        load.stop().unwrap();
    }
    boxes.assert_limit_was_kept();
}
