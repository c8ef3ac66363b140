//! `narrows-cni` beside the `bandwidth` plugin of CNI's authors: rates, round trips under load, and
//! how long `ADD` takes. Prints a table:
//!
//! ```text
//! cargo test -p narrows --test e2e cni::beside -- --ignored --nocapture
//! ```

use super::{PLUGIN, PLUGINS, Pod};
use crate::setup::turn_to_measure_alone;
use narrows_testbed::Namespace;
use narrows_testbed::process::{Process, run, run_with};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The limit in both directions, in bits a second.
const RATE: u64 = 50_000_000;
/// Addresses that `ptp` gives to the host and to the pod.
const HOST: &str = "10.85.0.1";
const POD: &str = "10.85.0.2";
/// How often each is measured. Medians are printed.
const ROUNDS: usize = 3;

/// Who limits, and the burst that it is told, in bits.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    plugin: Option<&'static str>,
    burst: u64,
}

/// What containerd says without being asked, and no more than a super-packet.
const ROWS: [Row; 4] = [
    Row { name: "no plugin", plugin: None, burst: 0 },
    Row { name: "bandwidth, containerd's burst", plugin: Some("bandwidth"), burst: 0xffff_ffff },
    Row { name: "bandwidth, 64 KiB", plugin: Some("bandwidth"), burst: 1 << 19 },
    Row {
        name: "narrows-cni, containerd's burst",
        plugin: Some("narrows-cni"),
        burst: 0xffff_ffff,
    },
];

/// What was measured: Mbit/s, and milliseconds.
#[derive(Clone, Copy, Default)]
struct Measured {
    add: f64,
    /// Rate, median and 99th percentile of round trips; into the pod, and out of it.
    ways: [[f64; 3]; 2],
}

impl Row {
    fn measure(self) -> Measured {
        let pod = Pod::new().unwrap();
        let (result, dev) = pod.interface("ADD");
        let _plane = (self.plugin == Some("narrows-cni")).then(|| pod.host_plane(&dev));
        let mut add = Duration::ZERO;
        if let Some(name) = self.plugin {
            let path = match name {
                "narrows-cni" => PathBuf::from(PLUGIN),
                name => Path::new(PLUGINS).join(name),
            };
            let config = json!({
                "cniVersion": "1.0.0", "name": "nrw", "type": name, "prevResult": result,
                "runtimeConfig": {"bandwidth": {
                    "ingressRate": RATE, "ingressBurst": self.burst,
                    "egressRate": RATE, "egressBurst": self.burst,
                }},
            });
            let begin = Instant::now();
            run_with(&mut pod.plugin(&path, "ADD"), &config.to_string()).unwrap();
            add = begin.elapsed();
        }
        let (inside, outside) = (pod.bed.client(), pod.bed.shaper());
        let ways = [under_load(outside, inside, POD), under_load(inside, outside, HOST)];
        if self.plugin == Some("bandwidth") {
            // Its second device goes with the namespace.
            pod.interface("DEL");
        }
        Measured { add: add.as_secs_f64() * 1e3, ways }
    }
}

/// Four TCP flows from one namespace to `address` in the other for some seconds, and pings beside
/// them.
fn under_load(from: &Namespace, to: &Namespace, address: &str) -> [f64; 3] {
    let mut server: Process = to.start("iperf3", &["-s", "-1", "--logfile", "/dev/null"]).unwrap();
    sleep(Duration::from_millis(300));
    let (rate, trips) = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let words = ["-c", address, "-P", "4", "-t", "3", "-O", "1", "-J"];
            let report = run(from.command("iperf3").args(words)).unwrap();
            let report: Value = serde_json::from_str(&report).unwrap();
            report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e6
        });
        sleep(Duration::from_secs(1));
        let words = ["-i", "0.01", "-c", "250", "-W", "2", address];
        // It fails where an answer is missing: those that come count.
        let output = from.command("ping").args(words).output().unwrap();
        (load.join().unwrap(), String::from_utf8(output.stdout).unwrap())
    });
    server.wait(Duration::from_secs(5)).unwrap();
    let times = trips.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next());
    let mut times: Vec<f64> = times.map(|time| time.parse().unwrap()).collect();
    times.sort_by(f64::total_cmp);
    assert!(times.len() > 200, "{} of 250 pings were answered", times.len());
    [rate, times[times.len() / 2], times[times.len() * 99 / 100]]
}

/// The median of what `of` takes from each.
fn median(rounds: &[Measured], of: impl Fn(&Measured) -> f64) -> f64 {
    let mut all: Vec<f64> = rounds.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
#[ignore = "measures for two minutes, for docs/kubernetes.md"]
fn rates_round_trips_and_the_time_of_add() {
    let Some(_turn) = turn_to_measure_alone() else { return };
    let mut rounds = ROWS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (row, measured) in ROWS.iter().zip(&mut rounds) {
            measured.push(row.measure());
        }
    }
    println!(
        "| limit {} Mbit/s | into the pod: Mbit/s | round trip, median / p99 ms | out of it: Mbit/s \
         | median / p99 ms | ADD ms |",
        RATE / 1_000_000
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    for (row, rounds) in ROWS.iter().zip(&rounds) {
        let way = |way: usize| {
            let [rate, middle, high] =
                [0, 1, 2].map(|what| median(rounds, |measured| measured.ways[way][what]));
            format!("{rate:.2} | {middle:.1} / {high:.1}")
        };
        let add = median(rounds, |measured| measured.add);
        println!("| {} | {} | {} | {add:.0} |", row.name, way(0), way(1));
    }
}
