//! The program of a device that chooses, on the XDP plane, the port through which each frame
//! leaves.
//!
//! *One program for each device, one tree for each port.* It leads a frame to the tree of the port
//! where it leaves, which meters and sends it ([`Takers`](crate::Takers)). So the programs of all
//! devices are attached alike: all at XDP or all at tcx, all through a gate or none.
//!
//! *Filters* stand in front of the program of the device where a frame arrives.
//!
//! Non-goals: how it chooses ([`Router`](crate::Router), [`Switch`](crate::Switch)); metering.

use crate::attach::{AttachError, Entry, Hold, Hook, attach};
use crate::front::Front;
use crate::outcome::OutcomeCounters;
use crate::tree::TreeError;
use libbpf_rs::MapHandle;
use narrows_forwarding::PortId;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The program of one device: loaded, and attached once [`attach`](Chooser::attach) was called.
pub struct Chooser {
    // Declared first, so that the program is detached before its maps go.
    hold: Option<Hold>,
    program: OwnedFd,
    /// The program for what has met filters that set something.
    behind: OwnedFd,
    /// The program in front of it, attached in its place.
    front: Option<Front>,
    outcomes: MapHandle,
    entry: Entry,
}

/// Loads an object with both programs and their counters, on the maps of `$shared`, which the macro
/// `$share` gives it. Of two objects it is the one for XDP or for tcx, as it is attached. A macro,
/// because each object's skeleton has types of its own.
macro_rules! load {
    ([$xdp:ty, $tcx:ty], $programs:tt, $share:ident, $shared:expr, $at:expr) => {
        match $at.entry {
            Entry::Own | Entry::Shared => {
                $crate::chooser::load!($xdp, $programs, $share, $shared, $at)
            }
            Entry::Tcx => $crate::chooser::load!($tcx, $programs, $share, $shared, $at),
        }
    };
    ($builder:ty, [$program:ident, $behind:ident], $share:ident, $shared:expr, $at:expr) => {{
        let At { port, multi_buffer, entry, counted } = $at;
        let mut tries = Tries::new();
        let loaded = tries.explained(|storage| {
            let mut open = <$builder>::default().open(storage)?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                rodata.multi_buffer = multi_buffer.into();
                rodata.arrives_at = port.index() as u32;
            }
            $share!(open, $shared);
            open.maps.takers.reuse_fd($shared.takers().map())?;
            if let Some(counted) = counted {
                open.maps.outcomes.reuse_fd(counted)?;
            }
            entry.set_up(&mut open.progs.$program, multi_buffer);
            entry.set_up(&mut open.progs.$behind, multi_buffer);
            open.load()
        })?;
        let outcomes = MapHandle::try_from(&loaded.maps.outcomes).map_err(LoadError::Other)?;
        let programs = [keep(&loaded.progs.$program)?, keep(&loaded.progs.$behind)?];
        Chooser::of(programs, outcomes, entry)
    }};
}

pub(crate) use load;

/// What a program is loaded for.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    /// The port at whose device it will be.
    pub(crate) port: PortId,
    /// Whether frames may be in several buffers.
    pub(crate) multi_buffer: bool,
    /// How it will be attached.
    pub(crate) entry: Entry,
    /// The counters that it goes on with.
    pub(crate) counted: Option<BorrowedFd<'a>>,
}

impl Chooser {
    /// Both programs of an object, which count in `outcomes`.
    pub(crate) fn of([program, behind]: [OwnedFd; 2], outcomes: MapHandle, entry: Entry) -> Self {
        Self { hold: None, program, behind, front: None, outcomes, entry }
    }

    /// Attaches the program to `ifindex`, at the hook of its entry. Until this handle is dropped,
    /// or the process ends, it decides about the frames that arrive there.
    ///
    /// # Errors
    /// If the kernel refuses: no XDP in the driver, an MTU too large for it, another program
    /// attached, no tcx (before Linux 6.6).
    pub fn attach(&mut self, ifindex: u32, hook: Hook) -> Result<(), AttachError> {
        self.hold = Some(Hold::Link(attach(self.program(), ifindex, hook)?));
        Ok(())
    }

    /// Takes over where another process's program is attached, or none behind a gate: replaces it,
    /// so that each frame passes one of them, and keeps `hold`, a link or the array of a gate, from
    /// then on.
    ///
    /// # Errors
    /// If the kernel refuses; the other program stays then.
    pub fn take_over(&mut self, hold: OwnedFd) -> Result<(), TreeError> {
        let hold = self.entry.hold(hold);
        hold.replace(self.program()).map_err(TreeError::Replace)?;
        self.hold = Some(hold);
        Ok(())
    }

    /// What it is attached by, to be passed on to another process.
    pub fn hold(&self) -> Option<BorrowedFd<'_>> {
        self.hold.as_ref().map(AsFd::as_fd)
    }

    /// Where it counts, to be passed on to another process.
    pub fn counters(&self) -> BorrowedFd<'_> {
        self.outcomes.as_fd()
    }

    /// How it is attached.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Replaces the program in front of it by `front`, or removes it. Each frame passes the old or
    /// the new one. What `front` sets, trees read if it was loaded for
    /// [`handed`](crate::Takers::handed). It sees frames to the device's own address, and all that
    /// a router routes are, only if it is loaded for one that is not
    /// [addressed](crate::OwnAddress::is_addressed).
    ///
    /// # Errors
    /// If the kernel refuses; all is as it was then.
    pub fn put_in_front(&mut self, front: Option<Front>) -> Result<(), TreeError> {
        if let Some(front) = &front {
            let program = if front.hands_over() { &self.behind } else { &self.program };
            front.lead_to(program.as_fd()).map_err(TreeError::Front)?;
        }
        if let Some(hold) = &self.hold {
            let first = front.as_ref().map_or(self.program.as_fd(), Front::program);
            hold.replace(first).map_err(TreeError::Replace)?;
        }
        self.front = front;
        Ok(())
    }

    /// Takes the program off the device; frames take the kernel's path from here on. The counters
    /// stay readable.
    pub fn detach(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.release();
        }
    }

    /// The program that sees a frame first.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.front.as_ref().map_or(self.program.as_fd(), Front::program)
    }

    /// The bytes of frames that left so far.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn left_bytes(&self) -> Result<u64, TreeError> {
        OutcomeCounters::read_bytes(&self.outcomes)
            .map_err(|source| TreeError::Map { map: "outcomes", source })
    }

    /// What became of frames so far.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn outcomes(&self) -> Result<OutcomeCounters, TreeError> {
        OutcomeCounters::read(&self.outcomes)
            .map_err(|source| TreeError::Map { map: "outcomes", source })
    }
}
