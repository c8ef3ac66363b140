//! `narrows-sync apply`.

use super::common::{ApplyArgs, StoreArgs, apply};
use clap::Args;
use narrows_sync::Applier;
use std::process::ExitCode;

/// Apply the directory as it is, without reading a source.
///
/// For an instance that was started since, or with other ports or another uplink.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows-sync apply
  narrows-sync apply --uplink 10gbit,2gbit")]
pub struct Apply {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    apply: ApplyArgs,
}

impl Apply {
    /// Applies.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut store = self.store.open()?;
        let mut applier = Applier::new(self.apply.settings(&store)?);
        apply(&mut store, &mut applier)?;
        Ok(ExitCode::SUCCESS)
    }
}
