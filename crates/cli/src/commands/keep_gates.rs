//! `narrows keep-gates`: the process that keeps the places of `narrows run` in libxdp's
//! dispatchers. It is hidden, because only `narrows run` starts it.

use anyhow::anyhow;
use clap::Args;
use narrows_dataplane::gates;
use std::process::ExitCode;

/// Keep places in libxdp's dispatchers for the process at standard input, until it ends.
#[derive(Args)]
pub struct KeepGates {}

impl KeepGates {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        gates::keep().map_err(|error| anyhow!(error))?;
        Ok(ExitCode::SUCCESS)
    }
}
