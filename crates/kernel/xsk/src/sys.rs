//! The system calls and structures of AF_XDP that no crate wraps.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor in an RX or TX ring: `struct xdp_desc` of `linux/if_xdp.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Desc {
    /// The start of the data, in bytes from the start of the UMEM.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u32,
    /// `XDP_PKT_CONTD` and metadata flags.
    pub options: u32,
}

impl Desc {
    /// The packet continues in the next descriptor (`XDP_PKT_CONTD`).
    pub const CONTINUES: u32 = 1;

    /// Whether the packet continues in the next descriptor.
    pub const fn continues(&self) -> bool {
        self.options & Self::CONTINUES != 0
    }
}

/// Opens an AF_XDP socket.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `MFD_NOEXEC_SEAL` of `linux/memfd.h`: the content cannot be executed. For Linux 6.3 and newer,
/// which warn without it.
const MFD_NOEXEC_SEAL: u32 = 8;

/// `len` bytes of zeroed memory as a descriptor that can be passed on, and that can neither shrink
/// nor grow.
pub(crate) fn memory(name: &std::ffi::CStr, len: u64) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let create = |flags| {
        // SAFETY: `name` is a terminated string that is live during the call.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so `fd` is a new descriptor without another owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    let fd = match create(flags | MFD_NOEXEC_SEAL) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => create(flags)?,
        other => other?,
    };
    let len = libc::off_t::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: takes no pointers.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes no pointers.
    let sealed = unsafe {
        libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)
    };
    if sealed < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}

/// The size of the memory behind a descriptor of [`memory`]; an error for anything that could
/// shrink while it is mapped.
pub(crate) fn memory_len(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: takes no pointers.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 {
        return Err(io::Error::last_os_error());
    }
    if seals & libc::F_SEAL_SHRINK == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: all zeros are a valid `stat`, which is plain numbers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a live structure of the type that the call writes.
    if unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// Sets a socket option to a plain value.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is a live `T` of the size that is given, and the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads a socket option into `value`, which an older kernel may fill only in part.
pub(crate) fn get_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: &mut T,
) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is a live, writable `T` of `len` bytes, the kernel writes at most that, and
    // the structures used with it (plain integers) are valid for any bytes.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, std::ptr::from_mut(value).cast(), &mut len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Binds a socket to a queue.
pub(crate) fn bind(fd: BorrowedFd<'_>, address: &libc::sockaddr_xdp) -> io::Result<()> {
    // SAFETY: `address` is a live structure of the size that is given.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(address).cast(),
            size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the kernel look at the TX ring now.
pub(crate) fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: sends no data, so no pointer is read.
    let sent = unsafe {
        libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the kernel look at the fill ring now.
pub(crate) fn kick_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: receives no data, so no pointer is written.
    let received = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    if received < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Why a sleep ended; neither flag is set after a time-out or a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wake {
    /// Something can be read.
    pub readable: bool,
    /// A descriptor has an error: an interface is gone or down.
    pub failed: bool,
}

/// Any number of descriptors to wait for. Reused from sleep to sleep, it allocates once.
#[derive(Debug, Default)]
pub struct PollSet(Vec<libc::pollfd>);

// SAFETY of the type: it holds numbers of descriptors, which `ppoll` accepts whatever has become of
// them. A descriptor that was closed meanwhile reports an error, or is another that was opened
// since.
impl PollSet {
    /// Removes all descriptors.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds `fd`: waits until it is readable if `waited_for`, and for errors in any case.
    pub fn add(&mut self, fd: BorrowedFd<'_>, waited_for: bool) {
        let events = if waited_for { libc::POLLIN } else { 0 };
        self.0.push(libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
    }

    /// Sleeps until a descriptor that is waited for is readable, any has an error, or `timeout_ns`
    /// nanoseconds have passed (without a limit for `None`).
    ///
    /// # Errors
    /// Those of `ppoll`, except that an interruption by a signal counts as a time-out.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<Wake> {
        poll(&mut self.0, timeout_ns)
    }
}

/// Sleeps until one of `fds` that is waited for (`true`) is readable, any has an error, or
/// `timeout_ns` nanoseconds have passed (without a limit for `None`).
///
/// # Errors
/// Those of `ppoll`, except that an interruption by a signal counts as a time-out.
pub fn wait_readable<const N: usize>(
    fds: [(BorrowedFd<'_>, bool); N],
    timeout_ns: Option<u64>,
) -> io::Result<Wake> {
    let mut polled = fds.map(|(fd, waited_for)| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: if waited_for { libc::POLLIN } else { 0 },
        revents: 0,
    });
    poll(&mut polled, timeout_ns)
}

fn poll(polled: &mut [libc::pollfd], timeout_ns: Option<u64>) -> io::Result<Wake> {
    let timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = polled.len() as libc::nfds_t;
    // SAFETY: `polled` are `count` live entries, `timeout` is null or points to a live
    // structure, the signal mask is null, and the call keeps none of them.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count, timeout, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(Wake::default()),
            _ => Err(error),
        };
    }
    let any = |events| polled.iter().any(|fd| fd.revents & events != 0);
    Ok(Wake {
        readable: any(libc::POLLIN),
        failed: any(libc::POLLERR | libc::POLLHUP | libc::POLLNVAL),
    })
}
