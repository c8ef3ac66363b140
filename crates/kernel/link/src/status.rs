//! What netlink says about an interface, in one message.
//!
//! The message is parsed attribute by attribute, and only the dozen that matter. A typed parse of
//! the whole message would fail if any of its sixty-odd attributes had a form that the parser does
//! not know, and a newer kernel would leave Narrows blind. An attribute that is missing or too
//! short counts as absent.

use narrows_forwarding::{Tag, TagProtocol};
use netlink_packet_core::NlasIterator;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_CARRIER: u16 = 33;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_MIN_MTU: u16 = 50;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_INET6_CONF: u16 = 2;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
/// Where the settings of IPv6 have the MTU: they are 32-bit numbers, and it is the third.
const DEVCONF_MTU6: usize = 8;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_BR_FORWARD_DELAY: u16 = 1;
const IFLA_BR_AGEING_TIME: u16 = 4;
const IFLA_BR_STP_STATE: u16 = 5;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BR_GROUP_FWD_MASK: u16 = 9;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_EGRESS_QOS: u16 = 3;
const IFLA_VLAN_PROTOCOL: u16 = 5;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
const XDP_ATTACHED_DRV: u8 = 1;
const XDP_ATTACHED_SKB: u8 = 2;
const XDP_ATTACHED_HW: u8 = 3;

/// `struct ifinfomsg`: family, padding, type, index, flags, change.
const HEADER: usize = 16;
const ARPHRD_ETHER: u16 = 1;
/// PPP, what is only IP, `ipip`, `ip6tnl`, `sit`, and what has no kind: `tun`, WireGuard
/// (`linux/if_arp.h`).
const HEADERLESS: [u16; 6] = [512, 519, 768, 769, 776, 0xfffe];

/// The state of an interface when the kernel described it.
///
/// Source: one `RTM_NEWLINK` message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkStatus {
    /// The interface's index in its network namespace.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Whether frames on it are Ethernet frames.
    pub ethernet: bool,
    /// Whether its packets begin with the header of IP: those of tunnels and of PPP.
    pub headerless: bool,
    /// Its MAC address; zeros if it has none.
    pub mac: [u8; 6],
    /// The largest layer-3 packet, in bytes, without the Ethernet header.
    pub mtu: u32,
    /// The largest packet of IPv6, in bytes (`net.ipv6.conf.DEV.mtu`); none without IPv6.
    pub ipv6_mtu: Option<u32>,
    /// The smallest MTU that the driver accepts at present; 0 if it does not say.
    pub min_mtu: u32,
    /// The largest MTU that the driver accepts at present; 0 if it does not say.
    pub max_mtu: u32,
    /// The default limit of a FIFO, in packets (`txqueuelen`); 0 if it has none.
    pub tx_queue_len: u32,
    /// Whether it was set up (`IFF_UP`).
    pub up: bool,
    /// Whether there is a carrier: a cable, or a veth peer that is up.
    pub carrier: bool,
    /// Whether the kernel considers it able to pass frames (RFC 2863's operational state).
    pub operstate: OperState,
    /// Its kind: `veth`, `bridge`, `vlan`, …; none for hardware.
    pub kind: Option<String>,
    /// What was written to it for people (`ip link set alias`); empty for nothing.
    pub alias: String,
    /// Its settings, if it is a bridge.
    pub bridge: Option<BridgeSettings>,
    /// The tag of its frames on the device below, if it is a VLAN of that device.
    pub vlan: Option<Tag>,
    /// Whether, as a VLAN, it gives frames a priority (`egress-qos-map`).
    pub has_priorities: bool,
    /// The bridge, bond or other device that it is a port of.
    pub master: Option<u32>,
    /// How the kernel makes its link-local address (`IN6_ADDR_GEN_MODE_…`); none without IPv6.
    pub address_generation: Option<u8>,
    /// XDP programs attached to it; at most one of each mode.
    pub xdp: Vec<XdpProgram>,
    /// How many users hold it in promiscuous mode.
    pub promiscuity: u32,
    /// Queues that it was created with, possibly more than are in use.
    pub allocated: Queues,
    /// The interface at the other end of a veth, or below a VLAN.
    pub peer: Option<PeerId>,
}

/// Numbers of queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Queues {
    /// Receive queues.
    pub rx: u32,
    /// Transmit queues.
    pub tx: u32,
}

impl Queues {
    /// How many workers can have a receive and a transmit queue each.
    pub fn pairs(self) -> u32 {
        self.rx.min(self.tx)
    }
}

