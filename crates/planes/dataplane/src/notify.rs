//! Notifications to the service manager, as in `sd_notify(3)`: ready, reloading, stopping, status,
//! and, as long as all workers beat, the watchdog; and that a long start or end makes progress.
//!
//! If no manager listens (`NOTIFY_SOCKET` is not set) nothing is sent, and nothing else differs. A
//! manager that does not read a message is not waited for.

use narrows_escape::line;
use narrows_units::Nanos;
use sd_notify::NotifyState;

/// The service manager.
pub(crate) struct Manager {
    /// How often a healthy process must report: half of the watchdog's timeout.
    interval: Option<Nanos>,
    next_beat: Nanos,
    /// The last notification.
    status: String,
}

impl Manager {
    /// The service manager that started this process, if any.
    pub(crate) fn from_environment() -> Self {
        let interval = sd_notify::watchdog_enabled()
            .map(|time| Nanos((time.as_nanos() / 2).try_into().unwrap_or(u64::MAX)));
        Self { interval, next_beat: Nanos::ZERO, status: String::new() }
    }

    /// Ready to forward, or done with a reload.
    pub(crate) fn ready(&mut self, status: &str) {
        self.status = one_line(status);
        tell(&[NotifyState::Ready, NotifyState::Status(&self.status)]);
    }

    /// The policy file is being read again; [`Manager::ready`] ends this.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
    }

    /// The start or the end goes on: the manager is to wait for another `time`.
    pub(crate) fn goes_on(&self, time: Nanos) {
        tell(&[NotifyState::ExtendTimeoutUsec((time.0 / 1_000).try_into().unwrap_or(u32::MAX))]);
    }

    /// On the way out.
    pub(crate) fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Process `new_process` has taken over, and is the service from now on.
    pub(crate) fn replaced_by(&self, new_process: u32) {
        tell(&[NotifyState::MainPid(new_process)]);
    }

    /// The instance's state; sent if it has changed.
    pub(crate) fn status(&mut self, status: &str) {
        let status = one_line(status);
        if status != self.status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    /// When [`Manager::beat`] is due next.
    pub(crate) fn next_beat(&self) -> Nanos {
        if self.interval.is_some() { self.next_beat } else { Nanos::MAX }
    }

    /// Resets the watchdog, if due and if the process `is_well`. Otherwise the watchdog fires: a
    /// service without its workers should be restarted, and traffic bypasses it meanwhile.
    pub(crate) fn beat(&mut self, now: Nanos, is_well: bool) {
        let Some(interval) = self.interval.filter(|_| now >= self.next_beat) else { return };
        self.next_beat = now + interval;
        if is_well {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

fn tell(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        log::debug!("the service manager was not told: {error}");
    }
}

/// A newline would end the message.
fn one_line(status: &str) -> String {
    line(&status.replace('\n', "; ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_line_does_not_redirect_notifications() {
        assert_eq!(one_line("bad:\nf:1: x\nSTOPPING=1\x1b"), "bad:; f:1: x; STOPPING=1\\x1b");
    }

    #[test]
    fn without_a_watchdog_no_beat_is_due() {
        let mut manager = Manager { interval: None, next_beat: Nanos::ZERO, status: String::new() };
        manager.beat(Nanos(5), true);
        assert_eq!(manager.next_beat(), Nanos::MAX);
    }

    #[test]
    fn a_beat_is_due_at_every_interval_and_skipped_where_something_is_wrong() {
        let mut manager =
            Manager { interval: Some(Nanos(10)), next_beat: Nanos::ZERO, status: String::new() };
        manager.beat(Nanos(3), true);
        assert_eq!(manager.next_beat(), Nanos(13));
        manager.beat(Nanos(12), true);
        assert_eq!(manager.next_beat(), Nanos(13));
        manager.beat(Nanos(14), false);
        assert_eq!(manager.next_beat(), Nanos(24));
    }
}
