//! What redirects arriving packets to a port's ifb: a filter at the port's ingress, whose program
//! (`programs/to_ifb.bpf.c`) chooses all while a process has its array open.
//!
//! Cost: two programs and an action a packet, which the stack may have merged from several frames,
//! and one more way through a device's queue.

use crate::gate::lead_to;
use crate::load::keep;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use narrows_link::clsact::RedirectFilter;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use skeleton::ToIfbSkelBuilder as Builder;

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/to_ifb.skel.rs"));
}

/// What arrives at a port is redirected until this is dropped, or the process ends. The filter
/// stays then, and does nothing, unless it was [detached](Self::detach).
pub struct ToIfb {
    filter: RedirectFilter,
    _behind: OwnedFd,
}

impl ToIfb {
    /// Redirects what arrives at `port` to the device `ifb`, in place of an earlier process's
    /// filter.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn attach(port: u32, ifb: u32) -> io::Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let open = Builder::default().open(&mut storage).map_err(io::Error::other)?;
        let loaded = open.load().map_err(io::Error::other)?;
        let behind = loaded.maps.behind.as_fd().try_clone_to_owned()?;
        lead_to(behind.as_fd(), 0, loaded.progs.all_to_ifb.as_fd())?;
        let program = keep(&loaded.progs.narrows_to_ifb).map_err(io::Error::other)?;
        let filter = RedirectFilter::attach(port, program.as_fd(), ifb);
        Ok(Self { filter: filter.map_err(io::Error::other)?, _behind: behind })
    }

    /// Takes the filter off the port.
    pub fn detach(self) {
        if let Err(error) = self.filter.remove() {
            log::warn!("a filter that does nothing stays: {error}");
        }
    }
}
