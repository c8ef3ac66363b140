//! `front`: filters in the driver, in front of a plane's program.
//!
//! A program is built from the [`Term`]s of its filters. A change of filters builds another
//! program, which replaces the first in the link, so no frame goes unfiltered. Counters and the
//! state of policers are stored beside the programs of a port ([`FrontMaps`]) and outlive them.
//! Without terms there is no such program, and the plane's own is attached directly.
//!
//! The C program is compiled for XDP and for tcx. Each has a skeleton of its own, with types of its
//! own, so what fills one in (`front/object.rs`) is compiled for both, too.
//!
//! Non-goals: the meaning of a filter (`crates/core/policy`), the members of a set.

use crate::attach::Entry;
use crate::load::{LoadError, explained};
use crate::own_address::OwnAddress;
use crate::sets::SetTables;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

mod at_tcx;
mod at_xdp;
mod maps;
mod term;

pub use maps::{Counted, FrontMaps};
pub use term::{
    AccountKey, Accounts, COUNTERS_MAX, Does, Endpoint, LOOK_UPS_MAX, LookUp, Policer,
    SELECTORS_MAX, STEPS_MAX, Step, TERMS_MAX, Term, Then, Word,
};

/// The purpose of a loaded program.
#[derive(Clone, Copy, Debug)]
pub struct FrontPort<'a> {
    /// The port's own address.
    pub own: OwnAddress,
    /// Whether its frames may be in several buffers.
    pub multi_buffer: bool,
    /// How it and the program behind it are attached.
    pub entry: Entry,
    /// Where the tree behind it reads what filters set; `None` where there is no tree.
    pub handed: Option<&'a MapHandle>,
}

/// A loaded program.
pub struct Front {
    program: OwnedFd,
    plane: MapHandle,
    hands_over: bool,
}

impl Front {
    /// Loads a program of `terms`, at most [`TERMS_MAX`], for a port. It looks up in `sets`, if
    /// anywhere, and counts and polices in `maps`.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn load(
        port: FrontPort<'_>,
        terms: &[Term],
        sets: Option<&SetTables>,
        maps: &mut FrontMaps,
    ) -> Result<Self, LoadError> {
        let hands_over = port.handed.is_some() && terms.iter().any(Term::edits);
        let load = match port.entry {
            Entry::Own | Entry::Shared => at_xdp::load,
            Entry::Tcx => at_tcx::load,
        };
        let (program, [plane, dropped]) = load(port, terms, sets, maps, hands_over)?;
        maps.count_in(dropped);
        explained(|| maps.make_room(terms))?;
        Ok(Self { program, plane, hands_over })
    }

    /// Whether it sets something for the program behind it.
    pub(crate) fn hands_over(&self) -> bool {
        self.hands_over
    }

    /// Makes frames that are not dropped continue to `program`.
    ///
    /// # Errors
    /// If the kernel refuses; the former program stays.
    pub(crate) fn lead_to(&self, program: BorrowedFd<'_>) -> Result<(), libbpf_rs::Error> {
        let fd = program.as_raw_fd();
        self.plane.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
    }

    /// The number of the program behind it.
    #[cfg(test)]
    pub(crate) fn behind(&self) -> Option<u32> {
        let number = self.plane.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        Some(u32::from_ne_bytes(number.try_into().ok()?))
    }

    /// The program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

#[cfg(test)]
mod tests;
