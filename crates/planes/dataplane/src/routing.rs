//! What the programs of a router have to know of the kernel besides its routes: which addresses are
//! this host's, how sources are checked, whether rules count.
//!
//! The programs ask the kernel for each packet's route, so routes and neighbours need nothing. The
//! rest is in maps, and follows the kernel's notifications: a change is in force a moment after it
//! was made, as with the kernel's own settings.
//!
//! *When in doubt, the longer way.* Where the kernel does not say what it would do, packets are
//! looked up by all rules, and sources are checked strictly: what fails that goes to the kernel,
//! which decides.
//!
//! Non-goals: routes; forwarding sysctls, which the kernel's look-up knows itself.

use crate::device::DeviceFacts;
use crate::error::SessionError;
use narrows_bpf::{Ingress, Router, SourceCheck, SteerError};
use narrows_forwarding::{Forwarding, PerDevice, PortId};
use narrows_link::LinkError;
use narrows_link::routing::{RoutingFacts, RpFilter};

/// The maps of a router, and what was written there last.
pub(crate) struct Routing {
    router: Router,
    /// Its ports, by the indices of their devices.
    ports: Vec<(u32, PortId)>,
    known: Option<RoutingFacts>,
}

/// Why the programs do not know what the kernel does.
#[derive(Debug, thiserror::Error)]
pub enum RoutingError {
    /// The kernel does not tell.
    #[error("the kernel does not say how it routes: {0}")]
    Facts(#[from] LinkError),
    /// The maps cannot be written.
    #[error("the router's maps cannot be written: {0}")]
    Maps(String),
}

impl Routing {
    /// Those of the ports of `forwarding` on `devices`, as the kernel routes now.
    pub(crate) fn new(
        forwarding: &Forwarding,
        devices: &PerDevice<DeviceFacts>,
    ) -> Result<Self, SessionError> {
        let port = |port| (devices[forwarding.device_of(port)].ifindex, port);
        let ports: Vec<(u32, PortId)> = forwarding.ids().map(port).collect();
        let router = Router::new(&ports).map_err(|error| SessionError::Steer {
            port: forwarding.to_string(),
            source: SteerError::Load(error),
            hint: "",
        })?;
        let mut routing = Self { router, ports, known: None };
        routing.follow().map_err(SessionError::Routing)?;
        Ok(routing)
    }

    /// The maps, for programs.
    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    /// Tells the programs how the kernel routes now.
    ///
    /// # Errors
    /// If it does not say. Then packets are looked up in the longest way.
    pub(crate) fn follow(&mut self) -> Result<(), RoutingError> {
        let ifindices: Vec<u32> = self.ports.iter().map(|(ifindex, _)| *ifindex).collect();
        let facts = match RoutingFacts::read(&ifindices) {
            Ok(facts) => facts,
            Err(error) => {
                self.known = None;
                let careful = Ingress { source_check: SourceCheck::Strict, direct: false };
                self.write(|_| careful)?;
                return Err(error.into());
            }
        };
        if self.known.as_ref() == Some(&facts) {
            return Ok(());
        }
        let set = self.router.set_own_addresses(&facts.local);
        set.map_err(|error| RoutingError::Maps(error.to_string()))?;
        let direct = facts.ipv4_direct;
        self.write(|port| {
            let of_it = facts.devices.get(port.index());
            let source_check = match of_it.map(|device| device.rp_filter) {
                Some(RpFilter::Off) => SourceCheck::Off,
                Some(RpFilter::Loose) => SourceCheck::Loose,
                Some(RpFilter::Strict) | None => SourceCheck::Strict,
            };
            Ingress { source_check, direct }
        })?;
        self.known = Some(facts);
        Ok(())
    }

    fn write(&self, ingress: impl Fn(PortId) -> Ingress) -> Result<(), RoutingError> {
        self.ports.iter().try_for_each(|(_, port)| {
            let set = self.router.set_ingress(*port, ingress(*port));
            set.map_err(|error| RoutingError::Maps(error.to_string()))
        })
    }
}
