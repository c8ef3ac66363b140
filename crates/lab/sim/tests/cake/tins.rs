//! Priority queueing over several queues.

use crate::harness::{Row, rows};
use narrows_sim::measure::{GroupMeasure, Measure};

const SHORT: &str = "run.length=1s";

fn full(row: &Row) {
    row.within("utilisation", row.get(Measure::Utilization), 0.98..=1.005);
}

#[test]
fn voice_below_its_threshold_goes_first_wherever_it_stands() {
    for row in rows("cake-tins", "cake", &[SHORT, "traffic.voice.load=20%"]) {
        full(&row);
        row.within("voice", row.part("voice"), 0.19..=0.21);
        row.within("voice lost", row.of("voice", GroupMeasure::Drops), 0.0..=0.0);
        // A packet sent just before delays it: a frame takes 0.12 ms at 100 Mbit/s.
        row.within("p99 of voice, us", row.of("voice", GroupMeasure::P99Us), 0.0..=5_000.0);
        row.within("p50 of bulk, us", row.of("bulk", GroupMeasure::P50Us), 10_000.0..=1e9);
    }
}

#[test]
fn if_all_tins_are_full_none_starves_and_bulk_gets_a_sixteenth() {
    for row in rows("cake-tins", "cake", &[SHORT, "traffic.voice.load=100%"]) {
        full(&row);
        row.within("bulk", row.part("bulk"), 0.95 / 16.0..=1.1 / 16.0);
        row.within("voice", row.part("voice"), 0.2..=0.3);
    }
}

#[test]
fn a_probe_on_the_bulk_queue_gets_as_much_as_on_any_other() {
    for row in rows("cake-rrul", "diffserv4", &["run.length=2s"]) {
        full(&row);
        for (probe, most_us) in [("probe CS0", 5_000.0), ("probe EF", 5_000.0)] {
            row.within(probe, row.of(probe, GroupMeasure::P99Us), 0.0..=most_us);
            row.within(probe, row.of(probe, GroupMeasure::Drops), 0.0..=0.0);
        }
        row.within("probe CS1 lost", row.of("probe CS1", GroupMeasure::Drops), 0.0..=0.0);
    }
}
