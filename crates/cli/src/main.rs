//! The `narrows` command: parse, call, print. What it does is in the layers below.

mod commands;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A multi-core traffic shaper: one rate over many queues and cores, driven with tc words.
///
/// Joins two network ports as a bump in the wire and keeps, from then on, exactly the rate
/// that you set, across all queues and cores, in both directions. See `narrows run --help`
/// for a first start, and docs/guide.md.
#[derive(Parser)]
#[command(name = "narrows", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Run),
    Tc(commands::tc::Tc),
    Show(commands::show::Show),
    Reconfigure(commands::reconfigure::Reconfigure),
    Upgrade(commands::upgrade::Upgrade),
    Doctor(commands::doctor::Doctor),
    Bench(commands::bench::Bench),
    Sim(commands::sim::Sim),
    Demo(commands::demo::Demo),
    Chaos(commands::chaos::Chaos),
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info"))
        .format_target(false)
        .init();
    let result = match Cli::parse().command {
        Command::Run(run) => run.execute(),
        Command::Tc(tc) => tc.execute(),
        Command::Show(show) => show.execute(),
        Command::Reconfigure(reconfigure) => reconfigure.execute(),
        Command::Upgrade(upgrade) => upgrade.execute(),
        Command::Doctor(doctor) => doctor.execute(),
        Command::Bench(bench) => bench.execute(),
        Command::Sim(sim) => sim.execute(),
        Command::Demo(demo) => demo.execute(),
        Command::Chaos(chaos) => chaos.execute(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("narrows: {}", explain(&error));
        ExitCode::FAILURE
    })
}

/// An error with its causes, each said once: some messages contain their cause already.
fn explain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = std::io::Error::other("no space");
        let error = anyhow::Error::new(cause).context("cannot write: no space; free some");
        assert_eq!(explain(&error), "cannot write: no space; free some");
        assert_eq!(explain(&error.context("policy")), "policy: cannot write: no space; free some");
    }

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
