//! Loads the programs that switch, on the XDP plane, what arrives at a port.

use super::{Switch, share_switch};
use crate::attach::Entry;
use crate::chooser::{At, Chooser, load};
use crate::load::{LoadError, Tries, keep};
use crate::tree::TreeError;
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use narrows_forwarding::PortId;
use std::os::fd::BorrowedFd;

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod at_xdp {
    include!(concat!(env!("OUT_DIR"), "/switch.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod at_tcx {
    include!(concat!(env!("OUT_DIR"), "/switch_tcx.skel.rs"));
}

impl Switch {
    /// Loads the program for the device that is its port `port`. The other parameters are those of
    /// [`Router::program`](crate::Router::program).
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges or of a feature, or because programs are
    /// behind this switch that are attached otherwise.
    pub fn program(
        &self,
        port: PortId,
        multi_buffer: bool,
        entry: Entry,
        counted: Option<BorrowedFd<'_>>,
    ) -> Result<Chooser, TreeError> {
        use {at_tcx::SwitchTcxSkelBuilder as Tcx, at_xdp::SwitchSkelBuilder as Xdp};
        let at = At { port, multi_buffer, entry, counted };
        let load = || Ok(load!([Xdp, Tcx], [switched, switched_behind], share_switch, self, at));
        load().map_err(TreeError::Load)
    }
}
