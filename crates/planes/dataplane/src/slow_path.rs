//! The slow path of a router: what the kernel itself sends through the ports.
//!
//! Packets with IP options, answers to packets that are too old or too long, packets without a
//! known neighbour, and all that the box sends itself: they pass no queue and no program in a
//! driver. At each port's egress a program charges them to the port's limits. If one port has no
//! such program, none has: limits that hold at some ports only would be misleading.
//!
//! Before Linux 6.6 there is no such hook that dies with the process (tcx). Then nothing is charged,
//! and a warning says so.

use crate::device::DeviceFacts;
use narrows_bpf::{SlowPath, tree::TreeError};
use narrows_forwarding::{Forwarding, PerDevice, PerPort};
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};

/// The programs of all ports, or why there are none.
pub(crate) struct SlowPaths(Result<PerPort<SlowPath>, String>);

impl SlowPaths {
    /// Those that `load` gives for each port. They are not attached.
    pub(crate) fn load(
        forwarding: &Forwarding,
        load: impl FnMut(narrows_forwarding::PortId) -> Result<SlowPath, TreeError>,
    ) -> Self {
        Self(forwarding.ids().map(load).collect::<Result<_, _>>().map_err(said))
    }

    /// Attaches all, or none.
    pub(crate) fn attach(&mut self, forwarding: &Forwarding, devices: &PerDevice<DeviceFacts>) {
        let Ok(programs) = &mut self.0 else { return };
        let attached = programs.iter_mut_enumerated().try_for_each(|(port, program)| {
            program.attach(devices[forwarding.device_of(port)].ifindex)
        });
        if let Err(error) = attached {
            self.0 = Err(said(error));
        }
    }

    /// Replaces the programs of another process, in the order of the ports; attaches its own where
    /// that one had none.
    pub(crate) fn take_over(
        &mut self,
        links: Vec<OwnedFd>,
        forwarding: &Forwarding,
        devices: &PerDevice<DeviceFacts>,
    ) {
        if links.is_empty() {
            return self.attach(forwarding, devices);
        }
        let Ok(programs) = &mut self.0 else { return };
        let mut pairs = programs.iter_mut().zip(links);
        if let Err(error) = pairs.try_for_each(|(program, link)| program.take_over(link)) {
            self.0 = Err(said(error));
        }
    }

    /// Whether the slow path is charged.
    pub(crate) fn are_attached(&self) -> bool {
        self.0.is_ok()
    }

    /// Why it is not charged.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// What keeps the programs attached, for another process. `None` if there are no descriptors
    /// left.
    pub(crate) fn links(&self) -> Option<Vec<OwnedFd>> {
        let programs = self.0.iter().flatten();
        programs.map(|program| program.hold()?.as_fd().try_clone_to_owned().ok()).collect()
    }

    /// Takes the programs off the ports.
    pub(crate) fn detach(&mut self) {
        self.0.iter_mut().flatten().for_each(SlowPath::detach);
    }
}

fn said(error: impl Display) -> String {
    error.to_string()
}
