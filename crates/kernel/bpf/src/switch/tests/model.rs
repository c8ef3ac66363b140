//! The switch, said once more in Rust: a bridge as it is at one moment.

use crate::outcome::Outcome;
use crate::switch::{Location, Member, Station, VlanMembers};
use narrows_forwarding::PortId;
use proptest::prelude::*;
use std::collections::HashMap;

/// The ports of the model, and where frames arrive.
pub(super) const PORTS: usize = 4;
pub(super) const HERE: PortId = PortId::FIRST;
pub(super) const MTU: u32 = 200;
/// The VLANs that the model knows; 0 stands for all where the bridge does not look at tags.
pub(super) const VLANS: [u16; 4] = [0, 1, 100, 4094];
pub(super) const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 1, 2]];

#[derive(Clone, Debug)]
pub(super) struct Bridge {
    pub(super) members: [Member; PORTS],
    /// By port and VLAN: whether it is a member, and whether without tags.
    pub(super) vlans: [[(bool, bool); 4]; PORTS],
    pub(super) stations: HashMap<Station, Location>,
}

#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) to: [u8; 6],
    pub(super) source: [u8; 6],
    pub(super) tags: Vec<(u16, u16)>,
    pub(super) payload: usize,
}

impl Frame {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = [self.to, self.source].concat();
        for (kind, control) in &self.tags {
            bytes.extend([kind.to_be_bytes(), control.to_be_bytes()].concat());
        }
        bytes.extend([8, 0]);
        bytes.resize(bytes.len() + self.payload, 0x45);
        bytes
    }
}

impl Bridge {
    fn is_member(&self, port: usize, vid: u16) -> (bool, bool) {
        let at = VLANS.iter().position(|known| *known == vid);
        at.map_or((false, false), |at| self.vlans[port][at])
    }

    pub(super) fn vlan(&self, vid: u16) -> VlanMembers {
        let mut bits = VlanMembers::default();
        for port in 0..PORTS {
            let (is_member, is_untagged) = self.is_member(port, vid);
            bits.members |= u64::from(is_member) << port;
            bits.untagged |= u64::from(is_untagged) << port;
        }
        bits
    }

    /// The VLAN of a frame that arrives at the first port.
    pub(super) fn vid_of(&self, frame: &Frame) -> Result<u16, Outcome> {
        let here = &self.members[0];
        let Some(tag_type) = here.tag_type else { return Ok(0) };
        match frame.tags.first() {
            Some((kind, control)) if *kind == tag_type && control & 0xfff != 0 => {
                Ok(control & 0xfff)
            }
            Some(_) => Err(Outcome::OtherTag),
            None if here.pvid == 0 => Err(Outcome::NotInVlan),
            None => Ok(here.pvid),
        }
    }

    /// The port through which a frame leaves, and how; or what becomes of it.
    pub(super) fn way_of(&self, frame: &Frame) -> Result<(usize, Frame), Outcome> {
        if frame.to[0] & 1 == 1 {
            return Err(Outcome::Group);
        }
        let here = &self.members[0];
        if !here.forwards {
            return Err(Outcome::NotForwarding);
        }
        let vid = self.vid_of(frame)?;
        if !self.is_member(0, vid).0 {
            return Err(Outcome::NotInVlan);
        }
        let at = |mac| self.stations.get(&Station { mac, vid }).copied();
        match at(frame.source) {
            None => return Err(Outcome::UnknownSource),
            Some(Location::Box) => return Err(Outcome::OwnSource),
            Some(Location::Port(HERE)) => {}
            Some(_) => return Err(Outcome::Moved),
        }
        let port = match at(frame.to).ok_or(Outcome::Unknown)? {
            Location::Port(HERE) => return Err(Outcome::SamePort),
            Location::Port(port) => port.index(),
            Location::Box => return Err(Outcome::ForBox),
            Location::Elsewhere => return Err(Outcome::OtherPort),
        };
        let there = &self.members[port];
        let (is_member, is_untagged) = self.is_member(port, vid);
        let is_tagged = here.tag_type.is_some() && !frame.tags.is_empty();
        let behind_tag = frame.payload + 4 * frame.tags.len().saturating_sub(1);
        let reasons = [
            (!there.forwards, Outcome::NotForwarding),
            (!is_member, Outcome::NotInVlan),
            (here.isolated && there.isolated, Outcome::Isolated),
            (here.special || there.special, Outcome::Special),
            (behind_tag > there.mtu as usize, Outcome::TooLong),
        ];
        if let Some((_, outcome)) = reasons.into_iter().find(|(holds, _)| *holds) {
            return Err(outcome);
        }
        let mut frame = frame.clone();
        match here.tag_type {
            Some(_) if is_tagged && is_untagged => drop(frame.tags.remove(0)),
            Some(kind) if !is_tagged && !is_untagged => frame.tags.insert(0, (kind, vid)),
            _ => {}
        }
        Ok((port, frame))
    }
}

