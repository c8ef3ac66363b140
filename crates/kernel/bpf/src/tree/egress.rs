//! The programs that a tree has for its port's egress, where packets leave that this host sends
//! itself. They work on the tree's maps: plan, credit and counters are the same.

use super::{Maps, Totals, Tree, TreeError, named, reuse, sums};
use crate::load::{Tries, keep};
use crate::slow_path::SlowPath;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapHandle, OpenObject};
use skeleton_slow_path::TreeSlowPathSkelBuilder;
use skeleton_stamp::StampSkelBuilder;
use skeleton_stamp_inside::StampInsideSkelBuilder;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton_slow_path {
    include!(concat!(env!("OUT_DIR"), "/tree_slow_path.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton_stamp {
    include!(concat!(env!("OUT_DIR"), "/stamp.skel.rs"));
}

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton_stamp_inside {
    include!(concat!(env!("OUT_DIR"), "/stamp_inside.skel.rs"));
}

/// `SLOW_PATH` of `programs/tree.h`.
const SLOW_PATH: u32 = 1;

/// By which addresses a program tells hosts apart, in classes that share among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostAddresses {
    /// By those in the packets' headers, whatever a class says.
    #[default]
    InHeaders,
    /// By those before network address translation, in classes that say so. This asks the kernel's
    /// connection tracking.
    Inside,
}

/// The program that gives packets departure times, with what it keeps of the time to come.
pub struct Departures {
    /// The program.
    pub program: SlowPath,
    maps: Vec<MapHandle>,
}

impl Departures {
    /// What is given away, and to whom (`programs/calendar.h`, `programs/flow_clock.h`,
    /// `programs/lend.h`, `programs/host_load.h`). A process of another version may hand over only
    /// the first ones, so new ones come last.
    const KEPT: [&'static str; 5] =
        ["calendars", "flow_clocks", "orders", "control_clock", "host_loads"];

    /// What it keeps, to be passed on to another process.
    pub fn maps(&self) -> Vec<BorrowedFd<'_>> {
        self.maps.iter().map(AsFd::as_fd).collect()
    }
}

impl Tree {
    /// Loads the program that charges what the kernel itself sends through the port, to this tree,
    /// and lets pass what this tree has sent. It is not attached yet.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn slow_path(&self) -> Result<SlowPath, TreeError> {
        let mut tries = Tries::new();
        let program = self.at_egress(&mut tries, &[], |storage, reuse| {
            let mut open = TreeSlowPathSkelBuilder::default().open(storage)?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                rodata.slow_path_seal = self.port.seal;
                rodata.headerless = self.port.headerless.into();
            }
            reuse(open.open_object_mut())?;
            Ok(keep(&open.load()?.progs.tree_slow_path))
        })?;
        Ok(SlowPath::of(program.map_err(TreeError::Load)?))
    }

    /// Loads the program that gives what this host sends through the port its departure times, by
    /// this tree; `kept` is what another process's program kept, if this one continues there. If
    /// that one had another layout, departure times begin anew: for as long as packets wait, the
    /// rate may be exceeded. It is not attached yet. Something behind it holds packets until their
    /// times (`fq`); where nothing does, [`slow_path`](Self::slow_path) polices.
    ///
    /// # Errors
    /// If the kernel refuses it. It has no [`HostAddresses::Inside`] while the module that tracks
    /// connections is not loaded ([`LoadError::Missing`](crate::LoadError::Missing)).
    pub fn departures(
        &self,
        kept: &[BorrowedFd<'_>],
        hosts: HostAddresses,
    ) -> Result<Departures, TreeError> {
        match self.departures_on(kept, hosts) {
            Err(TreeError::Inherited(map)) if Departures::KEPT.contains(&map) => {
                log::warn!("{map} of the other process has another layout: departures begin anew");
                self.departures_on(&[], hosts)
            }
            loaded => loaded,
        }
    }

    fn departures_on(
        &self,
        kept: &[BorrowedFd<'_>],
        hosts: HostAddresses,
    ) -> Result<Departures, TreeError> {
        // Each is of a type of its own.
        macro_rules! load {
            ($builder:ident, $program:ident, $storage:expr, $reuse:expr) => {{
                let mut open = $builder::default().open($storage)?;
                if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                    rodata.headerless = self.port.headerless.into();
                }
                $reuse(open.open_object_mut())?;
                let loaded = open.load()?;
                let maps: Result<_, _> =
                    Departures::KEPT.into_iter().map(|name| named(loaded.object(), name)).collect();
                Ok((keep(&loaded.progs.$program), maps))
            }};
        }
        let mut tries = Tries::new();
        let (program, maps) = self.at_egress(&mut tries, kept, |storage, reuse| match hosts {
            HostAddresses::InHeaders => load!(StampSkelBuilder, stamp, storage, reuse),
            HostAddresses::Inside => {
                load!(StampInsideSkelBuilder, stamp_inside, storage, reuse)
            }
        })?;
        Ok(Departures { program: SlowPath::of(program.map_err(TreeError::Load)?), maps: maps? })
    }

    /// What `load` loads, which has an object use this tree's maps and `kept`.
    fn at_egress<'a, T>(
        &self,
        tries: &'a mut Tries,
        kept: &[BorrowedFd<'_>],
        mut load: impl FnMut(
            &'a mut MaybeUninit<OpenObject>,
            &mut dyn FnMut(&mut OpenObject) -> Result<(), libbpf_rs::Error>,
        ) -> Result<T, libbpf_rs::Error>,
    ) -> Result<T, TreeError> {
        let maps = Maps::NAMES.iter().zip(self.maps.all());
        let maps = maps.chain([(&super::LINES, self.lines.as_fd())]);
        let kept = Departures::KEPT.iter().zip(kept.iter().copied());
        let named: BTreeMap<_, _> = maps.chain(kept).collect();
        let mut misfit = None;
        let mut on_maps = |open: &mut OpenObject| {
            reuse(open, &named).map_err(|(map, error)| {
                misfit = Some(map);
                error
            })
        };
        let loaded = tries.explained(|storage| load(storage, &mut on_maps));
        match misfit {
            Some(map) => Err(TreeError::Inherited(map)),
            None => loaded.map_err(TreeError::Load),
        }
    }

    /// What this host itself has sent through the port so far, since a
    /// [program](Self::slow_path) charges it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn slow_path_totals(&self) -> Result<Totals, TreeError> {
        Ok(Totals::of(sums("totals", &self.maps.totals, SLOW_PATH)?))
    }

    /// What this host itself has sent through the port so far, by CPU, of all possible CPUs.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn slow_path_totals_by_cpu(&self) -> Result<Vec<Totals>, TreeError> {
        self.totals_at(SLOW_PATH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::MapType;

    /// What each CPU has for itself lasts for one packet.
    #[test]
    fn every_map_that_outlives_a_packet_is_handed_over() {
        let mut storage = MaybeUninit::uninit();
        let open = StampSkelBuilder::default().open(&mut storage).unwrap();
        let of_tree = |name: &str| Maps::NAMES.contains(&name) || name == super::super::LINES;
        let lasting = open.open_object().maps().filter(|map| {
            map.map_type() != MapType::PercpuArray && !map.name().to_string_lossy().contains('.')
        });
        let lasting = lasting.map(|map| map.name().to_string_lossy().into_owned());
        let mut own: Vec<String> = lasting.filter(|name| !of_tree(name)).collect();
        let mut kept = Departures::KEPT.map(str::to_owned);
        own.sort();
        kept.sort();
        assert_eq!(own, kept);
    }
}
