//! `narrows-sync http`.

use super::common::SyncArgs;
use clap::Args;
use narrows_sync::mapped::Records;
use std::path::PathBuf;
use std::process::ExitCode;

/// Any JSON API over HTTP, with a mapping file that says how to ask it and what its answers are.
///
/// There are mapping files for UISP, Splynx, Sonar and Powercode. If a list does not come whole,
/// nothing is changed. The exit status is 0 if all of it was taken, 3 if something was left out,
/// and 1 if nothing is changed.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows-sync http --mapping /etc/narrows/uisp.toml --dry-run
  narrows-sync http --mapping /etc/narrows/uisp.toml --ports eth1,eth2 --every 5m
  narrows-sync http --mapping splynx.toml --token-file /root/splynx.token --source splynx")]
pub struct Http {
    /// The mapping file, with the address of the API in [http].
    #[arg(long, value_name = "FILE")]
    mapping: PathBuf,

    /// The file with the token, mode 0600. Default: the token_file of the mapping.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    sync: SyncArgs,
}

impl Http {
    /// Syncs.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { mapping, token_file, sync } = self;
        sync.run(&mut Records::Http { mapping, token_file })
    }
}