fn a_location() -> impl Strategy<Value = Option<Location>> {
    prop_oneof![
        6 => (0..PORTS).prop_map(|port| Some(Location::Port(PortId::from(port)))),
        1 => Just(Some(Location::Box)),
        1 => Just(Some(Location::Elsewhere)),
        1 => Just(None),
    ]
}

fn a_member(tag_type: Option<u16>) -> impl Strategy<Value = Member> {
    let often = || prop::bool::weighted(0.95);
    let pvid = prop_oneof![4 => prop::sample::select(&VLANS[1..]), 1 => Just(0)];
    let mtu = prop_oneof![4 => Just(MTU), 1 => Just(MTU - 4)];
    (often(), prop::bool::weighted(0.4), prop::bool::weighted(0.9), mtu, pvid).prop_map(
        move |(forwards, isolated, is_plain, mtu, pvid)| Member {
            forwards,
            isolated,
            special: !is_plain,
            mtu,
            pvid,
            tag_type,
        },
    )
}

pub(super) fn a_bridge() -> impl Strategy<Value = Bridge> {
    let tag_type = prop_oneof![Just(None), Just(Some(0x8100)), Just(Some(0x88a8))];
    let members = tag_type.prop_flat_map(|kind| prop::array::uniform4(a_member(kind)));
    let in_vlan = || (prop::bool::weighted(0.9), any::<bool>());
    let vlans = prop::array::uniform4(prop::array::uniform4(in_vlan()));
    // Most often the first is here, so that its frames have somewhere to go.
    let first = prop_oneof![3 => Just(Some(Location::Port(HERE))), 1 => a_location()];
    let of_vlan = (first, a_location(), a_location()).prop_map(<[_; 3]>::from);
    let stations = prop::collection::vec(of_vlan, VLANS.len());
    (members, vlans, stations).prop_map(|(members, vlans, locations)| {
        let all = VLANS.into_iter().flat_map(|vid| MACS.map(|mac| Station { mac, vid }));
        let stations = all.zip(locations.concat()).filter_map(|(station, at)| Some((station, at?)));
        Bridge { members, vlans, stations: stations.collect() }
    })
}

pub(super) fn a_frame() -> impl Strategy<Value = Frame> {
    let mac = || prop::sample::select(&MACS[..]);
    let group = prop::sample::select(&[[0xff; 6], [1, 0x80, 0xc2, 0, 0, 0]][..]);
    let to = prop_oneof![12 => mac(), 1 => group];
    let vid = prop_oneof![6 => prop::sample::select(&VLANS[1..]), 1 => Just(0), 1 => Just(7)];
    let kind = prop_oneof![3 => Just(0x8100_u16), 1 => Just(0x88a8)];
    let tag = (kind, vid, 0_u16..16).prop_map(|(kind, vid, priority)| (kind, priority << 12 | vid));
    let tags = prop_oneof![
        2 => Just(Vec::new()),
        3 => tag.clone().prop_map(|tag| vec![tag]),
        1 => prop::collection::vec(tag, 2),
    ];
    let payload = prop_oneof![3 => 40..100_usize, 2 => MTU as usize - 8..MTU as usize + 8];
    let source = prop_oneof![1 => Just(MACS[0]), 1 => mac()];
    (to, source, tags, payload).prop_map(|(to, source, tags, payload)| Frame {
        to,
        source,
        tags,
        payload,
    })
}
