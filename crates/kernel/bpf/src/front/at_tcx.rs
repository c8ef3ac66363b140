//! The program for tcx.

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/front_tcx.skel.rs"));
    pub use FrontTcxSkelBuilder as Builder;
}
#[allow(clippy::duplicate_mod, reason = "each skeleton has types of its own")]
#[path = "layout.rs"]
mod layout;
#[allow(clippy::duplicate_mod, reason = "each skeleton has types of its own")]
#[path = "object.rs"]
mod object;

pub(super) use object::load;
