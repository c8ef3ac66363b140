//! The other end of a veth pair, which is often in another network namespace.
//!
//! The offloads of the other end decide what a veth port receives: a peer that leaves checksums to
//! "the device" sends frames without checksums, and between two veths no device ever computes them.
//!
//! A namespace knows another one only by number, and features can be read only inside a namespace.
//! So this module searches those that can be found ([`namespaces`]) for the one with the right
//! number. A short-lived thread enters it and asks.

use crate::ethtool::{Offloads, QueueCounts};
use crate::link::{peer_name, status_by_index, status_by_name};
use crate::namespaces;
use crate::netlink;
use crate::status::{PeerId, Queues, each, u32_at};
use crate::sys::Ethtool;
use crate::{LinkError, LinkStatus};
use narrows_escape::shell;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::thread;

const NETNSA_NSID: u16 = 1;
/// `struct rtgenmsg`, padded.
const NSID_HEADER: usize = 4;

/// What is known about the other end of a veth pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// The prefix of a command that runs it in the peer's namespace, with a space at the end; empty
    /// for this namespace. None if the namespace was not found.
    pub prefix: Option<String>,
    /// Its offloads and queues; none if its namespace was not found or not entered.
    pub inside: Option<PeerInside>,
}

/// What only the peer's own namespace can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerInside {
    /// Its offloads.
    pub offloads: Offloads,
    /// Its queues in use.
    pub queues: QueueCounts,
}

impl Peer {
    /// Finds the peer. None if not even its name is known.
    pub(crate) fn find(id: PeerId) -> Option<Self> {
        let Some(number) = id.namespace else {
            let name = status_by_index(id.ifindex).ok()?.name;
            let inside = PeerInside::read(&name);
            return Some(Self { name, prefix: Some(String::new()), inside });
        };
        let name = (number >= 0).then(|| peer_name(id)).and_then(Result::ok)?;
        let Some((namespace, prefix)) = namespace(number) else {
            return Some(Self { name, prefix: None, inside: None });
        };
        let inside = PeerInside::read_in(&namespace, &name);
        Some(Self { name, prefix: Some(prefix), inside })
    }

    /// A socket in its namespace, its name there, and the prefix of a command that runs it there;
    /// none if that namespace cannot be found or entered.
    pub(crate) fn reach(id: PeerId) -> Option<(Ethtool, String, String)> {
        let Some(number) = id.namespace else {
            let name = status_by_index(id.ifindex).ok()?.name;
            return Some((Ethtool::open().ok()?, name, String::new()));
        };
        let name = (number >= 0).then(|| peer_name(id)).and_then(Result::ok)?;
        let (namespace, prefix) = namespace(number)?;
        let ethtool = inside(&namespace, || Ethtool::open().ok())?;
        Some((ethtool, name, prefix))
    }

    /// The command that runs `ethtool` with `words` on it.
    pub(crate) fn ethtool(&self, words: &str, values: &str) -> String {
        let name = shell(&self.name);
        match &self.prefix {
            Some(prefix) => format!("{prefix}ethtool {words} {name} {values}"),
            None => format!("ethtool {words} {name} {values} (in its network namespace)"),
        }
    }
}

impl PeerInside {
    /// Reads in the namespace of the calling thread.
    fn read(name: &str) -> Option<Self> {
        let ethtool = Ethtool::open().ok()?;
        // For an unknown name, features read as off and queues as none, so the driver is read
        // first.
        ethtool.driver(name).ok()?;
        Some(Self {
            offloads: Offloads::read(&ethtool, name),
            queues: QueueCounts::read(&ethtool, name, Queues::default()),
        })
    }

    fn read_in(namespace: &File, name: &str) -> Option<Self> {
        inside(namespace, || Self::read(name))
    }
}

/// The end in the network namespace of the calling thread of the veth pair whose other end is
/// `name` in `namespace`; none if that is no veth, or has its other end elsewhere.
///
/// # Errors
///
/// If the namespace cannot be entered, or has no such interface.
pub fn veth_end(namespace: &File, name: &str) -> Result<Option<LinkStatus>, LinkError> {
    let there = entered(namespace, || status_by_name(name))
        .map_err(|error| LinkError::from_io("entering the network namespace", error))??;
    let Some(peer) = there.peer.filter(|_| there.kind.as_deref() == Some("veth")) else {
        return Ok(None);
    };
    // The other end may be in a third namespace, and its number here that of another interface.
    let ifindex = there.ifindex;
    let id = PeerId { ifindex, namespace: number_of(namespace).filter(|number| *number >= 0) };
    let is_its_end = |here: &LinkStatus| here.kind == there.kind && here.peer == Some(id);
    match status_by_index(peer.ifindex) {
        Ok(here) => Ok(Some(here).filter(is_its_end)),
        Err(LinkError::NoSuchIndex(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs `work` on a thread in `namespace`; none if it cannot be entered.
fn inside<T: Send>(namespace: &File, work: impl FnOnce() -> Option<T> + Send) -> Option<T> {
    entered(namespace, work).ok().flatten()
}

/// Runs `work` on a thread in `namespace`.
fn entered<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let enter = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(work())
    };
    thread::scope(|scope| scope.spawn(enter).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Finds the namespace with the local number `number`, and the prefix for commands in it.
fn namespace(number: i32) -> Option<(File, String)> {
    let mut seen = HashSet::new();
    namespaces::files().find_map(|(path, prefix)| {
        let file = File::open(path).ok()?;
        let metadata = file.metadata().ok()?;
        let new = seen.insert((metadata.dev(), metadata.ino()));
        (new && number_of(&file) == Some(number)).then_some((file, prefix))
    })
}

/// The number of that namespace in this one.
fn number_of(namespace: &File) -> Option<i32> {
    let mut message = NsidMessage::default();
    message.attributes = vec![NsidAttribute::Fd(namespace.as_raw_fd().cast_unsigned())];
    let answers =
        netlink::ask("numbering a namespace", RouteNetlinkMessage::GetNsId(message), 0).ok()?;
    let mut number = None;
    each(answers.first()?.get(NSID_HEADER..)?, |kind, value| {
        if kind == NETNSA_NSID {
            number = u32_at(value, 0).map(u32::cast_signed);
        }
    });
    number
}
