//! The output of a scenario's run.

use narrows_sim::report::{json, page, table};
use narrows_sim::scenario::{Scenario, run};

const TINY: &str = r#"title = "Tiny <i>"
source = "nobody, Fig. 1"
strategies = ["equal", "lock"]
measures = ["utilization", "deviation_percent", "induced_queue_bytes"]

[port]
queues = 2
rate = "100mbit"
qdisc = "tbf rate {rate} burst 3028 limit 64k coordination {strategy}"

[[traffic]]
kind = "constant"
load = "150%"

[next_hop]
rate = "{rate}"
buffer = "1mb"

[run]
warmup = "10ms"
length = "50ms"
event = "20ms"
seed = 5

[sweep]
"port.queues" = [1, 2]

[[paper]]
strategy = "equal"
measure = "utilization"
at = { "port.queues" = 2 }
value = 0.98765
"#;

fn scenario() -> Scenario {
    Scenario::read("tiny", TINY, &[]).unwrap()
}

#[test]
fn the_json_has_its_documented_fields() {
    let scenario = scenario();
    let json = json(&run(&scenario, 1, &|_| {}).unwrap());
    assert_eq!(json["scenario"], "tiny");
    assert_eq!(json["source"], "nobody, Fig. 1");
    assert_eq!(json["simulated"], true);
    assert_eq!(json["seed"], 5);
    assert!(json["rows"][0]["costs"]["packet_ns"].as_f64().unwrap() > 0.0);
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!(["equal", "lock"].contains(&row["strategy"].as_str().unwrap()));
        assert!(row["port.queues"].is_string());
        assert_eq!(row["seed"], 5);
        for measure in ["utilization", "deviation_percent", "induced_queue_bytes"] {
            assert!(row[measure].is_number(), "{measure} of {row}");
        }
        let sum: f64 =
            row["queues"].as_array().unwrap().iter().map(|part| part.as_f64().unwrap()).sum();
        assert!((sum - 100.0 * row["utilization"].as_f64().unwrap()).abs() < 1e-6, "{row}");
    }
    assert_eq!(rows[2]["paper"]["utilization"], 0.98765);
    assert_eq!(rows[3]["paper"], serde_json::json!({}));
}

#[test]
fn a_result_does_not_depend_on_how_many_run_at_a_time() {
    let scenario = scenario();
    let text = |jobs| json(&run(&scenario, jobs, &|_| {}).unwrap()).to_string();
    let first = text(1);
    assert_eq!(first, text(4));
    assert_eq!(first, text(1));
}

#[test]
fn progress_ends_at_the_end() {
    let scenario = scenario();
    let last = std::sync::Mutex::new(0.0);
    run(&scenario, 2, &|part| *last.lock().unwrap() = part).unwrap();
    assert_eq!(*last.lock().unwrap(), 1.0);
}

#[test]
fn the_table_has_a_title_and_fits() {
    let scenario = scenario();
    let text = table(&run(&scenario, 1, &|_| {}).unwrap());
    for part in ["tiny (simulated): Tiny", "nobody, Fig. 1", "seed 5", "ns a packet", "paper"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let line = text.lines().find(|line| line.starts_with("| 2 ")).unwrap();
    assert!(line.contains("0.9877"), "{line}");
    assert!(text.lines().skip(3).all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn the_page_is_self_contained_and_says_that_it_is_simulated() {
    let scenario = scenario();
    let html = page(&run(&scenario, 1, &|_| {}).unwrap());
    assert!(html.contains("Simulated") && html.contains("Tiny &lt;i&gt;"));
    assert!(html.contains("<svg") && html.contains("utilization by queues"));
    assert!(html.contains("Over time"));
    for outside in ["<script", "<link", "src=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn groups_have_a_table_if_a_measure_names_them_and_are_always_in_json() {
    let named = TINY.replacen(
        "[port]",
        "group_measures = [\"mbit_per_sec\", \"drops\", \"p99_us\"]\n\n[port]",
        1,
    );
    let scenario = Scenario::read("tiny", &named, &[]).unwrap();
    let finished = run(&scenario, 1, &|_| {}).unwrap();
    let text = table(&finished);
    let groups = text.split("\n\n").last().unwrap();
    assert!(groups.contains("mbit_per_sec") && groups.contains("p99_us"), "{groups}");
    // A line for each point: there is one group.
    assert_eq!(groups.matches("| traffic.0 ").count(), 2, "{groups}");
    let scenario = self::scenario();
    let finished = run(&scenario, 1, &|_| {}).unwrap();
    assert!(!table(&finished).contains("traffic.0"));
    let row = &json(&finished)["rows"][0];
    assert!(row["groups"]["traffic.0"]["packets"].as_f64().unwrap() > 100.0, "{row}");
    assert!(row["drops"]["limit"].as_u64().unwrap() > 100, "{row}");
}
