//! `narrows doctor`.

use super::joined::parse_pair;
use super::run::Plane;
use crate::output;
use clap::Args;
use narrows_dataplane::FailMode;
use narrows_dataplane::run::{examine, wanted};
use narrows_forwarding::Forwarding;
use narrows_forwarding::stick::Pair;
use narrows_link::doctor;
use std::process::ExitCode;

/// Check whether interfaces and this host are fit for Narrows, and print what to change.
///
/// Looks at driver, XDP mode, queues, rings, offloads, MTU, addresses, IRQ and CPU layout, kernel
/// features, privileges and other XDP programs. Changes nothing. Exits with 1 if something
/// prevents a start.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows doctor eth1 eth2
  narrows doctor eth1 eth2 --plane xdp
  narrows doctor eth1 --vlans 100:200
  narrows doctor eth1 eth2 --json")]
pub struct Doctor {
    /// The first port.
    #[arg(value_name = "A")]
    a: String,

    /// The second port.
    #[arg(value_name = "B", required_unless_present = "vlans", conflicts_with = "vlans")]
    b: Option<String>,

    /// Check A for a run with --stick A and these pairs of VLANs.
    #[arg(long, value_name = "X:Y", value_parser = parse_pair, value_delimiter = ',')]
    vlans: Vec<Pair>,

    /// Check for a run with --fail-closed, which needs no bridge.
    #[arg(long)]
    fail_closed: bool,

    /// Check for a run with this --plane.
    #[arg(long, value_name = "PLANE", default_value = "xsk")]
    plane: Plane,

    /// Print JSON: an array of findings.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let fail = if self.fail_closed { FailMode::Closed } else { FailMode::Open };
        let ports = match &self.b {
            Some(b) => Forwarding::wire(&self.a, b)?,
            None => Forwarding::stick(&self.a, &self.vlans)?,
        };
        let session = super::run::default_session()?;
        let findings = examine(&ports, &wanted(&ports, fail, self.plane.into(), &session));
        if self.json {
            output::json(&findings)?;
        } else {
            output::text(doctor::render(&findings));
        }
        let fit = doctor::blockers(&findings).next().is_none();
        Ok(if fit { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
