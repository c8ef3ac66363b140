//! Why ports are not joined, or a policy is not put in force.
//!
//! Each error says which port it is about, and what to do. They are for people: they end in the
//! answer to a command, in the events of an instance, or at the end of a process.

use crate::front::FrontError;
use crate::gates::NoGate;
use crate::routing::RoutingError;
use crate::standby::StandByError;
use crate::switching::SwitchingError;
use narrows_bpf::tree::TreeError;
use narrows_bpf::{LoadError, SetsError, SteerError};
use narrows_escape::shell;
use narrows_link::LinkError;
use narrows_link::ifb::IfbError;
use narrows_policy::PolicyError;
use narrows_units::counted;
use narrows_xdp::Refusal;
use narrows_xsk::{SocketError, UmemError};

/// Why a policy was not applied, or a session not opened.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// Services that were kept have no place here.
    #[error("the services that were kept: {0}")]
    Services(String),
    /// The services of a port cannot be balanced.
    #[error("{port}: {source}")]
    Balance {
        /// The port.
        port: String,
        /// Why.
        source: narrows_bpf::BalanceError,
    },
    /// A user's own program cannot run at a port.
    #[error("{port}: the front: {source}")]
    UserFront {
        /// The port.
        port: String,
        /// Why.
        source: narrows_bpf::UserFrontError,
    },
    /// Frames cannot be handed to other CPUs.
    #[error("{port}: {source}")]
    ReceiveOn {
        /// The port.
        port: String,
        /// Why.
        source: narrows_bpf::ReceiveOnError,
    },
    /// An interface cannot be read.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A port has no ifb.
    #[error(transparent)]
    Ifb(#[from] IfbError),
    /// What arrives at a port cannot be redirected.
    #[error("{port}: what arrives cannot be redirected to its ifb: {source}")]
    NotRedirected {
        /// The port.
        port: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// What comes from an ifb would pass a port's program again.
    #[error(
        "{0}: with --ifb, its program has to run in the driver or at tcx (Linux 6.6), and here it \
         would run at generic XDP: shape what leaves towards the hosts behind this one instead, at \
         the ports there"
    )]
    IfbAtGeneric(String),
    /// The policy does not fit the ports.
    #[error("{port}: {source}")]
    Policy {
        /// The port that it does not fit.
        port: String,
        /// Why.
        source: PolicyError,
    },
    /// The plane cannot run the policy.
    #[error("{port}: {source}")]
    Refused {
        /// The port whose policy it is.
        port: String,
        /// What the plane cannot do, and which plane can.
        source: Refusal,
    },
    /// Its filters cannot run in the driver.
    #[error("{port}: {source}")]
    Front {
        /// The port whose filters they are.
        port: String,
        /// Why.
        source: FrontError,
    },
    /// Actions give flows rates that no set has.
    #[error(transparent)]
    Rates(FrontError),
    /// Filters at a device whose packets have no header of Ethernet.
    #[error(
        "{0} carries packets without the header of Ethernet, and filters where packets arrive need \
         one: give them to the device below it"
    )]
    NoFilters(String),
    /// Its sets cannot be looked up.
    #[error(transparent)]
    Sets(#[from] SetsError),
    /// The XDP plane gets no place beside other programs.
    #[error(transparent)]
    Gate(#[from] NoGate),
    /// The XDP plane cannot be used.
    #[error("{port}: {source}")]
    Driver {
        /// The port.
        port: String,
        /// Why.
        source: TreeError,
    },
    /// The XDP plane cannot run: the driver would lose all redirected frames.
    #[error(
        "{port}: its driver ({driver}) does not send what the other port's program redirects to it, \
         so --xdp native would lose it: leave out --xdp native{}",
        if driver == "veth" { ", or switch GRO on at its peer (`ethtool -K PEER gro on`)" } else { "" }
    )]
    NotTaken {
        /// The port.
        port: String,
        /// Its driver.
        driver: String,
    },
    /// The policy names a port that is not this instance's.
    #[error("the policy has a qdisc for \"{0}\", which is not a port of this instance")]
    ForeignPort(String),
    /// The ports cannot be joined.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The ports do not have the same queues.
    #[error(
        "{} has {} and {} has {}: each worker serves one queue of both; give both the same \
         number, for instance `ethtool -L {} combined {}` (on veth `rx N tx N`)",
        .0.0, counted(.0.1, "queue"), .1.0, .1.1,
        shell(if .0.1 > .1.1 { &.0.0 } else { &.1.0 }),
        .0.1.min(.1.1)
    )]
    Queues((String, u32), (String, u32)),
    /// Some ports of a router or a switch have a dispatcher, and some have none.
    #[error(
        "some ports have libxdp's dispatcher and others have none: add --dispatcher, so that all do"
    )]
    Dispatchers,
    /// Netfilter or IPsec would not see what a router routes.
    #[error(
        "the kernel has {found}, which routed packets would pass by: the kernel routes meanwhile. \
         To route connections that the firewall has accepted: {remedy} (docs/router.md). Else remove \
         that, or run with --skip-netfilter"
    )]
    Netfilter {
        /// What would not see them.
        found: String,
        /// What lets the router route by flows.
        remedy: String,
    },
    /// A router would route by flows, and its programs cannot ask for them.
    #[error(
        "the kernel has rules that routed packets would pass by, and lets no XDP program ask its \
         flowtable ({0}): the kernel routes meanwhile. That needs Linux 6.11 with \
         CONFIG_DEBUG_INFO_BTF_MODULES, and CAP_SYS_ADMIN"
    )]
    NoFlowLookUp(String),
    /// Netfilter would not see what a switch forwards.
    #[error(
        "the kernel has {0}, which frames of the switch would pass by: the kernel's bridge forwards \
         meanwhile. Remove that, or run with --skip-netfilter"
    )]
    BridgeNetfilter(String),
    /// A redirection to an intermediate device, in a router or a switch.
    #[error(
        "the ingress of {0} is redirected, and what comes in there leaves through several ports: \
         give each of those its qdiscs, and delete that filter"
    )]
    Redirected(String),
    /// A redirection to an intermediate device, in the host plane.
    #[error(
        "the ingress of {0} is redirected, and only to its own ifb it can be: start with --ifb {0}, \
         and name that ifb4{0}"
    )]
    WithoutIfb(String),
    /// Qdiscs or filters for what leaves a host.
    #[error(
        "{0} is a host port (narrows run --port): Narrows filters what arrives there, and what leaves \
         is the traffic of this host itself, which the host plane shapes (narrows run --plane host \
         --ports {word}). Filters go to: narrows tc qdisc add dev {word} clsact; narrows tc filter \
         add dev {word} ingress …",
        word = shell(.0)
    )]
    OwnTraffic(String),
    /// Filters ask for routes where there are none.
    #[error(
        "a route filter is for a router (narrows run --router): packets take no route from one of \
         these ports to another. Delete it, or match the packets' addresses with flower"
    )]
    NoRoutes,
    /// The fail-open bridge cannot be prepared.
    #[error("cannot prepare the bridge for fail-open: {0}")]
    StandBy(#[from] StandByError),
    /// Traffic should stop with this process, but would not.
    #[error(
        "{port} is a port of {master}, which would forward after the end of narrows in spite of \
         --fail-closed: `ip link set dev {} nomaster`, or `ip link del {}`",
        shell(port),
        shell(master)
    )]
    Master {
        /// The port.
        port: String,
        /// Its owner.
        master: String,
    },
    /// A harmful offload cannot be switched off.
    #[error("{0}")]
    Offloads(String),
    /// The ports are released for a while.
    #[error("ports released: {0}")]
    LetGo(String),
    /// This process cannot continue from the state of the other.
    #[error("{0}")]
    Inheritance(String),
    /// An interface is down.
    #[error("{0} is down: `ip link set dev {word} up`", word = shell(.0))]
    Down(String),
}

