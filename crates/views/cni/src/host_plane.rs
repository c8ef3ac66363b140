//! The instance that has a device.

use crate::CniError;
use narrows_control::{Client, ControlError, Request};
use narrows_tc::{OfflineHost, Options, execute_batch, load, save};
use std::thread;
use std::time::{Duration, Instant};

/// How often an instance that is not there yet is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What the commands are called in messages.
const NAME: &str = "narrows-cni";

/// An instance in the host plane, and a device that it has.
pub(crate) struct HostPlane {
    client: Client,
    dev: String,
}

impl HostPlane {
    /// The one that has `dev`; waits until there is one.
    pub(crate) fn find(dev: &str, wait: Duration) -> Result<Self, CniError> {
        let end = Instant::now() + wait;
        let client = loop {
            match Client::find(Some(dev)) {
                Ok(mut found) if !found.is_empty() => break found.swap_remove(0),
                Ok(_) | Err(ControlError::NoInstance(_)) if Instant::now() < end => {}
                Ok(_) | Err(ControlError::NoInstance(_)) => {
                    return Err(CniError::TryAgain(format!(
                        "after {} s no instance of Narrows has the port {dev}: run one for such \
                         devices, `narrows run --plane host --ports {dev}`",
                        wait.as_secs()
                    )));
                }
                Err(error) => return Err(error.into()),
            }
            thread::sleep(LOOK_EVERY);
        };
        let shown = client.snapshot(false)?;
        let port = shown.ports.iter().find(|port| port.name == dev);
        if port.is_none_or(|port| port.own_traffic.is_none()) {
            return Err(CniError::Refused(format!(
                "the instance that has the port {dev} is not in the host plane: run it with \
                 --plane host"
            )));
        }
        Ok(Self { client, dev: dev.to_owned() })
    }

    /// Has it run these commands, all or none.
    pub(crate) fn apply(&self, lines: &str) -> Result<(), CniError> {
        let answer = self.client.batch(&[], NAME, lines, None)?;
        let outcome = answer.outcome().map_err(CniError::Refused)?;
        match outcome.code {
            0 => Ok(()),
            _ => Err(CniError::Refused(format!(
                "the instance that has {} refuses: {}",
                self.dev,
                outcome.stderr.trim_end()
            ))),
        }
    }

    /// What holds at the device, as commands.
    pub(crate) fn saved(&self) -> Result<String, CniError> {
        let args = ["save", "dev", &self.dev].map(str::to_owned).to_vec();
        let outcome = self.client.ask(&Request::Tc { args, names: None })?.outcome();
        let outcome = outcome.map_err(CniError::Refused)?;
        match outcome.code {
            0 => Ok(outcome.stdout),
            _ => Err(CniError::Refused(outcome.stderr.trim_end().to_owned())),
        }
    }
}

/// Whether any instance here is in the host plane.
pub(crate) fn answers() -> Result<(), CniError> {
    let none = |why: String| {
        CniError::Unavailable(format!(
            "no host plane of Narrows answers ({why}): run one, `narrows run --plane host --ports \
             DEVICES`"
        ))
    };
    let (found, silent) = Client::survey(None).map_err(|error| none(error.to_string()))?;
    let is_host_plane = |client: &Client| {
        let shown = client.snapshot(false);
        shown.is_ok_and(|shown| shown.ports.iter().any(|port| port.own_traffic.is_some()))
    };
    if found.iter().any(is_host_plane) {
        return Ok(());
    }
    Err(none(match silent.first() {
        Some(error) => error.to_string(),
        None => "the instances here are none".to_owned(),
    }))
}

/// Whether `lines` change nothing where `saved` holds.
pub(crate) fn holds(lines: &str, saved: &str) -> Result<bool, CniError> {
    let policy = load(saved, NAME, &OfflineHost::default()).map_err(CniError::NotInForce)?;
    let before = save(&policy);
    let mut host = OfflineHost::new(policy);
    let outcome = execute_batch(lines, NAME, &Options::default(), &mut host);
    let after = save(&narrows_tc::Host::policy(&host));
    Ok(outcome.code == 0 && unnumbered(&after) == unnumbered(&before))
}

/// Without the numbers that actions get, another one each time that one is replaced.
fn unnumbered(saved: &str) -> String {
    let line = |line: &str| line.split(" index ").next().unwrap_or_default().to_owned() + "\n";
    saved.lines().map(line).collect()
}
