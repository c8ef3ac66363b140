//! The `narrows-fleet` command: parse, call, print. The library does the work.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod output;

use clap::{Parser, Subcommand};
use std::io::Write as _;
use std::process::ExitCode;

/// One rate for many boxes: the agent beside an instance of Narrows.
///
/// A limit with `fleet NAME` in the policies of several boxes is one limit for all of them. Their
/// agents lend what one box does not need to those that need more, over a cluster of NATS servers.
/// Without an agent, each box keeps its safe share.
#[derive(Parser)]
#[command(name = "narrows-fleet", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Run),
    Init(commands::init::Init),
    Show(commands::show::Show),
    Metrics(commands::metrics::Metrics),
    Forget(commands::forget::Forget),
    #[command(hide = true)]
    Manual(commands::manual::Manual),
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info"))
        .format(|out, record| {
            let (level, time) = (record.level(), out.timestamp());
            let style = out.default_level_style(level);
            // Nothing in a message can look like another record, or steer a terminal.
            let said = record.args().to_string();
            writeln!(out, "[{time} {style}{level:<5}{style:#}] {}", narrows_escape::indented(&said))
        })
        .init();
    let result = match Cli::parse().command {
        Command::Run(run) => run.execute(),
        Command::Init(init) => init.execute(),
        Command::Show(show) => show.execute(),
        Command::Metrics(metrics) => metrics.execute(),
        Command::Forget(forget) => forget.execute(),
        Command::Manual(manual) => manual.execute(<Cli as clap::CommandFactory>::command()),
    };
    result.map_or_else(
        |error| {
            output::complain(format_args!("{error:#}"));
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
