//! Hosts that send to one host through whole qdiscs: the safeguard's effect, at a size that is
//! quick.

use narrows_sim::scenario::{Experiment, Override, StarScenario, embedded, run};
use narrows_sim::star::Measure;

const NAME: &str = "flowbundler-safeguard";

fn read(overrides: &[&str]) -> Result<StarScenario, String> {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    StarScenario::read(NAME, embedded(NAME).unwrap(), &overrides).map_err(|error| error.to_string())
}

#[test]
fn congested_hosts_are_marked_less_and_lose_no_throughput() {
    let scenario = read(&["flows=[20]", "length=20ms"]).unwrap();
    let finished = run(&scenario, 2, &|_| {}).unwrap();
    let value = |strategy: &str, measure: Measure| {
        finished.outcome(20, strategy).unwrap().value(measure, &scenario.setup)
    };
    let marked = |strategy| value(strategy, Measure::MarkedPercent);
    assert!(marked("flowbundler") > 3.0, "{} %", marked("flowbundler"));
    assert!(marked("safeguard") < marked("flowbundler") / 20.0, "{} %", marked("safeguard"));
    for strategy in &scenario.strategies {
        let throughput = value(strategy, Measure::ThroughputPercent);
        assert!((throughput - 100.0).abs() < 0.5, "{strategy}: {throughput} %");
        let dropped = finished.outcome(20, strategy).unwrap().books.dropped;
        assert_eq!(dropped, 0, "{strategy}");
    }
    let batch = |strategy| value(strategy, Measure::PacketsPerBatch);
    assert!(batch("flowbundler") > 8.0 && batch("safeguard") < 4.0);
}

#[test]
fn without_marks_the_safeguard_leaves_packets_together() {
    let scenario = read(&["flows=[20]", "length=5ms", "runs=1", "mark_above=100k"]).unwrap();
    let finished = run(&scenario, 2, &|_| {}).unwrap();
    let outcome = |strategy| finished.outcome(20, strategy).unwrap();
    assert_eq!((outcome("safeguard").marked, outcome("safeguard").congestion), (0, 0));
    assert_eq!(outcome("safeguard").batches, outcome("flowbundler").batches);
}

#[test]
fn values_change_by_path_and_mistakes_are_located() {
    let scenario = read(&["flows=[3,4]", "run.seed=9", "star.senders=5"]).unwrap();
    assert_eq!((scenario.setup.senders, scenario.setup.seed), (5, 9));
    assert_eq!(scenario.cases.len(), 2 * scenario.strategies.len());
    assert!(scenario.cases[0].qdisc.contains(&"1333333333bit".to_owned()));
    for (wrong, what) in [
        ("flows=[]", "star.flows"),
        ("flows=[0]", "star.flows"),
        ("senders=0", "star.senders"),
        ("length=0", "run.length"),
        ("qdiscs.mine=carousell", "qdiscs.mine"),
        ("paper.0.strategy=mine", "among qdiscs"),
        ("colour=red", "colour"),
    ] {
        let error = read(&[wrong]).unwrap_err();
        assert!(error.contains(what), "{wrong}: {error}");
    }
}

#[test]
fn the_result_is_one_object_with_a_row_for_each_run_and_tables_with_the_paper() {
    let overrides = ["flows=[5,20]", "length=1ms", "warmup=1ms", "runs=1"];
    let overrides = overrides.map(|text| Override::parse(text).unwrap());
    let experiment = Experiment::read(NAME, embedded(NAME).unwrap(), &overrides).unwrap();
    let results = experiment.run(1, &|_| {}).unwrap();
    let json = results.json();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 4);
    let of_safeguard = rows.iter().find(|row| row["strategy"] == "safeguard" && row["flows"] == 20);
    assert_eq!(of_safeguard.unwrap()["paper"]["throughput-percent"], 100.0);
    let table = results.table();
    for part in ["(simulated)", "paper, safeguard", "carousel 1us", "Packets marked, %"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert!(results.page().is_none());
}
