//! `narrows-fleet show`.

use anyhow::Context as _;
use clap::Args;
use narrows_fleet::table::Text;
use narrows_fleet::view::{Subject, ask};
use narrows_program::output;
use narrows_snapshot::fleet_agent::Shown;
use std::path::PathBuf;

/// Show what the running agent knows: the boxes, and each shared limit with what is lent, borrowed,
/// in force and sent.
#[derive(Args)]
pub struct Show {
    /// All of it, as JSON. Rates are in bits per second.
    #[arg(long)]
    json: bool,

    /// The agent's configuration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Show {
    pub fn execute(self) -> anyhow::Result<()> {
        let text = ask(&super::view_of(self.config.as_deref())?, Subject::Show)?;
        if self.json {
            output::json_text(&text);
            return Ok(());
        }
        let shown: Shown =
            serde_json::from_str(&text).context("the agent is of another version than this")?;
        output::text(Text(&shown));
        Ok(())
    }
}
