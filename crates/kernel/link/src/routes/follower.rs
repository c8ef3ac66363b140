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
    /// What it last heard of devices.
    known: HashMap<u32, Known>,
    needs_listing: bool,
}

/// What is known of a device.
#[derive(Clone, Copy)]
struct Known {
    is_up: bool,
    master: Option<u32>,
    /// Whether it is a port, or a VLAN of one.
    is_of_port: bool,
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

    /// The mirror, to take what [changed](Mirror::take_changed).
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
            let device = device(&link, &self.ports);
            self.known.insert(link.ifindex, known(&link, &device));
            mirror.set_device(link.ifindex, Some(device));
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

    /// Reads the settings of ports and their VLANs that change without an announcement: the MTU of
    /// IPv6.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn refresh(&mut self) -> Result<(), LinkError> {
        let of_ports = self.known.iter().filter(|(_, known)| known.is_of_port);
        for ifindex in of_ports.map(|(ifindex, _)| *ifindex).collect::<Vec<_>>() {
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
                let device = device(&link, &self.ports);
                let now = known(&link, &device);
                let before = self.known.insert(link.ifindex, now);
                // Its routes of IPv4 go without a word: when it goes down, or to another VRF.
                if before.is_some_and(|it| it.is_up && !now.is_up || it.master != now.master) {
                    mirror.doubt_device(link.ifindex);
                    self.needs_listing = true;
                }
                mirror.set_device(link.ifindex, Some(device));
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

/// `link` as a router has it, with these ports. A VLAN of a port leaves through the port.
fn device(link: &LinkStatus, ports: &HashMap<u32, u8>) -> Device {
    let (of, tag) = match link.plain_vlan() {
        Some((lower, tag)) => (lower, Some(tag)),
        None => (link.ifindex, None),
    };
    Device {
        port: ports.get(&of).copied(),
        tag,
        is_running: link.up && link.carrier,
        mac: link.mac,
        mtu_v4: link.mtu,
        mtu_v6: link.ipv6_mtu.map_or(NO_IPV6, |mtu| mtu.min(link.mtu)),
    }
}

fn known(link: &LinkStatus, device: &Device) -> Known {
    Known { is_up: link.up, master: link.master, is_of_port: device.port.is_some() }
}
