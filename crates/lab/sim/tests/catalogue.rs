//! The scenarios that are built in.

use narrows_sim::measure::Measure;
use narrows_sim::scenario::{Override, Scenario, embedded, names};

fn read(name: &str, overrides: &[&str]) -> Scenario {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    Scenario::read(name, embedded(name).unwrap(), &overrides)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_scenario_is_complete() {
    for name in names() {
        let scenario = read(name, &[]);
        assert!(!scenario.about.title.is_empty() && !scenario.cases.is_empty(), "{name}");
        assert!(embedded(name).unwrap().starts_with("# "), "{name} says what it is about");
        let of_a_paper = name.starts_with("mqcake-")
            || name.starts_with("flowbundler-")
            || name == "cake-mq-tcp";
        assert_eq!(scenario.about.source.is_some(), of_a_paper, "{name}");
        if name.starts_with("cake-") {
            let words = &scenario.cases[0].setup.port.qdisc;
            assert_eq!(words.first().map(String::as_str), Some("cake"), "{name}");
            continue;
        }
        if name.starts_with("flowbundler-") {
            assert!(scenario.strategies().contains(&"flowbundler"), "{name}");
            continue;
        }
        let has_equal = scenario.strategies().iter().any(|name| name.starts_with("equal"));
        assert!(has_equal || name == "fair-sync", "{name}");
        assert!(
            scenario.strategies().contains(&"fair") || name == "mqcake-linux",
            "{name} shows what is claimed for fair"
        );
    }
}

#[test]
fn each_paper_value_belongs_to_a_run() {
    for name in names() {
        let entries = embedded(name).unwrap().matches("[[paper]]").count();
        let used: usize = read(name, &[]).cases.iter().map(|case| case.paper.len()).sum();
        assert!(used >= entries, "{name}: {entries} figures, {used} of them with a run");
    }
}

#[test]
fn every_scenario_takes_another_seed() {
    for name in names() {
        let scenario = read(name, &["run.seed=77"]);
        assert_eq!(scenario.seed, 77);
        assert!(scenario.cases.iter().all(|case| case.setup.seed == 77), "{name}");
    }
}

#[test]
fn measures_of_an_event_come_with_an_event() {
    let of_an_event = [
        Measure::OvershootBytes,
        Measure::InducedQueueBytes,
        Measure::StandingUs,
        Measure::SettleUs,
    ];
    for name in names() {
        let scenario = read(name, &[]);
        let needs = scenario
            .measures
            .iter()
            .any(|measure| of_an_event.contains(measure) && *measure != Measure::InducedQueueBytes);
        let has = scenario.cases.iter().all(|case| case.setup.run.event.is_some());
        assert!(has || !needs, "{name}");
    }
}

#[test]
fn the_linux_experiment_takes_other_cells() {
    let scenario =
        read("mqcake-linux", &["rate=50mbit", "split=[0.6,0.3,0.1]", "load=100%", "size=512"]);
    let case = &scenario.cases[0];
    assert_eq!(case.setup.port.rate.bits_per_sec(), 50_000_000);
    assert_eq!(case.setup.traffic[0].sizes, [(512, 1.0)]);
    assert_eq!(
        case.setup.traffic[0].spread,
        narrows_sim::setup::Spread::Parts(vec![0.6, 0.3, 0.1])
    );
}