impl InstanceError {
    /// Why a router that is to route by flows was not opened.
    pub(crate) fn by_flows(self) -> Self {
        let missing = match &self {
            Self::Session(SessionError::Steer { source: SteerError::Load(error), .. })
            | Self::Driver { source: TreeError::Load(error), .. } => match error {
                LoadError::Missing { function } => Some(function.clone()),
                _ => None,
            },
            _ => None,
        };
        missing.map_or(self, Self::NoFlowLookUp)
    }
}

/// A session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No memory for frames.
    #[error(transparent)]
    Umem(#[from] UmemError),
    /// A socket cannot be bound.
    #[error("{port}, queue {queue}: {source}{hint}")]
    Socket {
        /// The port's name.
        port: String,
        /// The queue's number.
        queue: u32,
        /// What went wrong.
        source: SocketError,
        /// What to do about it.
        hint: &'static str,
    },
    /// The steering program cannot be loaded or attached.
    #[error("{port}: {source}{hint}")]
    Steer {
        /// The port's name.
        port: String,
        /// What went wrong.
        source: SteerError,
        /// What to do about it.
        hint: &'static str,
    },
    /// It gets no place beside other programs.
    #[error(transparent)]
    Gate(#[from] NoGate),
    /// Filters cannot run in front of it.
    #[error("{port}: {source}")]
    Front {
        /// The port's name.
        port: String,
        /// What went wrong.
        source: FrontError,
    },
    /// The programs of a router do not know what the kernel does.
    #[error(transparent)]
    Routing(#[from] RoutingError),
    /// The programs of a switch do not.
    #[error(transparent)]
    Switching(#[from] SwitchingError),
    /// Workers cannot be watched.
    #[error(transparent)]
    Heartbeats(SteerError),
    /// A thread cannot be started.
    #[error("cannot start a worker: {0}")]
    Thread(std::io::Error),
    /// The state of another process is inconsistent.
    #[error("cannot continue the session of another process: {0}")]
    Inheritance(String),
}
