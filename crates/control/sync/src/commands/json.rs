//! `narrows-sync json`.

use super::common::SyncArgs;
use clap::Args;
use narrows_sources::files::Format;
use narrows_sync::mapped::Records;
use std::path::PathBuf;
use std::process::ExitCode;

/// JSON documents, with a mapping file that says what their members are.
///
/// A document has an array of objects, or several. The exit status is 0 if all of it was taken, 3
/// if something was left out, and 1 if nothing is changed.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows-sync json --mapping json.toml customers.json --dry-run
  narrows-sync json --mapping json.toml customers.json --every 5m
  export-customers | narrows-sync json --mapping json.toml -")]
pub struct Json {
    /// The mapping file, as in /usr/share/doc/narrows-sync/examples.
    #[arg(long, value_name = "FILE")]
    mapping: PathBuf,

    /// The document of the lists that name no file in the mapping; - for standard input.
    #[arg(value_name = "DOCUMENT")]
    document: Option<PathBuf>,

    #[command(flatten)]
    sync: SyncArgs,
}

impl Json {
    /// Syncs.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { mapping, document: main, sync } = self;
        sync.check_repeat(main.as_deref())?;
        sync.run(&mut Records::Files { format: Format::Json, main, mapping })
    }
}
