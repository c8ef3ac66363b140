//! A socket: one queue of one interface.

use crate::mapping::Mapping;
use crate::ring::{Consumer, Producer, RingMemory};
use crate::sync::{AtomicU32, Cell};
use crate::sys::{self, Desc};
use crate::umem::Umem;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `XDP_MAX_TX_SKB_BUDGET` of `linux/if_xdp.h` (Linux 6.18): how many frames one system call
/// may send in copy mode.
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
/// The requested value: a whole batch. The kernel's default is 32.
const TX_BUDGET: u32 = 256;
/// How much unsent packet memory the kernel may hold for one socket in copy mode, in bytes: a full
/// TX ring of large frames. The system's default of about 200 kB stops a burst halfway.
const SEND_BUFFER: i32 = 16 << 20;

/// Whether the kernel copies frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyMode {
    /// The device reads and writes the UMEM itself.
    ZeroCopy,
    /// The kernel copies between the UMEM and its own buffers.
    Copy,
}

impl CopyMode {
    /// The name in the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ZeroCopy => "zero-copy",
            Self::Copy => "copy",
        }
    }
}

/// The sizes of a socket's rings, in entries: powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingSizes {
    /// Fill and RX ring.
    pub rx: u32,
    /// TX and completion ring.
    pub tx: u32,
}

/// Frames that the kernel lost on the way to or from a socket: `struct xdp_statistics`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelDrops {
    /// Dropped for other reasons, such as being too long for a frame.
    pub rx_dropped: u64,
    /// Dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// How often the fill ring was empty.
    pub fill_ring_empty: u64,
    /// Descriptors in the fill ring that the kernel refused.
    pub rx_invalid: u64,
    /// Descriptors that the kernel refused to send.
    pub tx_invalid: u64,
}

/// Why a socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A step failed.
    #[error("cannot {step}: {source}")]
    Step {
        /// The step.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel described a ring that does not fit its own mapping.
    #[error("the kernel describes a ring that lies outside of its memory")]
    Layout,
}

impl SocketError {
    fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Step { step, source }
    }

    /// The error number of the step that failed.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Step { source, .. } => source.raw_os_error(),
            Self::Layout => None,
        }
    }
}

/// An AF_XDP socket bound to one queue, with its four rings.
pub struct Socket {
    /// Frames received.
    pub rx: Consumer<Desc>,
    /// Frames to send.
    pub tx: Producer<Desc>,
    /// Empty frames for the kernel to fill, by address.
    pub fill: Producer<u64>,
    /// Frames sent, by address.
    pub completion: Consumer<u64>,
    fd: OwnedFd,
    sizes: RingSizes,
    // The kernel reads and writes the frames as long as the socket is open.
    _umem: Umem,
}

impl Socket {
    /// Opens a socket on `queue` of `ifindex`. The first socket registers `umem` with the kernel
    /// and determines the mode; every other one passes it as `first` and shares both.
    /// `multi_buffer` allows a packet to take several frames.
    ///
    /// # Errors
    /// If the kernel refuses a step; `EOPNOTSUPP` from binding means that the device does not
    /// support the mode.
    pub fn bind(
        umem: &Umem,
        ifindex: u32,
        queue: u32,
        sizes: RingSizes,
        mode: CopyMode,
        multi_buffer: bool,
        first: Option<&Socket>,
    ) -> Result<Self, SocketError> {
        use libc::SOL_XDP;
        let at = SocketError::at;
        let owned = sys::socket().map_err(at("open an AF_XDP socket"))?;
        let fd = owned.as_fd();
        if first.is_none() {
            // Not `struct xdp_umem_reg` of the C library: it has grown over time, and older kernels
            // refuse unknown sizes.
            let registration = UmemRegistration {
                addr: umem.start(),
                len: u64::from(umem.frames()) * u64::from(umem.frame_size()),
                chunk_size: umem.frame_size(),
                headroom: 0,
                flags: 0,
                padding: 0,
            };
            sys::set_option(fd, SOL_XDP, libc::XDP_UMEM_REG, &registration)
                .map_err(at("register packet memory (is the locked-memory limit too low?)"))?;
        }
        for (option, size, step) in [
            (libc::XDP_UMEM_FILL_RING, sizes.rx, "size the fill ring"),
            (libc::XDP_UMEM_COMPLETION_RING, sizes.tx, "size the completion ring"),
            (libc::XDP_RX_RING, sizes.rx, "size the RX ring"),
            (libc::XDP_TX_RING, sizes.tx, "size the TX ring"),
        ] {
            sys::set_option(fd, SOL_XDP, option, &size).map_err(at(step))?;
        }
        // Both only make bursts cheaper. An older kernel, or one with fixed limits, works without:
        // the worker repeats its kicks until the ring is empty.
        let _ = sys::set_option(fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &TX_BUDGET);
        let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);

