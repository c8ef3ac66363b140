//! What the programs of a switch's devices share, and what they tell.
//!
//! *The kernel's bridge.* The devices are ports of one. It learns, ages, floods and speaks to other
//! bridges. What it knows is in maps, which user space keeps up to date while the programs run:
//! which ports forward, which are in which VLAN, and where each station is.
//!
//! *The bridge as the way out.* What a program does not forward goes to the bridge as it arrived,
//! and is counted by reason ([`Outcome`](crate::Outcome)).
//!
//! *Ageing.* The bridge does not see what programs forward. They mark the stations that sent
//! something, and [`heard`](Switch::heard) says which.
//!
//! Non-goals: learning; what becomes of a frame at the port through which it leaves.

use crate::load::{LoadError, explained};
use crate::maps::map;
use crate::takers::Takers;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use narrows_forwarding::{PORTS_MAX, PortId};
use std::os::fd::{AsFd, BorrowedFd};

mod program;

/// The most stations that programs know: `STATIONS_MAX` of `programs/switch.h`.
pub const STATIONS_MAX: u32 = 131_072;
/// `VIDS` of `programs/tag.h`.
const VIDS: u32 = 4096;
/// Of `programs/switch.h`.
const FORWARDS: u32 = 1;
const IS_ISOLATED: u32 = 2;
const IS_SPECIAL: u32 = 4;
const AT_BOX: u32 = 0xffff_fffe;
const ELSEWHERE: u32 = 0xffff_ffff;
/// How many stations are read at once.
const BATCH: u32 = 4096;

/// What programs know of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// Whether it forwards: it is a port of the bridge, and spanning tree lets it.
    pub forwards: bool,
    /// Whether it is isolated from other ports that are.
    pub isolated: bool,
    /// Whether the bridge does more there than to forward: its frames are the bridge's.
    pub special: bool,
    /// The largest packet that leaves there, in bytes, without Ethernet header and tag.
    pub mtu: u32,
    /// The VLAN of frames that arrive without a tag; 0 for none.
    pub pvid: u16,
    /// The type of the bridge's tags; none if it does not look at tags.
    pub tag_type: Option<u16>,
}

impl Member {
    /// `struct member` of `programs/switch.h`.
    fn bytes(self) -> Vec<u8> {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.forwards, FORWARDS)
            | flag(self.isolated, IS_ISOLATED)
            | flag(self.special, IS_SPECIAL);
        let mut bytes = [flags, self.mtu, self.pvid.into()].map(u32::to_ne_bytes).concat();
        bytes.extend(self.tag_type.unwrap_or(0).to_be_bytes());
        bytes.extend([0; 2]);
        bytes
    }
}

/// The ports that forward frames of a VLAN, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VlanMembers {
    /// All of them.
    pub members: u64,
    /// Those where its frames have no tag.
    pub untagged: u64,
}

/// Somebody in a VLAN.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Station {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The VLAN; 0 in a bridge that does not look at tags.
    pub vid: u16,
}

impl Station {
    /// `struct station` of `programs/switch.h`.
    fn bytes(self) -> [u8; 8] {
        let [a, b, c, d, e, f] = self.mac;
        let [g, h] = self.vid.to_ne_bytes();
        [a, b, c, d, e, f, g, h]
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let (mac, vid) = bytes.split_first_chunk()?;
        Some(Self { mac: *mac, vid: u16::from_ne_bytes(vid.try_into().ok()?) })
    }
}

/// Where a station is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// Behind a port.
    Port(PortId),
    /// It is this box.
    Box,
    /// Behind a device that is no port.
    Elsewhere,
}

impl Location {
    /// `struct place` of `programs/switch.h`, not heard.
    fn bytes(self) -> [u8; 8] {
        let port = match self {
            Self::Port(port) => port.index() as u32,
            Self::Box => AT_BOX,
            Self::Elsewhere => ELSEWHERE,
        };
        let [a, b, c, d] = port.to_ne_bytes();
        [a, b, c, d, 0, 0, 0, 0]
    }
}

/// What the programs of all devices of a switch share.
pub struct Switch {
    members: MapHandle,
    vlans: MapHandle,
    stations: MapHandle,
    takers: Takers,
}

impl Switch {
    /// One that forwards nothing yet.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges.
    pub fn new() -> Result<Self, LoadError> {
        explained(|| {
            Ok(Self {
                members: map(MapType::Array, "members", [4, 16, PORTS_MAX as u32], 0)?,
                vlans: map(MapType::Array, "bridge_vlans", [4, 16, VIDS], 0)?,
                stations: map(
                    MapType::Hash,
                    "stations",
                    [8, 8, STATIONS_MAX],
                    libbpf_sys::BPF_F_NO_PREALLOC,
                )?,
                takers: Takers::new()?,
            })
        })
    }

    /// From now on `port` is so.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn set_member(&self, port: PortId, member: Member) -> libbpf_rs::Result<()> {
        let key = (port.index() as u32).to_ne_bytes();
        self.members.update(&key, &member.bytes(), MapFlags::ANY)
    }

    /// From now on these ports forward frames of the VLAN `vid`; 0 in a bridge that does not look
    /// at tags.
    ///
    /// # Errors
    /// If the kernel refuses it, as it does from 4096 on.
    pub fn set_vlan(&self, vid: u16, ports: VlanMembers) -> libbpf_rs::Result<()> {
        let bytes = [ports.members, ports.untagged].map(u64::to_ne_bytes).concat();
        self.vlans.update(&u32::from(vid).to_ne_bytes(), &bytes, MapFlags::ANY)
    }

    /// From now on `station` is there. Returns whether there was room for it.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn put(&self, station: Station, location: Location) -> libbpf_rs::Result<bool> {
        match self.stations.update(&station.bytes(), &location.bytes(), MapFlags::ANY) {
            Err(error) if error.kind() == ErrorKind::TooBig => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Nobody knows where `station` is, from now on.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn forget(&self, station: Station) -> libbpf_rs::Result<()> {
        match self.stations.delete(&station.bytes()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// The stations that have sent something which a program forwarded, since each was last
    /// [put](Self::put). Costs a look at all stations.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn heard(&self) -> libbpf_rs::Result<Vec<Station>> {
        let all = self.stations.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)?;
        let was_heard = |value: &[u8]| value.get(4..8).is_some_and(|heard| heard != [0; 4]);
        let heard = all.filter(|(_, place)| was_heard(place));
        Ok(heard.filter_map(|(station, _)| Station::of(&station)).collect())
    }

    /// This switch, with [`Takers::sealed`].
    #[must_use]
    pub fn sealed(self, seal: u32) -> Self {
        Self { takers: self.takers.sealed(seal), ..self }
    }

    /// Where frames go on that it forwards, on the XDP plane.
    pub fn takers(&self) -> &Takers {
        &self.takers
    }

    /// Ports, VLANs and stations: for programs.
    pub(crate) fn maps(&self) -> [BorrowedFd<'_>; 3] {
        [self.members.as_fd(), self.vlans.as_fd(), self.stations.as_fd()]
    }
}

/// Gives an opened object that switches the maps of a switch. A macro, because each object's
/// skeleton has types of its own.
macro_rules! share_switch {
    ($open:expr, $switch:expr) => {
        let [members, bridge_vlans, stations] = $switch.maps();
        $open.maps.members.reuse_fd(members)?;
        $open.maps.bridge_vlans.reuse_fd(bridge_vlans)?;
        $open.maps.stations.reuse_fd(stations)?;
    };
}

pub(crate) use share_switch;

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
