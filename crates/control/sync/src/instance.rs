//! Commands to a running instance: all of them, or none.
//!
//! *A batch is not all or nothing.* As with `tc -batch`, the lines before a refused one are in
//! force. So each command has an inverse, and what was done is undone in reverse order.
//!
//! *What runs* is taken to be what was applied last, if that is known. If the instance refuses a
//! command then, somebody has changed it meanwhile: it is read, compared, and tried once more.

use crate::applier::ApplyError;
use crate::running;
use narrows_control::{Answer, BATCH_MAX, Client, ControlError, Request};
use narrows_directory::{Command, Form};

/// The name of the batch in complaints.
const BATCH: &str = "narrows-sync";

/// What runs a policy and takes commands.
pub(crate) trait Instance {
    /// Its ports.
    fn ports(&self) -> Vec<String>;

    /// What tells it from those before and after it.
    fn identity(&self) -> Option<String>;

    /// Its policy, as `tc save` prints it.
    fn save(&self) -> Result<Answer, ControlError>;

    /// Runs the commands in `text`.
    fn batch(&self, text: &str) -> Result<Answer, ControlError>;
}

impl Instance for Client {
    fn ports(&self) -> Vec<String> {
        self.ports.clone()
    }

    fn identity(&self) -> Option<String> {
        Self::identity(self)
    }

    fn save(&self) -> Result<Answer, ControlError> {
        self.ask(&Request::Tc { args: vec!["save".to_owned()], names: None })
    }

    fn batch(&self, text: &str) -> Result<Answer, ControlError> {
        Self::batch(self, &[], BATCH, text, None)
    }
}

/// Brings the `instance` to the form `next` by `commands`, if these are known: they lead there from
/// what was applied last. Returns how many it took, and what the instance said.
pub(crate) fn bring(
    instance: &dyn Instance,
    commands: Option<Vec<Command>>,
    next: impl FnOnce() -> Form,
    devs: [&str; 2],
) -> Result<(usize, String), ApplyError> {
    if let Some(commands) = commands {
        match give(instance, &commands) {
            Ok(warnings) => return Ok((commands.len(), warnings)),
            // It is not as it was left.
            Err(ApplyError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let saved = outcome(instance.save()?)?;
    let commands = running::form(&saved.0, devs).map_err(ApplyError::Foreign)?.towards(&next());
    let warnings = give(instance, &commands)?;
    Ok((commands.len(), warnings))
}

/// Gives the instance `commands`: all of them, or none.
fn give(instance: &dyn Instance, commands: &[Command]) -> Result<String, ApplyError> {
    let mut warnings = String::new();
    let mut done = 0;
    while done < commands.len() {
        let (text, lines) = batch(&commands[done..]);
        match outcome(instance.batch(&text)?) {
            Ok((_, stderr)) => warnings.push_str(&stderr),
            Err(ApplyError::Foreign(why)) => {
                let failed = failed_line(&why).filter(|line| (1..=lines).contains(line));
                let Some(line) = failed else {
                    let command = commands[done].line();
                    return Err(ApplyError::Half { command, why });
                };
                done += line - 1;
                let command = commands[done].line();
                let why = why.lines().next().unwrap_or_default();
                let why = why.trim_start_matches("Error: ").to_owned();
                let undo: Vec<Command> =
                    commands[..done].iter().rev().map(Command::inverse).collect();
                let undone = undo_all(instance, &undo)?;
                return Err(match undone {
                    true => ApplyError::Refused { command, why },
                    false => ApplyError::Half { command, why },
                });
            }
            Err(error) => return Err(error),
        }
        done += lines;
    }
    Ok(warnings)
}

/// Whether all of `commands` are done.
fn undo_all(instance: &dyn Instance, commands: &[Command]) -> Result<bool, ApplyError> {
    let mut done = 0;
    while done < commands.len() {
        let (text, lines) = batch(&commands[done..]);
        if outcome(instance.batch(&text)?).is_err() {
            return Ok(false);
        }
        done += lines;
    }
    Ok(true)
}

/// The text of the first commands, as many as one batch may have, and how many these are.
fn batch(commands: &[Command]) -> (String, usize) {
    let mut text = String::new();
    let mut lines = 0;
    for command in commands {
        let line = command.line();
        if lines > 0 && (text.len() + line.len() + 1) as u64 > BATCH_MAX {
            break;
        }
        text.push_str(&line);
        text.push('\n');
        lines += 1;
    }
    (text, lines)
}

/// What a command printed, on both outputs; [`ApplyError::Foreign`] with its complaint if it
/// failed.
fn outcome(answer: Answer) -> Result<(String, String), ApplyError> {
    let outcome = answer.outcome().map_err(ControlError::Refused)?;
    match outcome.code {
        0 => Ok((outcome.stdout, outcome.stderr)),
        _ => Err(ApplyError::Foreign(outcome.stderr)),
    }
}

/// The line of the batch that was refused, from 1.
fn failed_line(complaint: &str) -> Option<usize> {
    let mut lines = complaint.lines().filter_map(|line| line.strip_prefix("Command failed "));
    lines.next_back()?.rsplit_once(':')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refused_line_is_the_last_that_is_named() {
        let said = "Error: no\nRTNETLINK answers: x\nCommand failed narrows-sync:7\n";
        assert_eq!(failed_line(said), Some(7));
        assert_eq!(failed_line("Error: 7"), None);
    }
}
