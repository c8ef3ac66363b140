//! Where each frame leaves, in a router and a switch: what their programs know of the kernel, and
//! how they are loaded.
//!
//! On a wire and a stick that follows from where a frame arrives, and nothing of this is needed.

use crate::device::DeviceFacts;
use crate::error::SessionError;
use crate::routing::Routing;
use crate::switching::Switching;
use narrows_bpf::tree::TreeError;
use narrows_bpf::{Asks, Chooser, Entry, RoutedBy, Steer, SteerError, Takers, Watchdog};
use narrows_forwarding::{Forwarding, PerDevice, PortId};
use std::os::fd::BorrowedFd;

/// What the programs know.
pub(crate) enum Ways {
    /// The kernel's routes.
    Routes(Box<Routing>),
    /// The table of its bridge.
    Bridge(Switching),
}

impl Ways {
    /// Those of the ports of `forwarding` on `devices`, as the kernel has them now; none where
    /// ports are in pairs. A router routes by `routed_by`.
    pub(crate) fn of(
        forwarding: &Forwarding,
        devices: &PerDevice<DeviceFacts>,
        routed_by: RoutedBy,
    ) -> Result<Option<Self>, SessionError> {
        let port = |port| (devices[forwarding.device_of(port)].ifindex, port);
        let ports = || forwarding.ids().map(port).collect();
        let failed =
            |source| SessionError::Steer { port: forwarding.to_string(), source, hint: "" };
        Ok(if forwarding.is_router() {
            Some(Self::Routes(Box::new(Routing::new(ports(), routed_by, failed)?)))
        } else if forwarding.is_switch() {
            Some(Self::Bridge(Switching::new(ports(), failed)?))
        } else {
            None
        })
    }

    /// In a router: what they know of the kernel's routing.
    pub(crate) fn routing(&self) -> Option<&Routing> {
        match self {
            Self::Routes(routing) => Some(routing),
            Self::Bridge(_) => None,
        }
    }

    /// Where frames go on, on the XDP plane.
    pub(crate) fn takers(&self) -> &Takers {
        match self {
            Self::Routes(routing) => routing.router().takers(),
            Self::Bridge(switching) => switching.switch().takers(),
        }
    }

    /// The steering program of the device `facts`, which is the port `port`.
    pub(crate) fn steer(
        &self,
        port: PortId,
        facts: &DeviceFacts,
        multi_buffer: bool,
        seal: u32,
        watchdog: Watchdog,
        entry: Entry,
    ) -> Result<Steer, SteerError> {
        let mac = facts.mac;
        match self {
            Self::Routes(routing) => {
                let router = routing.router();
                Steer::load_router(mac, multi_buffer, seal, watchdog, entry, router, port)
            }
            Self::Bridge(switching) => {
                let switch = switching.switch();
                Steer::load_switch(mac, multi_buffer, seal, watchdog, entry, switch, port)
            }
        }
    }

    /// Loads the program that chooses where a frame leaves, on the XDP plane. It goes on counting
    /// in `counted`, if given.
    pub(crate) fn program(
        &self,
        port: PortId,
        multi_buffer: bool,
        entry: Entry,
        counted: Option<BorrowedFd<'_>>,
    ) -> Result<Chooser, TreeError> {
        match self {
            Self::Routes(routing) => routing.router().program(port, multi_buffer, entry, counted),
            Self::Bridge(switching) => {
                switching.switch().program(port, multi_buffer, entry, counted)
            }
        }
    }

    /// Tells the programs of a router how the kernel routes now. Those of a switch are told at
    /// once, by a thread.
    ///
    /// # Errors
    /// If it does not say. Then packets are looked up in the longest way.
    pub(crate) fn follow(&mut self) -> Result<(), SessionError> {
        match self {
            Self::Routes(routing) => routing.follow().map_err(SessionError::Routing),
            Self::Bridge(_) => Ok(()),
        }
    }

    /// Has the programs of a router find out what filters ask of routes, and no more.
    ///
    /// # Errors
    /// If they cannot be told.
    pub(crate) fn ask(&mut self, asks: Asks) -> Result<(), SessionError> {
        match self {
            Self::Routes(routing) => routing.ask(asks).map_err(SessionError::Routing),
            Self::Bridge(_) => Ok(()),
        }
    }

    /// What the programs do not know, in words.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Routes(_) => None,
            Self::Bridge(switching) => switching.trouble(),
        }
    }
}
