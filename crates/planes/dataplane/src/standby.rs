//! The bridge that forwards when this process is gone, and checks that it still can.
//!
//! The bridge that was prepared at the start may later be deleted, set down, lose a port or be
//! configured as anything but a wire, by any administrator of the host. Nothing would show until
//! the process dies. So it is checked on kernel notifications, and every second, and repaired at
//! once; packets that Narrows forwards never pass it, so they are not affected. A failed repair is
//! reported once and tried again.
//!
//! A bridge that Narrows did not create is never changed. If it stops being a wire (spanning tree,
//! a third port), Narrows must not forward between its ports: see [`narrows_link::bridge`].

use crate::error::InstanceError;
use crate::events::Events;
use narrows_bpf::Stalled;
use narrows_forwarding::Forwarding;
use narrows_link::bridge::{self, BridgeError, BridgeState, Origin};
use narrows_link::{Link, LinkEvent};

/// Who forwards when this process is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailMode {
    /// A kernel bridge, prepared beforehand: traffic continues, unshaped.
    Open,
    /// None: traffic stops.
    Closed,
}

impl FailMode {
    /// The treatment of frames for a hanging worker: the same as without the process.
    pub(crate) const fn stalled(self) -> Stalled {
        match self {
            Self::Open => Stalled::Pass,
            Self::Closed => Stalled::Drop,
        }
    }
}

/// The bridge that forwards when this process is gone, and what is wrong with it.
pub(crate) struct StandBy {
    mode: FailMode,
    bridge: Option<BridgeState>,
    /// Why standby would not work when this process is gone.
    trouble: Option<String>,
}

impl StandBy {
    pub(crate) fn new(mode: FailMode) -> Self {
        Self { mode, bridge: None, trouble: None }
    }

    /// Ensures it at the start.
    ///
    /// # Errors
    /// If that fails. Then nothing stays changed.
    pub(crate) fn prepare(&mut self, ports: &Forwarding) -> Result<(), InstanceError> {
        match self.mode {
            FailMode::Open => {
                self.bridge = Some(bridge::prepare(&ports.names()[0], &ports.names()[1])?)
            }
            FailMode::Closed => {
                for port in ports.devices() {
                    if let Some(master) = master(port)? {
                        return Err(InstanceError::Master { port: port.clone(), master });
                    }
                }
            }
        }
        self.trouble = None;
        Ok(())
    }

    /// Checks whether it is still valid, and repairs it if not.
    ///
    /// # Errors
    /// If traffic must not be forwarded between the ports as they are now.
    pub(crate) fn watch(
        &mut self,
        ports: &Forwarding,
        events: &mut Events,
    ) -> Result<(), BridgeError> {
        match self.mode {
            FailMode::Open => self.watch_bridge(ports, events),
            FailMode::Closed => {
                let trouble = ports.devices().iter().find_map(|port| {
                    let master = master(port).ok().flatten()?;
                    Some(format!("{port} is a port of {master}, which may forward then"))
                });
                self.say(trouble, events);
                Ok(())
            }
        }
    }

    fn watch_bridge(&mut self, ports: &Forwarding, events: &mut Events) -> Result<(), BridgeError> {
        let ails = match &self.bridge {
            // If the kernel does not answer, the next check tries again.
            Some(bridge) => {
                bridge::check(bridge, &[ports.names()[0].clone(), ports.names()[1].clone()])
                    .unwrap_or_default()
            }
            None => Some("there is no bridge".to_owned()),
        };
        let Some(ails) = ails else {
            self.say(None, events);
            return Ok(());
        };
        match bridge::prepare(&ports.names()[0], &ports.names()[1]) {
            Ok(bridge) => {
                events.warn(format!("fail-open: {ails}; repaired: {} stands by", bridge.name));
                self.bridge = Some(bridge);
                self.trouble = None;
            }
            Err(error @ BridgeError::Unfit { .. }) => return Err(error),
            // A port that is gone is reported elsewhere.
            Err(BridgeError::Link(error)) if error.errno() == Some(libc::ENODEV) => {}
            Err(error) => {
                self.bridge = None;
                self.say(Some(format!("{ails}, and cannot be replaced: {error}")), events);
            }
        }
        Ok(())
    }

    /// Stores the problem, and reports it if it is new.
    fn say(&mut self, trouble: Option<String>, events: &mut Events) {
        if trouble == self.trouble {
            return;
        }
        match &trouble {
            Some(trouble) => events.warn(format!("fail-{}: {trouble}", self.word())),
            None => events.say(format!("fail-{}: restored", self.word())),
        }
        self.trouble = trouble;
    }

    /// Whether `event` may concern it.
    pub(crate) fn concerns(&self, event: &LinkEvent, ports: &Forwarding) -> bool {
        let bridge = self.bridge.as_ref().map(|bridge| bridge.ifindex);
        match event {
            LinkEvent::Added(now) | LinkEvent::Changed { now, .. } => {
                let status = &now.status;
                ports.devices().contains(&status.name)
                    || bridge.is_some_and(|bridge| {
                        status.ifindex == bridge || status.master == Some(bridge)
                    })
            }
            LinkEvent::Removed { ifindex, .. } => Some(*ifindex) == bridge,
            LinkEvent::Overrun => true,
            LinkEvent::Settings | LinkEvent::Addresses => false,
        }
    }

    /// Removes a bridge that was made in vain. A bridge that existed before stays: traffic may flow
    /// through it.
    pub(crate) fn stand_down(&mut self) {
        if let Some(made) = self.bridge.take_if(|bridge| bridge.origin == Origin::Created)
            && let Err(error) = bridge::remove(&made)
        {
            log::warn!("bridge {} is left behind: {error}", made.name);
        }
    }

    fn word(&self) -> &'static str {
        match self.mode {
            FailMode::Open => "open",
            FailMode::Closed => "closed",
        }
    }

    /// What happens when this process is gone, for people.
    pub(crate) fn describe(&self) -> String {
        match (&self.trouble, &self.bridge, self.mode) {
            (Some(trouble), ..) => format!("{} (NOT NOW: {trouble})", self.word()),
            (None, Some(bridge), _) => format!("open (bridge {})", bridge.name),
            (None, None, FailMode::Open) => "open (no bridge yet)".into(),
            (None, None, FailMode::Closed) => "closed".into(),
        }
    }
}

/// The owner of `port`.
fn master(port: &str) -> Result<Option<String>, InstanceError> {
    let Some(master) = Link::by_name(port)?.status.master else { return Ok(None) };
    let master = Link::by_index(master).map(|link| link.name().to_owned());
    Ok(Some(master.unwrap_or_else(|_| "another device".into())))
}
