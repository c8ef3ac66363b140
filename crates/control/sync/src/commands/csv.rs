//! `narrows-sync csv`.

use super::common::SyncArgs;
use clap::Args;
use narrows_sources::files::Format;
use narrows_sync::mapped::Records;
use std::path::PathBuf;
use std::process::ExitCode;

/// Tables, with a mapping file that says what their columns are.
///
/// The first line of a table names its columns. The exit status is 0 if all of it was taken, 3 if
/// something was left out, and 1 if nothing is changed.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows-sync csv --mapping csv.toml subscribers.csv --dry-run
  narrows-sync csv --mapping csv.toml subscribers.csv --ports eth1,eth2
  export-customers | narrows-sync csv --mapping csv.toml -")]
pub struct Csv {
    /// The mapping file, as in /usr/share/doc/narrows-sync/examples.
    #[arg(long, value_name = "FILE")]
    mapping: PathBuf,

    /// The table of the lists that name no file in the mapping; - for standard input.
    #[arg(value_name = "TABLE")]
    table: Option<PathBuf>,

    #[command(flatten)]
    sync: SyncArgs,
}

impl Csv {
    /// Syncs.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { mapping, table: main, sync } = self;
        sync.check_repeat(main.as_deref())?;
        sync.run(&mut Records::Files { format: Format::Csv, main, mapping })
    }
}
