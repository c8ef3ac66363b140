//! What the kernel's bridge between some devices does now: which of them forward, which VLANs they
//! are in, and where each station is.
//!
//! A switch in XDP does what the bridge would do, as long as that is plain. The bridge stays the
//! one that learns, ages, floods, and speaks to other bridges. It announces every change
//! ([`SwitchMonitor`]), and lists everything ([`SwitchFacts::read`], [`SwitchMonitor::table`]).
//!
//! Entries for stations that only programs forward for would age. [`refresh`] tells the bridge that
//! they were heard.
//!
//! Non-goals: changing what the bridge does; multicast groups.

use crate::link::all;
use crate::netlink::{Request, dump};
use crate::status::{each, u32_at};
use crate::{LinkError, LinkStatus};
use std::time::Duration;

mod monitor;
mod table;

pub use monitor::{SwitchEvent, SwitchMonitor};
pub use table::{Entry, EntryKind, Table, refresh};

/// `struct ifinfomsg`.
const LINK_HEADER: usize = 16;
const IFLA_PROTINFO: u16 = 12;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_BR_FORWARD_DELAY: u16 = 1;
const IFLA_BR_AGEING_TIME: u16 = 4;
const IFLA_BR_STP_STATE: u16 = 5;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BR_VLAN_PROTOCOL: u16 = 8;
const IFLA_BR_NF_CALL: std::ops::RangeInclusive<u16> = 36..=38;
const IFLA_BRPORT_STATE: u16 = 1;
const IFLA_BRPORT_LEARNING: u16 = 8;
const IFLA_BRPORT_PROXYARP: u16 = 10;
const IFLA_BRPORT_PROXYARP_WIFI: u16 = 12;
const IFLA_BRPORT_VLAN_TUNNEL: u16 = 29;
const IFLA_BRPORT_NEIGH_SUPPRESS: u16 = 32;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const IFLA_BRPORT_MRP_RING_OPEN: u16 = 35;
const IFLA_BRPORT_MRP_IN_OPEN: u16 = 36;
const IFLA_BRPORT_NEIGH_VLAN_SUPPRESS: u16 = 43;
/// `BR_STATE_FORWARDING`.
const FORWARDING: u8 = 3;

const RTM_GETVLAN: u16 = 114;
/// `struct br_vlan_msg`: family, padding, index.
const VLAN_HEADER: usize = 8;
const BRIDGE_VLANDB_ENTRY: u16 = 1;
const BRIDGE_VLANDB_ENTRY_INFO: u16 = 1;
const BRIDGE_VLANDB_ENTRY_RANGE: u16 = 2;
const BRIDGE_VLANDB_ENTRY_STATE: u16 = 3;
const IS_PVID: u16 = 1 << 1;
const IS_UNTAGGED: u16 = 1 << 2;
/// The highest number of a VLAN.
const VID_MAX: u16 = 4094;

/// What a bridge does between some devices, at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SwitchFacts {
    /// The bridge; none if the devices are ports of none.
    pub bridge: Option<Bridge>,
    /// The devices, in the order in which they were asked for.
    pub ports: Vec<SwitchPort>,
}

/// What a bridge does at all its ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bridge {
    /// Its index.
    pub ifindex: u32,
    /// How long it remembers a station that says nothing; 0 if it learns none.
    pub ageing: Duration,
    /// How long it does while the tree of bridges changes; none without spanning tree.
    pub ageing_in_change: Option<Duration>,
    /// The type of its VLAN tags; none if it does not look at tags.
    pub tag_type: Option<u16>,
    /// Whether it has netfilter of IP or ARP see what it forwards (`nf_call_iptables` and the
    /// like), if `br_netfilter` is there.
    pub calls_netfilter: bool,
}

/// What a bridge does at one port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SwitchPort {
    /// The index of the device.
    pub ifindex: u32,
    /// Whether it is a port of the bridge, and spanning tree lets it forward.
    pub forwards: bool,
    /// Whether the bridge learns from what arrives there.
    pub learns: bool,
    /// Whether it is isolated from others that are.
    pub isolated: bool,
    /// Whether the bridge does more there than to forward: it answers for others (`proxy_arp`,
    /// `neigh_suppress`), maps VLANs to tunnels, is in a ring (MRP); or VLAN devices on the port
    /// take frames before the bridge.
    pub special: bool,
    /// Its MTU.
    pub mtu: u32,
    /// The VLANs that it is in, if the bridge looks at tags.
    pub vlans: Vec<PortVlans>,
}

