//! What the program prints: as [all do](narrows_program::output), and results as text, JSON or CSV.

pub use narrows_program::output::*;

use clap::Args;
use serde::Serialize;
use std::fmt::Display;

/// Prints `value` as [CSV](crate::csv).
///
/// # Errors
/// If it cannot be written as JSON.
pub fn csv(value: &impl Serialize) -> anyhow::Result<()> {
    data(&crate::csv::table(&serde_json::to_value(value)?));
    Ok(())
}

/// How a command prints its results.
#[derive(Args, Clone, Copy, Debug)]
pub struct Format {
    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Print CSV, a line for each row of the JSON.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

impl Format {
    /// Whether it is for people.
    pub fn is_text(self) -> bool {
        !self.json && !self.csv
    }

    /// Prints `value` as JSON or CSV, or for people what `text` makes of it.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn print<T: Display>(
        self,
        value: &impl Serialize,
        text: impl FnOnce() -> T,
    ) -> anyhow::Result<()> {
        match (self.json, self.csv) {
            (true, _) => json(value)?,
            (_, true) => csv(value)?,
            _ => self::text(text()),
        }
        Ok(())
    }
}
