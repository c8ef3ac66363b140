//! What a history costs: the share of a core, and bytes on disk and in memory, for so many
//! subscribers with both directions.
//!
//! `cargo run --release -p narrows-history --example history_cost -- 2000`
//!
//! Snapshots are made as fast as they are recorded, with the clock of a day and more, so a minute
//! of computing is a day of history. The CPU time of the recording thread and of the one that
//! writes is counted; that of making the snapshots is not.

use narrows_history::{Archive, History, Options, Range, What};
use narrows_snapshot::{Change, Class, Delays, Losses, Port, RoundTrip, Snapshot};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::{Duration, Instant};

/// A generator of numbers that look random (xorshift), so that every run is the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most.max(1)
    }
}

/// A class whose counters grow.
struct Line {
    handle: String,
    name: String,
    busy: bool,
    bytes: u64,
    counts: Vec<(f64, u64)>,
    window: Option<RoundTrip>,
    losses: Option<Losses>,
}

impl Line {
    fn pass(&mut self, numbers: &mut Numbers, second: u64, share: u64) {
        // Sessions of minutes; `share` percent of the lines are busy at a time.
        if numbers.below(120) == 0 {
            self.busy = numbers.below(100) < share;
        }
        if !self.busy {
            (self.window, self.losses) = (None, None);
            return;
        }
        let bytes = 100_000 + numbers.below(1_500_000);
        self.bytes += bytes;
        for _ in 0..8 {
            let middle = (numbers.below(24) + numbers.below(24)) / 2;
            self.counts[middle as usize].1 += bytes / 8000;
        }
        if second.is_multiple_of(3) {
            let p50_us = 15_000 + numbers.below(20_000);
            self.window = Some(RoundTrip { min_us: 12_000, p50_us, p99_us: p50_us * 3 });
            let segments = 500 + numbers.below(900);
            self.losses = Some(Losses { segments, before: 0, beyond: numbers.below(9) });
        }
    }

    fn class(&self) -> Class {
        let mut class = Class {
            handle: self.handle.as_str().into(),
            name: Some(self.name.as_str().into()),
            ..Class::default()
        };
        class.stats.figures.bytes = self.bytes;
        class.stats.figures.packets = self.bytes / 1000;
        class.stats.delays = Delays::new(self.counts.clone());
        (class.stats.round_trip, class.stats.losses) = (self.window, self.losses);
        class
    }
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// The words of the command line as numbers, or what is usual.
fn words<const COUNT: usize>(usual: [u64; COUNT]) -> [u64; COUNT] {
    let mut words = std::env::args().skip(1);
    usual.map(|usual| words.next().and_then(|word| word.parse().ok()).unwrap_or(usual))
}

fn main() {
    let [subscribers, share, seconds] = words([2000, 20, 3700]);
    let path = std::env::temp_dir().join(format!("nrw-history-cost-{}", std::process::id()));
    let options = Options {
        file: Some(path.clone()),
        interval_s: 1,
        directions_max: 2 * subscribers as usize + 10,
    };
    let line = |number: u64, handle: u64| Line {
        handle: format!("1:{handle:x}"),
        name: format!("subscriber {number}"),
        busy: false,
        bytes: 0,
        counts: (0..24).map(|bucket| ((3_000.0 * 1.4f64.powi(bucket)).round() / 1e3, 0)).collect(),
        window: None,
        losses: None,
    };
    let mut ports: [Vec<Line>; 2] =
        [0, 1].map(|_| (0..subscribers).map(|number| line(number, number + 16)).collect());
    let mut numbers = Numbers(88_172_645_463_325_252);
    let mut snapshot = |second: u64| {
        let mut all = Vec::new();
        for (lines, name) in ports.iter_mut().zip(["eth1", "eth2"]) {
            lines.iter_mut().for_each(|line| line.pass(&mut numbers, second, share));
            let mut port = Port { name: name.into(), ..Port::default() };
            port.classes = lines.iter().map(Line::class).collect();
            port.total.tx_bytes = lines.iter().map(|line| line.bytes).sum();
            all.push(port);
        }
        Snapshot { uptime_s: second as f64 + 1.0, ports: all, ..Snapshot::default() }
    };
    let begin = 1_700_000_000;
    let mut was = snapshot(0);
    let before = resident();
    let history = match History::start(&options) {
        Ok(history) => history,
        Err(error) => return eprintln!("{error}"),
    };
    let (mut recording, main_before, all_before) =
        (Duration::ZERO, cpu(ClockId::ThreadCPUTime), cpu(ClockId::ProcessCPUTime));
    for second in 1..=seconds {
        let now = snapshot(second);
        let from = cpu(ClockId::ThreadCPUTime);
        if let Some(change) = Change::between(&was, &now) {
            history.record(&now, &change, begin + second);
        }
        recording += cpu(ClockId::ThreadCPUTime) - from;
        was = now;
    }
    let writing =
        (cpu(ClockId::ProcessCPUTime) - all_before) - (cpu(ClockId::ThreadCPUTime) - main_before);
    let memory = resident().saturating_sub(before);
    let share_of_core = |time: Duration| time.as_secs_f64() / seconds as f64 * 100.0;
    println!("{subscribers} subscribers in two directions, {share} % busy at a time, {seconds} s");
    println!("recording   {:6.2} % of a core", share_of_core(recording));
    println!("writing     {:6.2} % of a core", share_of_core(writing));
    println!("memory      {:6} B a subscriber", memory / subscribers);
    drop(history);
    let Ok(archive) = Archive::open(&path) else { return };
    let bytes = archive.bytes().unwrap_or_default();
    println!("file        {:6} B a subscriber after {seconds} s", bytes / subscribers);
    let range = Range { from: begin, to: begin + seconds, points: 500 };
    let asked = Instant::now();
    let points = archive.series("subscriber 7", Some("eth1"), What::Sent, range);
    let points = points.map(|series| series.values.len()).unwrap_or_default();
    println!("a series    {:6.1} ms for {points} points", asked.elapsed().as_secs_f64() * 1e3);
    let asked = Instant::now();
    let found = archive.worst(What::DelayP99, None, range, 10).map(|found| found.len());
    let worst = asked.elapsed().as_secs_f64() * 1e3;
    println!("the worst   {worst:6.1} ms for {} of all", found.unwrap_or_default());
    remove(&path);
}

fn remove(path: &Path) {
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
}
