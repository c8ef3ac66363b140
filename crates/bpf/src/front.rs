//! `front`: filters in the driver, in front of a plane's program.
//!
//! A program is built from the [`Term`]s of its filters. A change of filters builds another
//! program, which replaces the first in the link, so no frame goes unfiltered. Counters and the
//! state of policers are stored beside the programs of a port ([`FrontMaps`]) and outlive them.
//! Without terms there is no such program, and the plane's own is attached directly.
//!
//! Non-goals: the meaning of a filter (`crates/policy`), the members of a set.

use crate::attach::Entry;
use crate::load::{LoadError, explained, keep};
use crate::sets::SetTables;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

mod layout;
mod maps;
mod term;

pub use maps::{Counted, FrontMaps};
pub use term::{
    AccountKey, Accounts, COUNTERS_MAX, Does, Endpoint, Field, LOOK_UPS_MAX, LookUp, Policer,
    SELECTORS_MAX, STEPS_MAX, Step, TERMS_MAX, Term, Then, Word, has,
};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/front.skel.rs"));
}

/// The purpose of a loaded program.
#[derive(Clone, Copy, Debug)]
pub struct FrontPort<'a> {
    /// The port's own address.
    pub mac: [u8; 6],
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
        let mut storage = MaybeUninit::uninit();
        let hands_over = port.handed.is_some() && terms.iter().any(Term::edits);
        let loaded = explained(|| {
            let mut open = skeleton::FrontSkelBuilder::default().open(&mut storage)?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                rodata.own_mac = port.mac;
                rodata.is_multi_buffer = port.multi_buffer.into();
                rodata.reads_transport = terms.iter().any(Term::reads_transport).into();
                rodata.hands_over = hands_over.into();
                rodata.secret = maps.secret();
                for (index, (into, term)) in rodata.terms.iter_mut().zip(terms).enumerate() {
                    // A term after the last one would never be tested.
                    let has_more = term.has_more && index + 1 < terms.len();
                    layout::write(into, term, has_more);
                }
            }
            port.entry.set_up(&mut open.progs.front, port.multi_buffer);
            if let Some(sets) = sets {
                let [words, tables, paintings, members] = sets.maps();
                open.maps.set_words.reuse_fd(words.as_fd())?;
                open.maps.tables.reuse_fd(tables.as_fd())?;
                open.maps.paintings.reuse_fd(paintings.as_fd())?;
                open.maps.members.reuse_fd(members.as_fd())?;
            }
            if let Some(handed) = port.handed {
                open.maps.handed.reuse_fd(handed.as_fd())?;
            }
            let [counters, commons, accounts] = maps.all();
            open.maps.counters.reuse_fd(counters.as_fd())?;
            open.maps.commons.reuse_fd(commons.as_fd())?;
            open.maps.accounts.reuse_fd(accounts.as_fd())?;
            open.load()
        })?;
        explained(|| maps.make_room(terms))?;
        Ok(Self {
            program: keep(&loaded.progs.front)?,
            plane: MapHandle::try_from(&loaded.maps.plane).map_err(LoadError::Other)?,
            hands_over,
        })
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

    /// The program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
