//! `narrows demo flood`: transactions over time while a flood starts and stops, without and with
//! filters.

mod plot;

pub use plot::svg;

use super::flood::{self, Assault, Sent};
use super::placement::Cores;
use super::system::{System, Under, block, limit};
use super::transactions::Transactions;
use crate::Testbed;
use crate::accounting::{self, Books, Direction};
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::requirements::{self, CHRT, ETHTOOL, IP, Refusal};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the steps of the plotted series are.
pub(super) const STEP: Duration = Duration::from_millis(100);
/// The margins of a phase that its average leaves out: a flood starts and stops in them.
const SETTLING: f64 = 0.2;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// How long each phase takes: before, during and after each of two floods.
    pub phase: Duration,
}

/// The flood in each phase.
const PHASES: [(&str, Option<bool>); 5] = [
    ("idle", None),
    ("listed sources", Some(false)),
    ("idle", None),
    ("invented sources", Some(true)),
    ("idle", None),
];

/// One run of all phases.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Whether there were filters.
    pub is_filtered: bool,
    /// Transactions a second, for each step.
    pub transactions: Vec<f64>,
    /// Transactions a second, for each phase.
    pub phases: Vec<f64>,
    /// Packets of the flood in each phase, a second.
    pub floods: Vec<f64>,
    /// The transactions in the worst phase of a flood, in percent of those without.
    pub kept_percent: f64,
    /// Unaccounted frames, both ways.
    pub unaccounted: i64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How long a phase is, in seconds.
    pub phase_seconds: f64,
    /// Without filters, and with them.
    pub runs: [Run; 2],
}

/// Refuses if the demo cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL, CHRT])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    ensure!(crate::cpu::cores() > 1, "the flood needs a core of its own: this takes two");
    let mut progress = Progress::over(2 * PHASES.len() as u64);
    let without = one(options, false, &mut progress)?;
    let with = one(options, true, &mut progress)?;
    Ok(Report { phase_seconds: options.phase.as_secs_f64(), runs: [without, with] })
}

fn one(options: &Options, is_filtered: bool, progress: &mut Progress) -> Result<Run> {
    let (list, cores) = (flood::blocklist(), Cores::of_this_machine()?);
    let bed = Testbed::up(1)?;
    let mut books = Books::open(&bed)?;
    let under = Under::start(&bed, System::Unfiltered, &options.program, &[], cores)?;
    let under = match under {
        Under::Narrows(instance) if is_filtered => {
            Under::Narrows(limit(block(*instance, &list)?)?.into())
        }
        under => under,
    };
    let _placement = cores.take(&bed)?;
    let transactions = Transactions::start(&bed, bed.server(), cores.ends)?;
    let mut sent = Sent::by(&bed)?;
    let (mut series, mut floods) = (Vec::new(), Vec::new());
    let mut last = transactions.done();
    for (name, is_spoofed) in PHASES {
        let how = if is_filtered { "with filters" } else { "without filters" };
        progress.begin(&format!("{how}: {name}"));
        let rate = is_spoofed.is_none().then_some(0.0);
        let assault = Assault { is_spoofed: is_spoofed == Some(true), rate };
        let assault = assault.start(&bed, &options.program, cores)?;
        let before = sent.read(transactions.done())?;
        let began = Instant::now();
        let mut since = began;
        while began.elapsed() < options.phase {
            sleep(STEP);
            let (now, done) = (Instant::now(), transactions.done());
            series.push((done - last) as f64 / (now - since).as_secs_f64());
            (since, last) = (now, done);
        }
        let packets = sent.read(transactions.done())?.saturating_sub(before);
        floods.push(packets as f64 / began.elapsed().as_secs_f64());
        drop(assault);
    }
    drop(transactions);
    let devices = books.settle()?;
    let instance: &Instance = under.instance().context("Narrows is what is shown")?;
    let directions = accounting::directions(&devices, &instance.show()?)?;
    let unaccounted = directions.iter().map(|way| Direction::unaccounted(way).abs()).sum();
    Ok(Run::new(is_filtered, series, floods, unaccounted))
}

impl Run {
    fn new(is_filtered: bool, series: Vec<f64>, floods: Vec<f64>, unaccounted: i64) -> Self {
        let steps = (series.len() / PHASES.len()).max(1);
        let average = |phase: &[f64]| {
            let settled = phase.get((phase.len() as f64 * SETTLING) as usize..).unwrap_or(phase);
            settled.iter().sum::<f64>() / settled.len().max(1) as f64
        };
        let phases: Vec<f64> = series.chunks(steps).take(PHASES.len()).map(average).collect();
        let of = |wanted: bool| {
            let all = phases.iter().zip(PHASES);
            all.filter(move |(_, (_, flood))| flood.is_some() == wanted).map(|(rate, _)| *rate)
        };
        let idle = of(false).sum::<f64>() / of(false).count().max(1) as f64;
        let worst = of(true).fold(f64::INFINITY, f64::min);
        let kept_percent = if idle > 0.0 { worst / idle * 100.0 } else { 0.0 };
        Self { is_filtered, transactions: series, phases, floods, kept_percent, unaccounted }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = crate::table::of_figures(
            0,
            ["phase", "flood, Mpps", "without filters", "with filters"],
        );
        let [without, with] = &self.runs;
        for (phase, (name, flood)) in PHASES.into_iter().enumerate() {
            let shown = |figures: &[f64]| figures.get(phase).copied().unwrap_or_default();
            table.add_row([
                name.to_owned(),
                match flood {
                    None => "-".to_owned(),
                    Some(_) => format!(
                        "{:.2}, {:.2}",
                        shown(&without.floods) / 1e6,
                        shown(&with.floods) / 1e6
                    ),
                },
                format!("{:.0}/s", shown(&without.phases)),
                format!("{:.0}/s", shown(&with.phases)),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "demo-flood: {:.1} % of the transactions kept with filters, {:.1} % without, {} packets \
             unaccounted",
            with.kept_percent,
            without.kept_percent,
            self.runs.iter().map(|run| run.unaccounted).sum::<i64>()
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn report() -> Report {
        let series = |kept: f64| -> Vec<f64> {
            let phase = |rate: f64| vec![rate; 10];
            [1e4, 1e4 * kept, 1e4, 9e3, 1e4].into_iter().flat_map(phase).collect()
        };
        let floods = vec![0.0, 1e6, 0.0, 1e6, 0.0];
        Report {
            phase_seconds: 1.0,
            runs: [
                Run::new(false, series(0.1), floods.clone(), 0),
                Run::new(true, series(0.95), floods, 2),
            ],
        }
    }

    #[test]
    fn the_last_line_sums_it_up() {
        let text = report().to_string();
        assert_eq!(
            text.lines().last().unwrap(),
            "demo-flood: 90.0 % of the transactions kept with filters, 10.0 % without, 2 packets \
             unaccounted"
        );
        assert!(text.contains("invented sources"), "{text}");
    }
}
