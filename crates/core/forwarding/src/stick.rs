//! The stick: VLANs of one device, in pairs.
//!
//! A frame of a VLAN leaves through the same device with the tag of the other VLAN of its pair.
//! Only the outermost tag counts; its priority and drop eligibility (PCP, DEI) stay, and so does
//! what is behind it. The other VLAN may have a tag of another protocol: that of 802.1ad for one of
//! 802.1Q, for instance.
//!
//! A frame without a tag, or of another VLAN, is none of the stick's: the kernel gets it.

use crate::{
    DeviceId, Forwarding, ForwardingError, Kind, NAME_MAX, PORTS_MAX, PerPort, Port, PortId, Tag,
    TagProtocol,
};
use std::collections::HashSet;

/// Where a frame's outermost tag begins, in bytes: behind its addresses.
const TAG: usize = 12;
/// The bits of a tag that are the VLAN's number.
const VID: u16 = 0x0fff;

/// Two VLANs: a frame of one leaves with the tag of the other.
pub type Pair = (Tag, Tag);

impl Forwarding {
    /// The stick on `device` with these pairs of VLANs.
    ///
    /// # Errors
    /// If a VLAN is in two of them, or there are too many.
    pub fn stick(device: &str, pairs: &[Pair]) -> Result<Self, ForwardingError> {
        if pairs.is_empty() {
            return Err(ForwardingError::NoVlans);
        }
        if pairs.len() * 2 > PORTS_MAX {
            return Err(ForwardingError::TooMany(pairs.len()));
        }
        let tags: Vec<Tag> = pairs.iter().flat_map(|&(one, other)| [one, other]).collect();
        let mut known = HashSet::new();
        // Names are of numbers alone.
        if let Some(twice) = tags.iter().find(|tag| !known.insert(tag.vid())) {
            return Err(ForwardingError::SameVlan(twice.vid()));
        }
        let port = |tag: &Tag| Port {
            name: port_name(device, *tag),
            device: DeviceId::FIRST,
            tag: Some(*tag),
            ifb_of: None,
        };
        let ports: PerPort<Port> = tags.iter().map(port).collect();
        let devices = [device.to_owned()].into_iter().collect();
        Ok(Self::new(Kind::Pairs, devices, ports))
    }
}

/// The ports of a device by the tags of their frames.
///
/// Cost: a look-up is one read, of a table of 8 KiB.
#[derive(Clone, Debug)]
pub struct PortsByTag(Box<[Option<(PortId, TagProtocol)>]>);

impl PortsByTag {
    /// Those of `forwarding` on `device`.
    pub fn new(forwarding: &Forwarding, device: DeviceId) -> Self {
        let mut table = vec![None; usize::from(VID) + 1].into_boxed_slice();
        for port in forwarding.ports_on(device) {
            if let Some(tag) = forwarding.ports()[port].tag {
                table[usize::from(tag.vid())] = Some((port, tag.protocol()));
            }
        }
        Self(table)
    }

    /// The port at which `frame` arrived; `None` if its tag is no port's, or if it has none.
    #[inline]
    pub fn port_of(&self, frame: &[u8]) -> Option<PortId> {
        let tag = tag_of(frame)?;
        let (port, protocol) = (*self.0.get(usize::from(tag.vid()))?)?;
        (protocol == tag.protocol()).then_some(port)
    }
}

/// The name of the VLAN `tag` on `device`, as vconfig(8) and most systems give it: `eth0.100`; or
/// `vlan100`, where that would be too long for the kernel.
pub fn port_name(device: &str, tag: Tag) -> String {
    let name = format!("{device}.{}", tag.vid());
    if name.len() <= NAME_MAX { name } else { format!("vlan{}", tag.vid()) }
}

/// The outermost tag of `frame`, if it has one.
#[inline]
pub fn tag_of(frame: &[u8]) -> Option<Tag> {
    let &[high, low, tci_high, tci_low] = frame.get(TAG..TAG + 4)?.first_chunk()?;
    let protocol = match u16::from_be_bytes([high, low]) {
        0x8100 => TagProtocol::Customer,
        0x88a8 => TagProtocol::Service,
        _ => return None,
    };
    Tag::new(protocol, u16::from_be_bytes([tci_high, tci_low]) & VID)
}