/// Consecutive VLANs of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortVlans {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// Whether frames without a tag are in it.
    pub is_pvid: bool,
    /// Whether its frames leave without a tag.
    pub untagged: bool,
    /// Whether spanning tree lets it forward.
    pub forwards: bool,
}

impl SwitchFacts {
    /// Reads them for the devices with these indices, in the namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// If the kernel does not list interfaces, ports or VLANs.
    pub fn read(devices: &[u32]) -> Result<Self, LinkError> {
        let links = all()?;
        let Some(bridge) = bridge_of(devices, &links) else {
            let port = |&ifindex: &u32| SwitchPort { ifindex, ..SwitchPort::default() };
            return Ok(Self { bridge: None, ports: devices.iter().map(port).collect() });
        };
        let bridge = Bridge::read(bridge)?;
        let states = port_states()?;
        let vlans = match bridge.tag_type {
            Some(_) => vlans()?,
            None => Vec::new(),
        };
        let port = |&ifindex: &u32| {
            let link = links.iter().find(|link| link.ifindex == ifindex);
            let is_member = link.is_some_and(|link| link.master == Some(bridge.ifindex) && link.up);
            let state = states.iter().find(|(of, _)| *of == ifindex);
            let state = state.filter(|_| is_member).map(|(_, state)| *state).unwrap_or_default();
            let of_it = vlans.iter().filter(|(of, _)| *of == ifindex);
            SwitchPort {
                ifindex,
                mtu: link.map_or(0, |link| link.mtu),
                forwards: state.forwards,
                learns: state.learns,
                isolated: state.isolated,
                special: state.special || links.iter().any(|link| is_vlan_on(link, ifindex)),
                vlans: of_it.map(|(_, vlans)| *vlans).collect(),
            }
        };
        Ok(Self { bridge: Some(bridge), ports: devices.iter().map(port).collect() })
    }
}

/// Whether some bridge of the namespace of the calling thread has netfilter of IP or ARP see what
/// it forwards by a setting of its own.
pub(crate) fn some_bridge_calls_netfilter() -> Result<bool, LinkError> {
    let links = all()?;
    let mut bridges = links.iter().filter(|link| link.kind.as_deref() == Some("bridge"));
    // One that is gone by now calls nothing.
    Ok(bridges.any(|link| Bridge::read(link.ifindex).is_ok_and(|bridge| bridge.calls_netfilter)))
}

/// The bridge that the first of `devices` is a port of which is a port of any.
fn bridge_of(devices: &[u32], links: &[LinkStatus]) -> Option<u32> {
    let link = |ifindex: u32| links.iter().find(|link| link.ifindex == ifindex);
    let bridge = |device: &u32| {
        let master = link(link(*device)?.master?)?;
        (master.kind.as_deref() == Some("bridge")).then_some(master.ifindex)
    };
    devices.iter().find_map(bridge)
}

/// Whether `link` takes the frames of a VLAN out of those that arrive at the device `below`.
fn is_vlan_on(link: &LinkStatus, below: u32) -> bool {
    let is_here = link.peer.is_some_and(|peer| peer.ifindex == below && peer.namespace.is_none());
    link.vlan.is_some() && is_here
}

impl Bridge {
    fn read(ifindex: u32) -> Result<Self, LinkError> {
        let message = crate::link::device_message(ifindex)?;
        Ok(Self::parse(ifindex, &message).unwrap_or_default())
    }

    /// Reads what a link message says about a bridge.
    fn parse(ifindex: u32, body: &[u8]) -> Option<Self> {
        let mut bridge = Self { ifindex, ..Self::default() };
        let (mut filters, mut protocol, mut delay, mut stp) = (false, 0x8100, 0, false);
        let is_set = |value: &[u8]| value.first().is_some_and(|&byte| byte != 0);
        each(body.get(LINK_HEADER..)?, |kind, value| {
            if kind != IFLA_LINKINFO {
                return;
            }
            each(value, |kind, value| {
                if kind != IFLA_INFO_DATA {
                    return;
                }
                each(value, |kind, value| match kind {
                    IFLA_BR_AGEING_TIME => bridge.ageing = ticks(value),
                    IFLA_BR_FORWARD_DELAY => delay = u32_at(value, 0).unwrap_or_default(),
                    IFLA_BR_STP_STATE => stp = u32_at(value, 0).is_some_and(|on| on != 0),
                    IFLA_BR_VLAN_FILTERING => filters = is_set(value),
                    IFLA_BR_VLAN_PROTOCOL => protocol = be16(value).unwrap_or(protocol),
                    call if IFLA_BR_NF_CALL.contains(&call) => {
                        bridge.calls_netfilter |= is_set(value);
                    }
                    _ => {}
                });
            });
        });
        bridge.tag_type = filters.then_some(protocol);
        bridge.ageing_in_change = stp.then(|| Duration::from_millis(u64::from(delay) * 10));
        Some(bridge)
    }
}

