//! `narrows sim`.

use super::report::exit_code;
use crate::output::{self, Format};
use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use narrows_sim::scenario::{self, About, Experiment, Override};
use narrows_testbed::interrupt;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run a scenario in virtual time: the same workers and coordination, on up to 128 virtual cores.
///
/// A scenario is a TOML file, built in (--list) or your own: start from a copy of a similar one
/// (--show). All output is simulated, and the same on every machine for the same seed.
///
/// The table has the paper's figure, if any, beside that of each strategy; `equal` is mq-cake as
/// published. --json prints one object with a row for each run, --report writes one HTML page with
/// plots.
///
/// --set changes any value of a scenario by its path in the file. If the scenario sweeps over that
/// path, the new values, separated by commas, replace the sweep:
///
///   narrows sim --list
///   narrows sim mqcake-skew
///   narrows sim mqcake-linux --set port.rate=50mbit,100mbit --set traffic.0.spread=[0.6,0.4]
///   narrows sim mqcake-switch --set 'strategies=["equal","fair"]' --report switch.html
///   narrows sim --show fair-elephant > mine.toml; narrows sim mine.toml --seed 7
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows sim --list
  narrows sim mqcake-skew --report skew.html
  narrows sim trace --trace uplink.pcap --set port.rate=100mbit")]
#[command(verbatim_doc_comment)]
pub struct Sim {
    /// A built-in scenario, or a file.
    #[arg(value_name = "SCENARIO|FILE", required_unless_present_any = ["list", "show"])]
    scenario: Option<String>,

    /// The seed of everything random; the same as --set run.seed=N.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    #[command(flatten)]
    format: Format,

    /// Also write a page with the table and plots.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Change a value of the scenario: port.rate=1gbit, traffic.0.load=90%, run.length=2s. Can be
    /// repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Replay a capture (pcap or pcapng): its frames come with the times, lengths and flows with
    /// which they were captured. Sets trace in the scenario's first traffic, which is of kind
    /// trace, as in `trace`; --set load=90% plays it faster or slower.
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,

    /// The number of parallel runs. Default: the number of cores. Does not change results.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,

    /// List the built-in scenarios, with the figure that each reproduces.
    #[arg(long, conflicts_with_all = ["scenario", "show"])]
    list: bool,

    /// Print a built-in scenario, to copy and edit.
    #[arg(long, value_name = "NAME", conflicts_with = "scenario")]
    show: Option<String>,
}

impl Sim {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if self.list {
            output::text(list()?);
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(name) = &self.show {
            output::text(scenario::embedded(name).with_context(|| unknown(name))?);
            return Ok(ExitCode::SUCCESS);
        }
        let mut overrides =
            self.set.iter().map(|text| Override::parse(text)).collect::<Result<Vec<_>, _>>()?;
        if let Some(seed) = self.seed {
            overrides.push(Override { path: "run.seed".to_owned(), value: seed.to_string() });
        }
        if let Some(trace) = self.trace {
            overrides.push(Override { path: "traffic.0.trace".to_owned(), value: trace });
        }
        let what = self.scenario.as_deref().unwrap_or_default();
        let experiment = read(what, &overrides)?;
        let cores = || std::thread::available_parallelism().ok().map(usize::from);
        let jobs = self.jobs.map(usize::from).or_else(cores);
        let bar = bar();
        interrupt::watch()?;
        let tell = |part| bar.set_position((part * STEPS) as u64);
        let finished = experiment.run_until(jobs.unwrap_or(1), &tell, &interrupt::requested);
        bar.finish_and_clear();
        let finished = finished?;
        let (done, all) = (finished.count(), experiment.count());
        if done < all {
            output::report(format_args!("interrupted: results of {done} of {all} runs\n"));
        }
        if let Some(path) = &self.report {
            let page =
                finished.page().context("there is no page of a network: leave out --report")?;
            std::fs::write(path, page)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.format.print(&finished.json(), || finished.table())?;
        Ok(exit_code())
    }
}

/// The number of steps of the progress bar.
const STEPS: f64 = 1000.0;

fn bar() -> ProgressBar {
    // No bar in a file.
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(STEPS as u64);
    if let Ok(style) =
        ProgressStyle::with_template("simulating {bar:32} {percent:>3} %  {eta} left")
    {
        bar.set_style(style);
    }
    bar
}

fn list() -> anyhow::Result<String> {
    let mut text = String::new();
    for name in scenario::all_names() {
        let experiment = read(name, &[])?;
        let About { title, source, .. } = experiment.about();
        let source = source.as_ref().map(|source| format!("  [{source}]")).unwrap_or_default();
        text.push_str(&format!("{name:<18} {title}{source}\n"));
    }
    Ok(text)
}

/// A built-in scenario, otherwise a file.
fn read(what: &str, overrides: &[Override]) -> anyhow::Result<Experiment> {
    if let Some(text) = scenario::embedded(what) {
        return Ok(Experiment::read(what, text, overrides)?);
    }
    let path = Path::new(what);
    let looks_like_a_file = what.contains('/') || what.ends_with(".toml") || path.exists();
    if !looks_like_a_file {
        anyhow::bail!("{}", unknown(what));
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {what}"))?;
    let text = String::from_utf8(bytes)
        .with_context(|| format!("{what} is not text: a scenario is a TOML file in UTF-8"))?;
    let mut experiment = Experiment::read(what, &text, overrides)?;
    if let Some(stem) = path.file_stem() {
        experiment.rename(stem.to_string_lossy().into_owned());
    }
    Ok(experiment)
}

fn unknown(name: &str) -> String {
    let near = scenario::near(name);
    let hint = match near.as_slice() {
        [] => String::new(),
        near => format!(" Did you mean {}?", near.join(" or ")),
    };
    format!(
        "there is no scenario \"{name}\".{hint} `narrows sim --list` lists all; a file ends in .toml"
    )
}
