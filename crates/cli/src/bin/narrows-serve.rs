//! The program behind `narrows serve` and `narrows history`, which are its command lines. The
//! library does the work.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use clap::{Parser, Subcommand};
use narrows_views::{History, Serve};
use std::process::ExitCode;

/// Views of a running instance: `narrows serve` and `narrows history` run this program.
#[derive(Parser)]
#[command(name = "narrows", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Serve),
    History(History),
}

fn main() -> ExitCode {
    narrows_program::start("narrows");
    narrows_program::end(match narrows_program::parse::<Cli>().command {
        Command::Serve(serve) => serve.execute(),
        Command::History(history) => history.execute(),
    })
}
