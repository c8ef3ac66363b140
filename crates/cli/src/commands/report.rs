//! Prints the results of a command.

use crate::output;
use narrows_testbed::interrupt;
use serde::Serialize;
use std::fmt::Display;
use std::process::ExitCode;

/// The exit code of a program that was interrupted, as in shells.
const INTERRUPTED: u8 = 130;

/// The exit code of a command that has printed its results: all of them, or a part after an
/// interrupt.
pub fn exit_code() -> ExitCode {
    if interrupt::requested() { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS }
}

/// Prints a report as text or as JSON.
pub fn print(report: &(impl Display + Serialize), json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::json(report)?;
    } else {
        output::text(report);
    }
    Ok(exit_code())
}
