//! `narrows upgrade`.

use crate::output::{self, Format};
use anyhow::Context;
use clap::Args;
use narrows_control::{Answer, Client, Request, UpgradeStatus};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The interval at which the progress of an upgrade is polled.
const POLL: Duration = Duration::from_millis(20);
/// The time limit, longer than all time limits of an instance.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Hand running instances over to a new binary, with all queued packets.
///
/// Install the new binary in place of the old one (by renaming), and run this. The instance starts
/// it with its own arguments. Once the new process is ready, the old one passes on ports, policy,
/// limits, counters and queued packets; arriving packets wait meanwhile, except on the XDP plane,
/// where nothing waits. If anything fails, the old process continues and this prints why.
///
/// The process id changes. A process that keeps an instance for each interface of a pattern is not
/// handed over, only its instances are: start it again for a new version of itself.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows upgrade
  narrows upgrade eth2 --binary /usr/local/bin/narrows --json")]
pub struct Upgrade {
    /// Only the instance that has this port.
    #[arg(value_name = "DEV")]
    dev: Option<String>,

    /// Run this binary. Default: the one at the path of the running one.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,

    #[command(flatten)]
    format: Format,
}

impl Upgrade {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let binary = match self.binary {
            Some(path) => Some(std::path::absolute(path).context("where is the binary?")?),
            None => None,
        };
        let mut all = Vec::new();
        let mut keepers = BTreeSet::new();
        for client in Client::find(self.dev.as_deref())? {
            let ports = client.ports.join(",");
            let status = upgrade(&client, binary.clone())?;
            if self.format.is_text() {
                output::say(format_args!("{ports}: {status}"));
            }
            keepers.extend(client.snapshot(false).ok().and_then(|shown| shown.kept_by));
            all.push(status);
        }
        if !self.format.is_text() {
            self.format.print(&all, String::new)?;
        }
        for keeper in keepers {
            output::complain(format_args!(
                "process {keeper}, which keeps an instance for each interface of a pattern, goes on \
                 as it was; what it starts is the new one. For a new version of itself start it \
                 again: its instances end with it"
            ));
        }
        let done = |status: &UpgradeStatus| matches!(status, UpgradeStatus::Done { .. });
        Ok(if all.iter().all(done) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Upgrades one instance and waits for the result.
fn upgrade(client: &Client, binary: Option<PathBuf>) -> anyhow::Result<UpgradeStatus> {
    let status = |request| match client.ask(&request)? {
        Answer::Upgrade(status) => Ok(status),
        Answer::Refused(reason) => anyhow::bail!("{reason}"),
        other => anyhow::bail!("the instance gave an unexpected answer: {other:?}"),
    };
    let end = Instant::now() + TIMEOUT;
    let mut now = status(Request::Upgrade { binary })?;
    while let UpgradeStatus::Running { .. } = now {
        anyhow::ensure!(Instant::now() < end, "the instance did not finish the upgrade in time");
        sleep(POLL);
        now = status(Request::UpgradeStatus)?;
    }
    Ok(now)
}
