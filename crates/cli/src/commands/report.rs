//! Printing what a command measured.

use narrows_testbed::interrupt;
use serde::Serialize;
use std::fmt::Display;
use std::process::ExitCode;

/// The exit code of a program that ends because of an interrupt, as shells give it.
const INTERRUPTED: u8 = 130;

/// How a command ends that has printed its results: of all that there was to measure, or of a part.
pub fn exit_code() -> ExitCode {
    if interrupt::requested() { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS }
}

/// Prints a report for people or, as JSON, for programs.
pub fn print(report: &(impl Display + Serialize), json: bool) -> anyhow::Result<ExitCode> {
    if json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        print!("{report}");
    }
    Ok(exit_code())
}
