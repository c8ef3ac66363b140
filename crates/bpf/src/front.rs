//! `front`: filters in the driver, in front of a plane's program.
//!
//! A program is built from the [`Term`]s of its filters. A change of filters builds another
//! program, which replaces the first in the link, so no frame goes unfiltered. Counters are stored
//! beside the programs of a port and outlive them. Without terms there is no such program, and the
//! plane's own is attached directly.
//!
//! Non-goals: the meaning of a filter (`crates/policy`), the members of a set.

use crate::load::{LoadError, explained};
use crate::sets::SetTables;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/front.skel.rs"));
}

/// `BPF_F_XDP_HAS_FRAGS` of `linux/bpf.h`.
const XDP_HAS_FRAGS: u32 = 1 << 5;
/// As many terms a program may have: `TERMS_MAX` of `programs/front.bpf.c`.
pub const TERMS_MAX: usize = 32;
/// As many look-ups a term may have: `LOOK_UPS_MAX` there.
pub const LOOK_UPS_MAX: usize = 4;
/// As many actions may count: `COUNTERS_MAX` there, without the last one.
pub const COUNTERS_MAX: usize = 32;
/// The counter of all that is dropped.
const ALL_DROPPED: u32 = 32;
/// The number of no counter.
const NO_COUNTER: u8 = 33;

/// Which end of a packet's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// A look-up in a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookUp {
    /// The set's number, below [`SETS_MAX`](narrows_sets::SETS_MAX).
    pub set: u16,
    /// Whose address is looked up.
    pub address: By,
    /// Whose port, where the set has ports.
    pub port: Option<By>,
    /// Whether the packet must not be in the set.
    pub is_negated: bool,
}

/// What a packet has to be, and what becomes of it then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    /// The EtherType behind all tags; `None` for any.
    pub ether_type: Option<u16>,
    /// All have to say yes; at most [`LOOK_UPS_MAX`].
    pub look_ups: Vec<LookUp>,
    /// Whether it is dropped; else it passes, and no further term is asked.
    pub drops: bool,
    /// Where it is counted, below [`COUNTERS_MAX`].
    pub counter: Option<u8>,
}

/// What a program is loaded for.
#[derive(Clone, Copy, Debug)]
pub struct FrontPort {
    /// The port's own address.
    pub mac: [u8; 6],
    /// Whether its frames may come in several buffers.
    pub multi_buffer: bool,
}

/// Packets and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// How many.
    pub packets: u64,
    /// The bytes of their frames.
    pub bytes: u64,
}

/// What the programs of a port count in, one after the other.
pub struct FrontCounters(MapHandle);

impl FrontCounters {
    /// Makes the map.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn new() -> Result<Self, LoadError> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let kind = MapType::PercpuArray;
        let (bytes, count) = (size_of::<[u64; 2]>() as u32, ALL_DROPPED + 1);
        explained(|| MapHandle::create(kind, Some("counters"), 4, bytes, count, &options)).map(Self)
    }

    /// What the counter `number` says, over all CPUs; nothing where it cannot be read.
    pub fn get(&self, number: u8) -> Counted {
        self.read(u32::from(number))
    }

    /// All that was dropped.
    pub fn dropped(&self) -> Counted {
        self.read(ALL_DROPPED)
    }

    fn read(&self, number: u32) -> Counted {
        let slots = self.0.lookup_percpu(&number.to_ne_bytes(), MapFlags::ANY);
        let slots = slots.ok().flatten().unwrap_or_default();
        let word = |slot: &[u8], at: usize| {
            let bytes = slot.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        slots.iter().fold(Counted::default(), |sum, slot| Counted {
            packets: sum.packets + word(slot, 0),
            bytes: sum.bytes + word(slot, 8),
        })
    }
}

/// A loaded program.
pub struct Front {
    program: OwnedFd,
    plane: MapHandle,
}

impl Front {
    /// Loads a program of `terms`, at most [`TERMS_MAX`], for a port.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn load(
        port: FrontPort,
        terms: &[Term],
        sets: &SetTables,
        counters: &FrontCounters,
    ) -> Result<Self, LoadError> {
        let mut storage = MaybeUninit::uninit();
        let loaded = explained(|| {
            let mut open = skeleton::FrontSkelBuilder::default().open(&mut storage)?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                rodata.own_mac = port.mac;
                rodata.is_multi_buffer = port.multi_buffer.into();
                let mut look_ups = terms.iter().flat_map(|term| &term.look_ups);
                rodata.reads_ports = look_ups.any(|look_up| look_up.port.is_some()).into();
                for (into, term) in rodata.terms.iter_mut().zip(terms) {
                    into.is_used = 1;
                    into.ether_type = term.ether_type.unwrap_or_default().to_be();
                    into.drops = term.drops.into();
                    into.counter = term.counter.unwrap_or(NO_COUNTER);
                    for (into, look_up) in into.look_ups.iter_mut().zip(&term.look_ups) {
                        into.set = look_up.set;
                        into.how = look_up.how();
                        into.is_negated = look_up.is_negated.into();
                    }
                }
            }
            if port.multi_buffer {
                open.progs.front.set_flags(XDP_HAS_FRAGS);
            }
            let [slots, tables, paintings, members] = sets.maps();
            open.maps.set_tables.reuse_fd(slots.as_fd())?;
            open.maps.tables.reuse_fd(tables.as_fd())?;
            open.maps.paintings.reuse_fd(paintings.as_fd())?;
            open.maps.members.reuse_fd(members.as_fd())?;
            open.maps.counters.reuse_fd(counters.0.as_fd())?;
            open.load()
        })?;
        let program = loaded.progs.front.as_fd().try_clone_to_owned();
        Ok(Self {
            program: program.map_err(|error| LoadError::Other(error.into()))?,
            plane: MapHandle::try_from(&loaded.maps.plane).map_err(LoadError::Other)?,
        })
    }

    /// Has what is not dropped go on to `program`.
    ///
    /// # Errors
    /// Where the kernel does not take it; it goes on to where it went.
    pub(crate) fn lead_to(&self, program: BorrowedFd<'_>) -> Result<(), libbpf_rs::Error> {
        let fd = program.as_raw_fd();
        self.plane.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
    }

    /// The program.
    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

impl LookUp {
    /// `LOOK_UP`, `BY_DESTINATION` and `BY_DESTINATION_PORT` of `programs/sets.h`.
    fn how(self) -> u8 {
        let by_destination = self.address == By::Destination;
        let by_destination_port = self.port == Some(By::Destination);
        1 | u8::from(by_destination) << 1 | u8::from(by_destination_port) << 2
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
