//! AF_XDP sockets: the memory and the four rings that user space shares with the kernel.
//!
//! One [`Umem`] of equal frames serves any number of [`Socket`]s. Each socket is bound to one queue
//! of one interface and has its own four rings: fill (empty frames to the kernel), RX (received
//! frames from the kernel), TX (frames to send), completion (sent frames from the kernel). A frame
//! is identified by its address in the UMEM and has exactly one owner at any moment. Who it is
//! depends on what the caller has put into the rings, and has taken from them. So these two are
//! `unsafe`: to give a frame to the kernel ([`Producer::push`]), and to borrow bytes of one that it
//! does not have ([`UmemPart::bytes`]). Memory outside of the frame is never touched.
//!
//! Four modules are made for `unsafe`: `sys` (system calls), `ring`, `mapping` and `umem` (shared
//! memory); and `heap`, for tests.
//!
//! Non-goals: steering frames to sockets (the `bpf` layer does), deciding what is sent when,
//! interpreting the bytes of a frame.
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
