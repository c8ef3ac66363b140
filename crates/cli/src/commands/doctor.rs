//! `narrows doctor`.

use super::joined::parse_pair;
use super::run::{Plane, plane_of};
use crate::output::Format;
use anyhow::bail;
use clap::Args;
use narrows_control::Client;
use narrows_dataplane::FailMode;
use narrows_dataplane::run::{examine, wanted};
use narrows_forwarding::Forwarding;
use narrows_forwarding::stick::Pair;
use narrows_link::doctor::{self, Wanted};
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
  narrows doctor eth1 eth2 eth3 --router
  narrows doctor eth1 eth2 eth3 --switch
  narrows doctor eth1 --port
  narrows doctor eth1 eth2 --port
  narrows doctor eth0 --plane host
  narrows doctor eth1 eth2 --json")]
pub struct Doctor {
    /// The two ports; with --vlans the one interface, and with --router, --switch or --port all of
    /// them.
    #[arg(value_name = "PORT", required = true, num_args = 1..)]
    ports: Vec<String>,

    /// Check for a run with --stick and these pairs of VLANs.
    #[arg(long, value_name = "X:Y", value_parser = parse_pair, value_delimiter = ',')]
    vlans: Vec<Pair>,

    /// Check for a run with --router.
    #[arg(long, conflicts_with_all = ["vlans", "switch", "port"])]
    router: bool,

    /// Check for a run with --switch.
    #[arg(long, conflicts_with_all = ["vlans", "port"])]
    switch: bool,

    /// Check for a run with --port.
    #[arg(long, conflicts_with = "vlans")]
    port: bool,

    /// Check for a run with --skip-netfilter, of a router or a switch.
    #[arg(long)]
    skip_netfilter: bool,

    /// Check for a run with --fail-closed, which needs no bridge.
    #[arg(long)]
    fail_closed: bool,

    /// Check for a run with this --plane. Default: xsk, and xdp with --port.
    #[arg(long, value_name = "PLANE")]
    plane: Option<Plane>,

    #[command(flatten)]
    format: Format,
}

impl Doctor {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if self.skip_netfilter && !self.router && !self.switch {
            bail!("only a router or a switch passes by netfilter: leave out --skip-netfilter");
        }
        let fail = if self.fail_closed { FailMode::Closed } else { FailMode::Open };
        let ports = match &self.ports[..] {
            ports if self.router => Forwarding::router(ports)?,
            ports if self.switch => Forwarding::switch(ports)?,
            ports if self.port || matches!(self.plane, Some(Plane::Host)) => {
                Forwarding::host(ports)?
            }
            [a, b] if self.vlans.is_empty() => Forwarding::wire(a, b)?,
            [a] if !self.vlans.is_empty() => Forwarding::stick(a, &self.vlans)?,
            [_] => bail!(
                "name the other port, or the pairs of VLANs on this one with --vlans, or add --port \
                 for one that protects this host"
            ),
            _ => bail!("a wire has two ports, and a stick one: add --router or --switch for more"),
        };
        let session = super::run::default_session()?;
        let wanted = wanted(&ports, fail, plane_of(&ports, self.plane)?, &session);
        let wanted =
            Wanted { skip_netfilter: self.skip_netfilter, running: running(&ports), ..wanted };
        let findings = examine(&ports, &wanted);
        self.format.print(&findings, || doctor::render(&findings))?;
        let fit = doctor::blockers(&findings).next().is_none();
        Ok(if fit { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The devices of `ports` on which an instance runs, as far as this user may ask.
fn running(ports: &Forwarding) -> Vec<String> {
    let (instances, _) = Client::survey(None).unwrap_or_default();
    let runs = |name: &String| instances.iter().any(|instance| instance.ports.contains(name));
    let running = ports.ids().filter(|port| runs(&ports.names()[port.index()]));
    running.map(|port| ports.devices()[ports.device_of(port)].clone()).collect()
}
