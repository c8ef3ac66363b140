//! An interface, with everything that a shaper needs to know about it.

use crate::address::{Address, addresses};
use crate::ethtool::{Driver, Offloads, QueueCounts, Rings};
use crate::netlink;
use crate::status::PeerId;
use crate::sys::Ethtool;
use crate::{LinkError, LinkStatus};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InetDevConf, LinkAttribute,
    LinkExtentMask, LinkFlags, LinkMessage,
};

/// The state of an interface when it was read. It does not follow later changes: read it again, or
/// use a [`crate::LinkMonitor`].
///
/// What a driver does not tell is `None`, or has the fallback that the field describes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// What netlink says about it.
    pub status: LinkStatus,
    /// Its driver.
    pub driver: Driver,
    /// Queues in use, and the maximum.
    pub queues: QueueCounts,
    /// Sizes of the device's rings; none if it has none (veth) or does not say.
    pub rings: Option<Rings>,
    /// Offloads that matter to a shaper.
    pub offloads: Offloads,
    /// IP addresses on it.
    pub addresses: Vec<Address>,
}

impl Link {
    /// Reads the interface `name` in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`LinkError::NoSuchName`] if there is none; another if the kernel does not answer. What only
    /// ethtool knows is left out if a driver does not support it.
    pub fn by_name(name: &str) -> Result<Self, LinkError> {
        Self::complete(status_by_name(name)?)
    }

    /// Reads the interface with index `ifindex` in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`LinkError::NoSuchIndex`] if it is gone; another if the kernel does not answer.
    pub fn by_index(ifindex: u32) -> Result<Self, LinkError> {
        Self::complete(status_by_index(ifindex)?)
    }

    fn complete(status: LinkStatus) -> Result<Self, LinkError> {
        let ethtool = Ethtool::open()
            .map_err(|error| LinkError::from_io("opening a socket to ask ethtool", error))?;
        let name = &status.name;
        Ok(Self {
            driver: Driver::read(&ethtool, name, status.kind.as_deref()),
            queues: QueueCounts::read(&ethtool, name, status.allocated),
            rings: Rings::read(&ethtool, name),
            offloads: Offloads::read(&ethtool, name),
            addresses: addresses(status.ifindex)?,
            status,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.status.name
    }
}

/// Sets an interface up. Succeeds if it is up already.
///
/// # Errors
///
/// [`LinkError::NoSuchIndex`] if it is gone, [`LinkError::NotPermitted`] without CAP_NET_ADMIN.
pub fn set_up(ifindex: u32) -> Result<(), LinkError> {
    set_administrative_state(ifindex, true)
}

pub(crate) fn set_administrative_state(ifindex: u32, up: bool) -> Result<(), LinkError> {
    possible(ifindex)?;
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.header.change_mask = LinkFlags::Up;
    if up {
        message.header.flags = LinkFlags::Up;
    }
    let doing = format!("setting interface {ifindex} {}", if up { "up" } else { "down" });
    change(ifindex, &doing, message)
}

/// Makes `port` a port of `master`, or of nothing if that is 0.
pub(crate) fn set_master(doing: &str, port: u32, master: u32) -> Result<(), LinkError> {
    let mut message = LinkMessage::default();
    message.header.index = port;
    message.attributes = vec![LinkAttribute::Controller(master)];
    change(port, doing, message)
}

pub(crate) fn set_mtu(doing: &str, ifindex: u32, mtu: u32) -> Result<(), LinkError> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.attributes = vec![LinkAttribute::Mtu(mtu)];
    change(ifindex, doing, message)
}

/// Hides the interface `ifindex`, which is to have no address: IPv6 makes none for it, and IPv4
/// answers on it only for its own addresses, and takes only packets whose answers would go through
/// it.
pub(crate) fn hide(doing: &str, ifindex: u32) -> Result<(), LinkError> {
    let mut own_addresses_only = InetDevConf::default();
    own_addresses_only.arp_ignore = 1;
    own_addresses_only.rp_filter = 1;
    for family in [
        AfSpecUnspec::Inet(vec![AfSpecInet::DevConfRequest(own_addresses_only)]),
        AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]),
    ] {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![family])];
        message.header.index = ifindex;
        match change(ifindex, doing, message) {
            // A kernel without IPv6 has nothing to turn off.
            Err(error) if error.errno() == Some(libc::EAFNOSUPPORT) => {}
            result => result?,
        }
    }
    Ok(())
}

