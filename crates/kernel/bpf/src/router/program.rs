//! Loads the programs that route, on the XDP plane, what arrives at a port.

use super::{RoutedBy, Router, share_router};
use crate::attach::Entry;
use crate::chooser::{At, Chooser, load};
use crate::load::{LoadError, Tries, keep};
use crate::tree::TreeError;
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use narrows_forwarding::PortId;
use std::os::fd::{AsFd, BorrowedFd};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod at_xdp {
    include!(concat!(env!("OUT_DIR"), "/router.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod at_tcx {
    include!(concat!(env!("OUT_DIR"), "/router_tcx.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod by_flows {
    include!(concat!(env!("OUT_DIR"), "/router_flow.skel.rs"));
}

/// Gives an opened object the maps of a router, and where it hands the route that a frame takes to
/// the tree behind it.
macro_rules! share_handing {
    ($open:expr, $router:expr) => {
        share_router!($open, $router);
        $open.maps.route_taken.reuse_fd($router.takers().route().as_fd())?;
    };
}

impl Router {
    /// Loads the program for a device that is its port `port`; `multi_buffer` if its frames may be
    /// in several buffers. `entry` is how it is attached, and all that shares this router. It goes
    /// on counting in `counted`, the [`counters`](Chooser::counters) of a program that it is to
    /// replace.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges or of a feature, or because programs are
    /// behind this router that are attached otherwise.
    pub fn program(
        &self,
        port: PortId,
        multi_buffer: bool,
        entry: Entry,
        counted: Option<BorrowedFd<'_>>,
    ) -> Result<Chooser, TreeError> {
        use by_flows::RouterFlowSkelBuilder as Flows;
        use {at_tcx::RouterTcxSkelBuilder as Tcx, at_xdp::RouterSkelBuilder as Xdp};
        let at = At { port, multi_buffer, entry, counted };
        if self.routed_by == RoutedBy::Flows && entry == Entry::Tcx {
            return Err(TreeError::FlowsAtTcx);
        }
        // A macro, because each object's skeleton has types of its own.
        macro_rules! load_on_its_maps {
            ($objects:tt) => {
                load!($objects, [router, router_behind], share_handing, self, at)
            };
        }
        let load = || match self.routed_by {
            RoutedBy::Routes => Ok(load_on_its_maps!([Xdp, Tcx])),
            RoutedBy::Flows => Ok(load_on_its_maps!(Flows)),
        };
        load().map_err(TreeError::Load)
    }
}
