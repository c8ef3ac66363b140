//! `narrows reconfigure`.

use crate::output;
use anyhow::bail;
use clap::Args;
use narrows_control::{Answer, Client, Request, while_let_go};
use narrows_escape::shell;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

/// Release the ports while a command changes their queues or MTU, then shape again.
///
/// Many drivers refuse another number of queues or another MTU while Narrows holds the queues
/// (`Device queue in use by AF_XDP`). This makes the running instance release its ports, runs
/// COMMAND, and joins the ports again, with the same policy. Meanwhile packets pass unshaped over
/// the standby bridge, or stop if the instance runs with --fail-closed. If this command is killed,
/// or the time is up, the ports are joined again at once.
///
/// Prints how long the limit was off, and exits with the exit code of COMMAND.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows reconfigure -- sh -c 'ethtool -L eth1 combined 8 && ethtool -L eth2 combined 8'
  narrows reconfigure --limit 10 -- sh -c 'ip link set eth1 mtu 9000 && ip link set eth2 mtu 9000'")]
pub struct Reconfigure {
    /// The ports of the instance, if several run.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    ports: Vec<String>,

    /// Seconds after which the ports are joined again, even if COMMAND still runs.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Reconfigure {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let client = self.instance()?;
        let stops = match client.ask(&Request::Show)? {
            Answer::Show(show) => show.fail.starts_with("closed"),
            _ => false,
        };
        let words: Vec<_> =
            self.command.iter().map(|word| shell(&word.to_string_lossy()).into_owned()).collect();
        let words = words.join(" ");
        let run = || Command::new(&self.command[0]).args(&self.command[1..]).status();
        let limit = Duration::from_secs(self.limit);
        let (status, joined) = while_let_go(&client, format!("`{words}`"), limit, run)?;
        let what = if stops { "traffic stopped" } else { "the limit was off" };
        match joined {
            Ok(Answer::Joined { mode, waiting_for, apart_ms, late }) => {
                if late {
                    output::complain(format_args!(
                        "the ports were joined again after {} s, before the command ended: give \
                         it more time with --limit",
                        self.limit
                    ));
                }
                output::say(format_args!("{what} for {apart_ms} ms"));
                match (mode, waiting_for) {
                    (Some(mode), _) => output::say(format_args!("joined {mode}")),
                    (None, reason) => output::complain(format_args!(
                        "the ports cannot be joined now: {}; Narrows keeps trying, see `narrows \
                         show`",
                        reason.unwrap_or_default()
                    )),
                }
            }
            Ok(other) => {
                output::complain(format_args!("the instance gave an unexpected answer: {other:?}"))
            }
            Err(error) => output::complain(error),
        }
        match status {
            Ok(status) => Ok(ExitCode::from(code(status))),
            Err(error) => bail!("cannot run {}: {error}", self.command[0].to_string_lossy()),
        }
    }

    /// The requested instance.
    fn instance(&self) -> anyhow::Result<Client> {
        let mut found = Client::find(self.ports.first().map(String::as_str))?;
        found.retain(|client| self.ports.iter().all(|port| client.ports.contains(port)));
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => bail!("no narrows joins these ports; `narrows show` lists those that run"),
            _ => {
                let ports: Vec<_> =
                    found.iter().map(|one| shell(&one.ports.join(",")).into_owned()).collect();
                bail!(
                    "several instances run: say which with --ports {}",
                    ports.join(" or --ports ")
                )
            }
        }
    }
}

/// The exit code as a shell reports it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
