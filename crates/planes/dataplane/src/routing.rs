//! What the programs of a router have to know of the kernel besides its routes: which addresses are
//! this host's, how sources are checked, whether rules count.
//!
//! The programs look plain routes up in tables, which a thread keeps as the kernel's are
//! ([`crate::routes`]), and ask the kernel for all others. The rest is in maps, and follows the
//! kernel's notifications: a change is in force a moment after it was made, as with the kernel's
//! own settings.
//!
//! *When in doubt, the longer way.* With rules or a VRF, and where the kernel does not say what it
//! would do, the kernel is asked for all routes. Then it looks at all rules, and sources are
//! checked strictly: what fails that goes to the kernel, which decides.
//!
//! Non-goals: routes; forwarding sysctls, which the kernel's look-up knows itself.

use crate::error::SessionError;
use crate::routes::RouteThread;
use crate::session::Secrets;
use narrows_bpf::{Ingress, RouteTables, Router, RoutesError, SourceCheck, SteerError};
use narrows_forwarding::PortId;
use narrows_link::LinkError;
use narrows_link::routing::{RoutingFacts, RpFilter};
use narrows_routes::Family;

/// The maps of a router, and what was written there last.
pub(crate) struct Routing {
    router: Router,
    /// None where it could not be started: then the kernel is asked for all routes.
    routes: Option<RouteThread>,
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
    /// Those of `ports`, by the indices of their devices, as the kernel routes now.
    pub(crate) fn new(
        ports: Vec<(u32, PortId)>,
        failed: impl Fn(SteerError) -> SessionError,
    ) -> Result<Self, SessionError> {
        let refused = |error| failed(SteerError::Load(error));
        let tables = RouteTables::new().map_err(|error| match error {
            RoutesError::Load(error) => refused(error),
            error => SessionError::Routing(RoutingError::Maps(error.to_string())),
        })?;
        let router = Router::new(&ports, &tables).map_err(refused)?;
        let router = router.sealed(Secrets::own().seal);
        let numbers = ports.iter().map(|&(ifindex, port)| (ifindex, port.index() as u8));
        let routes = RouteThread::start(tables, numbers.collect::<Vec<_>>());
        let routes = routes.inspect_err(|error| {
            log::warn!("{error}; packets are routed by the kernel's look-up");
        });
        let mut routing = Self { router, routes: routes.ok(), ports, known: None };
        routing.follow().map_err(SessionError::Routing)?;
        Ok(routing)
    }

    /// The maps, for programs.
    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    /// The kernel's routes as programs look them up.
    pub(crate) fn routes(&self) -> Option<&RouteThread> {
        self.routes.as_ref()
    }

    /// Whether programs look into the table of `family` for what arrives at some port: not with
    /// rules, or a VRF, or where nothing is forwarded.
    pub(crate) fn may_use_table(&self, family: Family) -> bool {
        self.known.as_ref().is_some_and(|facts| {
            facts.devices.iter().any(|device| facts.two_tables_suffice(device)[family as usize])
        })
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
                let source_check = SourceCheck::Strict;
                let careful = Ingress { source_check, ..Ingress::default() };
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
        let has_routes = self.routes.is_some();
        self.write(|port| {
            let of_it = facts.devices.get(port.index());
            let source_check = match of_it.map(|device| device.rp_filter) {
                Some(RpFilter::Off) => SourceCheck::Off,
                Some(RpFilter::Loose) => SourceCheck::Loose,
                Some(RpFilter::Strict) | None => SourceCheck::Strict,
            };
            let suffice = of_it.map(|device| facts.two_tables_suffice(device));
            let by_tables = suffice.filter(|_| has_routes).unwrap_or_default();
            Ingress { source_check, direct, by_tables }
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
