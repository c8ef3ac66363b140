//! The doctor's input: plain data, from any source.

use super::interrupts::QueueInterrupt;
use crate::netfilter::Hooks;
use crate::peer::Peer;
use crate::routing::RoutingFacts;
use crate::switching::SwitchFacts;
use crate::{Link, LinkStatus};
use narrows_forwarding::stick::Pair;

/// Facts of two ports and their host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The two ports.
    pub ports: [PortFacts; 2],
    /// All interfaces of the namespace, among them the ports' masters.
    pub others: Vec<LinkStatus>,
    /// Whether this host has an address on an interface that is neither the loopback device nor
    /// reached through the ports.
    pub reached_elsewhere: bool,
    /// The host.
    pub host: HostFacts,
}

/// Facts of a stick and its host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StickFacts {
    /// The device.
    pub device: PortFacts,
    /// The pairs of VLANs, each with its VLAN devices that are there.
    pub pairs: Vec<(Pair, [Option<Link>; 2])>,
    /// Whether the kernel has VLAN devices, or gets them when the first is made; none if unknown.
    pub vlan_devices: Option<bool>,
    /// All interfaces of the namespace.
    pub others: Vec<LinkStatus>,
    /// The host.
    pub host: HostFacts,
}

/// Facts of a router and its host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouterFacts {
    /// The devices.
    pub ports: Vec<PortFacts>,
    /// What routing by way of those that are there depends on, or why it could not be read.
    pub routing: Result<RoutingFacts, String>,
    /// What of netfilter and IPsec would see routed packets, or why it could not be listed.
    pub netfilter: Result<Hooks, String>,
    /// Whether XDP programs can look up flows of a flowtable; none if that is not needed, or if the
    /// kernel's symbols cannot be listed.
    pub flow_look_up: Option<bool>,
    /// All interfaces of the namespace.
    pub others: Vec<LinkStatus>,
    /// The host.
    pub host: HostFacts,
}

/// Facts of a switch and its host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BridgedFacts {
    /// The devices.
    pub ports: Vec<PortFacts>,
    /// What the bridge does between those that are there, or why it could not be read.
    pub bridge: Result<SwitchFacts, String>,
    /// What of netfilter would see what the bridge forwards, or why it could not be listed.
    pub netfilter: Result<Hooks, String>,
    /// All interfaces of the namespace.
    pub others: Vec<LinkStatus>,
    /// The host.
    pub host: HostFacts,
}

/// Facts of a host's ports and the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPortsFacts {
    /// Its ports.
    pub ports: Vec<PortFacts>,
    /// All interfaces of the namespace.
    pub others: Vec<LinkStatus>,
    /// The host.
    pub host: HostFacts,
}

/// Facts of one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortFacts {
    /// The name that was asked for.
    pub asked: String,
    /// The interface, or why it could not be read.
    pub link: Result<Link, String>,
    /// The other end, if it is a veth and the peer is accessible.
    pub peer: Option<Peer>,
    /// Whether this host has an address behind it that its operator gave it.
    pub addressed: bool,
    /// The interrupts of its queues; empty if there are none.
    pub interrupts: Vec<QueueInterrupt>,
    /// Those of its XDP programs that are libxdp's dispatcher, as far as its pins say.
    pub dispatchers: Vec<Dispatcher>,
}

/// Libxdp's program that calls others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatcher {
    /// Its number.
    pub id: u32,
    /// How many programs it calls.
    pub programs: usize,
}

/// Facts of the host and of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostFacts {
    /// The kernel's version.
    pub kernel: KernelVersion,
    /// Whether the kernel has AF_XDP; none if the process is not allowed to find out.
    pub af_xdp: Option<bool>,
    /// Whether the kernel compiles BPF programs; none if unknown.
    pub jit: Option<bool>,
    /// Whether bridged packets pass the host's firewall; none if br_netfilter is not loaded.
    pub bridge_netfilter: Option<bool>,
    /// Whether XDP programs can look up connections, for `cake nat`; none if the kernel's symbols
    /// cannot be listed.
    pub conntrack: Option<bool>,
    /// CPUs on which this process may run.
    pub cpus: u32,
    /// How many CPUs handle frames: one more than the highest number of one that is online.
    pub online: u32,
    /// The frequency governors in use, each once; empty if there are none.
    pub governors: Vec<String>,
    /// Whether irqbalance runs.
    pub irqbalance: bool,
    /// The capabilities of the process.
    pub capabilities: Capabilities,
    /// How much memory the process may lock, in bytes; none without a limit.
    pub lockable: Option<u64>,
    /// Whether a thread of the process may be real-time, or why not.
    pub real_time: Result<(), String>,
}