/// The settings that determine how a bridge forwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BridgeSettings {
    /// How long a port waits before it forwards, in the kernel's units of 10 ms.
    pub forward_delay: u32,
    /// How long an address is remembered, in the same unit; 0 for no learning.
    pub ageing_time: u32,
    /// Whether it runs spanning tree.
    pub stp: bool,
    /// Whether it filters by VLAN.
    pub vlan_filtering: bool,
    /// Which link-local groups it forwards, one bit each.
    pub group_fwd_mask: u16,
    /// Whether it forwards multicast only to subscribers.
    pub mcast_snooping: bool,
}

/// RFC 2863's operational state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OperState {
    /// The driver does not say; it may work (`lo`, `tun`).
    #[default]
    Unknown,
    /// Frames pass.
    Up,
    /// No frames pass: the interface is down, has no carrier, or waits; or a lower layer is down.
    Down,
}

/// An XDP program attached to an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpProgram {
    /// Where it runs.
    pub mode: XdpMode,
    /// The kernel's id of the program (`bpftool prog show id N`).
    pub id: u32,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdpMode {
    /// In the driver (`xdpdrv`).
    Native,
    /// In the stack, after the driver (`xdpgeneric`).
    Generic,
    /// On the device (`xdpoffload`).
    Hardware,
}

/// Identifies the other end of a veth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerId {
    /// Its index, in its own network namespace.
    pub ifindex: u32,
    /// This namespace's number for the peer's namespace; none if it is the same one, negative if
    /// this namespace has no number for it.
    pub namespace: Option<i32>,
}

impl LinkStatus {
    /// Parses the body of a link message. None if it is shorter than its header, or not about the
    /// interface as such: a bridge reports its ports' bridge settings in link messages, too, and
    /// the end of a port's membership looks like the port's removal.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (header, attributes) = body.split_at_checked(HEADER)?;
        if i32::from(header[0]) != libc::AF_UNSPEC {
            return None;
        }
        let (kind, flags) = (u16_at(header, 2)?, u32_at(header, 8)?);
        let mut status = Self {
            ifindex: u32_at(header, 4)?,
            ethernet: kind == ARPHRD_ETHER,
            headerless: HEADERLESS.contains(&kind),
            up: flags & libc::IFF_UP.cast_unsigned() != 0,
            carrier: flags & libc::IFF_LOWER_UP.cast_unsigned() != 0,
            ..Self::default()
        };
        let (mut lower, mut namespace) = (None, None);
        each(attributes, |kind, value| match kind {
            IFLA_IFNAME => status.name = text(value),
            IFLA_ADDRESS => status.mac = value.try_into().unwrap_or_default(),
            IFLA_MTU => status.mtu = number(value),
            IFLA_MIN_MTU => status.min_mtu = number(value),
            IFLA_MAX_MTU => status.max_mtu = number(value),
            IFLA_TXQLEN => status.tx_queue_len = number(value),
            IFLA_MASTER => status.master = u32_at(value, 0).filter(|&master| master != 0),
            IFLA_PROMISCUITY => status.promiscuity = number(value),
            IFLA_NUM_TX_QUEUES => status.allocated.tx = number(value),
            IFLA_NUM_RX_QUEUES => status.allocated.rx = number(value),
            IFLA_CARRIER => status.carrier = value.first() == Some(&1),
            IFLA_OPERSTATE => status.operstate = operstate(value),
            IFLA_IFALIAS => status.alias = text(value),
            IFLA_LINKINFO => status.inform(value),
            IFLA_AF_SPEC => status.inform_ipv6(value),
            IFLA_XDP => status.xdp = xdp(value),
            IFLA_LINK => lower = u32_at(value, 0).filter(|&lower| lower != 0),
            IFLA_LINK_NETNSID => namespace = u32_at(value, 0).map(u32::cast_signed),
            _ => {}
        });
        status.peer = lower.map(|ifindex| PeerId { ifindex, namespace });
        Some(status)
    }

    /// Parses the kind of the interface, and its settings if it is a bridge or a VLAN.
    fn inform(&mut self, value: &[u8]) {
        let (mut kind, mut data) = (None, None);
        each(value, |attribute, value| match attribute {
            IFLA_INFO_KIND => kind = Some(text(value)),
            IFLA_INFO_DATA => data = Some(value.to_vec()),
            _ => {}
        });
        match kind.as_deref() {
            Some("bridge") => self.bridge = data.as_deref().map(bridge_settings),
            Some("vlan") => {
                let data = data.as_deref().unwrap_or_default();
                self.vlan = tag(data);
                each(data, |attribute, _| {
                    self.has_priorities |= attribute == IFLA_VLAN_EGRESS_QOS;
                });
            }
            _ => {}
        }
        self.kind = kind;
    }

    /// Parses the settings of IPv6 among those of address families.
    fn inform_ipv6(&mut self, value: &[u8]) {
        each(value, |family, value| {
            if i32::from(family) != libc::AF_INET6 {
                return;
            }
            each(value, |kind, value| match kind {
                IFLA_INET6_ADDR_GEN_MODE => self.address_generation = value.first().copied(),
                IFLA_INET6_CONF => self.ipv6_mtu = u32_at(value, DEVCONF_MTU6),
                _ => {}
            });
        });
    }

    /// The index of the device that it is a VLAN of, and its tag, if that device is in the same
    /// namespace, and all of its frames have priority 0.
    pub fn plain_vlan(&self) -> Option<(u32, Tag)> {
        let lower = self.peer.filter(|peer| peer.namespace.is_none() && !self.has_priorities)?;
        Some((lower.ifindex, self.vlan?))
    }

    /// Whether it is one end of a veth pair.
    pub fn is_veth(&self) -> bool {
        self.kind.as_deref() == Some("veth")
    }
}

