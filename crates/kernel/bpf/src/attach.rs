//! Attaching a program through a link, at a chosen hook, and replacing it there, or behind another
//! program: a gate in libxdp's dispatcher, the one that tells VLANs apart, or a router's.
//!
//! `libbpf-rs` attaches links only in the mode that the kernel picks and netlink
//! attachments only without a link, and replaces only programs of its own links, so these two
//! calls are made here.
#![allow(unsafe_code)]

use crate::gate;
use libbpf_rs::{OpenProgramMut, ProgramAttachType, libbpf_sys};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `BPF_F_XDP_HAS_FRAGS` of `linux/bpf.h`: the program copes with frames in several buffers.
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// Where in the kernel an XDP program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdpMode {
    /// In the driver, before the kernel builds a packet.
    Native,
    /// In the stack, for drivers without XDP; slower.
    Generic,
}

/// Where in the kernel a program sees the frames that arrive at an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// At XDP.
    Xdp(XdpMode),
    /// At tcx: once the kernel has built a packet, which is neither copied nor split up for the
    /// program. Since Linux 6.6.
    Tcx,
}

impl Hook {
    /// The mode at XDP; `None` elsewhere.
    pub const fn xdp_mode(self) -> Option<XdpMode> {
        match self {
            Self::Xdp(mode) => Some(mode),
            Self::Tcx => None,
        }
    }

    /// The hook's name, as the documentation has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp(XdpMode::Native) => "native",
            Self::Xdp(XdpMode::Generic) => "generic",
            Self::Tcx => "tcx",
        }
    }

    /// The inverse of [`name`](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Xdp(XdpMode::Native), Self::Xdp(XdpMode::Generic), Self::Tcx];
        all.into_iter().find(|hook| hook.name() == name)
    }

    /// The kernel's name for the hook, and flags: `XDP_FLAGS_DRV_MODE` or `XDP_FLAGS_SKB_MODE` of
    /// `linux/if_link.h`.
    const fn attach_type(self) -> (libbpf_sys::bpf_attach_type, u32) {
        match self {
            Self::Xdp(XdpMode::Native) => (libbpf_sys::BPF_XDP, 1 << 2),
            Self::Xdp(XdpMode::Generic) => (libbpf_sys::BPF_XDP, 1 << 1),
            Self::Tcx => (libbpf_sys::BPF_TCX_INGRESS, 0),
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Hook::Xdp(*self).name())
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the frames of an interface come to a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Entry {
    /// It is the interface's program.
    #[default]
    Own,
    /// Through a [gate](crate::Place) in libxdp's dispatcher.
    Shared,
    /// At [tcx](Hook::Tcx), where other programs may be as well.
    Tcx,
}

impl Entry {
    /// Sets a program up that is not loaded yet.
    pub(crate) fn set_up(self, program: &mut OpenProgramMut<'_>, multi_buffer: bool) {
        match self {
            Self::Own if multi_buffer => program.set_flags(XDP_HAS_FRAGS),
            Self::Own | Self::Tcx => {}
            // The kernel wants the programs of an array to be alike. The gate is of a type that has
            // neither an attach type (0, whose name is another's) nor that flag, which its
            // dispatcher has.
            Self::Shared => program.set_attach_type(ProgramAttachType::CgroupInetIngress),
        }
    }

    /// What `descriptor` of this or of another process keeps attached.
    pub(crate) fn hold(self, descriptor: OwnedFd) -> Hold {
        match self {
            Self::Own | Self::Tcx => Hold::Link(descriptor),
            Self::Shared => Hold::Place(descriptor, 0),
        }
    }
}

/// What keeps a program attached, until all descriptors of it are closed.
pub(crate) enum Hold {
    /// The link to an interface.
    Link(OwnedFd),
    /// An array of programs, and its place there: that of a gate, which has one, that of
    /// [`Vlans`](crate::Vlans), or that of a [`Router`](crate::Router).
    Place(OwnedFd, u32),
}

impl Hold {
    /// Attaches `program` in place of what is there. Each frame passes one or the other.
    pub(crate) fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Self::Link(link) => replace(link.as_fd(), program),
            Self::Place(behind, place) => gate::lead_to(behind.as_fd(), *place, program),
        }
    }

    /// Takes the program off, also if another process still has a descriptor of an array.
    pub(crate) fn release(self) {
        if let Self::Place(behind, place) = self {
            gate::open(behind.as_fd(), place);
        }
    }
}

impl AsFd for Hold {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Link(descriptor) | Self::Place(descriptor, _) => descriptor.as_fd(),
        }
    }
}

/// The kernel refused to attach a program.
#[derive(Debug, thiserror::Error)]
#[error("cannot attach the program ({hook}): {source}")]
pub struct AttachError {
    /// Where it was to be attached.
    pub hook: Hook,
    /// The kernel's error.
    pub source: io::Error,
}

impl AttachError {
    /// Whether another program is attached there.
    pub fn is_taken(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
    }
}

/// Attaches `program` to the interface `ifindex`. It stays for as long as the returned link
/// is open.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    ifindex: u32,
    hook: Hook,
) -> Result<OwnedFd, AttachError> {
    let (attach_type, flags) = hook.attach_type();
    let created = create_link(program, ifindex, attach_type, flags);
    created.map_err(|source| AttachError { hook, source })
}

/// Attaches `program` to what leaves through `ifindex`, at tcx (since Linux 6.6), in front of other
/// programs there: one that lets a packet pass keeps it from all behind. It stays for as long as
/// the returned link is open.
pub(crate) fn attach_to_egress(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<OwnedFd> {
    create_link(program, ifindex, libbpf_sys::BPF_TCX_EGRESS, libbpf_sys::BPF_F_BEFORE)
}

fn create_link(
    program: BorrowedFd<'_>,
    ifindex: u32,
    attach_type: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: `program` is an open descriptor for the length of the call, `options` is a
    // fully initialised structure that says its own size, and the call keeps neither.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, attach_type, &options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call succeeded, so `fd` is a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the driver of `ifindex` sends frames that programs of other interfaces redirect to it,
/// with its present settings; `None` if the kernel does not report it (before Linux 6.3). Most
/// drivers do so only while they run a program themselves.
pub fn sends_redirected(ifindex: u32) -> Option<bool> {
    /// `NETDEV_XDP_ACT_NDO_XMIT` of `linux/netdev.h`.
    const SENDS: u64 = 1 << 2;
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: `options` is an initialised structure that says its own size, and the call fills it
    // in.
    let outcome = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &mut options) };
    (outcome == 0 && options.feature_flags != 0).then_some(options.feature_flags & SENDS != 0)
}

/// Replaces the program attached through `link` by `program`. Each frame passes one or the other.
pub(crate) fn replace(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both are open descriptors for the length of the call, which keeps neither, and no
    // options are passed.
    let outcome = unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
    };
    if outcome < 0 { Err(io::Error::from_raw_os_error(-outcome)) } else { Ok(()) }
}