/// Deletes the interface `ifindex`.
pub(crate) fn delete(doing: &str, ifindex: u32) -> Result<(), LinkError> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    netlink::ask(doing, RouteNetlinkMessage::DelLink(message), 0)
        .map(drop)
        .map_err(|error| gone(error, || LinkError::NoSuchIndex(ifindex)))
}

/// Sends a change of the interface `ifindex`.
pub(crate) fn change(ifindex: u32, doing: &str, message: LinkMessage) -> Result<(), LinkError> {
    netlink::ask(doing, RouteNetlinkMessage::SetLink(message), 0)
        .map(drop)
        .map_err(|error| gone(error, || LinkError::NoSuchIndex(ifindex)))
}

/// Reads what netlink says about the interface `name`.
pub(crate) fn status_by_name(name: &str) -> Result<LinkStatus, LinkError> {
    let none = || LinkError::NoSuchName(name.to_owned());
    // For impossible names, the kernel's errors would not help.
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['\0', '/']) {
        return Err(none());
    }
    let doing = format!("reading interface {name}");
    let attributes = vec![LinkAttribute::IfName(name.to_owned())];
    read(&doing, 0, attributes).map_err(|error| gone(error, none))
}

/// Reads what netlink says about the interface `ifindex`.
pub(crate) fn status_by_index(ifindex: u32) -> Result<LinkStatus, LinkError> {
    possible(ifindex)?;
    let doing = format!("reading interface {ifindex}");
    read(&doing, ifindex, Vec::new())
        .map_err(|error| gone(error, || LinkError::NoSuchIndex(ifindex)))
}

/// Reads everything that netlink says about the interface `ifindex`, including statistics.
pub(crate) fn device_message(ifindex: u32) -> Result<Vec<u8>, LinkError> {
    possible(ifindex)?;
    let doing = format!("reading the statistics of interface {ifindex}");
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    let answers = netlink::ask(&doing, RouteNetlinkMessage::GetLink(message), 0)
        .map_err(|error| gone(error, || LinkError::NoSuchIndex(ifindex)))?;
    answers
        .into_iter()
        .next()
        .ok_or_else(|| LinkError::Malformed { doing, why: "it describes no interface".into() })
}

/// Reads the name of a peer, also in a namespace that this one knows only by number.
pub(crate) fn peer_name(peer: PeerId) -> Result<String, LinkError> {
    let doing = format!("reading the peer with index {}", peer.ifindex);
    let namespace = peer.namespace.map(LinkAttribute::IfNetnsId);
    Ok(read(&doing, peer.ifindex, namespace.into_iter().collect())?.name)
}

/// Reads all interfaces of the namespace.
pub(crate) fn all() -> Result<Vec<LinkStatus>, LinkError> {
    let mut message = LinkMessage::default();
    message.attributes.push(without_statistics());
    let answers = netlink::dump("listing interfaces", RouteNetlinkMessage::GetLink(message))?;
    Ok(answers.iter().filter_map(|answer| LinkStatus::parse(answer)).collect())
}

fn read(
    doing: &str,
    ifindex: u32,
    attributes: Vec<LinkAttribute>,
) -> Result<LinkStatus, LinkError> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.attributes = attributes;
    message.attributes.push(without_statistics());
    let answers = netlink::ask(doing, RouteNetlinkMessage::GetLink(message), 0)?;
    answers.iter().find_map(|answer| LinkStatus::parse(answer)).ok_or_else(|| {
        LinkError::Malformed { doing: doing.to_owned(), why: "it describes no interface".into() }
    })
}

/// Refuses impossible indices. To the kernel, 0 means that a name follows, or any interface, and a
/// negative number is a malformed request.
pub(crate) fn possible(ifindex: u32) -> Result<(), LinkError> {
    match i32::try_from(ifindex) {
        Ok(1..) => Ok(()),
        _ => Err(LinkError::NoSuchIndex(ifindex)),
    }
}

fn without_statistics() -> LinkAttribute {
    LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])
}

/// Replaces the kernel's 'no such device' by an error that names the device.
fn gone(error: LinkError, none: impl FnOnce() -> LinkError) -> LinkError {
    match error.errno() {
        Some(libc::ENODEV | libc::ENXIO) => none(),
        _ => error,
    }
}
