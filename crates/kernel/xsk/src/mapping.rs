//! Memory shared with the kernel.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A mapped region; unmapped when dropped.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is a plain region of memory; any thread may unmap it.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping only tells its address and size, which never change; code that reads or
// writes the memory follows a protocol of its own.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file that is at least that long and cannot shrink.
    pub(crate) fn file(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // Populated: a worker that has just taken over has no time for a page fault per page.
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), 0)
    }

    /// Maps a ring of an AF_XDP socket.
    pub(crate) fn ring(fd: BorrowedFd<'_>, len: usize, offset: i64) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    fn map(len: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Self> {
        // SAFETY: requests a new region at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { start, len })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address `offset` bytes into the region, for `count` consecutive `T`s; `None` if they do
    /// not fit or are not aligned.
    pub(crate) fn place<T>(&self, offset: u64, count: usize) -> Option<NonNull<T>> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(count.checked_mul(size_of::<T>())?)?;
        if end > self.len {
            return None;
        }
        // SAFETY: `offset` lies within the region.
        let place = unsafe { self.start.add(offset) }.cast::<T>();
        place.is_aligned().then_some(place)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the region that `map` obtained, unmapped once. Holders of pointers into
        // it keep this value alive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
