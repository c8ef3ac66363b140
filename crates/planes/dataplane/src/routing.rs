//! What the programs of a router have to know of the kernel besides its routes: which addresses are
//! this host's, how sources are checked, whether rules count.
//!
//! *VLANs.* Each VLAN of a port that is up, and that the kernel routes by itself, is an interface
//! with settings of its own. What arrives in one is routed, and what leaves by one leaves through
//! the port with its tag. One that gives frames a priority, or is part of a bridge, is the
//! kernel's.
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
//! *By flows.* Where the firewall's flowtable says which packets are routed, sources are not
//! checked: the kernel has checked the first packets of each flow.
//!
//! Non-goals: routes; forwarding sysctls, which the kernel's look-up knows itself.

use crate::error::SessionError;
use crate::routes::RouteThread;
use crate::session::Secrets;
use narrows_bpf::{
    Asks, Ingress, Interface, RouteTables, RoutedBy, Router, RoutesError, SourceCheck, SteerError,
    VLANS_MAX,
};
use narrows_forwarding::PortId;
use narrows_link::routing::{DeviceRouting, RoutingFacts, RpFilter};
use narrows_link::{LinkError, LinkEvent, LinkStatus};
use narrows_routes::Family;

/// The maps of a router, and what was written there last.
pub(crate) struct Routing {
    router: Router,
    /// None where it could not be started: then the kernel is asked for all routes.
    routes: Option<RouteThread>,
    /// Its ports, by the indices of their devices.
    ports: Vec<(u32, PortId)>,
    known: Option<RoutingFacts>,
    /// What filters ask of routes. Until somebody says so, whatever they may ask is found out.
    asks: Asks,
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
    /// Those of `ports`, by the indices of their devices, as the kernel routes now. Programs route
    /// by `routed_by`.
    pub(crate) fn new(
        ports: Vec<(u32, PortId)>,
        routed_by: RoutedBy,
        failed: impl Fn(SteerError) -> SessionError,
    ) -> Result<Self, SessionError> {
        let refused = |error| failed(SteerError::Load(error));
        let tables = RouteTables::new().map_err(|error| match error {
            RoutesError::Load(error) => refused(error),
            error => SessionError::Routing(RoutingError::Maps(error.to_string())),
        })?;
        let router = Router::new(&tables).map_err(refused)?;
        let router = router.sealed(Secrets::own().seal).routed_by(routed_by);
        let numbers = ports.iter().map(|&(ifindex, port)| (ifindex, port.index() as u8));
        let routes = RouteThread::start(tables, numbers.collect::<Vec<_>>());
        let routes = routes.inspect_err(|error| {
            log::warn!("{error}; packets are routed by the kernel's look-up");
        });
        let mut routing =
            Self { router, routes: routes.ok(), ports, known: None, asks: Asks::Source };
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

    /// The indices of ports' devices and of their VLANs'.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = u32> {
        let vlans = self.known.iter().flat_map(|facts| &facts.vlans);
        let ports = self.ports.iter().map(|(ifindex, _)| *ifindex);
        ports.chain(vlans.map(|vlan| vlan.device.ifindex))
    }

    /// Whether the programs have to know that `event` happened: to a port, or to a VLAN of one.
    pub(crate) fn concerns(&self, event: &LinkEvent) -> bool {
        let is_of_port = |link: &LinkStatus| {
            let of = link.plain_vlan().map_or(link.ifindex, |(lower, _)| lower);
            self.ports.iter().any(|(ifindex, _)| *ifindex == of)
        };
        match event {
            LinkEvent::Added(now) => is_of_port(&now.status),
            LinkEvent::Changed { before, now } => {
                is_of_port(&before.status) || is_of_port(&now.status)
            }
            LinkEvent::Removed { ifindex, .. } => self.interfaces().any(|it| it == *ifindex),
            LinkEvent::Addresses | LinkEvent::Routing | LinkEvent::Overrun => true,
            LinkEvent::Settings => false,
        }
    }

    /// Whether programs look into the table of `family` for what arrives at some port: not with
    /// rules, or a VRF, or where nothing is forwarded.
    pub(crate) fn may_use_table(&self, family: Family) -> bool {
        self.known.as_ref().is_some_and(|facts| {
            let vlans = facts.vlans.iter().map(|vlan| &vlan.device);
            let mut all = facts.devices.iter().chain(vlans);
            all.any(|device| facts.two_tables_suffice(device)[family as usize])
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
                if let Some(known) = self.known.take() {
                    let (source_check, asks) = (self.checked(SourceCheck::Strict), self.asks);
                    let careful = Ingress { source_check, asks, ..Ingress::default() };
                    self.write(&known, |_| careful)?;
                }
                return Err(error.into());
            }
        };
        if self.known.as_ref() == Some(&facts) {
            return Ok(());
        }
        let set = self.router.set_own_addresses(&facts.local);
        set.map_err(|error| RoutingError::Maps(error.to_string()))?;
        self.write(&facts, |device| self.ingress(&facts, device))?;
        self.known = Some(facts);
        Ok(())
    }

    /// Has the programs find out what filters ask of routes, and no more.
    ///
    /// # Errors
    /// If the maps cannot be written.
    pub(crate) fn ask(&mut self, asks: Asks) -> Result<(), RoutingError> {
        if self.asks == asks {
            return Ok(());
        }
        self.asks = asks;
        let known = self.known.as_ref();
        known.map_or(Ok(()), |facts| self.write(facts, |device| self.ingress(facts, device)))
    }

    /// How what arrives at `device` is routed, by `facts`.
    fn ingress(&self, facts: &RoutingFacts, device: &DeviceRouting) -> Ingress {
        let source_check = self.checked(match device.rp_filter {
            RpFilter::Off => SourceCheck::Off,
            RpFilter::Loose => SourceCheck::Loose,
            RpFilter::Strict => SourceCheck::Strict,
        });
        let suffice = facts.two_tables_suffice(device);
        let by_tables = suffice.map(|suffice| suffice && self.routes.is_some());
        Ingress { source_check, direct: facts.ipv4_direct, by_tables, asks: self.asks }
    }

    /// How programs check sources that the kernel would check so.
    fn checked(&self, by_kernel: SourceCheck) -> SourceCheck {
        match self.router.by() {
            RoutedBy::Routes => by_kernel,
            RoutedBy::Flows => SourceCheck::Off,
        }
    }

    /// Routes what arrives at a device of `facts` as `ingress` says.
    fn write(
        &self,
        facts: &RoutingFacts,
        ingress: impl Fn(&DeviceRouting) -> Ingress,
    ) -> Result<(), RoutingError> {
        let ports = facts.devices.iter().map(|device| (device.ifindex, None, device));
        let vlans = facts.vlans.iter().map(|vlan| (vlan.lower, Some(vlan.tag), &vlan.device));
        if facts.vlans.len() > VLANS_MAX {
            log::warn!("{VLANS_MAX} VLANs are routed, and the kernel routes the others");
        }
        let interface = |(of, tag, device): (u32, _, &DeviceRouting)| {
            let (_, port) = self.ports.iter().find(|(ifindex, _)| *ifindex == of)?;
            let DeviceRouting { ifindex, mac, .. } = *device;
            Some(Interface { port: *port, tag, ifindex, mac, ingress: ingress(device) })
        };
        let all = ports.chain(vlans.take(VLANS_MAX)).filter_map(interface).collect::<Vec<_>>();
        let set = self.router.set_interfaces(&all);
        set.map_err(|error| RoutingError::Maps(error.to_string()))
    }
}
