//! `narrows-sync libreqos`.

use super::common::SyncArgs;
use clap::Args;
use narrows_sync::libreqos;
use std::path::PathBuf;
use std::process::ExitCode;

/// The files of LibreQoS: ShapedDevices.csv and network.json.
///
/// A circuit is a subscriber whose identity is its number; a node is a site. The exit status is 0
/// if all of it was taken, 3 if something was left out, and 1 if nothing is changed.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows-sync libreqos --devices ShapedDevices.csv --network network.json --dry-run
  narrows-sync libreqos --devices ShapedDevices.csv --network network.json \\
      --ports eth1,eth2 --policy /etc/narrows/policy.tc --names /etc/iproute2/tc_cls
  narrows-sync libreqos --devices /opt/libreqos/src/ShapedDevices.csv --every 60s")]
pub struct Libreqos {
    /// ShapedDevices.csv, of any version from 1.4 to 2.0.
    #[arg(long, value_name = "FILE")]
    devices: PathBuf,

    /// network.json; without it, all circuits are at the top.
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,

    #[command(flatten)]
    sync: SyncArgs,
}

impl Libreqos {
    /// Syncs.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { devices, network, sync } = self;
        sync.run(&mut libreqos::Libreqos { devices, network })
    }
}
