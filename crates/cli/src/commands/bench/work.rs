//! The programs that `narrows bench` runs under valgrind to count instructions: this program
//! itself, doing only the work of one structure.

use crate::output;
use anyhow::Context as _;
use clap::Args;
use narrows_bench::callgrind::Program;
use narrows_bench::{cake, tree, wheels};
use narrows_units::Nanos;
use std::process::ExitCode;

/// The most flows, or classes, of one run.
const MOST: i64 = 1 << 22;
/// The most packets of one run.
const PACKETS_MOST: u64 = 1 << 30;

/// The program that valgrind runs if instructions are counted: this one, doing `work`.
pub(super) fn counted(no_instructions: bool, work: &str) -> anyhow::Result<Option<Program>> {
    if no_instructions {
        return Ok(None);
    }
    let arguments = vec!["bench".to_owned(), work.to_owned()];
    Ok(Some(Program { path: std::env::current_exe()?, arguments }))
}

/// Do the work of one structure of `bench cake`, for valgrind.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct CakeWork {
    /// The structure.
    #[arg(value_parser = parse_subject)]
    structure: cake::Subject,
    /// Flows, a power of two.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST))]
    flows: u32,
    /// Packets.
    #[arg(value_parser = clap::value_parser!(u64).range(..=PACKETS_MOST))]
    packets: u64,
}

impl CakeWork {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        output::say(cake::Work::new(self.structure, self.flows)?.run(self.packets));
        Ok(ExitCode::SUCCESS)
    }
}

fn parse_subject(name: &str) -> Result<cake::Subject, String> {
    cake::Subject::from_name(name).ok_or_else(|| {
        let names = cake::Subject::ALL.map(cake::Subject::name).join(", ");
        format!("there are {names}")
    })
}

/// Print the memory of one structure of `bench tree`.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct TreeFootprint {
    /// The structure.
    #[arg(value_parser = parse_tree)]
    structure: tree::Subject,
    /// Leaf classes.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST))]
    classes: u32,
    /// Levels of classes above each leaf.
    #[arg(value_parser = clap::value_parser!(u32).range(..=8))]
    depth: u32,
    /// Leaf classes with packets.
    #[arg(value_parser = clap::value_parser!(u32).range(..=MOST))]
    active: u32,
    /// `free` or `bound`.
    #[arg(value_parser = parse_load)]
    load: tree::Load,
}

impl TreeFootprint {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { structure, classes, depth, active, load } = self;
        let shape = tree::Shape { classes, depth, active, load };
        let footprint = tree::Footprint::measure(structure, shape)?;
        output::say(serde_json::to_string(&footprint)?);
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn parse_tree(name: &str) -> Result<tree::Subject, String> {
    tree::Subject::from_name(name).ok_or_else(|| {
        let names = tree::Subject::ALL.map(tree::Subject::name).join(", ");
        format!("there are {names}")
    })
}

pub(super) fn parse_load(name: &str) -> Result<tree::Load, String> {
    tree::Load::from_name(name).ok_or_else(|| {
        let names = tree::Load::ALL.map(tree::Load::name).join(", ");
        format!("there are {names}")
    })
}

/// Do the work of one structure of `bench wheels`, for valgrind.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct WheelsWork {
    /// The structure.
    #[arg(value_parser = parse_holder)]
    structure: wheels::Subject,
    /// Flows.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST))]
    flows: u32,
    /// `equal` or `mix`.
    #[arg(value_parser = parse_rates)]
    rates: wheels::Rates,
    /// `drain` or `poll`.
    #[arg(value_parser = parse_mode)]
    mode: wheels::Mode,
    /// Packets.
    #[arg(value_parser = clap::value_parser!(u64).range(..=PACKETS_MOST))]
    packets: u64,
}

impl WheelsWork {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let plan = wheels::Plan::new(self.flows, self.rates)?;
        output::say(wheels::Work::new(self.structure, &plan, self.mode).run(self.packets));
        Ok(ExitCode::SUCCESS)
    }
}

/// Print the memory of one structure of `bench wheels`.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct WheelsFootprint {
    /// `flowbundler`, `carousel` or `eiffel`.
    structure: String,
    /// How long its shortest slots are, in nanoseconds.
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    granularity: u64,
}

impl WheelsFootprint {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { structure, granularity } = self;
        let weighed = wheels::Weighed::find(&structure, Nanos(granularity));
        let footprint = weighed.context("not one that `bench wheels` weighs")?.measure()?;
        output::say(serde_json::to_string(&footprint)?);
        Ok(ExitCode::SUCCESS)
    }
}

fn parse_holder(name: &str) -> Result<wheels::Subject, String> {
    wheels::Subject::from_name(name).ok_or_else(|| {
        let names = wheels::Subject::ALL.map(wheels::Subject::name).join(", ");
        format!("there are {names}")
    })
}

fn parse_rates(name: &str) -> Result<wheels::Rates, String> {
    wheels::Rates::from_name(name).ok_or_else(|| "there are equal and mix".to_owned())
}

fn parse_mode(name: &str) -> Result<wheels::Mode, String> {
    wheels::Mode::from_name(name).ok_or_else(|| "there are drain and poll".to_owned())
}
