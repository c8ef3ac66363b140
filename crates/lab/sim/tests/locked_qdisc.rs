//! The model of a qdisc behind one lock, held against what machines measured: `narrows bench
//! coordination` has the packets a second that threads pass through one queue behind a lock.

use narrows_sim::measure::Measure;
use narrows_sim::scenario::{Override, Scenario, run};
use serde_json::Value;

/// Cores that do nothing but pass packets through one queue.
const SCENARIO: &str = r#"
title = "One qdisc behind one lock"
strategies = [{ name = "one lock", words = "lock", lock = "qdisc" }]
measures = ["mpps"]

[port]
queues = 2
rate = "400gbit"
qdisc = "tbf rate {rate} burst 1mb limit 1mb coordination {strategy}"

[cores]
machine = "xeon-2"

[cores.costs]
step_ns = 0.0
packet_ns = 50.0
drop_ns = 0.0

[[traffic]]
kind = "constant"
load = "300gbit"
flows = 128
size = 64

[run]
warmup = "1ms"
length = "2ms"
"#;

/// The output of the benchmark on `machine`.
fn measured(machine: &str) -> Value {
    let path = format!("{}/machines/{machine}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Millions of packets that threads passed a second.
fn mpps(machine: &Value, threads: u64) -> f64 {
    let rows = machine["rows"].as_array().unwrap();
    let is_it = |row: &&Value| {
        row["strategy"] == "qdisc-lock" && row["load"] == "unbound" && row["threads"] == threads
    };
    rows.iter().find(is_it).unwrap()["mpps"].as_f64().unwrap()
}

fn simulated(machine: &str, threads: u64, packet_ns: f64) -> f64 {
    let set = |path: &str, value: String| Override { path: path.to_owned(), value };
    let overrides = [
        set("cores.machine", machine.to_owned()),
        set("port.queues", threads.to_string()),
        set("cores.costs.packet_ns", packet_ns.to_string()),
    ];
    let scenario = Scenario::read("locked", SCENARIO, &overrides).unwrap();
    run(&scenario, 1, &|_| ()).unwrap().outcomes[0].measures[&Measure::Mpps]
}

#[test]
fn the_simulated_lock_passes_what_the_measured_one_does() {
    for machine in ["xeon-2", "xeon-16"] {
        let report = measured(machine);
        let packet_ns = 1_000.0 / mpps(&report, 1);
        let points = report["curve"].as_array().unwrap();
        assert!(!points.is_empty());
        for point in points {
            let threads = point["threads"].as_u64().unwrap();
            let (model, real) = (simulated(machine, threads, packet_ns), mpps(&report, threads));
            let off = model / real - 1.0;
            assert!(off.abs() < 0.1, "{machine}, {threads}: {model:.3} of {real:.3} Mpps");
        }
    }
}
