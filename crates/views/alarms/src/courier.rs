//! Delivers messages, in a thread of its own, one after another, each to all actions at once and
//! within a time: who does not answer holds up the next message, and nobody else.
//!
//! A failure is logged once for each action until it works again, and nothing is sent twice: the
//! state of all alarms can be asked for at any time.

use crate::{Action, Message};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The program that takes mail.
pub const SENDMAIL: &str = "/usr/sbin/sendmail";
/// How long an action may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How often a program is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// The most messages that wait for the thread.
const WAITING_MAX: usize = 16;

/// To the thread.
#[derive(Clone, Debug)]
pub struct Courier(SyncSender<Message>);

impl Courier {
    /// Starts a thread that delivers to all of `actions`; it ends when the courier is gone.
    pub fn start(actions: Vec<Action>) -> Self {
        let (to, messages) = sync_channel(WAITING_MAX);
        thread::spawn(move || work(&actions, &messages));
        Self(to)
    }

    /// Hands over a message. Whether there was room for it.
    pub fn deliver(&self, message: Message) -> bool {
        self.0.try_send(message).is_ok()
    }
}

fn work(actions: &[Action], messages: &Receiver<Message>) {
    let mut failed = vec![false; actions.len()];
    for message in messages {
        for (told, failed) in deliver_all(actions, &message, LIMIT).into_iter().zip(&mut failed) {
            match told {
                Ok(()) => *failed = false,
                Err(error) if !*failed => {
                    *failed = true;
                    log::warn!("an alarm is not delivered: {error}");
                }
                Err(_) => {}
            }
        }
    }
}

/// Delivers a message to all `actions` within `limit`, and gives what became of each.
fn deliver_all(actions: &[Action], message: &Message, limit: Duration) -> Vec<Result<(), String>> {
    thread::scope(|scope| {
        let begin = |action| {
            thread::Builder::new().spawn_scoped(scope, move || deliver(action, message, limit))
        };
        let begun: Vec<_> = actions.iter().map(begin).collect();
        let end = |thread: io::Result<thread::ScopedJoinHandle<'_, _>>| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err("it ended in a panic".to_owned())),
            Err(error) => Err(format!("no thread can be started: {error}")),
        };
        begun.into_iter().map(end).collect()
    })
}

/// Delivers a message within `limit`.
fn deliver(action: &Action, message: &Message, limit: Duration) -> Result<(), String> {
    match action {
        Action::Webhook(url) => {
            let body = serde_json::to_vec(message).map_err(|error| error.to_string())?;
            let headers = [("Content-Type", "application/json")];
            narrows_post::post(url, &headers, &body, limit).map_err(|error| error.to_string())
        }
        Action::Mail(address) => {
            let mut command = Command::new(SENDMAIL);
            command.args(["-i", "--", address]);
            run(command, mail(address, message).as_bytes(), limit)
        }
        Action::Command(words) => {
            let Some((program, arguments)) = words.split_first() else { return Ok(()) };
            let mut command = Command::new(program);
            command
                .args(arguments)
                .env("NARROWS_ALARMS_FIRING", message.firing.to_string())
                .env("NARROWS_ALARMS_RESOLVED", message.resolved.to_string())
                .env("NARROWS_ALARMS_TITLE", message.title());
            run(command, message.text.as_bytes(), limit)
        }
    }
}

/// A mail (RFC 5322). No name is in its head.
fn mail(address: &str, message: &Message) -> String {
    format!(
        "To: {address}\nSubject: {}\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n{}\n",
        message.title(),
        message.text
    )
}

/// Runs a program with `input`. One that takes longer than `limit` is ended, with all that it
/// started in its process group.
fn run(mut command: Command, input: &[u8], limit: Duration) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: io::Error| format!("{name}: {error}");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let end = Instant::now() + limit;
    let mut child = command.spawn().map_err(failed)?;
    let stdin = child.stdin.take();
    let input = input.to_vec();
    // A program that does not read must not hold up this thread.
    thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    loop {
        match child.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{name} failed: {status}")),
            None if Instant::now() >= end => {
                kill(&mut child);
                return Err(format!(
                    "{name} took longer than {} s, and was ended",
                    limit.as_secs()
                ));
            }
            None => thread::sleep(LOOK),
        }
    }
}

fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message {
            text: "Narrows: 1 alarm began\nbegan: port eth1: down (port down)".into(),
            firing: 1,
            resolved: 0,
            alarms: Vec::new(),
            more: 0,
        }
    }

    fn command(words: &[&str]) -> Action {
        Action::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn a_program_gets_the_text_and_what_it_is_about() {
        let file = std::env::temp_dir().join(format!("nrw-alarm-{}", std::process::id()));
        let script = r#"{ echo "$NARROWS_ALARMS_FIRING $NARROWS_ALARMS_TITLE"; cat; } > "$0""#;
        let action = command(&["/bin/sh", "-c", script, file.to_str().unwrap()]);
        deliver(&action, &message(), LIMIT).unwrap();
        let said = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(said, format!("1 Narrows: 1 alarm began\n{}", message().text));
    }

    #[test]
    fn arguments_are_no_shell_commands() {
        let action = command(&["/usr/bin/test", "$(echo x)", "=", "$(echo x)"]);
        deliver(&action, &message(), LIMIT).unwrap();
    }

    #[test]
    fn a_program_that_fails_or_does_not_end_is_an_error() {
        let error = deliver(&command(&["/bin/false"]), &message(), LIMIT).unwrap_err();
        assert!(error.contains("/bin/false failed"), "{error}");
        let error = deliver(&command(&["/nonexistent"]), &message(), LIMIT).unwrap_err();
        assert!(error.starts_with("/nonexistent: "), "{error}");
        let limit = Duration::from_millis(100);
        let slow = command(&["/bin/sh", "-c", "sleep 600 & sleep 600"]);
        let error = deliver(&slow, &message(), limit).unwrap_err();
        assert!(error.contains("was ended"), "{error}");
    }

    #[test]
    fn who_does_not_answer_holds_up_nobody_else() {
        let file = std::env::temp_dir().join(format!("nrw-told-{}", std::process::id()));
        let path = file.to_str().unwrap();
        // The first ends only once the second has been told.
        let waits = command(&["/bin/sh", "-c", "until [ -e \"$0\" ]; do sleep 0.01; done", path]);
        let told = deliver_all(&[waits, command(&["/bin/touch", path])], &message(), LIMIT);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(told, [Ok(()), Ok(())]);
    }

    #[test]
    fn a_mail_has_a_head_and_a_text() {
        let mail = mail("ops@example.net", &message());
        let (head, text) = mail.split_once("\n\n").unwrap();
        assert!(head.starts_with("To: ops@example.net\nSubject: Narrows: 1 alarm began\n"));
        assert_eq!(text, format!("{}\n", message().text));
    }
}
