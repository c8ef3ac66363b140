//! The `narrows` command: parse, call, print. The layers below do the work.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod csv;
#[cfg(test)]
mod numbers;
mod output;

use clap::{Parser, Subcommand};
use std::io::Write;
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
    Serve(commands::serve::Serve),
    History(commands::history::History),
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
    Manual(commands::manual::Manual),
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
    abort_at_a_panic();
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info"))
        .format(|out, record| {
            let (level, time) = (record.level(), out.timestamp());
            let style = out.default_level_style(level);
            // Nothing in a message can look like another record, or steer a terminal.
            let said = record.args().to_string();
            writeln!(out, "[{time} {style}{level:<5}{style:#}] {}", narrows_escape::indented(&said))
        })
        .init();
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        // It repeats what was given.
        output::report(error.render());
        std::process::exit(error.exit_code());
    });
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
        Command::Serve(serve) => serve.execute(),
        Command::Sync(sync) => sync.execute(),
        Command::History(history) => history.execute(),
        Command::Fleet(fleet) => fleet.execute(),
        Command::Reconfigure(reconfigure) => reconfigure.execute(),
        Command::Upgrade(upgrade) => upgrade.execute(),
        Command::Doctor(doctor) => doctor.execute(),
        Command::Import(import) => import.execute(),
        Command::KeepGates(keep) => keep.execute(),
        Command::Complete(complete) => Ok(complete.execute()),
        Command::Manual(manual) => manual.execute(<Cli as clap::CommandFactory>::command()),
        #[cfg(feature = "lab")]
        Command::Bench(bench) => bench.execute(),
        #[cfg(feature = "lab")]
        Command::Sim(sim) => sim.execute(),
        #[cfg(feature = "lab")]
        Command::Demo(demo) => demo.execute(),
        #[cfg(feature = "lab")]
        Command::Chaos(chaos) => chaos.execute(),
    };
    result.unwrap_or_else(|error| {
        if let Some(code) = output::nobody_reads(&error) {
            return ExitCode::from(code);
        }
        output::complain(narrows_control::explained(error.as_ref()));
        ExitCode::FAILURE
    })
}

/// A panic in any thread ends the process, in every build profile. The kernel then detaches the XDP
/// programs and traffic bypasses Narrows. Otherwise Narrows would continue without a worker and its
/// queues.
fn abort_at_a_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        output::end_if_unwritable(panic);
        report(panic);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
