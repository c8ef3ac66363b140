//! Notices when an interface disappears, returns or changes.
//!
//! The kernel announces every change of every interface to its subscribers. The monitor keeps the
//! last known state of each interface. So it can distinguish a new interface from a changed one,
//! and ignores messages that change nothing of interest (there are many). Numbers of queues are not
//! in those messages. They are read with ethtool whenever a message arrives, and whenever ethtool
//! announces a change.
//!
//! Non-goal: detecting that a caller is too slow. The kernel reports that ([`LinkEvent::Overrun`]),
//! and then only reading everything again helps.

use crate::channels;
use crate::ethtool::QueueCounts;
use crate::link::all;
use crate::netlink;
use crate::status::Queues;
use crate::sys::Ethtool;
use crate::{LinkError, LinkStatus};
use netlink_sys::Socket;
use rustix::event::epoll;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;

/// What is subscribed to.
const GROUPS: [u32; 7] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_IPV4_NETCONF,
    libc::RTNLGRP_IPV6_NETCONF,
];

/// A change of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// It was created, or moved into this namespace.
    Added(Snapshot),
    /// Its name, MTU, queues, master, or up or carrier state changed, among others.
    Changed {
        /// The state that was last reported.
        before: Snapshot,
        /// The present state.
        now: Snapshot,
    },
    /// It was deleted, or moved to another namespace.
    Removed {
        /// Its index, which is not reused.
        ifindex: u32,
        /// Its last name.
        name: String,
    },
    /// Settings that only ethtool knows were changed on one or more interfaces: offloads, rings.
    Settings,
    /// An IP address was added, removed or confirmed on some interface.
    Addresses,
    /// What routing depends on besides routes and addresses was changed: a rule (`ip rule`) was
    /// added or removed, as happens with the first VRF, too; or forwarding or `rp_filter` of an
    /// interface or of all was changed, or an interface came with settings of its own. Of many
    /// such changes at once, one is reported. [`crate::routing::RoutingFacts::read`] reads
    /// what it covers.
    Routing,
    /// Events were lost: anything may have changed. Read everything again.
    Overrun,
}

/// An interface's state and queues at the time of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// What netlink says about it.
    pub status: LinkStatus,
    /// Queues in use.
    pub queues: Queues,
}

/// A subscription to changes of the interfaces of one network namespace.
pub struct LinkMonitor {
    socket: Socket,
    /// Announcements of ethtool; none if the kernel makes none.
    announcements: Option<Socket>,
    /// Readable if one of the two is.
    either: OwnedFd,
    ethtool: Ethtool,
    known: HashMap<u32, Snapshot>,
    ready: VecDeque<LinkEvent>,
    /// Whether to report that once all messages are read: one setting of all interfaces makes a
    /// message for each.
    is_routing_changed: bool,
}

impl LinkMonitor {
    /// Subscribes in the namespace of the calling thread. Changes from now on are reported,
    /// whichever thread asks.
    ///
    /// # Errors
    ///
    /// If the kernel provides no socket or does not list the interfaces.
    pub fn open() -> Result<Self, LinkError> {
        let failed = |error| LinkError::from_io("subscribing to changes of interfaces", error);
        let socket = netlink::open().map_err(failed)?;
        for group in GROUPS {
            socket.add_membership(group).map_err(failed)?;
        }
        socket.set_non_blocking(true).map_err(failed)?;
        let announcements = channels::subscribe().ok();
        let either = both(&socket, announcements.as_ref()).map_err(failed)?;
        let mut monitor = Self {
            socket,
            announcements,
            either,
            ethtool: Ethtool::open().map_err(failed)?,
            known: HashMap::new(),
            ready: VecDeque::new(),
            is_routing_changed: false,
        };
        // After the subscription, so that changes in between are reported, not missed.
        monitor.learn()?;
        Ok(monitor)
    }

    /// The interfaces of the namespace, each in the state that was last reported.
    pub fn known(&self) -> impl Iterator<Item = &Snapshot> {
        self.known.values()
    }

    /// Returns the next event; none if there is none at the moment. Never blocks. Read until there
    /// is none before you wait on the descriptor.
    pub fn next_event(&mut self) -> Option<LinkEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            match netlink::receive(&self.socket) {
                Ok(datagram) => {
                    for message in netlink::messages(&datagram) {
                        self.take(message.message_type(), message.payload());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if std::mem::take(&mut self.is_routing_changed) {
                        return Some(LinkEvent::Routing);
                    }
                    if !self.announcements.as_ref().is_some_and(channels::announced) {
                        return None;
                    }
                    self.recount();
                    self.ready.push_back(LinkEvent::Settings);
                }
                // ENOBUFS: the kernel had to discard events. After any other error the caller has
                // missed events, too; reading clears it.
                Err(_) => {
                    // If this fails, the next message about each interface makes up for it.
                    let _ = self.learn();
                    return Some(LinkEvent::Overrun);
                }
            }
        }
    }

    /// Records the state of all interfaces.
    fn learn(&mut self) -> Result<(), LinkError> {
        let all = all()?;
        self.known.clear();
        for status in all {
            self.known.insert(status.ifindex, self.snapshot(status));
        }
        Ok(())
    }

    /// Reads the queues of all interfaces again.
    fn recount(&mut self) {
        for snapshot in self.known.values_mut() {
            // If it is gone by now, the other socket reports that.
            let counts = QueueCounts::channels(&self.ethtool, &snapshot.status.name);
            if let Some(counts) = counts.filter(|counts| counts.now != snapshot.queues) {
                let before = snapshot.clone();
                snapshot.queues = counts.now;
                self.ready.push_back(LinkEvent::Changed { before, now: snapshot.clone() });
            }
        }
    }

    fn snapshot(&self, status: LinkStatus) -> Snapshot {
        let queues = QueueCounts::read(&self.ethtool, &status.name, status.allocated).now;
        Snapshot { status, queues }
    }

    fn take(&mut self, kind: u16, body: &[u8]) {
        match kind {
            RTM_NEWADDR | RTM_DELADDR => {
                self.ready.push_back(LinkEvent::Addresses);
                return;
            }
            libc::RTM_NEWRULE | libc::RTM_DELRULE | libc::RTM_NEWNETCONF | libc::RTM_DELNETCONF => {
                self.is_routing_changed = true;
                return;
            }
            _ => {}
        }
        let Some(status) = LinkStatus::parse(body) else { return };
        match kind {
            RTM_NEWLINK => {
                let now = self.snapshot(status);
                let event = match self.known.insert(now.status.ifindex, now.clone()) {
                    None => LinkEvent::Added(now),
                    Some(before) if before != now => LinkEvent::Changed { before, now },
                    Some(_) => return,
                };
                self.ready.push_back(event);
            }
            RTM_DELLINK => {
                let LinkStatus { ifindex, name, .. } = status;
                // Report it even if it was not known: it may have gone between the subscription and
                // the first listing, and the caller may have read it before.
                self.known.remove(&ifindex);
                self.ready.push_back(LinkEvent::Removed { ifindex, name });
            }
            _ => {}
        }
    }
}

/// A descriptor that is readable when either socket is.
fn both(socket: &Socket, announcements: Option<&Socket>) -> io::Result<OwnedFd> {
    let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (socket, which) in [Some(socket), announcements].into_iter().flatten().zip(0..) {
        epoll::add(&either, socket, epoll::EventData::new_u64(which), epoll::EventFlags::IN)?;
    }
    Ok(either)
}

/// Readable if [`LinkMonitor::next_event`] has an event.
impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}
