//! Several instances on one core under more traffic than it can carry: each forwards and answers.

use crate::setup::{NARROWS, complaint, flood, narrows, turn_to_measure_alone};
use narrows_testbed::Testbed;
use narrows_testbed::narrows::Instance;
use narrows_testbed::window::{Delivered, Meter};
use std::path::Path;
use std::time::{Duration, Instant};

const INSTANCES: usize = 3;
/// How often each is asked.
const ROUNDS: usize = 6;
/// The longest that an answer may take, with the start of the program that asks.
const ANSWER: Duration = Duration::from_secs(1);
/// More than one core can forward, in frames of 100 bytes, in bits per second.
const OFFERED: f64 = 2e9;

#[test]
fn instances_that_share_a_core_all_forward_and_answer_within_a_second() {
    let Some(_turn) = turn_to_measure_alone() else { return };
    let beds: Vec<Testbed> = (0..INSTANCES).map(|_| Testbed::up(1).unwrap()).collect();
    // All their threads, those that answer, too.
    let words = ["--cpu-list", "0", NARROWS, "run", "--ports", "port-a,port-b"];
    let start = |bed| Instance::start_command(bed, Path::new("taskset"), &words).unwrap();
    let mut instances: Vec<_> = beds.iter().map(start).collect();
    let floods: Vec<_> = beds.iter().map(|bed| flood(bed, &[1000, 1001], 100, OFFERED)).collect();
    let mut meters: Vec<_> = beds.iter().map(|bed| Meter::at(bed.ends()[1]).unwrap()).collect();
    let mut before: Vec<_> = meters.iter_mut().map(|meter| meter.read().unwrap()).collect();
    let mut all = [0.0; INSTANCES];
    for round in 0..ROUNDS {
        for bed in &beds {
            for words in [
                &["show", "--json"][..],
                &["tc", "qdisc", "replace", "dev", "port-b", "root", "pfifo", "limit", "200"],
            ] {
                let begin = Instant::now();
                let output = narrows(bed, words);
                let took = begin.elapsed();
                assert!(output.status.success(), "{words:?}: {}", complaint(&output));
                assert!(took < ANSWER, "{words:?} took {took:?} in round {round}");
            }
        }
        for (at, meter) in meters.iter_mut().enumerate() {
            let now = meter.read().unwrap();
            let rate = Delivered::between(&before[at], &now).rate().bits_per_sec() as f64;
            assert!(rate > 0.0, "instance {at} forwarded nothing in round {round}");
            all[at] += rate / ROUNDS as f64;
            before[at] = now;
        }
    }
    drop(floods);
    println!("Mbit/s of each: {:.1?}", all.map(|rate| rate / 1e6));
    let most = all.into_iter().fold(0.0, f64::max);
    assert!(all.iter().all(|rate| *rate > most / 10.0), "one starves another: {all:?}");
    for instance in &mut instances {
        assert!(instance.is_running(), "{}", instance.log());
    }
    for instance in instances {
        let (status, log) = instance.stop().unwrap();
        assert!(status.success(), "{log}");
    }
}
