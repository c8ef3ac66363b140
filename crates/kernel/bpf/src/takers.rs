//! Where frames go on that leave through each port, on the XDP plane.
//!
//! The programs of all devices share it: each chooses a port for a frame, and the frame goes on in
//! what takes all that leaves there, which is that port's [`Tree`](crate::tree::Tree). So they are
//! all attached alike, at XDP or at tcx.
//!
//! Non-goals: which port that is.

use crate::attach::Hold;
use crate::maps::map;
use libbpf_rs::{MapHandle, MapType};
use narrows_forwarding::{PORTS_MAX, PortId};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What takes frames that leave through each port.
pub struct Takers {
    /// By port, and then the same for frames that have met filters that set something. The kernel
    /// empties it once nobody has it open.
    programs: MapHandle,
    /// What these filters have set.
    handed: MapHandle,
    /// The route that a frame takes, where it is a router that chooses.
    route: MapHandle,
    /// What marks the frames that they send; 0 for nothing.
    seal: u32,
}

impl Takers {
    /// None yet: what is to leave goes to the kernel.
    pub(crate) fn new() -> libbpf_rs::Result<Self> {
        Ok(Self {
            programs: map(MapType::ProgArray, "takers", [4, 4, 2 * PORTS_MAX as u32], 0)?,
            handed: map(MapType::PercpuArray, "handed", [4, 8, 1], 0)?,
            route: map(MapType::PercpuArray, "route_taken", [4, 8, 1], 0)?,
            seal: 0,
        })
    }

    /// These, which mark the frames that they send with `seal`, which nobody outside knows: so that
    /// their [slow path](crate::tree::Tree::slow_path) does not charge them again.
    #[must_use]
    pub fn sealed(self, seal: u32) -> Self {
        Self { seal, ..self }
    }

    pub(crate) fn seal(&self) -> u32 {
        self.seal
    }

    /// Where they read what filters in front set: for [`FrontPort`](crate::FrontPort).
    pub fn handed(&self) -> &MapHandle {
        &self.handed
    }

    /// Where they read which route a frame takes.
    pub(crate) fn route(&self) -> &MapHandle {
        &self.route
    }

    /// What keeps a program where frames go on that leave through `port`, and what keeps one where
    /// those do that have met filters that set something.
    pub(crate) fn holds_of(&self, port: PortId) -> io::Result<[Hold; 2]> {
        let programs = || self.programs.as_fd().try_clone_to_owned();
        let place = port.index() as u32;
        let behind = place + PORTS_MAX as u32;
        Ok([Hold::Place(programs()?, place), Hold::Place(programs()?, behind)])
    }

    /// For the programs that choose a port.
    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.programs.as_fd()
    }
}
