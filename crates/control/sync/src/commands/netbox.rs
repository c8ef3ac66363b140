//! `narrows-sync netbox`.

use super::common::SyncArgs;
use clap::Args;
use narrows_sync::mapped::Records;
use std::path::PathBuf;
use std::process::ExitCode;

/// NetBox: active circuits with a tenant are subscribers.
///
/// Rates are those of termination A, addresses those of the tenant. Another rule needs a mapping
/// file of its own. The exit status is 0 if all of it was taken, 3 if something was left out, and 1
/// if nothing is changed.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows-sync netbox --url https://netbox.example.net --token-file netbox.token --dry-run
  narrows-sync netbox --url https://netbox.example.net --token-file netbox.token --every 10m")]
pub struct Netbox {
    /// The address of NetBox.
    #[arg(long, value_name = "URL")]
    url: String,

    /// The file with an API token, mode 0600.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,

    /// A mapping file instead of the built-in one. Its [http] base does not count.
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,

    #[command(flatten)]
    sync: SyncArgs,
}

impl Netbox {
    /// Syncs.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { url, token_file, mapping, sync } = self;
        sync.run(&mut Records::Netbox { url, token_file, mapping })
    }
}
