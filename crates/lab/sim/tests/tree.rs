//! FlowValve's experiments, as `narrows sim` runs them.

use narrows_sim::scenario::{
    Experiment, Override, Runs, TreeOutcome, TreeScenario, all_names, embedded,
};

fn read(name: &str, overrides: &[&str]) -> Result<TreeScenario, String> {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    TreeScenario::read(name, embedded(name).unwrap(), &overrides).map_err(|error| error.to_string())
}

/// By phase, what each application gets under the scheduler `name`, in Gbit/s.
fn rates(scenario: &TreeScenario, name: &str) -> Vec<Vec<f64>> {
    let number = scenario.schedulers.iter().position(|it| it.name == name).unwrap();
    let TreeOutcome::Rates(outcome) = scenario.run(number, &mut |_| {}).unwrap() else {
        panic!("{name} has rates")
    };
    let setup = &scenario.setup;
    let phase = |phase| (0..setup.apps.len()).map(|app| outcome.rate(setup, phase, app)).collect();
    (0..setup.phases.len()).map(phase).collect()
}

/// Asserts that the paper's value is reached within this tolerance.
fn assert_as_in_the_paper(name: &str, scheduler: &str, within: f64) {
    let scenario = read(name, &[]).unwrap();
    let rates = rates(&scenario, scheduler);
    for paper in scenario.paper.iter().filter(|it| it.app != "all") {
        let app = scenario.setup.apps.iter().position(|it| it.name == paper.app).unwrap();
        let rate = rates[paper.phase - 1][app];
        let error = (rate / paper.gbit - 1.0).abs();
        assert!(error <= within, "{scheduler}, phase {}: {rate} of {paper:?}", paper.phase);
    }
}

#[test]
fn the_motivation_example_is_kept_by_flowvalve_and_below_prio_by_fair() {
    assert_as_in_the_paper("flowvalve-11a", "htb, flowvalve", 0.03);
    assert_as_in_the_paper("flowvalve-11a", "prio, htb, fair", 0.01);
}

#[test]
fn assured_rates_exceed_their_parent_only_under_a_lock() {
    let scenario = read("flowvalve-3", &[]).unwrap();
    let sum = |name| rates(&scenario, name)[0].iter().sum::<f64>();
    assert!((sum("lock, 12 assured") / 12.0 - 1.0).abs() < 0.005);
    assert!((sum("fair, 12 assured") / 10.0 - 1.0).abs() < 0.001);
    let locked = rates(&scenario, "lock");
    assert!(locked[0][1] > 2.2 * locked[0][2], "by the rules alone prio counts: {locked:?}");
}

#[test]
fn every_experiment_is_read_and_takes_another_seed() {
    let names: Vec<&str> = all_names().filter(|name| name.starts_with("flowvalve-")).collect();
    assert_eq!(names.len(), 9);
    for name in names {
        assert!(embedded(name).unwrap().starts_with("# "), "{name} says what it is about");
        let scenario = read(name, &["seed=9"]).unwrap();
        assert_eq!(scenario.setup.seed, 9);
        assert!(scenario.about.source.is_some_and(|it| it.starts_with("FlowValve, ")), "{name}");
        assert!(scenario.capacity.is_some() || !scenario.paper.is_empty(), "{name}");
    }
}

#[test]
fn mistakes_are_refused_with_their_place() {
    for (wrong, what) in [
        ("tree.window=0", "above 0"),
        ("settle=1s", "which settles"),
        ("frame=9", "tree.frame"),
        ("colour=red", "colour"),
    ] {
        let error = read("flowvalve-11a", &[wrong]).unwrap_err();
        assert!(error.contains(what), "{wrong}: {error}");
    }
    let text = embedded("flowvalve-11a").unwrap();
    for (from, to, what) in [
        ("policy = \"motivation\"", "policy = \"qdisc add\"", "scheduler"),
        ("coordination = \"lock\"", "coordination = \"edt\"", "xdp, xdp-flowvalve or departures"),
        ("before = [\"NC\"]", "before = [\"XX\"]", "\"XX\" is no app"),
        ("class = \"31\"", "class = \"x\"", "hexadecimal"),
        ("phase = 3\napp = \"ML\"", "phase = 4\napp = \"ML\"", "in a phase 4"),
        ("flows = 1", "flows = 0", "1 to 1000"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Experiment::read("it", &text.replace(from, to), &[]).unwrap_err().to_string();
        assert!(error.contains(what), "{to}: {error}");
    }
    let error = read("flowvalve-13", &["capacity.cores=[0]"]).unwrap_err();
    assert!(error.contains("1 to 128"), "{error}");
}

#[test]
fn the_results_are_tables_with_the_paper_and_objects_with_a_row_a_run() {
    let overrides = ["cores=[1]", "capacity.length=50us"];
    let overrides = overrides.map(|text| Override::parse(text).unwrap());
    let text = embedded("flowvalve-13").unwrap();
    let experiment = Experiment::read("flowvalve-13", text, &overrides).unwrap();
    let results = experiment.run(1, &|_| {}).unwrap();
    let table = results.table();
    for part in ["(simulated)", "paper, FlowValve", "19.69", "paper, DPDK", " fair |"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    let json = results.json();
    assert_eq!(json["rows"].as_array().unwrap().len(), 9);
    assert!(json["rows"][8]["mpps"].as_f64().unwrap() > 1.0);
    assert!(results.page().is_none());

    let mut short = embedded("flowvalve-3").unwrap().to_owned();
    for (from, to) in [("\"200ms\"", "\"20ms\""), ("\"100ms\"", "\"5ms\"")] {
        short = short.replace(from, to);
    }
    let experiment = Experiment::read("flowvalve-3", &short, &[]).unwrap();
    let results = experiment.run(1, &|_| {}).unwrap();
    let table = results.table();
    for part in ["| paper |", "12.00", "most in 10 ms", "lost, %", "lock, 12 assured"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert_eq!(results.json()["rows"][1]["strategy"], "lock, 12 assured");
}
