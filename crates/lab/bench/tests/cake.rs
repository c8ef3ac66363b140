//! The harness of `narrows bench cake`: it loses no packet, and prints its promised output.

use narrows_bench::cake::{FLOWS, Options, Subject, Work, run};
use narrows_peers::rte_sched;
use serde_json::Value;

/// Those that can be measured here.
fn present() -> Vec<Subject> {
    let is_present = |subject: &Subject| {
        *subject != Subject::RteSched
            || rte_sched::available().map_err(|why| eprintln!("{why}")).is_ok()
    };
    Subject::ALL.into_iter().filter(is_present).collect()
}

#[test]
fn every_structure_gives_each_packet_back_once() {
    for subject in present() {
        for flows in [1, 32, 1024] {
            let mut work = Work::new(subject, flows).unwrap();
            let came = work.run(20_000);
            assert!((20_000..20_032).contains(&came));
            let counts = work.finish(1000).unwrap_or_else(|error| {
                panic!("{} with {flows} flows: {error}", subject.name());
            });
            assert!(counts.left >= counts.arrived * 9 / 10, "{}: {counts:?}", subject.name());
        }
    }
}

#[test]
fn queued_packets_do_not_count_as_departed() {
    for subject in present() {
        let work = Work::new(subject, 1024).unwrap();
        assert!(work.finish(1).is_err(), "{}", subject.name());
    }
}

#[test]
fn flows_that_are_no_power_of_two_are_refused() {
    for flows in [0, 3, 131_072] {
        assert!(Work::new(Subject::Fifo, flows).is_err());
    }
}

#[test]
fn the_report_names_every_structure_with_every_number_of_flows() {
    let options = Options { packets: 1000, repeats: 1, counted: None };
    let report = run(&options, |_| {}).unwrap();
    let json: Value = serde_json::to_value(&report).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), FLOWS.len() * 4);
    for flows in FLOWS {
        for name in ["fifo", "cake-besteffort", "cake-diffserv4", "rte_sched"] {
            let is_it = |row: &&Value| row["structure"] == name && row["flows"] == flows;
            let row = rows.iter().find(is_it).unwrap().as_object().unwrap();
            assert!(row["instructions_per_packet"].is_null());
            if row.contains_key("absent") {
                assert!(row["absent"].as_str().unwrap().contains(rte_sched::PACKAGE));
                assert!(row["ns_per_packet"].is_null());
            } else {
                assert!(row["ns_per_packet"].as_f64().unwrap() > 0.0);
                assert!(row["ratio_to_fifo"].as_f64().unwrap() > 0.0);
            }
        }
    }
}
