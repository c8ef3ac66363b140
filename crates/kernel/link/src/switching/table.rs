//! The table of a bridge: where each station is.

use super::ne16;
use crate::LinkError;
use crate::netlink::{Request, attach, dump, tell};
use crate::status::{each, u32_at};

const NDA_LLADDR: u16 = 2;
const NDA_VLAN: u16 = 5;
const NDA_MASTER: u16 = 9;
const NDA_FLAGS_EXT: u16 = 15;
/// `struct ndmsg`: family, padding, index, state, flags, type.
const HEADER: usize = 12;
const NTF_USE: u8 = 1 << 0;
const NTF_MASTER: u8 = 1 << 2;
const NTF_EXT_LEARNED: u8 = 1 << 4;
const NTF_EXT_LOCKED: u32 = 1 << 1;
const NUD_REACHABLE: u16 = 0x02;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;

/// Where a station is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The VLAN; 0 for none.
    pub vid: u16,
    /// The device that it is behind; the bridge itself for some entries of [`EntryKind::Own`].
    pub ifindex: u32,
    /// How long that is so.
    pub kind: EntryKind,
}

/// How long an entry stays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EntryKind {
    /// It is this box, and no station.
    Own,
    /// Until somebody deletes it.
    Fixed,
    /// Until nothing was heard from the station for a while.
    Learned,
    /// The station may not speak yet (`locked`).
    Locked,
}

impl Entry {
    /// Reads a message about an entry of `bridge`; none if it is another table's.
    pub(super) fn parse(body: &[u8], bridge: u32) -> Option<Self> {
        let (header, attributes) = body.split_at_checked(HEADER)?;
        if i32::from(header[0]) != libc::AF_BRIDGE {
            return None;
        }
        let state = ne16(&header[8..])?;
        let (mut mac, mut vid, mut master, mut more_flags) = (None, 0, None, 0);
        each(attributes, |kind, value| match kind {
            NDA_LLADDR => mac = value.try_into().ok(),
            NDA_VLAN => vid = ne16(value).unwrap_or_default(),
            NDA_MASTER => master = u32_at(value, 0),
            NDA_FLAGS_EXT => more_flags = u32_at(value, 0).unwrap_or_default(),
            _ => {}
        });
        if master != Some(bridge) {
            return None;
        }
        let kind = match state {
            _ if more_flags & NTF_EXT_LOCKED != 0 => EntryKind::Locked,
            _ if state & NUD_PERMANENT != 0 => EntryKind::Own,
            _ if state & NUD_NOARP != 0 || header[10] & NTF_EXT_LEARNED != 0 => EntryKind::Fixed,
            _ => EntryKind::Learned,
        };
        Some(Self { mac: mac?, vid, ifindex: u32_at(header, 4)?, kind })
    }

    /// Whose entry it is: the address, and the VLAN.
    pub(super) fn station(&self) -> ([u8; 6], u16) {
        (self.mac, self.vid)
    }

    /// The request that tells the bridge that it was heard.
    fn heard(&self) -> Request {
        let mut body = vec![libc::AF_BRIDGE as u8, 0, 0, 0];
        body.extend(self.ifindex.to_ne_bytes());
        body.extend(NUD_REACHABLE.to_ne_bytes());
        body.extend([NTF_USE | NTF_MASTER, 0]);
        attach(&mut body, NDA_LLADDR, &self.mac);
        if self.vid != 0 {
            attach(&mut body, NDA_VLAN, &self.vid.to_ne_bytes());
        }
        Request::route(libc::RTM_NEWNEIGH, body)
    }
}

/// All of a bridge's entries.
pub type Table = Vec<Entry>;

/// Lists the entries of `bridge` once. Of a table that changes meanwhile some may be there twice,
/// or not at all.
pub(super) fn listed(bridge: u32) -> Result<Table, LinkError> {
    let mut body = vec![0; HEADER];
    body[0] = libc::AF_BRIDGE as u8;
    attach(&mut body, NDA_MASTER, &bridge.to_ne_bytes());
    let doing = "listing the bridge's table";
    let answers = dump(doing, Request::route(libc::RTM_GETNEIGH, body))?;
    Ok(answers.iter().filter_map(|answer| Entry::parse(answer, bridge)).collect())
}

/// Tells the bridge that `entries` of it were heard where they are, so that they do not age. One
/// that has no VLAN is then heard in each VLAN of its port, too: that is how the kernel does it.
///
/// # Errors
///
/// Without CAP_NET_ADMIN, or if a device is gone. Others are told all the same.
pub fn refresh(entries: &[Entry]) -> Result<(), LinkError> {
    tell("telling the bridge who was heard", entries.iter().map(Entry::heard))
}