/// Calls `see` with every complete attribute in `attributes`.
pub(crate) fn each(attributes: &[u8], mut see: impl FnMut(u16, &[u8])) {
    for attribute in NlasIterator::new(attributes).map_while(Result::ok) {
        see(attribute.kind(), attribute.value());
    }
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn number(value: &[u8]) -> u32 {
    u32_at(value, 0).unwrap_or_default()
}

/// A string that ends at its first NUL.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn operstate(value: &[u8]) -> OperState {
    match value.first() {
        None | Some(0) => OperState::Unknown,
        Some(6) => OperState::Up,
        Some(_) => OperState::Down,
    }
}

fn bridge_settings(value: &[u8]) -> BridgeSettings {
    let mut settings = BridgeSettings::default();
    let is_on = |value: &[u8]| value.first().is_some_and(|&byte| byte != 0);
    each(value, |attribute, value| match attribute {
        IFLA_BR_FORWARD_DELAY => settings.forward_delay = number(value),
        IFLA_BR_AGEING_TIME => settings.ageing_time = number(value),
        IFLA_BR_STP_STATE => settings.stp = number(value) != 0,
        IFLA_BR_VLAN_FILTERING => settings.vlan_filtering = is_on(value),
        IFLA_BR_GROUP_FWD_MASK => settings.group_fwd_mask = u16_at(value, 0).unwrap_or_default(),
        IFLA_BR_MCAST_SNOOPING => settings.mcast_snooping = is_on(value),
        _ => {}
    });
    settings
}

/// The tag of a VLAN.
fn tag(value: &[u8]) -> Option<Tag> {
    let (mut ethertype, mut vid) = (None, None);
    each(value, |attribute, value| match attribute {
        IFLA_VLAN_ID => vid = u16_at(value, 0),
        IFLA_VLAN_PROTOCOL => ethertype = u16_at(value, 0).map(u16::from_be),
        _ => {}
    });
    let known = [TagProtocol::Customer, TagProtocol::Service];
    let protocol = known.into_iter().find(|known| Some(known.ethertype()) == ethertype)?;
    Tag::new(protocol, vid?)
}