        // Before the socket is bound: kernels before 6.4 refuse to map the rings afterwards.
        let rings = Rings::map(fd, sizes)?;
        let (flags, shared) = match first {
            // A sharing socket inherits the mode; the kernel refuses any other flag.
            Some(first) => (libc::XDP_SHARED_UMEM, first.fd.as_fd()),
            None => {
                let copy = match mode {
                    CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
                    CopyMode::Copy => libc::XDP_COPY,
                };
                let frags = if multi_buffer { libc::XDP_USE_SG } else { 0 };
                (copy | libc::XDP_USE_NEED_WAKEUP | frags, fd)
            }
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: if first.is_some() {
                std::os::fd::AsRawFd::as_raw_fd(&shared) as u32
            } else {
                0
            },
        };
        sys::bind(fd, &address).map_err(at("bind an AF_XDP socket to its queue"))?;
        Ok(rings.into_socket(owned, sizes, umem))
    }

    /// The socket behind `fd`, which another process bound with rings of `sizes` over `umem` and
    /// passed on. Nothing changes yet: call [`Socket::catch_up`] when that process has stopped.
    ///
    /// # Errors
    /// If it is not such a socket. `EBUSY` if this kernel does not map the rings of a bound socket,
    /// which needs Linux 6.4.
    pub fn open(fd: OwnedFd, sizes: RingSizes, umem: &Umem) -> Result<Self, SocketError> {
        let rings = Rings::map(fd.as_fd(), sizes)?;
        Ok(rings.into_socket(fd, sizes, umem))
    }

    /// Continues where the process stopped from which the socket was [opened](Socket::open). That
    /// process must have submitted everything it pushed and released everything it took, and must
    /// do nothing more.
    pub fn catch_up(&mut self) {
        self.rx.catch_up();
        self.tx.catch_up();
        self.fill.catch_up();
        self.completion.catch_up();
    }

    /// The sizes of its rings.
    pub fn sizes(&self) -> RingSizes {
        self.sizes
    }

    /// Starts transmission of the TX ring. In copy mode one call sends a bounded number of frames:
    /// [`Producer::outstanding`] tells whether to call again.
    ///
    /// # Errors
    /// `EAGAIN`, `EBUSY` and `ENOBUFS` mean "later"; `ENETDOWN` and `ENXIO` mean that the interface
    /// is down or gone.
    #[inline]
    pub fn kick_tx(&self) -> io::Result<()> {
        sys::kick_tx(self.fd.as_fd())
    }

    /// Makes the kernel look at the fill ring, if [`Producer::needs_wakeup`] asks for it and the
    /// caller does not sleep on the socket.
    ///
    /// # Errors
    /// As [`Socket::kick_tx`].
    #[inline]
    pub fn kick_rx(&self) -> io::Result<()> {
        sys::kick_rx(self.fd.as_fd())
    }

    /// The kernel's losses so far.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn kernel_drops(&self) -> io::Result<KernelDrops> {
        let mut statistics = Statistics::default();
        sys::get_option(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, &mut statistics)?;
        Ok(KernelDrops {
            rx_dropped: statistics.rx_dropped,
            rx_ring_full: statistics.rx_ring_full,
            fill_ring_empty: statistics.rx_fill_ring_empty_descs,
            rx_invalid: statistics.rx_invalid_descs,
            tx_invalid: statistics.tx_invalid_descs,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `struct xdp_umem_reg` as of Linux 5.4, which all later kernels accept, too.
#[derive(Clone, Copy)]
#[repr(C)]
struct UmemRegistration {
    addr: u64,
    len: u64,
    chunk_size: u32,
    headroom: u32,
    flags: u32,
    padding: u32,
}

/// `struct xdp_ring_offset`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct RingOffset {
    producer: u64,
    consumer: u64,
    desc: u64,
    flags: u64,
}

/// `struct xdp_mmap_offsets`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct MmapOffsets {
    rx: RingOffset,
    tx: RingOffset,
    fill: RingOffset,
    completion: RingOffset,
}

/// `struct xdp_statistics`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Statistics {
    rx_dropped: u64,
    rx_invalid_descs: u64,
    tx_invalid_descs: u64,
    rx_ring_full: u64,
    rx_fill_ring_empty_descs: u64,
    tx_ring_empty_descs: u64,
}

/// The four rings of a socket, mapped.
struct Rings {
    rx: RingMemory<Desc>,
    tx: RingMemory<Desc>,
    fill: RingMemory<u64>,
    completion: RingMemory<u64>,
}

impl Rings {
    fn map(fd: BorrowedFd<'_>, sizes: RingSizes) -> Result<Self, SocketError> {
        let mut offsets = MmapOffsets::default();
        sys::get_option(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets)
            .map_err(SocketError::at("read the layout of the rings"))?;
        let fill_at = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
        let completion_at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
        Ok(Self {
            rx: ring(fd, &offsets.rx, sizes.rx, libc::XDP_PGOFF_RX_RING)?,
            tx: ring(fd, &offsets.tx, sizes.tx, libc::XDP_PGOFF_TX_RING)?,
            fill: ring(fd, &offsets.fill, sizes.rx, fill_at)?,
            completion: ring(fd, &offsets.completion, sizes.tx, completion_at)?,
        })
    }

    fn into_socket(self, fd: OwnedFd, sizes: RingSizes, umem: &Umem) -> Socket {
        Socket {
            rx: Consumer::new(self.rx),
            tx: Producer::new(self.tx),
            fill: Producer::new(self.fill),
            completion: Consumer::new(self.completion),
            fd,
            sizes,
            _umem: umem.clone(),
        }
    }
}

/// Maps a ring of `size` entries at `page_offset` of the socket.
fn ring<T: Copy>(
    fd: BorrowedFd<'_>,
    offset: &RingOffset,
    size: u32,
    page_offset: i64,
) -> Result<RingMemory<T>, SocketError> {
    let len = offset.desc + u64::from(size) * size_of::<T>() as u64;
    let len = usize::try_from(len).map_err(|_| SocketError::Layout)?;
    let mapping =
        Mapping::ring(fd, len, page_offset).map_err(SocketError::at("map a ring into memory"))?;
    let index = |offset| mapping.place::<AtomicU32>(offset, 1).ok_or(SocketError::Layout);
    Ok(RingMemory {
        producer: index(offset.producer)?,
        consumer: index(offset.consumer)?,
        flags: index(offset.flags)?,
        entries: mapping.place::<Cell<T>>(offset.desc, size as usize).ok_or(SocketError::Layout)?,
        size,
        _owner: Box::new(mapping),
    })
}
