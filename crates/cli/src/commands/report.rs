//! Printing what a command measured.

use serde::Serialize;
use std::fmt::Display;
use std::process::ExitCode;

/// Prints a report for people or, as JSON, for programs.
pub fn print(report: &(impl Display + Serialize), json: bool) -> anyhow::Result<ExitCode> {
    if json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        print!("{report}");
    }
    Ok(ExitCode::SUCCESS)
}
