//! What each program of Narrows has around its work: the format of its log, what it prints, how it
//! ends, and the man pages and completions that packages have.
//!
//! *One behaviour for all.* `narrows`, `narrows-serve`, `narrows-sync` and `narrows-fleet` are
//! started by the same people and read by the same tools. So they log the same lines, escape what
//! comes from outside ([`output`]), and end with the same exit codes.
//!
//! Non-goals: what the commands do, and the command lines themselves.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod manual;
pub mod output;

use std::io::Write as _;
use std::process::ExitCode;

/// Sets up the program `name`: its log on standard error, at the level of `RUST_LOG` or `info`, and
/// what happens at a panic. Call it once, before anything else.
///
/// A panic in any thread ends the process, in every build profile. The kernel then detaches the XDP
/// programs and traffic bypasses Narrows. Otherwise Narrows would continue without a worker and its
/// queues.
pub fn start(name: &'static str) {
    output::begin(name);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        output::end_if_unwritable(panic);
        report(panic);
        std::process::abort();
    }));
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info"))
        .format(|out, record| {
            let (level, time) = (record.level(), out.timestamp());
            let style = out.default_level_style(level);
            // Nothing in a message can look like another record, or steer a terminal.
            let said = record.args().to_string();
            writeln!(out, "[{time} {style}{level:<5}{style:#}] {}", narrows_escape::indented(&said))
        })
        .init();
}

/// The command line. If it is wrong, or asks for help, the process ends here.
pub fn parse<T: clap::Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        // It repeats what was given.
        output::report(error.render());
        std::process::exit(error.exit_code());
    })
}

/// The exit code of the process, after what it has to say about an error.
pub fn end(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        if let Some(code) = output::nobody_reads(&error) {
            return ExitCode::from(code);
        }
        output::complain(explained(&error));
        ExitCode::FAILURE
    })
}

/// What a program says of an error: its message with its causes, each once. Many messages contain
/// their cause already, where it reads best.
pub fn explained(error: &anyhow::Error) -> String {
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
        assert_eq!(explained(&error), "cannot write: no space; free some");
        assert_eq!(
            explained(&error.context("policy")),
            "policy: cannot write: no space; free some"
        );
    }
}
