//! `narrows-sync leases`.

use super::common::{ApplyArgs, StoreArgs};
use clap::Args;
use narrows_sessions::leases::Config;
use narrows_sync::leases::Leases as Reader;
use narrows_sync::{Applier, Online};
use std::path::PathBuf;
use std::process::ExitCode;

/// DHCP leases of Kea, ISC dhcpd and dnsmasq: addresses of subscribers that another source has.
///
/// A lease belongs to the subscriber whose label, or identity, is what the lease says: a MAC
/// address, a line's circuit ID, and others. It runs on until it is ended.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows-sync leases --config /etc/narrows/leases.toml --ports eth1,eth2")]
pub struct Leases {
    /// Which servers, and whose their leases are.
    #[arg(long, value_name = "FILE", default_value = "/etc/narrows/leases.toml")]
    config: PathBuf,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    apply: ApplyArgs,
}

impl Leases {
    /// Reads.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let config = Config::read(&self.config)?;
        let store = self.store.open()?;
        let applier = Applier::new(self.apply.settings(&store)?);
        Reader::new(config, Online::new(store, applier)).run()
    }
}
