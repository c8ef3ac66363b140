//! `vlans`: tells the ports of a device apart that are VLANs on it.
//!
//! *One program for the device.* It is what is attached there. By the outermost tag of a frame it
//! continues in what is first at that VLAN's port: filters, a steering program, a tree. To replace
//! that at one port concerns no other.
//!
//! *All else is the kernel's.* A frame without a tag, or of another VLAN, passes as if nothing were
//! attached, and is counted.
//!
//! Non-goals: which VLANs belong together (`crates/core/forwarding`); tags that frames leave with,
//! which are the tree's or the worker's matter.

use crate::attach::{AttachError, Entry, Hold, Hook, attach};
use crate::gate;
use crate::load::{LoadError, Tries, keep};
use crate::maps::sums_in;
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use narrows_forwarding::{PORTS_MAX, Tag, TagProtocol};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod at_xdp {
    include!(concat!(env!("OUT_DIR"), "/vlans.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod at_tcx {
    include!(concat!(env!("OUT_DIR"), "/vlans_tcx.skel.rs"));
}

/// `VIDS` of `programs/tag.h`.
const VIDS: usize = 4096;

/// The program of one device: loaded, and attached once [`Vlans::attach`] was called, unless a
/// [`Steer`](crate::Steer) has it.
///
/// A port's *place* is its number among those of the device, in the order of their tags.
pub struct Vlans {
    // Declared first, so that the program is detached before its maps go.
    hold: Option<Hold>,
    program: OwnedFd,
    /// What is first at each place. The kernel empties it once nobody has it open.
    ports: MapHandle,
    others: MapHandle,
    entry: Entry,
}

/// Loads one of the objects: the program, the programs behind it, and the counter. A macro, because
/// each object's skeleton has types of its own.
macro_rules! load {
    ($builder:ty, $tags:expr, $multi_buffer:expr, $entry:expr, $counted:expr) => {{
        let mut tries = Tries::new();
        let loaded = tries.explained(|storage| {
            let mut open = <$builder>::default().open(storage)?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                write_places(&mut rodata.places, $tags);
            }
            $entry.set_up(&mut open.progs.vlans, $multi_buffer);
            if let Some(counted) = $counted {
                open.maps.others.reuse_fd(counted)?;
            }
            open.load()
        })?;
        let maps = [&loaded.maps.ports, &loaded.maps.others].map(MapHandle::try_from);
        (keep(&loaded.progs.vlans)?, maps)
    }};
}

/// Writes where the port of each tag is, counted from 1.
fn write_places(places: &mut [[u8; VIDS]; 2], tags: &[Tag]) {
    for (place, tag) in (1..=PORTS_MAX as u8).zip(tags) {
        let of_protocol = match tag.protocol() {
            TagProtocol::Customer => &mut places[0],
            TagProtocol::Service => &mut places[1],
        };
        of_protocol[usize::from(tag.vid())] = place;
    }
}

impl Vlans {
    /// Loads the program for a device with ports of these `tags`, at most [`PORTS_MAX`] and each
    /// another; `multi_buffer` if its frames may be in several buffers. Until a program is at a
    /// place, its frames go to the kernel. `entry` is how it and all behind it are attached.
    /// It goes on counting in `counted`, the [`counters`](Self::counters) of a program that it is
    /// to replace.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges or of a feature.
    pub fn load(
        tags: &[Tag],
        multi_buffer: bool,
        entry: Entry,
        counted: Option<BorrowedFd<'_>>,
    ) -> Result<Self, LoadError> {
        let (program, maps) = match entry {
            Entry::Own | Entry::Shared => {
                load!(at_xdp::VlansSkelBuilder, tags, multi_buffer, entry, counted)
            }
            Entry::Tcx => load!(at_tcx::VlansTcxSkelBuilder, tags, multi_buffer, entry, counted),
        };
        let [ports, others] = maps;
        let (ports, others) = (ports.map_err(LoadError::Other)?, others.map_err(LoadError::Other)?);
        Ok(Self { hold: None, program, ports, others, entry })
    }

    /// Makes frames of the port at `place` continue in `program`. Each frame passes the former or
    /// the new one.
    ///
    /// # Errors
    /// If the kernel refuses: there is no such place, or it is a program of another kind.
    pub fn lead_to(&self, place: usize, program: BorrowedFd<'_>) -> io::Result<()> {
        gate::lead_to(self.ports.as_fd(), place as u32, program)
    }

    /// What keeps a program at `place`.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub(crate) fn hold_of(&self, place: usize) -> io::Result<Hold> {
        Ok(Hold::Place(self.ports.as_fd().try_clone_to_owned()?, place as u32))
    }

    /// The number of the program that is first at `place`.
    #[cfg(test)]
    pub(crate) fn first_at(&self, place: u32) -> Option<u32> {
        use libbpf_rs::{MapCore, MapFlags};
        let number = self.ports.lookup(&place.to_ne_bytes(), MapFlags::ANY).ok()??;
        Some(u32::from_ne_bytes(number.try_into().ok()?))
    }

    /// Attaches the program to `ifindex`, at the hook of its entry. Until this handle is dropped,
    /// or the process ends, frames that arrive there come to the programs behind it.
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
    pub fn take_over(&mut self, hold: OwnedFd) -> io::Result<()> {
        let hold = self.entry.hold(hold);
        hold.replace(self.program())?;
        self.hold = Some(hold);
        Ok(())
    }

    /// What it is attached by, to be passed on to another process.
    pub fn hold(&self) -> Option<BorrowedFd<'_>> {
        self.hold.as_ref().map(AsFd::as_fd)
    }

    /// How it is attached.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Takes the program off the device; frames take the kernel's path from here on. The counter
    /// stays readable.
    pub fn detach(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.release();
        }
    }

    /// The program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Where it counts, to be passed on to another process.
    pub fn counters(&self) -> BorrowedFd<'_> {
        self.others.as_fd()
    }

    /// The frames that went to the kernel because they are no port's; 0 if they cannot be read.
    pub fn others(&self) -> u64 {
        sums_in(&self.others, 0).map_or(0, |[others]| others)
    }
}

#[cfg(test)]
pub(crate) mod tests;
