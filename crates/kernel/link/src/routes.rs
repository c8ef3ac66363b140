//! The kernel's routes, next-hop objects and neighbours, as rtnetlink lists and announces them.
//!
//! A router's image is made of them (`crates/core/routes`). [`RouteMonitor`] subscribes to changes;
//! [`routes`], [`objects`] and [`neighbours`] list what there is. Subscribe, list, then take the
//! changes: nothing is missed, and what is told twice does no harm.
//!
//! *Some changes are not announced*: a device that goes down takes its routes of IPv4 along
//! silently, and so does an address that routes name as their source. [`RouteEvent`] tells what
//! may be the cause; the mirror knows what to doubt.
//!
//! Non-goals: tables other than `main` and `local`; changing routes.

mod follower;
mod get;
mod message;

use crate::netlink::{self, Request, stream};
use crate::{LinkError, LinkStatus};
use message::{NeighbourChange, OBJECT_HEADER, ROUTE_HEADER};
use narrows_routes::{Family, Object, Route};
use netlink_packet_core::NLM_F_REPLACE;
use netlink_sys::Socket;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

pub use follower::Follower;
pub use get::{Answer, Question, get};

const RTNLGRP_NEXTHOP: u32 = 32;
const GROUPS: [u32; 5] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
];
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_GETNEXTHOP: u16 = 106;
/// What may wait to be read, in bytes: a full table that a daemon installs at once.
const WAITING_MAX: usize = 64 << 20;

/// A change that the kernel announces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteEvent {
    /// A route was added, in the place of those of its metric and TOS if `replace`.
    Added {
        /// The route.
        route: Route,
        /// Whether it takes a place.
        replace: bool,
    },
    /// A route was removed.
    Removed(Route),
    /// A neighbour has that MAC address; none if it is not known.
    Neighbour {
        /// The device on whose link it is.
        ifindex: u32,
        /// Its address.
        address: IpAddr,
        /// Its MAC address.
        mac: Option<[u8; 6]>,
    },
    /// A next-hop object is that; none if it was removed.
    Object {
        /// Its number.
        id: u32,
        /// What it is.
        object: Option<Object>,
    },
    /// A device has this state.
    Link(LinkStatus),
    /// A device is gone.
    LinkGone(u32),
    /// An address of IPv4 was removed, and perhaps routes with it.
    AddressGone,
    /// Changes were lost: list everything again.
    Overrun,
}

impl RouteEvent {
    /// The change that a message of that type tells of, by its body; `replace` if it has the flag
    /// `NLM_F_REPLACE`. None if it is of no interest.
    pub fn parse(kind: u16, replace: bool, body: &[u8]) -> Option<Self> {
        match kind {
            libc::RTM_NEWROUTE => {
                message::route(body).map(|route| RouteEvent::Added { route, replace })
            }
            libc::RTM_DELROUTE => message::route(body).map(RouteEvent::Removed),
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
                let NeighbourChange { ifindex, address, mac } = message::neighbour(body)?;
                let mac = mac.filter(|_| kind == libc::RTM_NEWNEIGH);
                Some(RouteEvent::Neighbour { ifindex, address, mac })
            }
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
                let (id, object) = message::object(body)?;
                Some(RouteEvent::Object { id, object: (kind == RTM_NEWNEXTHOP).then_some(object) })
            }
            libc::RTM_NEWLINK => LinkStatus::parse(body).map(RouteEvent::Link),
            libc::RTM_DELLINK => LinkStatus::parse(body).map(|it| RouteEvent::LinkGone(it.ifindex)),
            libc::RTM_DELADDR => Some(RouteEvent::AddressGone),
            _ => None,
        }
    }
}

/// A subscription to changes of routes, next-hop objects, neighbours and devices of one network
/// namespace.
pub struct RouteMonitor {
    socket: Socket,
}

impl RouteMonitor {
    /// Subscribes in the namespace of the calling thread.
    ///
    /// # Errors
    /// If the kernel provides no socket.
    pub fn open() -> Result<Self, LinkError> {
        let failed = |error| LinkError::from_io("subscribing to changes of routes", error);
        let socket = netlink::open().map_err(failed)?;
        for group in GROUPS {
            socket.add_membership(group).map_err(failed)?;
        }
        // Before Linux 5.3 there are no such objects.
        let _ = socket.add_membership(RTNLGRP_NEXTHOP);
        // More than the system's limit takes a privilege; without, more may be lost and listed.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, WAITING_MAX);
        socket.set_non_blocking(true).map_err(failed)?;
        Ok(Self { socket })
    }

