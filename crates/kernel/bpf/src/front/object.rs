//! Fills in and loads the object of a front program. Compiled for each hook, with its skeleton.

use super::layout;
use super::skeleton::Builder;
use crate::front::{FrontMaps, FrontPort, TERMS_MAX, Term};
use crate::load::{LoadError, Tries, keep};
use crate::sets::SetTables;
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use std::os::fd::{AsFd, OwnedFd};

/// The loaded program, the map with the program behind it, and that where it counts drops.
pub(in crate::front) fn load(
    port: FrontPort<'_>,
    terms: &[Term],
    sets: Option<&SetTables>,
    maps: &FrontMaps,
    hands_over: bool,
) -> Result<(OwnedFd, [MapHandle; 2]), LoadError> {
    let mut tries = Tries::new();
    let loaded = tries.explained(|storage| {
        let mut open = Builder::default().open(storage)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.own_mac = port.own.mac;
            rodata.is_addressed = port.own.is_addressed.into();
            rodata.bridge_mac = port.own.bridge_mac;
            (rodata.own_ips, rodata.own_ips_count) = port.own.ips.parts();
            rodata.multi_buffer = port.multi_buffer.into();
            rodata.reads_transport = terms.iter().any(Term::reads_transport).into();
            rodata.hands_over = hands_over.into();
            rodata.secret = maps.secret();
            rodata.terms_count = terms.len().min(TERMS_MAX) as u32;
            for (index, (into, term)) in rodata.terms.iter_mut().zip(terms).enumerate() {
                // A term after the last one would never be tested.
                let has_more = term.has_more && index + 1 < terms.len();
                layout::write(into, term, has_more);
            }
        }
        port.entry.set_up(&mut open.progs.front, port.multi_buffer);
        if let Some(sets) = sets {
            let [words, tables, chunks, members] = sets.maps();
            open.maps.set_words.reuse_fd(words.as_fd())?;
            open.maps.tables.reuse_fd(tables.as_fd())?;
            open.maps.paintings.reuse_fd(chunks.as_fd())?;
            open.maps.members.reuse_fd(members.as_fd())?;
        }
        if let Some(handed) = port.handed {
            open.maps.handed.reuse_fd(handed.as_fd())?;
        }
        let [counters, commons, accounts] = maps.all();
        open.maps.counters.reuse_fd(counters.as_fd())?;
        open.maps.dropped.reuse_fd(maps.counts_dropped())?;
        open.maps.commons.reuse_fd(commons.as_fd())?;
        open.maps.accounts.reuse_fd(accounts.as_fd())?;
        open.load()
    })?;
    let plane = MapHandle::try_from(&loaded.maps.plane).map_err(LoadError::Other)?;
    let dropped = MapHandle::try_from(&loaded.maps.dropped).map_err(LoadError::Other)?;
    Ok((keep(&loaded.progs.front)?, [plane, dropped]))
}
