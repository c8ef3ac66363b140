//! The `narrows` command: parse, call, print. The layers below do the work.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod csv;
#[cfg(test)]
mod numbers;
mod output;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A multi-core traffic shaper: one rate over many queues and cores, configured with tc commands.
///
/// Joins two network ports as a bump in the wire and keeps exactly the rate that you set, across
/// all queues and cores, in both directions. `narrows setup` asks what it needs and starts;
/// `narrows run --help` has a first start by hand, docs/guide.md more.
#[derive(Parser)]
#[command(name = "narrows", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Setup(commands::setup::Setup),
    Run(commands::run::Run),
    Tc(commands::tc::Tc),
    Set(commands::set::Set),
    Balance(commands::balance::Balance),
    Health(commands::health::Health),
    Route(commands::route::Route),
    Status(commands::status::Status),
    Show(commands::show::Show),
    Top(commands::top::Top),
    Serve(narrows_views::Serve),
    History(narrows_views::History),
    Sync(commands::beside::Sync),
    Fleet(commands::beside::Fleet),
    Reconfigure(commands::reconfigure::Reconfigure),
    Upgrade(commands::upgrade::Upgrade),
    Doctor(commands::doctor::Doctor),
    Import(commands::import::Import),
    #[command(hide = true)]
    KeepGates(commands::keep_gates::KeepGates),
    #[command(hide = true)]
    Complete(commands::complete::Complete),
    #[command(hide = true)]
    Manual(narrows_program::manual::Manual),
    #[cfg(feature = "lab")]
    Bench(commands::bench::Bench),
    #[cfg(feature = "lab")]
    Sim(commands::sim::Sim),
    #[cfg(feature = "lab")]
    Demo(commands::demo::Demo),
    #[cfg(feature = "lab")]
    Chaos(commands::chaos::Chaos),
}

fn main() -> ExitCode {
    narrows_program::start("narrows");
    let cli: Cli = narrows_program::parse();
    let result = match cli.command {
        Command::Setup(setup) => setup.execute(),
        Command::Run(run) => run.execute(),
        Command::Tc(tc) => tc.execute(),
        Command::Set(set) => set.execute(),
        Command::Balance(balance) => balance.execute(),
        Command::Health(health) => health.execute(),
        Command::Route(route) => route.execute(),
        Command::Status(status) => status.execute(),
        Command::Show(show) => show.execute(),
        Command::Top(top) => top.execute(),
        Command::Sync(sync) => sync.execute(),
        Command::Serve(_) | Command::History(_) => commands::beside::views(),
        Command::Fleet(fleet) => fleet.execute(),
        Command::Reconfigure(reconfigure) => reconfigure.execute(),
        Command::Upgrade(upgrade) => upgrade.execute(),
        Command::Doctor(doctor) => doctor.execute(),
        Command::Import(import) => import.execute(),
        Command::KeepGates(keep) => keep.execute(),
        Command::Complete(complete) => Ok(complete.execute()),
        Command::Manual(manual) => {
            manual.execute(<Cli as clap::CommandFactory>::command(), commands::manual::EXTRAS)
        }
        #[cfg(feature = "lab")]
        Command::Bench(bench) => bench.execute(),
        #[cfg(feature = "lab")]
        Command::Sim(sim) => sim.execute(),
        #[cfg(feature = "lab")]
        Command::Demo(demo) => demo.execute(),
        #[cfg(feature = "lab")]
        Command::Chaos(chaos) => chaos.execute(),
    };
    narrows_program::end(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