    /// Lets `see` have the changes of the next message; returns whether there was one. Never
    /// blocks.
    pub fn next(&mut self, mut see: impl FnMut(RouteEvent)) -> bool {
        match netlink::receive(&self.socket) {
            Ok(datagram) => {
                for message in netlink::messages(&datagram) {
                    let replace = message.flags() & NLM_F_REPLACE != 0;
                    let kind = message.message_type();
                    let event = RouteEvent::parse(kind, replace, message.payload());
                    event.into_iter().for_each(&mut see);
                }
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            // ENOBUFS: the kernel had to discard messages. Reading clears it.
            Err(_) => {
                see(RouteEvent::Overrun);
                true
            }
        }
    }
}

/// Readable if there is a change.
impl AsFd for RouteMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Lists the routes of `family` in the tables `main` and `local`. A full table takes the kernel a
/// second or two. Returns whether a change interrupted it, so that something may be missing.
///
/// # Errors
/// If the kernel does not list them.
pub fn routes(family: Family, mut see: impl FnMut(&Route)) -> Result<bool, LinkError> {
    let mut is_torn = false;
    for table in [libc::RT_TABLE_LOCAL, libc::RT_TABLE_MAIN] {
        let mut body = vec![0; ROUTE_HEADER];
        (body[0], body[4]) = (message::number_of(family), table);
        let request = Request::route(libc::RTM_GETROUTE, body);
        let listed = stream("listing routes", &request, |body| {
            // An old kernel lists all tables.
            let is_local = table == libc::RT_TABLE_LOCAL;
            let route = message::route(body).filter(|route| route.is_local == is_local);
            route.iter().for_each(&mut see);
        });
        is_torn |= there_is_none(listed)?;
    }
    Ok(is_torn)
}

/// Lists next-hop objects.
///
/// # Errors
/// If the kernel does not list them.
pub fn objects(mut see: impl FnMut(u32, Object)) -> Result<bool, LinkError> {
    let request = Request::route(RTM_GETNEXTHOP, vec![0; OBJECT_HEADER]);
    let listed = stream("listing next hops", &request, |body| {
        message::object(body).into_iter().for_each(|(id, object)| see(id, object));
    });
    there_is_none(listed)
}

/// Lists neighbours whose MAC address is known.
///
/// # Errors
/// If the kernel does not list them.
pub fn neighbours(mut see: impl FnMut(u32, IpAddr, [u8; 6])) -> Result<bool, LinkError> {
    let mut is_torn = false;
    for family in Family::ALL {
        let mut body = vec![0; message::NEIGHBOUR_HEADER];
        body[0] = message::number_of(family);
        let request = Request::route(libc::RTM_GETNEIGH, body);
        let listed = stream("listing neighbours", &request, |body| {
            if let Some(NeighbourChange { ifindex, address, mac: Some(mac) }) =
                message::neighbour(body)
            {
                see(ifindex, address, mac);
            }
        });
        is_torn |= there_is_none(listed)?;
    }
    Ok(is_torn)
}

/// The states of all devices.
///
/// # Errors
/// If the kernel does not list them.
pub fn links() -> Result<Vec<LinkStatus>, LinkError> {
    crate::link::all()
}

/// An empty listing where the kernel has no such family, table or objects.
fn there_is_none(listed: Result<bool, LinkError>) -> Result<bool, LinkError> {
    const NONE: [i32; 3] = [libc::EAFNOSUPPORT, libc::EOPNOTSUPP, libc::ENOENT];
    match listed {
        Err(error) if error.errno().is_some_and(|errno| NONE.contains(&errno)) => Ok(false),
        listed => listed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(
            kind in prop_oneof![16..=30_u16, 104..=106_u16],
            family in prop_oneof![Just(2_u8), Just(10_u8), any::<u8>()],
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = RouteEvent::parse(kind, false, &[&[family], &bytes[..]].concat());
        }
    }
}