/// A kernel version, such as 6.18.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KernelVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl KernelVersion {
    /// Version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Parses the beginning of a release name, such as `6.18.44-rc1`. A part that is not a number
    /// counts as 0, so an unreadable release is older than any other.
    pub fn parse(release: &str) -> Self {
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map(|digits| digits.parse().unwrap_or_default());
        let mut next = || numbers.next().unwrap_or_default();
        Self { major: next(), minor: next() }
    }
}

impl std::fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The capabilities that Narrows needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// CAP_NET_ADMIN: attaching XDP programs, changing interfaces.
    pub net_admin: bool,
    /// CAP_NET_RAW: opening AF_XDP and AF_PACKET sockets.
    pub net_raw: bool,
    /// CAP_BPF, or CAP_SYS_ADMIN which includes it: loading programs.
    pub bpf: bool,
    /// CAP_IPC_LOCK: locking memory beyond the limit.
    pub ipc_lock: bool,
}

/// Facts without any finding: two equal hardware ports on a well-configured host.
#[cfg(test)]
pub(super) fn fit() -> Facts {
    use crate::{Driver, OperState, QueueCounts, Queues, Rings};
    let port = |ifindex, name: &str| {
        let queues = Queues { rx: 4, tx: 4 };
        let status = LinkStatus {
            ifindex,
            name: name.to_owned(),
            ethernet: true,
            mtu: 1500,
            up: true,
            carrier: true,
            operstate: OperState::Up,
            allocated: queues,
            ..LinkStatus::default()
        };
        let link = Link {
            status,
            driver: Driver { name: "ice".to_owned(), bus: String::new() },
            queues: QueueCounts { now: queues, most: queues, combined: true },
            rings: Some(Rings { rx: 2048, tx: 2048, rx_max: 8160, tx_max: 8160 }),
            ..Link::default()
        };
        let interrupts =
            (0..4).map(|queue| QueueInterrupt { irq: 40 + queue, queue, cpus: queue.to_string() });
        PortFacts {
            asked: name.to_owned(),
            link: Ok(link),
            peer: None,
            addressed: false,
            interrupts: interrupts.collect(),
            dispatchers: Vec::new(),
        }
    };
    Facts {
        ports: [port(2, "a"), port(3, "b")],
        others: Vec::new(),
        reached_elsewhere: true,
        host: HostFacts {
            kernel: KernelVersion::new(6, 18),
            af_xdp: Some(true),
            jit: Some(true),
            bridge_netfilter: None,
            conntrack: Some(true),
            cpus: 8,
            online: 8,
            governors: vec!["performance".to_owned()],
            irqbalance: false,
            capabilities: Capabilities {
                net_admin: true,
                net_raw: true,
                bpf: true,
                ipc_lock: true,
            },
            lockable: Some(8 << 20),
            real_time: Ok(()),
        },
    }
}

/// Facts of a router without any finding above a note: three equal hardware ports with addresses.
#[cfg(test)]
pub(super) fn fit_router() -> RouterFacts {
    use crate::Address;
    use crate::routing::DeviceRouting;
    let Facts { ports: [a, b], host, .. } = fit();
    let mut c = b.clone();
    c.asked = "c".to_owned();
    let mut ports = vec![a, b, c];
    let mut routing = RoutingFacts { ipv6_forwarding: Some(true), ..RoutingFacts::default() };
    for (port, number) in ports.iter_mut().zip(2..) {
        port.addressed = true;
        let Ok(link) = &mut port.link else { continue };
        (link.status.ifindex, link.status.name) = (u32::from(number), port.asked.clone());
        link.addresses = vec![Address { ip: [192, 0, number, 1].into(), prefix: 24 }];
        routing.devices.push(DeviceRouting {
            ifindex: u32::from(number),
            ipv4_forwarding: Some(true),
            ipv6_forwarding: Some(true),
            ..DeviceRouting::default()
        });
    }
    let netfilter = Ok(Hooks { complete: true, ..Hooks::default() });
    let (flow_look_up, others) = (Some(true), Vec::new());
    RouterFacts { ports, routing: Ok(routing), netfilter, flow_look_up, others, host }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_read_as_versions() {
        for (release, major, minor) in
            [("6.18.44-x", 6, 18), ("5.10", 5, 10), ("6.6-rc1", 6, 6), ("", 0, 0), ("x.y", 0, 0)]
        {
            assert_eq!(
                KernelVersion::parse(release),
                KernelVersion::new(major, minor),
                "{release}"
            );
        }
    }

    #[test]
    fn versions_compare_by_number_and_not_by_text() {
        assert!(KernelVersion::new(5, 10) > KernelVersion::new(5, 9));
        assert!(KernelVersion::new(6, 0) > KernelVersion::new(5, 19));
    }
}
