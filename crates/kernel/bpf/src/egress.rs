//! Where a program is at a port's egress: at tcx, or before Linux 6.6 behind a filter of `clsact`.
//!
//! A filter stays when its process ends, however it ends. So what it calls is only a gate
//! (`programs/egress_gate.bpf.c`): the program behind is in an array, which the kernel empties once
//! no process has it open. A gate that was left behind lets all pass, and the next one at that port
//! takes its place. What is behind it is replaced in one step, as at tcx.

use crate::attach::{Hold, attach_to_egress};
use crate::gate::lead_to;
use crate::load::keep;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use narrows_link::clsact::EgressFilter;
use skeleton::EgressGateSkelBuilder;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/egress_gate.skel.rs"));
}

/// A program that is attached.
pub(crate) struct AtEgress {
    hold: Hold,
    /// What calls the gate, if there is one.
    filter: Option<EgressFilter>,
}

impl AtEgress {
    /// Attaches `program` to what leaves through `ifindex`, in front of other programs there.
    pub(crate) fn attach(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<Self> {
        match attach_to_egress(program, ifindex) {
            Ok(link) => Ok(Self { hold: Hold::Link(link), filter: None }),
            // The kernel does not know the hook.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Self::attach_by_filter(program, ifindex)
            }
            Err(error) => Err(error),
        }
    }

    /// Attaches it as a `clsact` filter, for kernels without tcx.
    pub(crate) fn attach_by_filter(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<Self> {
        let (gate, behind) = gate()?;
        lead_to(behind.as_fd(), 0, program)?;
        let filter = EgressFilter::attach(ifindex, gate.as_fd()).map_err(io::Error::other)?;
        Ok(Self { hold: Hold::Place(behind, 0), filter: Some(filter) })
    }

    /// Attaches `program` in place of that of another process, which `descriptor` keeps at
    /// `ifindex`. Each packet passes one of them.
    pub(crate) fn take_over(
        descriptor: OwnedFd,
        program: BorrowedFd<'_>,
        ifindex: u32,
    ) -> io::Result<Self> {
        let link = Hold::Link(descriptor);
        match (link.replace(program), link) {
            (Ok(()), link) => Ok(Self { hold: link, filter: None }),
            // It is no link, so it is the array of a gate.
            (Err(error), Hold::Link(array)) if error.raw_os_error() == Some(libc::EINVAL) => {
                let hold = Hold::Place(array, 0);
                hold.replace(program)?;
                let filter = EgressFilter::find(ifindex).map_err(io::Error::other)?;
                Ok(Self { hold, filter })
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Takes the program off the port, also if another process still has what keeps it there.
    pub(crate) fn detach(self) {
        self.hold.release();
        if let Some(Err(error)) = self.filter.map(EgressFilter::remove) {
            log::warn!("a filter that does nothing stays: {error}");
        }
    }
}

/// What keeps it attached: nothing calls it once all descriptors of this are closed.
impl AsFd for AtEgress {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hold.as_fd()
    }
}

/// A gate that nothing calls yet, and the array of what is behind it.
fn gate() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut storage = MaybeUninit::uninit();
    let open = EgressGateSkelBuilder::default().open(&mut storage).map_err(io::Error::other)?;
    let gate = open.load().map_err(io::Error::other)?;
    let program = keep(&gate.progs.narrows_egress).map_err(io::Error::other)?;
    Ok((program, gate.maps.behind.as_fd().try_clone_to_owned()?))
}

#[cfg(test)]
mod tests;
