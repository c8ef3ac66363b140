//! `narrows-fleet forget`.

use anyhow::bail;
use clap::Args;
use narrows_fleet::name::Name;
use narrows_fleet::view::{DONE, Subject, ask};
use narrows_program::output;

/// Say that boxes are off, so that the others use their shares.
///
/// You assert that each of them sends nothing, and that its instance starts anew when it comes
/// back: that it has no power, or that its instance has ended. A box that is only cut off is not
/// off, nor is a machine that is suspended. A box that is heard is refused.
///
/// The agent of this box takes the shares over, once all other agents have said that they do not,
/// and lends of them as of its own. So say it on one box, and name all that are off together: they
/// cannot be asked. `narrows fleet show` tells how far it is. It is kept when the agent starts
/// again.
///
/// The limits of the boxes need the word `rejoin` in their own policies: with it a box that comes
/// back has a 128th of its share, until its agent has heard from all others that nobody uses it. A
/// box that comes back gets its share back by itself.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows fleet forget b
  narrows fleet forget b c")]
pub struct Forget {
    /// The boxes that are off.
    #[arg(value_name = "BOX", required = true)]
    boxes: Vec<Name>,

    #[command(flatten)]
    asked: super::Asked,
}

impl Forget {
    pub fn execute(self) -> anyhow::Result<()> {
        let boxes: Vec<String> = self.boxes.iter().map(ToString::to_string).collect();
        let said = format!(
            "noted: {} off; once all others have answered, {} used, see `narrows-fleet show`\n",
            if boxes.len() == 1 { format!("{} is", boxes[0]) } else { boxes.join(", ") + " are" },
            if boxes.len() == 1 { "its share is" } else { "their shares are" },
        );
        let answer = ask(&self.asked.view()?, Subject::Forget(boxes))?;
        if answer != DONE {
            bail!("{}", answer.trim_end());
        }
        output::text(said);
        Ok(())
    }
}
