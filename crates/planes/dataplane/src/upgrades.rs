//! The upgrades of a process: at most one at a time, and the result of the last one.

use crate::control::ControlServer;
use crate::instance::{Instance, Offer};
use crate::priority::{calm_down, hurry};
use crate::upgrade::{Origin, Outcome, Upgrade};
use narrows_control::UpgradeStatus;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The version of this binary.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long workers may take to pause: a step takes microseconds, once they have their core.
const STOPPING_TIME: Duration = Duration::from_millis(100);

/// The upgrades of a process: the one that runs, and the result of the last one.
pub(crate) struct Upgrades {
    /// `None` if it cannot be found out.
    origin: Option<Origin>,
    status: UpgradeStatus,
    running: Option<Running>,
}

struct Running {
    upgrade: Upgrade,
    /// The messages sent to the new process.
    offer: Option<Offer>,
}

impl Upgrades {
    /// The upgrades of this process; `status` tells how it started.
    pub(crate) fn new(status: UpgradeStatus) -> Self {
        let origin = Origin::of_this_process();
        if let Err(error) = &origin {
            log::warn!("cannot be upgraded: {error}");
        }
        Self { origin: origin.ok(), status, running: None }
    }

    /// How far it is, and how the last one ended.
    pub(crate) fn status(&self) -> UpgradeStatus {
        self.status.clone()
    }

    /// Whether one is running.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Starts an upgrade, unless one is running.
    pub(crate) fn request(
        &mut self,
        binary: Option<&Path>,
        instance: &mut Instance,
    ) -> UpgradeStatus {
        if self.running.is_none() {
            let attempt = self.status.attempt() + 1;
            let started = match &self.origin {
                Some(origin) => Upgrade::start(origin, binary),
                None => Err("where this binary came from is unknown".to_owned()),
            };
            self.status = match started {
                Ok(upgrade) => {
                    self.running = Some(Running { upgrade, offer: None });
                    UpgradeStatus::Running { attempt }
                }
                Err(reason) => Self::failed(attempt, reason, instance),
            };
        }
        self.status()
    }

    /// An additional descriptor to wait on; `other` if there is none.
    pub(crate) fn fd_or<'a>(&'a self, other: BorrowedFd<'a>) -> BorrowedFd<'a> {
        self.running.as_ref().map_or(other, |running| running.upgrade.fd())
    }

    /// Advances the running upgrade. Returns the id of the process that has taken over, if any:
    /// then this process must leave everything as it is, and end.
    pub(crate) fn proceed(
        &mut self,
        instance: &mut Instance,
        control: &ControlServer,
    ) -> Option<u32> {
        let mut running = self.running.take()?;
        let attempt = self.status.attempt();
        match running.proceed(attempt, instance, control) {
            Ok(true) => {
                log::info!(
                    "process {} with narrows {} has taken over",
                    running.upgrade.pid(),
                    running.upgrade.version()
                );
                return Some(running.upgrade.pid());
            }
            Ok(false) => self.running = Some(running),
            Err(reason) => {
                running.upgrade.give_up();
                self.status = Self::failed(attempt, reason, instance);
            }
        }
        None
    }

    fn failed(attempt: u64, reason: String, instance: &mut Instance) -> UpgradeStatus {
        let status = UpgradeStatus::Failed { attempt, reason };
        instance.warn(status.to_string());
        status
    }
}

impl Drop for Upgrades {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.upgrade.give_up();
        }
    }
}

impl Running {
    fn proceed(
        &mut self,
        attempt: u64,
        instance: &Instance,
        control: &ControlServer,
    ) -> Result<bool, String> {
        match self.upgrade.proceed()? {
            Outcome::Wait => {}
            Outcome::Asks => {
                let own = control.descriptors();
                let (offer, manifest, descriptors) = instance.offer(attempt, VERSION, own.len())?;
                let passed_on: Vec<BorrowedFd<'_>> =
                    own.into_iter().chain(descriptors.iter().map(OwnedFd::as_fd)).collect();
                self.upgrade.offer(&manifest, &passed_on)?;
                self.offer = Some(offer);
            }
            Outcome::Ready => {
                let offer = self.offer.as_ref().ok_or("it is ready for nothing")?;
                let calm = hurry();
                let handed_over = Self::hand_over(&mut self.upgrade, instance, offer);
                calm_down(calm);
                return handed_over.map(|()| true);
            }
        }
        Ok(false)
    }

    fn hand_over(upgrade: &mut Upgrade, instance: &Instance, offer: &Offer) -> Result<(), String> {
        let since = Instant::now();
        let (contents, standstill) = instance.stand_still(offer, STOPPING_TIME)?;
        // Unless it leaves, all workers resume when it is dropped.
        upgrade.hand_over(&contents, since).map(|()| standstill.leave())
    }
}
