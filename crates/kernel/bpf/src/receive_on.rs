//! Receive packet steering (RPS) in the driver: which CPUs' stack receives what a host's port gets.
//!
//! The program is behind a port's [`Tree`](crate::tree::Tree). Each flow has one CPU of a list, and
//! waits there in a queue of [`QUEUE`] frames. What does not fit is dropped by the kernel, which
//! says so only at its tracepoints; the tree's
//! [totals](crate::tree::Totals::lost_behind) count it.
//!
//! Cost: a hash of the flow and two look-ups in arrays a frame, and the kernel's hand-over, on
//! the CPU where the frame arrives.
//!
//! Non-goals: CPUs' load, and where applications run.

use crate::attach::Entry;
use crate::load::{LoadError, Tries, keep};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapMut};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use skeleton::ReceiveOnSkelBuilder as Builder;

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/receive_on.skel.rs"));
}

/// The most CPUs in a list: `LIST_MAX` of `programs/receive_on.bpf.c`.
pub(crate) const LIST_MAX: usize = 1024;
/// The frames that wait for a CPU at most.
const QUEUE: u32 = 2048;

/// The program, and the queues of its CPUs.
pub(crate) struct ReceiveOn {
    program: OwnedFd,
    #[cfg(test)]
    list: MapHandle,
    /// An entry of the map ends with its last user.
    _cpus: MapHandle,
    /// The programs at tracepoints.
    _links: [Link; 2],
}

/// Why frames cannot be handed to other CPUs.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveOnError {
    /// The list is empty, or too long.
    #[error("give 1 to {LIST_MAX} CPUs to receive on")]
    Length,
    /// There is no such CPU.
    #[error("CPU {cpu} cannot receive: {source}")]
    Cpu {
        /// Its number.
        cpu: u32,
        /// The kernel's error.
        source: libbpf_rs::Error,
    },
    /// The program is for a hook where frames cannot be handed over.
    #[error("at tcx a packet is on its CPU already: say --xdp native or generic")]
    NoXdp,
    /// The kernel does not load the programs.
    #[error("the kernel does not load the program that hands frames to other CPUs: {0}")]
    Load(#[from] LoadError),
}

impl ReceiveOn {
    /// Hands frames to the stacks of `cpus`, and counts in `totals`, those of the tree in front;
    /// `multi_buffer` if they may be in several buffers.
    ///
    /// # Errors
    /// If a CPU is not there, `entry` is tcx, or the kernel refuses the programs.
    pub(crate) fn load(
        cpus: &[u32],
        totals: &MapHandle,
        multi_buffer: bool,
        entry: Entry,
    ) -> Result<Self, ReceiveOnError> {
        if cpus.is_empty() || cpus.len() > LIST_MAX {
            return Err(ReceiveOnError::Length);
        }
        if entry == Entry::Tcx {
            return Err(ReceiveOnError::NoXdp);
        }
        let random = RandomState::new();
        let mut tries = Tries::new();
        let mut loaded = tries.explained(|storage| {
            let mut open = Builder::default().open(storage)?;
            let possible = libbpf_rs::num_possible_cpus()?;
            open.maps.cpus.set_max_entries(u32::try_from(possible).unwrap_or(u32::MAX))?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                rodata.multi_buffer = multi_buffer.into();
                rodata.cpu_count = cpus.len() as u32;
                rodata.flow_key = [random.hash_one(0), random.hash_one(1)];
            }
            open.maps.totals.reuse_fd(totals.as_fd())?;
            entry.set_up(&mut open.progs.receive_on, multi_buffer);
            open.load()
        })?;
        let info = loaded.maps.cpus.info().map_err(LoadError::Other)?.info;
        if let Some(bss) = loaded.maps.bss_data.as_deref_mut() {
            bss.own_map = info.id;
        }
        for (at, &cpu) in (0_u32..).zip(cpus) {
            let absent = |source| ReceiveOnError::Cpu { cpu, source };
            let number = cpu.to_ne_bytes();
            loaded
                .maps
                .cpus
                .update(&number, &QUEUE.to_ne_bytes(), MapFlags::ANY)
                .map_err(absent)?;
            loaded.maps.list.update(&at.to_ne_bytes(), &number, MapFlags::ANY).map_err(absent)?;
        }
        let attached = |link: Result<Link, libbpf_rs::Error>| link.map_err(LoadError::Other);
        Ok(Self {
            #[cfg(test)]
            list: handle(&loaded.maps.list)?,
            _cpus: handle(&loaded.maps.cpus)?,
            _links: [
                attached(loaded.progs.queue_full.attach())?,
                attached(loaded.progs.no_memory.attach())?,
            ],
            program: keep(&loaded.progs.receive_on)?,
        })
    }

    /// The program.
    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

fn handle(map: &MapMut<'_>) -> Result<MapHandle, LoadError> {
    MapHandle::try_from(map).map_err(LoadError::Other)
}

#[cfg(test)]
mod tests;
