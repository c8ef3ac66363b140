//! Prints the results of a command.

use crate::output::Format;
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

/// Prints a report in this format.
pub fn print(report: &(impl Display + Serialize), format: Format) -> anyhow::Result<ExitCode> {
    format.print(report, || report)?;
    Ok(exit_code())
}