/// Makes `tag` the outermost tag of `frame`, which has one. Its priority stays.
#[inline]
pub fn retag(frame: &mut [u8], tag: Tag) {
    if tag_of(frame).is_none() {
        return;
    }
    let Some([high, low, tci_high, tci_low]) = frame.get_mut(TAG..TAG + 4) else { return };
    let tci = u16::from_be_bytes([*tci_high, *tci_low]) & !VID | tag.vid();
    [*high, *low] = tag.protocol().ethertype().to_be_bytes();
    [*tci_high, *tci_low] = tci.to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn customer(vid: u16) -> Tag {
        Tag::new(TagProtocol::Customer, vid).unwrap()
    }

    fn frame(protocol: u16, tci: u16) -> Vec<u8> {
        let mut frame = vec![2; 60];
        frame[12..14].copy_from_slice(&protocol.to_be_bytes());
        frame[14..16].copy_from_slice(&tci.to_be_bytes());
        frame
    }

    #[test]
    fn each_vlan_is_a_port_and_leaves_with_the_tag_of_its_partner() {
        let pairs = [(customer(100), customer(200)), (customer(101), customer(201))];
        let stick = Forwarding::stick("eth0", &pairs).unwrap();
        assert_eq!(stick.names(), ["eth0.100", "eth0.200", "eth0.101", "eth0.201"]);
        let port = |name| stick.port(name).unwrap();
        assert_eq!(stick.across(port("eth0.101")), Some(port("eth0.201")));
        assert_eq!(stick.words(), "--stick eth0 --vlans 100:200,101:201");
        assert_eq!(stick.pairs().unwrap(), pairs);
        let ports = PortsByTag::new(&stick, DeviceId::FIRST);
        assert_eq!(ports.port_of(&frame(0x8100, 0xe000 | 201)), Some(port("eth0.201")));
        assert_eq!(ports.port_of(&frame(0x88a8, 201)), None, "another protocol");
        assert_eq!(ports.port_of(&frame(0x8100, 7)), None, "another VLAN");
        assert_eq!(ports.port_of(&frame(0x0800, 201)), None, "no tag");
        assert_eq!(ports.port_of(&frame(0x8100, 201)[..15]), None, "cut short");
    }

    #[test]
    fn names_that_the_kernel_would_refuse_are_shortened() {
        assert_eq!(port_name("enp129s0f0np0", customer(100)), "vlan100");
        assert_eq!(port_name("enp1s0f0np0", customer(100)), "enp1s0f0np0.100");
    }

    #[test]
    fn a_vlan_is_in_one_pair_only() {
        let twice = [(customer(1), customer(2)), (customer(3), customer(1))];
        assert_eq!(Forwarding::stick("e", &twice), Err(ForwardingError::SameVlan(1)));
        assert_eq!(
            Forwarding::stick("e", &[(customer(5), customer(5))]),
            Err(ForwardingError::SameVlan(5))
        );
        assert_eq!(Forwarding::stick("e", &[]), Err(ForwardingError::NoVlans));
        let many: Vec<Pair> = (1..=33).map(|vid| (customer(vid), customer(vid + 100))).collect();
        assert_eq!(Forwarding::stick("e", &many), Err(ForwardingError::TooMany(33)));
        assert!(Forwarding::stick("e", &many[..32]).is_ok());
    }

    proptest! {
        #[test]
        fn a_new_tag_changes_its_protocol_and_number_and_nothing_else(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            vid in 1..4095_u16,
            service: bool,
        ) {
            let protocol = if service { TagProtocol::Service } else { TagProtocol::Customer };
            let tag = Tag::new(protocol, vid).unwrap();
            let mut changed = bytes.clone();
            retag(&mut changed, tag);
            prop_assert_eq!(changed.len(), bytes.len());
            if tag_of(&bytes).is_none() {
                prop_assert_eq!(changed, bytes);
            } else {
                prop_assert_eq!(tag_of(&changed), Some(tag));
                prop_assert_eq!(&changed[..12], &bytes[..12]);
                prop_assert_eq!(changed[14] & 0xf0, bytes[14] & 0xf0);
                prop_assert_eq!(&changed[16..], &bytes[16..]);
            }
        }
    }
}
