//! A network of hosts that pace: what FlowBundler is held against, at a size that is quick.
//!
//! *Principles.* The scenario that is built in, as `narrows sim` runs it; only flows, structures
//! and how much flows carry are chosen here.

use narrows_sim::fabric::{Class, Pattern};
use narrows_sim::scenario::{
    Experiment, FabricScenario, Override, all_names, embedded, names, run,
};

const NAME: &str = "flowbundler-fabric";

fn read(overrides: &[&str]) -> Result<FabricScenario, String> {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    match Experiment::read(NAME, embedded(NAME).unwrap(), &overrides) {
        Ok(Experiment::Fabric(scenario)) => Ok(scenario),
        Ok(_) => panic!("{NAME} is no network"),
        Err(error) => Err(error.to_string()),
    }
}

/// By structure: the mean completion time of the flows of `pattern` in microseconds, and packets a
/// batch.
fn results(overrides: &[&str], pattern: Pattern) -> Vec<(f64, f64)> {
    let scenario = read(overrides).unwrap();
    let finished = run(&scenario, 2, &|_| {}).unwrap();
    let figures = finished.outcomes.iter().map(|outcome| {
        let mean = outcome.all(pattern).mean_us().unwrap();
        (mean, outcome.batches(pattern).mean().unwrap())
    });
    figures.collect()
}

const SHORT: &str = "sizes=[[10000,0.3],[30000,0.6],[100000,1.0]]";

#[test]
fn flows_are_done_as_soon_with_flowbundler_as_with_the_finest_wheel_and_later_with_coarser_ones() {
    let [(finest, _), (by_8, _), (by_16, _), (by_32, _), (flowbundler, _), (estimating, _)] =
        results(&["flows=600", "fanning_out=0.0", SHORT], Pattern::OneToOne)[..]
    else {
        panic!("six structures")
    };
    assert!(estimating < finest * 1.05, "{estimating} us, {finest} us");
    assert!(flowbundler < finest * 1.05, "{flowbundler} us, {finest} us");
    assert!(finest < by_8 && by_8 < by_16 && by_16 < by_32, "{finest} {by_8} {by_16} {by_32}");
    assert!(by_32 > finest * 1.15, "{by_32} us, {finest} us");
    assert!(flowbundler < by_8, "{flowbundler} us, {by_8} us");
}

#[test]
fn packets_of_sixteen_flows_leave_together_and_the_flows_are_done_as_soon() {
    let structures = r#"structures=["carousel 1us","flowbundler"]"#;
    let sizes = "sizes=[[290000,0.0],[300000,1.0]]";
    // Requests that do not overlap.
    let overrides = ["flows=480", "fanning_out=1.0", "load=5%", structures, sizes];
    let [(finest, alone), (flowbundler, together)] = results(&overrides, Pattern::Fanout)[..]
    else {
        panic!("two structures")
    };
    assert!(together > alone * 5.0, "{together} packets a batch, {alone}");
    assert!(flowbundler < finest * 1.05, "{flowbundler} us, {finest} us");
}

#[test]
fn every_structure_gets_the_same_flows() {
    let scenario = read(&["flows=200", SHORT]).unwrap();
    let finished = run(&scenario, 2, &|_| {}).unwrap();
    let flows = |pattern| {
        let of = finished.outcomes.iter();
        of.map(|it| Class::ALL.map(|class| it.completion(pattern, class).flows)).collect::<Vec<_>>()
    };
    for pattern in Pattern::ALL {
        let flows = flows(pattern);
        assert!(flows[0].iter().sum::<u64>() > 0);
        assert!(flows.iter().all(|it| *it == flows[0]));
    }
}

#[test]
fn values_change_by_path_and_mistakes_are_located() {
    let scenario = read(&["flows=7", "fabric.spines=2", "max_rate=5gbit", "run.seed=9"]).unwrap();
    assert_eq!((scenario.setup.traffic.flows, scenario.setup.topology.spines), (7, 2));
    assert_eq!(scenario.setup.traffic.max_rate.unwrap().bits_per_sec(), 5_000_000_000);
    assert_eq!(scenario.setup.seed, 9);
    for (wrong, what) in [
        ("structures=[\"eiffel\"]", "carousel 1us"),
        ("structures=[\"flowbundler guessing\"]", "flowbundler estimating"),
        ("flows=0", "traffic.flows"),
        ("fabric.leaves=5000", "fabric.leaves"),
        ("load=fast", "load"),
        ("sizes=[[10,0.5]]", "has to be 1"),
        ("fanning_out=2.0", "from 0 to 1"),
        ("fanout=144", "fanout"),
        ("colour=red", "colour"),
    ] {
        let error = read(&[wrong]).unwrap_err();
        assert!(error.contains(what), "{wrong}: {error}");
    }
    let text = embedded(NAME).unwrap().replace("spines = 4", "spine = 4");
    let error = Experiment::read(NAME, &text, &[]).unwrap_err().to_string();
    assert!(error.contains("spine") && error.contains("line"), "{error}");
}

#[test]
fn all_kinds_of_scenarios_are_listed_together() {
    let networks: Vec<&str> = all_names().filter(|name| !names().any(|it| it == *name)).collect();
    assert!(networks.contains(&NAME));
    for name in networks {
        let text = embedded(name).unwrap();
        assert!(text.starts_with("# "), "{name} says what it is about");
        let experiment =
            Experiment::read(name, text, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert!(!matches!(experiment, Experiment::Shaper(_)), "{name}");
        assert!(!experiment.about().title.is_empty(), "{name}");
        // Other costs, and lines that change by a rule, are questions of ours.
        let is_ours =
            ["line-costs", "autorate-halves", "autorate-many", "autorate-one", "autorate-quarter"];
        let of_a_paper = !is_ours.iter().any(|ours| name.ends_with(ours));
        assert_eq!(experiment.about().source.is_some(), of_a_paper, "{name}");
    }
}

#[test]
fn the_result_is_one_object_with_a_row_for_each_structure_and_a_table_with_the_paper() {
    let overrides = [Override::parse("flows=40").unwrap(), Override::parse(SHORT).unwrap()];
    let experiment = Experiment::read(NAME, embedded(NAME).unwrap(), &overrides).unwrap();
    let results = experiment.run(1, &|_| {}).unwrap();
    let json = results.json();
    assert_eq!(json["rows"].as_array().unwrap().len(), 6);
    let row = &json["rows"][4];
    assert_eq!(row["structure"], "flowbundler");
    assert!(row["patterns"]["fan-out"]["packets_per_batch"].as_f64().unwrap() >= 1.0);
    let table = results.table();
    for part in [
        "(simulated)",
        "carousel 32us",
        "paper, flowbundler estimating",
        "7.300",
        "packets a batch",
    ] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert!(results.page().is_none());
}
