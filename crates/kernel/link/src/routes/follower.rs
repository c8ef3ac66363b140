//! Keeps a [`Mirror`] as the kernel's routes are.
//!
//! At first, and whenever changes were lost or may not have been announced, all is listed. A
//! listing of a full table takes seconds, and what is in doubt meanwhile is asked of the kernel.
//! Changes that come during a listing wait for its end.

use super::{RouteEvent, RouteMonitor, links, neighbours, objects, routes};
use crate::link::status_by_index;
use crate::{LinkError, LinkStatus};
use narrows_routes::{Device, Family, Mirror};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

/// How many messages are followed before others look at what came of them: at most some 50 ms.
const MESSAGES_AT_ONCE: usize = 1 << 14;
/// A device's setting when it has no IPv6.
const NO_IPV6: u32 = 0;

/// A mirror of the kernel's routes, and how it is kept up to date.
pub struct Follower {
    monitor: RouteMonitor,
    mirror: Mirror,
    /// The numbers of ports, by the indices of their devices.
    ports: HashMap<u32, u8>,
    /// What it last heard of devices: whether they are up, and their master.
    known: HashMap<u32, (bool, Option<u32>)>,
    needs_listing: bool,
}

impl Follower {
    /// Follows the routes of the calling thread's namespace for these ports, by the indices of
    /// their devices. Nothing is known before the first [`list`](Self::list).
    ///
    /// # Errors
    /// If the kernel provides no socket.
    pub fn new(ports: impl IntoIterator<Item = (u32, u8)>) -> Result<Self, LinkError> {
        Ok(Self {
            monitor: RouteMonitor::open()?,
            mirror: Mirror::default(),
            ports: ports.into_iter().collect(),
            known: HashMap::new(),
            needs_listing: true,
        })
    }

    /// What the kernel has, as far as is known.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The same, to take what [changed](Mirror::take_changed).
    pub fn mirror_mut(&mut self) -> &mut Mirror {
        &mut self.mirror
    }

    /// Follows what the kernel has announced; returns whether anything was. Call it until nothing
    /// was.
    pub fn follow(&mut self) -> bool {
        let mut events = Vec::new();
        let mut count = 0;
        while count < MESSAGES_AT_ONCE && self.monitor.next(|event| events.push(event)) {
            count += 1;
            std::mem::take(&mut events).into_iter().for_each(|event| self.take(event));
        }
        count > 0
    }

    /// Whether everything has to be [listed](Self::list).
    pub fn needs_listing(&self) -> bool {
        self.needs_listing
    }

    /// Lists everything.
    ///
    /// # Errors
    /// If the kernel does not list it. What was in doubt stays so.
    pub fn list(&mut self) -> Result<(), LinkError> {
        // Whatever is missed from here on asks for the next listing.
        self.needs_listing = false;
        self.mirror.begin();
        self.listed().inspect_err(|_| self.needs_listing = true)
    }

    fn listed(&mut self) -> Result<(), LinkError> {
        let mirror = &mut self.mirror;
        let mut is_torn = false;
        mirror.forget();
        for link in links()? {
            self.known.insert(link.ifindex, (link.up, link.master));
            mirror.set_device(link.ifindex, Some(device(&link, &self.ports)));
        }
        is_torn |= objects(|id, object| mirror.set_object(id, Some(object)))?;
        is_torn |= neighbours(|ifindex, address, mac| {
            mirror.set_neighbour(ifindex, address, Some(mac));
        })?;
        for family in Family::ALL {
            is_torn |= routes(family, |route| mirror.list(route))?;
        }
        mirror.end();
        // What was missed is announced, too. But not what was listed twice.
        self.needs_listing |= is_torn;
        Ok(())
    }

    /// Reads the settings of ports that change without an announcement: the MTU of IPv6.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn refresh(&mut self) -> Result<(), LinkError> {
        for ifindex in self.ports.keys().copied().collect::<Vec<_>>() {
            match status_by_index(ifindex) {
                Ok(link) => self.take(RouteEvent::Link(link)),
                // That is announced.
                Err(LinkError::NoSuchIndex(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, event: RouteEvent) {
        let mirror = &mut self.mirror;
        match event {
            RouteEvent::Added { route, replace } => mirror.add(&route, replace),
            RouteEvent::Removed(route) => mirror.remove(&route),
            RouteEvent::Neighbour { ifindex, address, mac } => {
                mirror.set_neighbour(ifindex, address, mac);
            }
            RouteEvent::Object { id, object } => {
                self.needs_listing |= object.is_none();
                mirror.set_object(id, object);
            }
            RouteEvent::Link(link) => {
                let now = (link.up, link.master);
                let before = self.known.insert(link.ifindex, now);
                // Its routes of IPv4 go without a word: when it goes down, or to another VRF.
                let lost = before.is_some_and(|(up, master)| up && !now.0 || master != now.1);
                if lost {
                    mirror.doubt_device(link.ifindex);
                    self.needs_listing = true;
                }
                mirror.set_device(link.ifindex, Some(device(&link, &self.ports)));
            }
            RouteEvent::LinkGone(ifindex) => {
                self.known.remove(&ifindex);
                mirror.doubt_device(ifindex);
                mirror.set_device(ifindex, None);
                self.needs_listing = true;
            }
            RouteEvent::AddressGone => {
                mirror.doubt(Family::V4);
                self.needs_listing = true;
            }
            RouteEvent::Overrun => {
                Family::ALL.into_iter().for_each(|family| mirror.doubt(family));
                self.needs_listing = true;
            }
        }
    }
}

/// Readable if there is something to [follow](Follower::follow).
impl AsFd for Follower {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

/// `link` as a router has it, with these ports.
fn device(link: &LinkStatus, ports: &HashMap<u32, u8>) -> Device {
    Device {
        port: ports.get(&link.ifindex).copied(),
        is_running: link.up && link.carrier,
        mac: link.mac,
        mtu_v4: link.mtu,
        mtu_v6: link.ipv6_mtu.map_or(NO_IPV6, |mtu| mtu.min(link.mtu)),
    }
}
