//! A limit that two boxes share: real packets through both, agents between them, and a real NATS
//! cluster. Rates are taken at the receivers.

use crate::setup::{NARROWS, flood, run, turn_to_count, turn_to_measure_alone, wait_until};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{PORT_B, SERVER};
use narrows_testbed::fleet::{self, Fleet, box_name};
use narrows_testbed::narrows::Instance;
use narrows_testbed::together::Sampler;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The limit of both boxes, and what each may use alone.
const LIMIT: f64 = 40e6;
const SAFE: f64 = LIMIT / 2.0;
/// The bucket of each box, in bytes.
const BURST: f64 = 8_000.0;
/// What a box sends if it has something to send.
const LOAD: f64 = 60e6;
const PATIENCE: Duration = Duration::from_secs(10);
/// Over which time a rate is taken.
const WINDOW: Duration = Duration::from_millis(500);

/// The agent, which is built beside the program.
fn agent() -> Option<PathBuf> {
    let program = Path::new(NARROWS).with_file_name("narrows-fleet");
    if !program.exists() {
        eprintln!("SKIPPED: narrows-fleet is not there: make programs");
        return None;
    }
    if let Err(refusal) = fleet::check() {
        eprintln!("SKIPPED: {refusal}");
        return None;
    }
    Some(program)
}

/// Two boxes, each between a client and a server.
struct Boxes {
    sampler: Sampler,
    fleet: Fleet,
    instances: Vec<Instance>,
    beds: [Testbed; 2],
}

impl Boxes {
    fn up(program: &Path) -> Self {
        let beds = [Testbed::up(2).unwrap(), Testbed::up(2).unwrap()];
        let instances = beds.each_ref().map(|bed| run(bed, &["--fail-closed"]));
        for instance in &instances {
            let tbf = format!(
                "qdisc replace dev {PORT_B} root tbf rate 40mbit burst 8000 limit 60000 \
                 fleet line boxes 2"
            );
            instance.tc(&tbf).unwrap();
        }
        let shapers = beds.iter().map(|bed| bed.shaper().clone()).collect();
        let fleet = Fleet::over(program, shapers).unwrap();
        let ends = beds.each_ref().map(|bed| (bed.server(), SERVER));
        let sampler = Sampler::over(&ends).unwrap();
        Self { sampler, fleet, instances: instances.into(), beds }
    }

    /// Waits until both receivers have these rates, each within a twentieth of the limit.
    #[track_caller]
    fn wait_for(&self, what: &str, wanted: [f64; 2]) {
        let near = |(is, wanted): (&f64, f64)| (is - wanted).abs() <= LIMIT / 20.0;
        let began = self.sampler.now();
        wait_until(what, PATIENCE, || {
            let rates = self.sampler.rates(WINDOW);
            rates.iter().zip(wanted).all(near)
        });
        let took = self.sampler.now() - began;
        eprintln!("{what}: {:.2?} Mbit/s after {took:.1?}", self.megabits());
    }

    fn megabits(&self) -> Vec<f64> {
        self.sampler.rates(WINDOW).iter().map(|rate| rate / 1e6).collect()
    }

    /// Never more than the limit over any tenth of a second, but for what both buckets hold.
    #[track_caller]
    fn assert_limit_was_kept(&self) {
        let (window, now) = (Duration::from_millis(100), self.sampler.now());
        let worst = self.sampler.samples().excess(LIMIT, window, Duration::ZERO, now);
        eprintln!("most in 100 ms: {:.0} bytes above the limit", worst.bytes);
        assert!(worst.bytes <= 2.0 * BURST, "{worst:?}");
    }
}

#[test]
fn two_boxes_share_a_limit_through_idleness_death_and_partition() {
    let Some(program) = agent() else { return };
    let Some(_turn) = turn_to_measure_alone() else { return };
    let mut boxes = Boxes::up(&program);
    let ports: Vec<u16> = (1000..1032).collect();
    let first = flood(&boxes.beds[0], &ports, 1000, LOAD);
    boxes.wait_for("without agents, a box has its safe share", [SAFE, 0.0]);

    for number in 0..2 {
        boxes.fleet.start_agent(number).unwrap();
    }
    boxes.wait_for("the first box alone has the limit", [LIMIT, 0.0]);
    let second = flood(&boxes.beds[1], &ports, 1000, LOAD);
    boxes.wait_for("both with load have half each", [SAFE, SAFE]);
    first.stop().unwrap();
    boxes.wait_for("the second alone has the limit", [0.0, LIMIT]);

    let first = flood(&boxes.beds[0], &ports, 1000, LOAD);
    boxes.wait_for("half each again", [SAFE, SAFE]);
    second.stop().unwrap();
    boxes.wait_for("the first has what the second lends", [LIMIT, 0.0]);
    boxes.fleet.kill_agent(0).unwrap();
    boxes.wait_for("without its agent, it has its safe share", [SAFE, 0.0]);
    boxes.fleet.start_agent(0).unwrap();
    boxes.wait_for("with a new agent, it borrows again", [LIMIT, 0.0]);

    boxes.fleet.wires.set(0, false).unwrap();
    boxes.wait_for("cut off, it has its safe share", [SAFE, 0.0]);
    wait_until("silent to the other", PATIENCE, || {
        boxes.fleet.run(1, &["show"]).unwrap().contains("PARTITION: 1 of 2 boxes")
    });
    boxes.fleet.wires.set(0, true).unwrap();
    boxes.wait_for("mended, it borrows again", [LIMIT, 0.0]);

    let shown = boxes.fleet.show(0).unwrap();
    let limit = &shown["view"]["limits"][0];
    assert_eq!((&limit["name"], &limit["limit_bps"]), (&"line".into(), &40_000_000.into()));
    assert_eq!(limit["borrowed"][0]["name"], box_name(1));
    first.stop().unwrap();
    boxes.assert_limit_was_kept();
    let (ended_well, log) = boxes.fleet.stop_agent(0).unwrap();
    assert!(ended_well, "{log}");
    for instance in boxes.instances {
        assert_eq!(instance.wait_for_rest().unwrap(), 0, "packets are missing");
    }
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