/// A time in the kernel's units of 10 ms.
fn ticks(value: &[u8]) -> Duration {
    Duration::from_millis(u64::from(u32_at(value, 0).unwrap_or_default()) * 10)
}

fn be16(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn ne16(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// What a bridge says about a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PortState {
    forwards: bool,
    learns: bool,
    isolated: bool,
    special: bool,
}

impl PortState {
    /// Reads what a bridge's message says about a port: the index of its device, and how it is.
    fn parse(body: &[u8]) -> Option<(u32, Self)> {
        let (header, attributes) = body.split_at_checked(LINK_HEADER)?;
        let mut state = Self::default();
        let is_set = |value: &[u8]| value.first().is_some_and(|&byte| byte != 0);
        each(attributes, |kind, value| {
            if kind != IFLA_PROTINFO {
                return;
            }
            each(value, |kind, value| match kind {
                IFLA_BRPORT_STATE => state.forwards = value.first() == Some(&FORWARDING),
                IFLA_BRPORT_LEARNING => state.learns = is_set(value),
                IFLA_BRPORT_ISOLATED => state.isolated = is_set(value),
                IFLA_BRPORT_PROXYARP
                | IFLA_BRPORT_PROXYARP_WIFI
                | IFLA_BRPORT_VLAN_TUNNEL
                | IFLA_BRPORT_NEIGH_SUPPRESS
                | IFLA_BRPORT_NEIGH_VLAN_SUPPRESS
                | IFLA_BRPORT_MRP_RING_OPEN
                | IFLA_BRPORT_MRP_IN_OPEN => state.special |= is_set(value),
                _ => {}
            });
        });
        Some((u32_at(header, 4)?, state))
    }
}

/// How the ports of all bridges are, by the indices of their devices.
fn port_states() -> Result<Vec<(u32, PortState)>, LinkError> {
    let mut body = vec![0; LINK_HEADER];
    body[0] = libc::AF_BRIDGE as u8;
    let answers = dump("listing ports of bridges", Request::route(libc::RTM_GETLINK, body))?;
    Ok(answers.iter().filter_map(|answer| PortState::parse(answer)).collect())
}

/// The VLANs of all ports of bridges, by the indices of their devices.
fn vlans() -> Result<Vec<(u32, PortVlans)>, LinkError> {
    let mut body = vec![0; VLAN_HEADER];
    body[0] = libc::AF_BRIDGE as u8;
    let answers = dump("listing VLANs of bridges", Request::route(RTM_GETVLAN, body))?;
    Ok(answers.iter().flat_map(|answer| PortVlans::parse(answer)).collect())
}

impl PortVlans {
    /// Reads a message about VLANs of a port.
    fn parse(body: &[u8]) -> Vec<(u32, Self)> {
        let mut found = Vec::new();
        let Some((header, attributes)) = body.split_at_checked(VLAN_HEADER) else { return found };
        let Some(ifindex) = u32_at(header, 4) else { return found };
        each(attributes, |kind, value| {
            if kind != BRIDGE_VLANDB_ENTRY {
                return;
            }
            let mut vlans = Self { forwards: true, ..Self::default() };
            each(value, |kind, value| match kind {
                BRIDGE_VLANDB_ENTRY_INFO => {
                    let flags = ne16(value).unwrap_or_default();
                    vlans.is_pvid = flags & IS_PVID != 0;
                    vlans.untagged = flags & IS_UNTAGGED != 0;
                    vlans.first = value.get(2..).and_then(ne16).unwrap_or_default();
                    vlans.last = vlans.last.max(vlans.first);
                }
                BRIDGE_VLANDB_ENTRY_RANGE => vlans.last = ne16(value).unwrap_or_default(),
                BRIDGE_VLANDB_ENTRY_STATE => vlans.forwards = value.first() == Some(&FORWARDING),
                _ => {}
            });
            vlans.last = vlans.last.clamp(vlans.first, VID_MAX.max(vlans.first));
            if (1..=VID_MAX).contains(&vlans.first) {
                found.push((ifindex, vlans));
            }
        });
        found
    }
}

#[cfg(test)]
mod tests;