fn xdp(value: &[u8]) -> Vec<XdpProgram> {
    let mut programs = Vec::new();
    let (mut attached, mut only) = (None, None);
    each(value, |attribute, value| {
        let id = number(value);
        let mut add = |mode| programs.push(XdpProgram { mode, id });
        match attribute {
            IFLA_XDP_ATTACHED => attached = value.first().copied(),
            IFLA_XDP_PROG_ID => only = Some(id),
            IFLA_XDP_DRV_PROG_ID => add(XdpMode::Native),
            IFLA_XDP_SKB_PROG_ID => add(XdpMode::Generic),
            IFLA_XDP_HW_PROG_ID => add(XdpMode::Hardware),
            _ => {}
        }
    });
    // Kernels before 4.19 list a single program without its mode.
    if programs.is_empty() {
        let mode = match attached {
            Some(XDP_ATTACHED_DRV) => Some(XdpMode::Native),
            Some(XDP_ATTACHED_SKB) => Some(XdpMode::Generic),
            Some(XDP_ATTACHED_HW) => Some(XdpMode::Hardware),
            _ => None,
        };
        programs.extend(mode.zip(only).map(|(mode, id)| XdpProgram { mode, id }));
    }
    programs
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An attribute of netlink.
    pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from(((value.len() + 4) as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(family: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![family, 0];
        bytes.extend(ARPHRD_ETHER.to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend((libc::IFF_UP | libc::IFF_LOWER_UP).to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(attributes.concat());
        bytes
    }

    #[test]
    fn a_link_message_reads_as_a_status() {
        let body = message(
            0,
            &[
                attribute(IFLA_IFNAME, b"sa\0"),
                attribute(IFLA_MTU, &1500u32.to_ne_bytes()),
                attribute(IFLA_TXQLEN, &77u32.to_ne_bytes()),
                attribute(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1]),
                attribute(IFLA_MASTER, &9u32.to_ne_bytes()),
                attribute(IFLA_OPERSTATE, &[6]),
                attribute(IFLA_LINKINFO, &attribute(IFLA_INFO_KIND, b"veth\0")),
                attribute(IFLA_LINK, &3u32.to_ne_bytes()),
                attribute(IFLA_LINK_NETNSID, &0i32.to_ne_bytes()),
            ],
        );
        let status = LinkStatus::parse(&body).unwrap();
        assert_eq!((status.ifindex, status.name.as_str(), status.mtu), (7, "sa", 1500));
        assert_eq!(status.tx_queue_len, 77);
        assert!(status.up && status.carrier && status.ethernet && status.is_veth());
        assert_eq!(status.mac, [2, 0, 0, 0, 0, 1]);
        assert_eq!(status.master, Some(9));
        assert_eq!(status.operstate, OperState::Up);
        assert_eq!(status.peer, Some(PeerId { ifindex: 3, namespace: Some(0) }));
    }

    #[test]
    fn a_vlan_reads_with_its_tag_and_other_kinds_have_none() {
        let of = |kind: &[u8], data: &[Vec<u8>]| {
            let info = [attribute(IFLA_INFO_KIND, kind), attribute(IFLA_INFO_DATA, &data.concat())];
            LinkStatus::parse(&message(0, &[attribute(IFLA_LINKINFO, &info.concat())])).unwrap()
        };
        let id = attribute(IFLA_VLAN_ID, &100u16.to_ne_bytes());
        let protocol = |number: u16| attribute(IFLA_VLAN_PROTOCOL, &number.to_be_bytes());
        for (number, expected) in [
            (0x8100, Tag::new(TagProtocol::Customer, 100)),
            (0x88a8, Tag::new(TagProtocol::Service, 100)),
            (0x9100, None),
        ] {
            assert_eq!(of(b"vlan\0", &[id.clone(), protocol(number)]).vlan, expected);
        }
        assert_eq!(of(b"vlan\0", &[protocol(0x8100)]).vlan, None);
        let priorities = attribute(IFLA_VLAN_EGRESS_QOS, &attribute(1, &[0; 8]));
        let marking = of(b"vlan\0", &[id.clone(), protocol(0x8100), priorities]);
        assert_eq!((marking.vlan.is_some(), marking.has_priorities), (true, true));
        let macvlan = of(b"macvlan\0", &[id, protocol(0x8100)]);
        assert_eq!((macvlan.vlan, macvlan.kind.as_deref()), (None, Some("macvlan")));
    }

    #[test]
    fn programs_of_several_modes_are_all_seen() {
        let both = [
            attribute(IFLA_XDP_ATTACHED, &[4]),
            attribute(IFLA_XDP_DRV_PROG_ID, &11u32.to_ne_bytes()),
            attribute(IFLA_XDP_SKB_PROG_ID, &12u32.to_ne_bytes()),
        ];
        let status = LinkStatus::parse(&message(0, &[attribute(IFLA_XDP, &both.concat())]));
        assert_eq!(
            status.unwrap().xdp,
            [
                XdpProgram { mode: XdpMode::Native, id: 11 },
                XdpProgram { mode: XdpMode::Generic, id: 12 }
            ]
        );
    }

    #[test]
    fn an_old_kernel_s_single_program_is_seen() {
        let one = [
            attribute(IFLA_XDP_ATTACHED, &[XDP_ATTACHED_SKB]),
            attribute(IFLA_XDP_PROG_ID, &5u32.to_ne_bytes()),
        ];
        let status = LinkStatus::parse(&message(0, &[attribute(IFLA_XDP, &one.concat())]));
        assert_eq!(status.unwrap().xdp, [XdpProgram { mode: XdpMode::Generic, id: 5 }]);
    }

    #[test]
    fn no_program_is_none() {
        let none = attribute(IFLA_XDP, &attribute(IFLA_XDP_ATTACHED, &[0]));
        assert!(LinkStatus::parse(&message(0, &[none])).unwrap().xdp.is_empty());
    }

    #[test]
    fn a_bridge_s_word_about_its_port_is_not_about_the_interface() {
        assert_eq!(LinkStatus::parse(&message(libc::AF_BRIDGE as u8, &[])), None);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = LinkStatus::parse(&bytes);
            let _ = xdp(&bytes);
        }

        #[test]
        fn any_attributes_parse_without_panic(
            parts in proptest::collection::vec(
                (0u16..70, proptest::collection::vec(any::<u8>(), 0..20)), 0..20),
        ) {
            let attributes: Vec<_> = parts.iter().map(|(kind, value)| attribute(*kind, value)).collect();
            prop_assert!(LinkStatus::parse(&message(0, &attributes)).is_some());
        }
    }
}
