//! `narrows-sync radius`.

use super::common::{ApplyArgs, StoreArgs};
use clap::Args;
use narrows_sessions::radius::Config;
use narrows_sync::radius::{Radius as Server, SOURCE};
use narrows_sync::{Applier, Online};
use std::path::PathBuf;
use std::process::ExitCode;

/// RADIUS sessions: a server of accounting, CoA and Disconnect.
///
/// A session that a NAS reports becomes a subscriber with its addresses and its plan, and has a
/// class within a second. A CoA changes its rate, and a Stop or a Disconnect takes its addresses.
/// It runs on until it is ended; one that starts again knows the sessions that were there.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows-sync radius --config /etc/narrows/radius.toml --ports eth1,eth2
  RUST_LOG=debug narrows-sync radius --config radius.toml --store /tmp/directory.sqlite")]
pub struct Radius {
    /// Who may send, what names a subscriber, and the plans. Nobody else may read it: chmod 600.
    #[arg(long, value_name = "FILE", default_value = "/etc/narrows/radius.toml")]
    config: PathBuf,

    /// The name of the source in the store.
    #[arg(long, value_name = "NAME", default_value = SOURCE)]
    source: String,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    apply: ApplyArgs,
}

impl Radius {
    /// Serves.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let config = Config::read(&self.config)?;
        let store = self.store.open()?;
        let applier = Applier::new(self.apply.settings(&store)?);
        let mut server = Server::open(config, Online::new(store, applier), self.source)?;
        log::info!("{}", server.summary());
        server.run()?;
        Ok(ExitCode::SUCCESS)
    }
}
