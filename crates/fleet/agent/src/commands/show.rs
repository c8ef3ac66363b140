//! `narrows-fleet show`.

use anyhow::Context as _;
use clap::Args;
use narrows_fleet::table::Text;
use narrows_fleet::view::{Subject, ask};
use narrows_program::output;
use narrows_snapshot::fleet_agent::Shown;

/// Show what the running agent knows: the boxes, and each shared limit with what is lent, borrowed,
/// in force and sent.
#[derive(Args)]
pub struct Show {
    /// All of it, as JSON. Rates are in bits per second.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    asked: super::Asked,
}

impl Show {
    pub fn execute(self) -> anyhow::Result<()> {
        let text = ask(&self.asked.view()?, Subject::Show)?;
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
