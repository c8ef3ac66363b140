//! A limit that two boxes share: real packets through both, agents between them, and a real NATS
//! cluster. Rates are taken at the receivers.

use crate::fleet_boxes::{Boxes, LIMIT, PATIENCE, agent};
use crate::setup::{NARROWS, narrows, run, turn_to_count, turn_to_measure_alone, wait_until};
use narrows_testbed::Testbed;
use narrows_testbed::fleet::{Fleet, box_name};
use std::process::Command;

/// What each of two boxes may use alone.
const SAFE: f64 = LIMIT / 2.0;

#[test]
fn two_boxes_share_a_limit_through_idleness_death_and_partition() {
    let Some(program) = agent() else { return };
    let Some(_turn) = turn_to_measure_alone() else { return };
    let mut boxes = Boxes::up(&program, 2, "boxes 2");
    let first = boxes.flood(0);
    boxes.wait_for("without agents, a box has its safe share", [SAFE, 0.0]);

    boxes.fleet.start_agents().unwrap();
    boxes.wait_for("the first box alone has the limit", [LIMIT, 0.0]);
    let second = boxes.flood(1);
    boxes.wait_for("both with load have half each", [SAFE, SAFE]);
    first.stop().unwrap();
    boxes.wait_for("the second alone has the limit", [0.0, LIMIT]);

    let first = boxes.flood(0);
    boxes.wait_for("half each again", [SAFE, SAFE]);
    second.stop().unwrap();
    boxes.wait_for("the first has what the second lends", [LIMIT, 0.0]);
    // Its agent is asked, too.
    let top = narrows(&boxes.beds[0], &["top", "--once", "--view", "fleet", "--interval", "0.1"]);
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    for said in ["connected through box1", "this box", " ago, lease ", "of 40.0Mbit/s"] {
        assert!(top.contains(said), "{said:?} is not in\n{top}");
    }
    boxes.fleet.kill_agent(0).unwrap();
    boxes.wait_for("without its agent, it has its safe share", [SAFE, 0.0]);
    boxes.fleet.start_agent(0).unwrap();
    boxes.wait_for("with a new agent, it borrows again", [LIMIT, 0.0]);

    boxes.fleet.wires.set(0, false).unwrap();
    boxes.wait_for("cut off, it has its safe share", [SAFE, 0.0]);
    boxes.wait_until_shown(1, "PARTITION: 1 of 2 boxes");
    boxes.fleet.wires.set(0, true).unwrap();
    boxes.wait_for("mended, it borrows again", [LIMIT, 0.0]);

    let shown = boxes.fleet.show(0).unwrap();
    let limit = &shown["view"]["limits"][0];
    assert_eq!((&limit["name"], &limit["limit_bps"]), (&"line".into(), &40_000_000.into()));
    assert_eq!(limit["borrowed"][0]["name"], box_name(1));
    first.stop().unwrap();
    let (ended_well, log) = boxes.fleet.stop_agent(0).unwrap();
    assert!(ended_well, "{log}");
    boxes.assert_limit_was_kept();
}

#[test]
fn an_agent_waits_for_its_instance_and_for_its_engine() {
    let Some(program) = agent() else { return };
    let Some(_turn) = turn_to_count() else { return };
    let beds = [Testbed::up(1).unwrap(), Testbed::up(1).unwrap()];
    let shapers = beds.iter().map(|bed| bed.shaper().clone()).collect();
    let mut fleet = Fleet::over(&program, shapers).unwrap();
    fleet.kill_server(0).unwrap();
    fleet.kill_server(1).unwrap();
    fleet.start_agent(0).unwrap();
    wait_until("it says that it has neither", PATIENCE, || {
        let log = fleet.agent_log(0);
        log.contains("no connection to the engine yet") && log.contains("no narrows runs in this")
    });
    assert_eq!(fleet.agent_log(0).matches("no narrows runs").count(), 1, "said once");
    let shown = fleet.run(0, &["show"]).unwrap();
    assert!(shown.contains("NOT CONNECTED") && shown.contains("DOES NOT ANSWER"), "{shown}");

    let instance = run(&beds[0], &["--fail-closed"]);
    fleet.start_server(0).unwrap();
    wait_until("it has both", PATIENCE, || {
        let shown = fleet.run(0, &["show"]).unwrap();
        shown.contains("connected through box1") && shown.contains("instance: answers")
    });
    let metrics = fleet.run(0, &["metrics"]).unwrap();
    assert!(metrics.contains("narrows_fleet_agent_connected{fleet=\"test\"} 1"), "{metrics}");
    drop(instance);
    wait_until("it says that the instance is gone", PATIENCE, || {
        fleet.run(0, &["show"]).unwrap().contains("DOES NOT ANSWER")
    });
    let (ended_well, log) = fleet.stop_agent(0).unwrap();
    assert!(ended_well, "{log}");
}

#[test]
fn narrows_fleet_runs_the_agents_program() {
    let Some(_program) = agent() else { return };
    let output = Command::new(NARROWS).args(["fleet", "--version"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.starts_with("narrows-fleet "), "{said}");
    let output = Command::new(NARROWS).args(["fleet", "init", "--fleet", "a b"]).output().unwrap();
    assert!(!output.status.success());
}
