//! The other end of a veth pair, which often is in another network namespace.
//!
//! It matters because it is the other end's offloads that decide what a veth port
//! receives: a peer that leaves checksums to 'the device' sends frames without any, and
//! between two veths no device ever fills them in.
//!
//! A namespace knows another one by number only, and features can be asked for inside a
//! namespace only. So the namespace with the right number is looked for among those that
//! have a name (`ip netns`) and those of running processes (containers), and a thread that
//! ends right afterwards enters it and asks.

use crate::ethtool::{Offloads, QueueCounts};
use crate::link::{peer_name, status_by_index};
use crate::netlink;
use crate::status::{PeerId, Queues, each, u32_at};
use crate::sys::Ethtool;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

const NETNSA_NSID: u16 = 1;
/// `struct rtgenmsg`, padded.
const NSID_HEADER: usize = 4;

/// What can be learnt of the other end of a veth pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// What to put before a command to run it in the peer's namespace, with a space at the
    /// end; empty where that is this one. None where the namespace was not found.
    pub prefix: Option<String>,
    /// Its offloads and queues; none where its namespace was not found or not entered.
    pub inside: Option<PeerInside>,
}

/// What only the peer's own namespace tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerInside {
    /// Its offloads.
    pub offloads: Offloads,
    /// Its queues in use.
    pub queues: QueueCounts,
}

impl Peer {
    /// Looks for it. None where not even its name can be had.
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

    /// A socket in its namespace, its name there, and what to put before a command to run it there;
    /// none where that namespace cannot be found or entered.
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

    /// The command that does `ethtool` with `words` to it.
    pub(crate) fn ethtool(&self, words: &str, values: &str) -> String {
        let Self { name, prefix, .. } = self;
        match prefix {
            Some(prefix) => format!("{prefix}ethtool {words} {name} {values}"),
            None => format!("ethtool {words} {name} {values} (in its network namespace)"),
        }
    }
}

impl PeerInside {
    /// Reads in the namespace of the calling thread.
    fn read(name: &str) -> Option<Self> {
        let ethtool = Ethtool::open().ok()?;
        // Features read as off and queues as none where the name is unknown: ask first.
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

/// Does `work` on a thread in `namespace`; none where it cannot be entered.
fn inside<T: Send>(namespace: &File, work: impl FnOnce() -> Option<T> + Send) -> Option<T> {
    let enter = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
        work()
    };
    thread::scope(|scope| scope.spawn(enter).join().ok().flatten())
}

/// Finds the namespace that this one knows as `number`, and how to run a command in it.
fn namespace(number: i32) -> Option<(File, String)> {
    let named = entries("/run/netns").map(|path| {
        let prefix = format!("ip netns exec {} ", last(&path));
        (path, prefix)
    });
    let of_processes = entries("/proc")
        .filter(|path| last(path).parse::<u32>().is_ok())
        .map(|path| (path.join("ns/net"), format!("nsenter -t {} -n ", last(&path))));
    let mut seen = HashSet::new();
    named.chain(of_processes).find_map(|(path, prefix)| {
        let file = File::open(path).ok()?;
        let metadata = file.metadata().ok()?;
        let new = seen.insert((metadata.dev(), metadata.ino()));
        (new && number_of(&file) == Some(number)).then_some((file, prefix))
    })
}

fn entries(directory: &str) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path())
}

fn last(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// The number by which this namespace knows that one.
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
