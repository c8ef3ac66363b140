//! The bridges that forward when this process is gone, and checks that they still can: one between
//! the ends of a wire, one for each pair of a stick's VLANs, or the one that a switch is. A router
//! and a host need none: the kernel routes and receives by itself.
//!
//! A bridge that was prepared at the start may later be deleted, set down, lose a port or be
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
use narrows_forwarding::{DeviceId, Forwarding};
use narrows_link::bridge::{self, BridgeError, BridgeState, Origin};
use narrows_link::stick::{self, StickError, StickState};
use narrows_link::switch::{self, SwitchError, SwitchState};
use narrows_link::{Link, LinkError, LinkEvent};

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

/// What forwards in the kernel.
enum Forwarder {
    /// Its own routes. They need nothing.
    Routes,
    /// Nobody: it receives what arrives by itself.
    Receiver,
    /// Between the ends of a wire.
    Bridge(BridgeState),
    /// Between VLANs.
    Stick(StickState),
    /// Between the ports of a switch.
    Switch(SwitchState),
}

/// Why the kernel does not stand by.
#[derive(Debug, thiserror::Error)]
pub enum StandByError {
    /// No bridge between the ends of a wire.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// None between VLANs.
    #[error(transparent)]
    Stick(#[from] StickError),
    /// None that is a switch.
    #[error(transparent)]
    Switch(#[from] SwitchError),
}

impl StandByError {
    /// Whether traffic must not be forwarded between the ports as they are now.
    fn forbids_forwarding(&self) -> bool {
        matches!(
            self,
            Self::Bridge(BridgeError::Unfit { .. })
                | Self::Stick(StickError::Bridge(BridgeError::Unfit { .. }))
        )
    }

    /// Whether a device is gone, which is reported elsewhere.
    fn is_of_a_device_that_is_gone(&self) -> bool {
        match self {
            Self::Bridge(BridgeError::Link(error))
            | Self::Stick(StickError::Link(error))
            | Self::Switch(SwitchError::Bridge(BridgeError::Link(error))) => {
                error.errno() == Some(libc::ENODEV)
            }
            Self::Bridge(_) | Self::Stick(_) | Self::Switch(_) => false,
        }
    }
}

impl Forwarder {
    fn prepare(ports: &Forwarding) -> Result<Self, StandByError> {
        if ports.is_router() {
            return Ok(Self::Routes);
        }
        if ports.is_host() {
            return Ok(Self::Receiver);
        }
        if ports.is_switch() {
            return Ok(Self::Switch(switch::prepare(ports.names())?));
        }
        Ok(match (ports.pairs(), ports.names()) {
            (Some(pairs), _) => {
                Self::Stick(stick::prepare(&ports.devices()[DeviceId::FIRST], &pairs)?)
            }
            (None, [a, b, ..]) => Self::Bridge(bridge::prepare(a, b)?),
            (None, _) => unreachable!("a wire has two ends"),
        })
    }

    /// The one that takes the place of `before`, which ails.
    fn repair(before: Option<&Self>, ports: &Forwarding) -> Result<Self, StandByError> {
        match before {
            Some(Self::Switch(switch)) => Ok(Self::Switch(switch::repair(switch, ports.names())?)),
            _ => Self::prepare(ports),
        }
    }

    /// Why it would not forward now.
    fn ails(&self, ports: &Forwarding) -> Result<Option<String>, LinkError> {
        match (self, ports.names()) {
            (Self::Bridge(bridge), [a, b, ..]) => bridge::check(bridge, &[a.clone(), b.clone()]),
            (Self::Bridge(_) | Self::Routes | Self::Receiver, _) => Ok(None),
            (Self::Stick(stick), _) => stick::check(stick),
            (Self::Switch(switch), names) => switch::check(switch, names),
        }
    }

    /// What it is, for people.
    fn name(&self) -> String {
        match self {
            Self::Routes => "the kernel routes".to_owned(),
            Self::Receiver => "the kernel receives".to_owned(),
            Self::Bridge(bridge) => format!("bridge {}", bridge.name),
            Self::Stick(stick) => format!("bridge {}", stick.name()),
            Self::Switch(switch) => format!("bridge {}", switch.name),
        }
    }

    fn concerns(&self, event: &LinkEvent) -> bool {
        let bridge = match self {
            Self::Routes | Self::Receiver => return false,
            Self::Stick(stick) => return stick.concerns(event),
            Self::Bridge(bridge) => bridge.ifindex,
            Self::Switch(switch) => switch.ifindex,
        };
        match event {
            LinkEvent::Added(now) | LinkEvent::Changed { now, .. } => {
                now.status.ifindex == bridge || now.status.master == Some(bridge)
            }
            LinkEvent::Removed { ifindex, .. } => *ifindex == bridge,
            LinkEvent::Overrun
            | LinkEvent::Settings
            | LinkEvent::Addresses
            | LinkEvent::Routing => false,
        }
    }
}

/// What forwards when this process is gone, and what is wrong with it.
pub(crate) struct StandBy {
    mode: FailMode,
    forwarder: Option<Forwarder>,
    /// Why standby would not work when this process is gone.
    trouble: Option<String>,
}

impl StandBy {
    pub(crate) fn new(mode: FailMode) -> Self {
        Self { mode, forwarder: None, trouble: None }
    }

    /// Ensures it at the start.
    ///
    /// # Errors
    /// If that fails. Then nothing stays changed.
    pub(crate) fn prepare(&mut self, ports: &Forwarding) -> Result<(), InstanceError> {
        match self.mode {
            FailMode::Open => self.forwarder = Some(Forwarder::prepare(ports)?),
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
    ) -> Result<(), StandByError> {
        match self.mode {
            FailMode::Open => self.watch_forwarder(ports, events),
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

    fn watch_forwarder(
        &mut self,
        ports: &Forwarding,
        events: &mut Events,
    ) -> Result<(), StandByError> {
        let ails = match &self.forwarder {
            // If the kernel does not answer, the next check tries again.
            Some(forwarder) => forwarder.ails(ports).unwrap_or_default(),
            None => Some("there is no bridge".to_owned()),
        };
        let Some(ails) = ails else {
            self.say(None, events);
            return Ok(());
        };
        match Forwarder::repair(self.forwarder.as_ref(), ports) {
            Ok(forwarder) => {
                let name = forwarder.name();
                events.warn(format!("fail-open: {ails}; repaired: {name} stands by"));
                self.forwarder = Some(forwarder);
                self.trouble = None;
            }
            Err(error) if error.forbids_forwarding() => return Err(error),
            Err(error) if error.is_of_a_device_that_is_gone() => {}
            Err(error) => {
                // Of a switch it is to be known whose bridge it had.
                self.forwarder =
                    self.forwarder.take().filter(|it| matches!(it, Forwarder::Switch(_)));
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
        let is_of_a_device = match event {
            LinkEvent::Added(now) | LinkEvent::Changed { now, .. } => {
                ports.devices().contains(&now.status.name)
            }
            LinkEvent::Overrun => true,
            LinkEvent::Removed { .. }
            | LinkEvent::Settings
            | LinkEvent::Addresses
            | LinkEvent::Routing => false,
        };
        is_of_a_device || self.forwarder.as_ref().is_some_and(|known| known.concerns(event))
    }

    /// Removes what was made in vain. What existed before stays: traffic may flow through it.
    pub(crate) fn stand_down(&mut self) {
        let Some(forwarder) = self.forwarder.take() else { return };
        let removed = match &forwarder {
            Forwarder::Bridge(made) if made.origin == Origin::Created => bridge::remove(made),
            Forwarder::Switch(made) if made.origin == Origin::Created => switch::remove(made),
            Forwarder::Bridge(_)
            | Forwarder::Switch(_)
            | Forwarder::Routes
            | Forwarder::Receiver => return,
            Forwarder::Stick(made) => stick::remove(made),
        };
        if let Err(error) = removed {
            log::warn!("{} is left behind: {error}", forwarder.name());
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
        match (&self.trouble, &self.forwarder, self.mode) {
            (Some(trouble), ..) => format!("{} (NOT NOW: {trouble})", self.word()),
            (None, Some(forwarder), _) => format!("open ({})", forwarder.name()),
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
