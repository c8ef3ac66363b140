//! The `narrows-sync` command: parse, call, print. The library does the work.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;

use clap::{Parser, Subcommand};
use narrows_program::manual::BESIDE;
use std::process::ExitCode;

/// Subscribers, sites and plans from files and systems, into a running shaper.
///
/// Reads who there is from a source, keeps it in a store, and gives the running instance of Narrows
/// what differs: a changed plan touches one class at each port. The queues and counters of all
/// others go on.
#[derive(Parser)]
#[command(name = "narrows-sync", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Libreqos(commands::libreqos::Libreqos),
    Csv(commands::csv::Csv),
    Json(commands::json::Json),
    Http(commands::http::Http),
    Netbox(commands::netbox::Netbox),
    Radius(commands::radius::Radius),
    Leases(commands::leases::Leases),
    Apply(commands::apply::Apply),
    Show(commands::show::Show),
    #[command(hide = true)]
    Manual(narrows_program::manual::Manual),
}

fn main() -> ExitCode {
    narrows_program::start("narrows-sync");
    let result = match narrows_program::parse::<Cli>().command {
        Command::Libreqos(it) => it.execute(),
        Command::Csv(it) => it.execute(),
        Command::Json(it) => it.execute(),
        Command::Http(it) => it.execute(),
        Command::Netbox(it) => it.execute(),
        Command::Radius(it) => it.execute(),
        Command::Leases(it) => it.execute(),
        Command::Apply(it) => it.execute(),
        Command::Show(it) => it.execute(),
        Command::Manual(it) => it.execute(<Cli as clap::CommandFactory>::command(), BESIDE),
    };
    narrows_program::end(result)
}
