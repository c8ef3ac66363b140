//! AF_XDP sockets: the memory and the four rings that user space shares with the kernel.
//!
//! One [`Umem`] of equal frames serves any number of [`Socket`]s, each bound to one queue of
//! one interface and each with its own four rings: fill (empty frames to the kernel), RX
//! (filled ones back), TX (frames to send), completion (sent ones back). A frame is named by
//! its place in the UMEM and is at any moment in exactly one pair of hands; keeping that
//! true is the caller's part, and the only harm in breaking it is a garbled packet, never
//! memory outside the UMEM. A [`UmemPart`] is the right to read and write the bytes of some frames.
//!
//! All `unsafe` of the data plane is in this crate and in four of its modules: system calls in
//! `sys`, shared memory in `ring`, `mapping` and `umem` (and `heap`, for tests).
//!
//! Non-goals: steering frames to sockets (the `bpf` layer), deciding what is sent when, knowing
//! what the bytes of a frame mean.
//!
//! Source: the kernel's `Documentation/networking/af_xdp.rst` and `linux/if_xdp.h`.

#[cfg(any(test, feature = "heap"))]
mod heap;
mod ring;
mod sync;

#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod umem;

#[cfg(feature = "heap")]
pub use heap::ring_in_memory;
pub use ring::{Consumer, Producer};
#[cfg(not(loom))]
pub use socket::{CopyMode, KernelDrops, RingSizes, Socket, SocketError};
#[cfg(not(loom))]
pub use sys::{Desc, PollSet, Wake, wait_readable};
#[cfg(not(loom))]
pub use umem::{Umem, UmemError, UmemPart};
