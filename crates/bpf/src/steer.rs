//! `steer`: hands each frame to the worker that serves its queue, and on request tells it what
//! the frame's addresses were before translation.
//!
//! That request is served by a second program, which takes the place of the first for as long as
//! it lasts: so whoever does not ask pays nothing.

use crate::attach::{AttachError, XdpMode, attach, replace};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapMut, ProgramMut};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/steer.skel.rs"));
}

/// `BPF_F_XDP_HAS_FRAGS` of `linux/bpf.h`: the program copes with frames in several buffers.
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// The program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// The kernel did not load it.
    #[error("the kernel does not load the steering program: {0}")]
    Load(libbpf_rs::Error),
    /// A map of it cannot be written or read.
    #[error("the steering program's {map} map cannot be used: {source}")]
    Map {
        /// The map's name.
        map: &'static str,
        /// What the kernel said.
        source: libbpf_rs::Error,
    },
    /// The one that looks up translations cannot take the place of the other, or give it back.
    #[error("the kernel does not replace the steering program: {0}")]
    Replace(io::Error),
    /// It cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// What became of the frames that came in at a port since the program was attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdicts {
    /// Handed to a worker's socket.
    pub to_worker: u64,
    /// Addressed to this box and given to the kernel.
    pub to_self: u64,
    /// Given to the kernel because no worker served their queue.
    pub unserved: u64,
}

/// The steering program of one port: loaded, and attached once [`Steer::attach`] was called.
pub struct Steer {
    // Declared first, so that the program is detached before its maps go.
    link: Option<OwnedFd>,
    sockets: libbpf_rs::MapHandle,
    verdicts: libbpf_rs::MapHandle,
    plain: OwnedFd,
    /// Where the kernel takes it.
    translated: Option<OwnedFd>,
    looks_up: bool,
}

impl Steer {
    /// Loads the program for a port with the address `mac`; `multi_buffer` where its frames
    /// may come in several buffers. What it says about translations, it says with `seal`, which
    /// is not 0 and should be random.
    ///
    /// # Errors
    /// Where the kernel refuses it: for want of privilege or of a feature.
    pub fn load(mac: [u8; 6], multi_buffer: bool, seal: u32) -> Result<Self, SteerError> {
        // A kernel without look-ups refuses a program that makes them, and libbpf would say so
        // at length.
        let printer = libbpf_rs::set_print(None);
        let both = Self::load_programs(mac, multi_buffer, seal, true);
        libbpf_rs::set_print(printer);
        both.or_else(|_| Self::load_programs(mac, multi_buffer, seal, false))
    }

    fn load_programs(
        mac: [u8; 6],
        multi_buffer: bool,
        seal: u32,
        translated: bool,
    ) -> Result<Self, SteerError> {
        let mut storage = MaybeUninit::uninit();
        let mut open =
            skeleton::SteerSkelBuilder::default().open(&mut storage).map_err(SteerError::Load)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.own_mac = mac;
            rodata.seal = seal;
        }
        if multi_buffer {
            open.progs.steer.set_flags(XDP_HAS_FRAGS);
            open.progs.steer_translated.set_flags(XDP_HAS_FRAGS);
        }
        open.progs.steer_translated.set_autoload(translated);
        let loaded = open.load().map_err(SteerError::Load)?;
        let handle = |map: &'static str, from: &MapMut<'_>| {
            libbpf_rs::MapHandle::try_from(from).map_err(|source| SteerError::Map { map, source })
        };
        let program = |program: &ProgramMut<'_>| {
            let owned = program.as_fd().try_clone_to_owned();
            owned.map_err(|error| SteerError::Load(error.into()))
        };
        Ok(Self {
            link: None,
            sockets: handle("sockets", &loaded.maps.sockets)?,
            verdicts: handle("verdicts", &loaded.maps.verdicts)?,
            plain: program(&loaded.progs.steer)?,
            translated: translated.then(|| program(&loaded.progs.steer_translated)).transpose()?,
            looks_up: false,
        })
    }

    /// Sends the frames of `queue` to `socket`, which is bound to it.
    ///
    /// # Errors
    /// Where the kernel does not take the socket.
    pub fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        let fd = socket.as_raw_fd() as u32;
        self.sockets
            .update(&queue.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| SteerError::Map { map: "sockets", source })
    }

    /// Attaches the program to `ifindex`. Until this handle is dropped, or the process ends,
    /// it decides about the frames that come in there.
    ///
    /// # Errors
    /// Where the kernel refuses: no XDP in the driver, an MTU too large for it, another
    /// program attached.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), SteerError> {
        self.link = Some(attach(self.program(self.looks_up).as_fd(), ifindex, mode)?);
        Ok(())
    }

    /// Whether this kernel can be asked what addresses were before translation.
    pub fn can_look_up(&self) -> bool {
        self.translated.is_some()
    }

    /// Has the kernel look up for each frame what its addresses were before translation, for
    /// [`translation`](crate::translation) to read, or has it stop doing so. Does nothing where
    /// it cannot.
    ///
    /// # Errors
    /// Where the program is attached and cannot be replaced; all is as it was then.
    pub fn look_up(&mut self, wanted: bool) -> Result<(), SteerError> {
        let now = wanted && self.can_look_up();
        if now == self.looks_up {
            return Ok(());
        }
        if let Some(link) = &self.link {
            replace(link.as_fd(), self.program(now).as_fd()).map_err(SteerError::Replace)?;
        }
        self.looks_up = now;
        Ok(())
    }

    fn program(&self, looks_up: bool) -> &OwnedFd {
        self.translated.as_ref().filter(|_| looks_up).unwrap_or(&self.plain)
    }

    /// Takes the program off the interface; frames take the kernel's path from here on. The
    /// counters stay readable.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// What became of the frames so far.
    ///
    /// # Errors
    /// Where the counters cannot be read.
    pub fn verdicts(&self) -> Result<Verdicts, SteerError> {
        let sum = |verdict: u32| {
            let slots = self
                .verdicts
                .lookup_percpu(&verdict.to_ne_bytes(), MapFlags::ANY)
                .map_err(|source| SteerError::Map { map: "verdicts", source })?;
            let per_cpu = slots.unwrap_or_default();
            Ok::<_, SteerError>(
                per_cpu
                    .iter()
                    .filter_map(|slot| slot.as_slice().try_into().ok())
                    .map(u64::from_ne_bytes)
                    .sum(),
            )
        };
        Ok(Verdicts { to_worker: sum(0)?, to_self: sum(1)?, unserved: sum(2)? })
    }
}
