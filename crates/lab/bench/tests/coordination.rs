//! A tiny run of `narrows bench coordination`, for its shape: figures of a window this short mean
//! nothing, and on a machine that does something else a thread may sleep through all of it.

use narrows_bench::coordination::{Bench, Load, Options, Report, System};
use std::sync::Mutex;
use std::time::Duration;

/// One run at a time: threads that wait for each other need their cores.
static RUN: Mutex<()> = Mutex::new(());

fn run(threads: usize) -> (Report, u64, u64) {
    let _alone = RUN.lock();
    let window = Duration::from_millis(10);
    let bench = Bench::new(Options { threads: Some(threads), window, rounds: 1 }).unwrap();
    let mut begun = 0;
    let report = bench.run(|_| begun += 1).unwrap();
    (report, begun, bench.trials())
}

#[test]
fn every_system_has_a_row_for_each_load_and_number_of_threads() {
    let (report, begun, trials) = run(2);
    assert_eq!(begun, trials);
    let mut rows = report.rows.iter();
    for load in Load::ALL {
        for threads in [1, 2] {
            for system in System::all() {
                let row = rows.next().unwrap();
                assert_eq!(
                    (row.load, row.threads, row.strategy),
                    (load.name(), threads, system.name())
                );
                assert_eq!(row.scaling_percent.is_some(), load == Load::Unbound);
                assert_eq!(row.deviation_percent.is_some(), load == Load::Bound);
                assert!(row.ratio_to_lock.is_some());
            }
        }
    }
    assert!(rows.next().is_none());
}

#[test]
fn more_threads_than_cores_share_them_and_the_report_says_so() {
    let cores = run(1).0.machine.cores;
    let (report, ..) = run(cores + 1);
    let share = format!("up to {} threads share {cores} core", cores + 1);
    assert!(report.notes.iter().any(|note| note.starts_with(&share)), "{:?}", report.notes);
    assert!(report.to_string().contains(&share));
}

#[test]
fn json_names_the_machine_its_costs_and_the_rows() {
    let (report, ..) = run(1);
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["machine"]["cores"].as_u64().unwrap() >= 1);
    assert_eq!(json["rows"].as_array().unwrap().len(), report.rows.len());
    for field in ["strategy", "load", "threads", "mpps", "mpps_per_thread", "ns_per_packet"] {
        assert!(json["rows"][0].get(field).is_some(), "{field}");
    }
    assert!(json["curve"].as_array().unwrap().is_empty(), "one thread shares nothing");
}

#[test]
fn the_costs_of_a_line_are_those_of_each_number_of_threads_that_have_cores() {
    let (report, ..) = run(2);
    let threads: Vec<usize> = report.curve.iter().map(|costs| costs.threads).collect();
    let expected: &[usize] = if report.machine.cores > 1 { &[2] } else { &[] };
    assert_eq!(threads, expected);
    for costs in &report.curve {
        assert!(costs.line_read_ns > 0.0 && costs.line_update_ns > 0.0, "{costs:?}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["curve"].as_array().unwrap().len(), report.curve.len());
}
