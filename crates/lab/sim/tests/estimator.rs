//! `flowbundler`'s estimate of the rate to a host: the paper's two scenarios, as `narrows sim` runs
//! them.

use narrows_sim::estimator::Row;
use narrows_sim::scenario::{EstimatorScenario, Experiment, Override, embedded, run};
use narrows_units::Nanos;

const NAME: &str = "flowbundler-estimator";

fn read(overrides: &[&str]) -> Result<EstimatorScenario, String> {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    EstimatorScenario::read(NAME, embedded(NAME).unwrap(), &overrides)
        .map_err(|error| error.to_string())
}

/// By case and row.
fn results(overrides: &[&str]) -> Vec<Vec<Row>> {
    run(&read(overrides).unwrap(), 2, &|_| {}).unwrap().outcomes
}

#[test]
fn the_estimate_of_ten_connections_is_within_a_tenth_after_200_us_and_stays_near() {
    for seed in 1..6 {
        let rows = results(&[&format!("seed={seed}")]);
        for row in [&rows[0][0], &rows[1][0]] {
            assert!((row.measured - 5.5).abs() < 0.01, "{row:?}");
            assert!(row.near.ten.is_some_and(|it| it < Nanos::from_micros(200)), "{row:?}");
            assert!(row.largest_error < 25.0 && row.mean_error < 5.0, "{row:?}");
        }
    }
}

#[test]
fn three_estimates_are_close_to_the_measured_rates_in_any_setup() {
    let rows = results(&[]).remove(2);
    assert_eq!(rows.len(), 4 * 3);
    for row in &rows {
        assert!(row.mean_error < 8.0, "{row:?}");
        // Within the factor of two between wheels.
        assert!(row.least > row.measured / 2.0 && row.most < row.measured * 2.0, "{row:?}");
        assert!(row.wheels_off <= 1, "{row:?}");
    }
    let of_first: Vec<f64> = rows.iter().filter(|it| it.host == 1).map(|it| it.mean).collect();
    for (estimate, rate) in of_first.iter().zip([1.0, 6.0, 1.0]) {
        assert!((estimate / rate - 1.0).abs() < 0.02, "{of_first:?}");
    }
    let together: f64 = rows.iter().filter(|it| it.phase == 3).map(|it| it.measured).sum();
    assert!((together - 5.0).abs() < 0.01, "{together} Gbit/s together");
}

#[test]
fn without_a_margin_an_estimate_counts_on_its_way() {
    let late = &results(&["settle=0"])[0][0];
    assert_eq!(late.least, 2.0, "it begins where it was told to");
    assert!(late.largest_error > 50.0, "{late:?}");
}

#[test]
fn values_change_by_path_and_mistakes_are_located() {
    let scenario = read(&["ahead=7", "run.seed=9", "every=1us"]).unwrap();
    assert_eq!((scenario.setup.ahead, scenario.setup.seed), (7, 9));
    assert_eq!(scenario.setup.every, Nanos::from_micros(1));
    for (wrong, what) in [
        ("ahead=0", "estimator.ahead"),
        ("window=0", "above 0"),
        ("window=70ms", "windows"),
        ("frame=9", "estimator.frame"),
        ("colour=red", "colour"),
    ] {
        let error = read(&[wrong]).unwrap_err();
        assert!(error.contains(what), "{wrong}: {error}");
    }
    let text = embedded(NAME).unwrap();
    for (from, to, what) in [
        ("together = \"5gbit\"", "", "either each or together"),
        ("hosts = [1, 2, 3]", "hosts = [1, 2]", "3 rates for 2 connections"),
        ("hosts = [1, 2, 3]", "hosts = []", "0 connections"),
    ] {
        let error = Experiment::read(NAME, &text.replace(from, to), &[]).unwrap_err().to_string();
        assert!(error.contains(what), "{to}: {error}");
    }
}

#[test]
fn the_result_is_one_object_with_a_row_for_each_host_and_phase_and_tables_with_the_paper() {
    let experiment = Experiment::read(NAME, embedded(NAME).unwrap(), &[]).unwrap();
    let results = experiment.run(1, &|_| {}).unwrap();
    let json = results.json();
    assert_eq!(json["rows"].as_array().unwrap().len(), 2 + 4 * 3);
    assert_eq!(json["rows"][0]["paper_us"], 200.0);
    let table = results.table();
    for part in ["(simulated)", "paper, us", "4. together, 5 Gbit/s", "host 3", "wheels off"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert!(results.page().is_none());
}
