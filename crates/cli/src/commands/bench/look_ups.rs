//! `narrows bench look-ups`.

use crate::output;
use anyhow::{Context, Result};
use clap::Args;
use narrows_bench::look_up;
use std::io::Read;
use std::net::IpAddr;
use std::process::ExitCode;

/// Measure look-ups of routes in this namespace, of the addresses on standard input, one a line.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct LookUps {
    /// The interface where packets arrive.
    device: String,
}

impl LookUps {
    pub(super) fn execute(self) -> Result<ExitCode> {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        let addresses = text.lines().map(|line| {
            line.trim().parse::<IpAddr>().with_context(|| format!("\"{line}\" is no IP address"))
        });
        let addresses: Vec<IpAddr> = addresses.collect::<Result<_>>()?;
        output::json(&look_up::measure(&addresses, super::frames::number(&self.device)?)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
