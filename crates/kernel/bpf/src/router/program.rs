//! `router`: routes, on the XDP plane, what arrives at a port.
//!
//! *One program for each device, one tree for each port.* A program routes what arrives at its
//! device, and leads it to the tree of the port through which it leaves, which meters and sends it.
//! The places of the trees are an array that the programs of all devices share. So they are
//! attached alike: all at XDP or all at tcx, all through a gate or none.
//!
//! *Filters* stand in front of the program of the device where a frame arrives.
//!
//! Non-goals: metering ([`Tree`](crate::tree::Tree)).

use super::{RouteCounters, Router};
use crate::attach::{AttachError, Entry, Hold, Hook, attach};
use crate::front::Front;
use crate::load::{LoadError, explained, keep};
use crate::tree::TreeError;
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use narrows_forwarding::PortId;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod at_xdp {
    include!(concat!(env!("OUT_DIR"), "/router.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod at_tcx {
    include!(concat!(env!("OUT_DIR"), "/router_tcx.skel.rs"));
}

/// The program of one device of a router: loaded, and attached once
/// [`attach`](RouterProgram::attach) was called.
pub struct RouterProgram {
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

/// Loads one of the objects: both programs, and the counters. A macro, because each object's
/// skeleton has types of its own.
macro_rules! load {
    ($builder:ty, $own:expr, $multi_buffer:expr, $entry:expr, $router:expr, $port:expr, $counted:expr) => {{
        let mut storage = MaybeUninit::uninit();
        let loaded = explained(|| {
            let mut open = <$builder>::default().open(&mut storage)?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                rodata.own_mac = $own;
                rodata.multi_buffer = $multi_buffer.into();
                rodata.arrives_at = $port.index() as u32;
            }
            let [ingresses, ports, addresses, roots, chunks, hops] = $router.maps();
            open.maps.ingresses.reuse_fd(ingresses)?;
            open.maps.port_of.reuse_fd(ports)?;
            open.maps.own_addresses.reuse_fd(addresses)?;
            open.maps.fib_roots.reuse_fd(roots)?;
            open.maps.fib_chunks.reuse_fd(chunks)?;
            open.maps.fib_hops.reuse_fd(hops)?;
            open.maps.takers.reuse_fd($router.takers.as_fd())?;
            if let Some(counted) = $counted {
                open.maps.outcomes.reuse_fd(counted)?;
            }
            $entry.set_up(&mut open.progs.router, $multi_buffer);
            $entry.set_up(&mut open.progs.router_behind, $multi_buffer);
            open.load()
        })?;
        let outcomes = MapHandle::try_from(&loaded.maps.outcomes).map_err(LoadError::Other)?;
        (keep(&loaded.progs.router)?, keep(&loaded.progs.router_behind)?, outcomes)
    }};
}

impl RouterProgram {
    /// Loads the program for a device with the address `own_mac` that is the port `port` of
    /// `router`; `multi_buffer` if its frames may be in several buffers. `entry` is how it is
    /// attached, and all that shares `router`. It goes on counting in `counted`, the
    /// [`counters`](Self::counters) of a program that it is to replace.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges or of a feature, or because programs are
    /// behind `router` that are attached otherwise.
    pub fn load(
        own_mac: [u8; 6],
        multi_buffer: bool,
        entry: Entry,
        router: &Router,
        port: PortId,
        counted: Option<BorrowedFd<'_>>,
    ) -> Result<Self, TreeError> {
        use {at_tcx::RouterTcxSkelBuilder as Tcx, at_xdp::RouterSkelBuilder as Xdp};
        let load = || {
            Ok(match entry {
                Entry::Own | Entry::Shared => {
                    load!(Xdp, own_mac, multi_buffer, entry, router, port, counted)
                }
                Entry::Tcx => load!(Tcx, own_mac, multi_buffer, entry, router, port, counted),
            })
        };
        let (program, behind, outcomes) = load().map_err(TreeError::Load)?;
        Ok(Self { hold: None, program, behind, front: None, outcomes, entry })
    }

    /// Attaches the program to `ifindex`, at the hook of its entry. Until this handle is dropped,
    /// or the process ends, it routes the frames that arrive there.
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
    /// [`handed`](Router::handed). It sees frames to the device's own address, and all that are
    /// routed are, only if it is loaded for one that is not
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

    /// The bytes of frames that it routed so far.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn routed_bytes(&self) -> Result<u64, TreeError> {
        RouteCounters::read_bytes(&self.outcomes)
            .map_err(|source| TreeError::Map { map: "outcomes", source })
    }

    /// What became of frames so far.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn routed(&self) -> Result<RouteCounters, TreeError> {
        RouteCounters::read(&self.outcomes)
            .map_err(|source| TreeError::Map { map: "outcomes", source })
    }
}
