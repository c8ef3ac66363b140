//! The `narrows-sync` command: parse, call, print. The library does the work.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod output;

use clap::{Parser, Subcommand};
use std::io::Write as _;
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
        Command::Libreqos(it) => it.execute(),
        Command::Csv(it) => it.execute(),
        Command::Json(it) => it.execute(),
        Command::Http(it) => it.execute(),
        Command::Netbox(it) => it.execute(),
        Command::Radius(it) => it.execute(),
        Command::Leases(it) => it.execute(),
        Command::Apply(it) => it.execute(),
        Command::Show(it) => it.execute(),
        Command::Manual(it) => {
            it.execute(<Cli as clap::CommandFactory>::command()).map(|()| ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        output::complain(narrows_control::explained(error.as_ref()));
        ExitCode::FAILURE
    })
}
