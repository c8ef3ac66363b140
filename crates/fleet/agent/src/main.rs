//! The `narrows-fleet` command: parse, call, print. The library does the work.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;

use clap::{Parser, Subcommand};
use narrows_program::manual::BESIDE;
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
    Manual(narrows_program::manual::Manual),
}

fn main() -> ExitCode {
    narrows_program::start("narrows-fleet");
    let result = match narrows_program::parse::<Cli>().command {
        Command::Run(run) => run.execute(),
        Command::Init(init) => init.execute(),
        Command::Show(show) => show.execute(),
        Command::Metrics(metrics) => metrics.execute(),
        Command::Forget(forget) => forget.execute(),
        Command::Manual(manual) => {
            manual.execute(<Cli as clap::CommandFactory>::command(), BESIDE).map(drop)
        }
    };
    narrows_program::end(result.map(|()| ExitCode::SUCCESS))
}
