//! The harness of `narrows bench wheels`: it loses no packet, notices early departures, and prints
//! its promised output.

use narrows_bench::wheels::{Mode, Options, Plan, Rates, Subject, Work, header, run};
use narrows_units::Nanos;
use serde_json::Value;
use std::cell::{Cell, RefCell};

/// All combinations with few flows.
fn each(mut action: impl FnMut(Subject, &Plan, Rates, Mode)) {
    for flows in [16, 100, 1024] {
        for rates in Rates::ALL {
            let plan = Plan::new(flows, rates).unwrap();
            for mode in Mode::ALL {
                for subject in Subject::ALL {
                    action(subject, &plan, rates, mode);
                }
            }
        }
    }
}

#[test]
fn no_structure_loses_reorders_or_sends_a_packet_early() {
    each(|subject, plan, rates, mode| {
        let what = format!("{} {} {}", subject.name(), rates.name(), mode.name());
        let findings =
            subject.check(plan, mode, 50_000).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(findings.mean_batch >= 1.0, "{what}: {findings:?}");
        if subject.keeps_time() {
            assert_eq!(findings.max_early, Nanos::ZERO, "{what}");
        }
    });
}

#[test]
fn no_packet_is_late_by_more_than_the_coarsest_slot() {
    each(|subject, plan, rates, mode| {
        let most = match subject {
            Subject::FlowBundler => 1 << 13,
            Subject::Carousel | Subject::Eiffel => 100,
            // Its timer slack.
            Subject::Fq => 10_000,
            Subject::Heap => 0,
            Subject::Fifo | Subject::Order => return,
        };
        let late = subject.check(plan, mode, 50_000).unwrap().max_late;
        let what = format!("{} {} {}: {late}", subject.name(), rates.name(), mode.name());
        assert!(late <= Nanos(most), "{what}");
    });
}

#[test]
fn a_queue_that_looks_at_no_time_is_early() {
    let plan = Plan::new(100, Rates::Mix).unwrap();
    let findings = Subject::Fifo.check(&plan, Mode::Poll, 50_000).unwrap();
    assert!(findings.max_early > Nanos::from_micros(100), "{findings:?}");
}

#[test]
fn a_structure_does_as_much_work_as_is_asked_for_and_a_batch_more_at_most() {
    each(|subject, plan, rates, mode| {
        let left = Work::new(subject, plan, mode).run(50_000);
        let most = 50_000 + plan.packets();
        let what = format!("{} {} {}", subject.name(), rates.name(), mode.name());
        assert!((50_000..most).contains(&left), "{what}: {left}");
    });
}

/// A quick run with these numbers of flows, without other programs.
fn few(flows: &[u32]) -> Options {
    Options {
        flows: flows.to_vec(),
        packets: 1000,
        repeats: 1,
        watched: 1000,
        ..Options::default()
    }
}

#[test]
fn rows_are_shown_as_soon_as_they_are_measured() {
    let options = few(&[16]);
    let (begun, shown) = (Cell::new(0), RefCell::new(Vec::new()));
    let report = run(
        &options,
        |_| begun.set(begun.get() + 1),
        |rows| shown.borrow_mut().push((begun.get(), rows.to_vec())),
    );
    let shown = shown.into_inner();
    assert_eq!(shown.len(), Rates::ALL.len() * Mode::ALL.len());
    assert_eq!(shown[0].0, 2, "the first rows come after the first group's two steps");
    let rows: Vec<_> = shown.into_iter().flat_map(|(_, rows)| rows).collect();
    assert_eq!(rows, report.unwrap().rows);
    assert!(rows[0].to_string().contains("flowbundler"));
    assert_eq!(header().split_whitespace().next(), Some("flows"));
}

#[test]
fn the_report_has_a_row_for_every_combination() {
    let options = few(&[16, 100]);
    let mut begun = 0;
    let report = run(&options, |_| begun += 1, |_| ()).unwrap();
    assert_eq!(begun, narrows_bench::wheels::steps(&options));
    let json: Value = serde_json::to_value(&report).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 2 * Subject::ALL.len());
    for flows in [16, 100] {
        for rates in ["equal", "mix"] {
            for mode in ["drain", "poll"] {
                for subject in Subject::ALL {
                    let is_it = |row: &&Value| {
                        row["structure"] == subject.name()
                            && row["flows"] == flows
                            && row["rates"] == rates
                            && row["mode"] == mode
                    };
                    let row = rows.iter().find(is_it).unwrap();
                    for figure in ["ns_per_packet", "mean_batch", "ratio_to_flowbundler"] {
                        assert!(row[figure].as_f64().unwrap() > 0.0, "{figure}");
                    }
                    assert!(row["memory_bytes"].as_u64().unwrap() > 0);
                    assert!(row["instructions_per_packet"].is_null());
                    let keeps_time = subject.keeps_time();
                    for figure in ["max_early_ns", "max_late_ns"] {
                        assert_eq!(row[figure].is_u64(), keeps_time, "{figure}");
                    }
                }
            }
        }
    }
    assert!(report.to_string().contains("after a pause"));
    assert!(report.memory.is_empty(), "nothing was weighed");
    let gaps = json["gaps"].as_array().unwrap();
    let keeping = Subject::ALL.into_iter().filter(|subject| subject.keeps_time());
    assert_eq!(gaps.len(), 4 * keeping.count());
    assert!(gaps.iter().all(|gap| gap["ns_per_packet"].as_f64().unwrap() > 0.0));
}
