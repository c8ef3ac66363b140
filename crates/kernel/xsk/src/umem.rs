//! The frames: memory that user space and the kernel access in turns.
//!
//! *Who may touch a byte.* The memory is divided into [`UmemPart`]s. Each is given out once and
//! owned by one worker, so no two threads of Narrows ever access the same byte; within a part,
//! Rust's borrowing rules apply. Towards the kernel, the rings are the protocol: a frame belongs to
//! the kernel from the moment its address is in the fill or TX ring until it returns in the RX or
//! completion ring. Loading the ring's index with acquire ordering makes the kernel's writes
//! visible. Only the owner of the part knows which frames have returned. So to borrow bytes is
//! `unsafe`, as is [`push`](crate::Producer::push), which ends the time in which they may be
//! borrowed: a module that does both, and nothing else does, can prove its accesses.
//!
//! *What a violation can do.* Accesses never leave the frame, for any address and length.
//!
//! Non-goals: to record who has a frame, which would be the owner's record a second time.
#![allow(unsafe_code)]

use crate::{mapping::Mapping, sys};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Why a UMEM cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum UmemError {
    /// The kernel accepts frames of 2048 or 4096 bytes (aligned mode, up to the page size).
    #[error("frames of {0} bytes: AF_XDP takes 2048 or 4096")]
    FrameSize(u32),
    /// There is not enough memory.
    #[error("cannot map {bytes} bytes for packet frames: {source}")]
    Memory {
        /// The requested size.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The memory that another process passed on is not that of so many frames.
    #[error("the memory that was passed on does not hold {frames} frames of {frame_size} bytes")]
    Foreign {
        /// The expected number of frames.
        frames: u32,
        /// The size of a frame, in bytes.
        frame_size: u32,
    },
    /// More frames were requested than are left.
    #[error("{0} packet frames are asked for, {1} are left")]
    Frames(u32, u32),
}

/// The memory of packets: `frames` frames of `frame_size` bytes each, shared by all sockets of all
/// ports. Cheap to clone; freed with its last clone.
#[derive(Clone)]
pub struct Umem {
    region: Arc<Mapping>,
    memory: Arc<OwnedFd>,
    /// How many frames are given out, counted from the first. Never decreases.
    given: Arc<AtomicU32>,
    frames: u32,
    frame_size: u32,
}

impl Umem {
    /// Allocates the memory.
    ///
    /// # Errors
    /// If AF_XDP does not accept the frame size, or memory is short.
    pub fn new(frames: u32, frame_size: u32) -> Result<Self, UmemError> {
        let bytes = size(frames, frame_size)?;
        let memory = sys::memory(c"narrows-frames", bytes)
            .map_err(|source| UmemError::Memory { bytes, source })?;
        Self::map(memory, frames, frame_size)
    }

    /// Maps memory that another process allocated ([`Umem::as_fd`](AsFd::as_fd)) and passed on.
    ///
    /// # Errors
    /// If it is not the memory of `frames` frames of `frame_size` bytes, or cannot be mapped.
    pub fn open(memory: OwnedFd, frames: u32, frame_size: u32) -> Result<Self, UmemError> {
        let bytes = size(frames, frame_size)?;
        if sys::memory_len(memory.as_fd()).ok() != Some(bytes) {
            return Err(UmemError::Foreign { frames, frame_size });
        }
        Self::map(memory, frames, frame_size)
    }

    fn map(memory: OwnedFd, frames: u32, frame_size: u32) -> Result<Self, UmemError> {
        let bytes = size(frames, frame_size)?;
        let region = usize::try_from(bytes)
            .map_err(|_| io::ErrorKind::OutOfMemory.into())
            .and_then(|len| Mapping::file(memory.as_fd(), len))
            .map_err(|source| UmemError::Memory { bytes, source })?;
        Ok(Self {
            region: Arc::new(region),
            memory: Arc::new(memory),
            given: Arc::new(AtomicU32::new(0)),
            frames,
            frame_size,
        })
    }

    /// Gives out the next `count` frames, permanently, to one owner.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn part(&self, count: u32) -> Result<UmemPart, UmemError> {
        let take = |given: u32| given.checked_add(count).filter(|end| *end <= self.frames);
        // Relaxed: only the count itself is shared; no other memory depends on it.
        match self.given.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(first) => Ok(UmemPart { umem: self.clone(), first, count }),
            Err(given) => Err(UmemError::Frames(count, self.frames - given)),
        }
    }

    /// The number of frames.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The size of a frame, in bytes.
    pub fn frame_size(&self) -> u32 {
        self.frame_size
    }

    /// The number of the frame that contains `addr`.
    #[inline]
    pub fn frame_at(&self, addr: u64) -> u64 {
        addr / u64::from(self.frame_size)
    }

    /// The address of frame number `frame`.
    #[inline]
    pub fn addr_of(&self, frame: u32) -> u64 {
        u64::from(frame) * u64::from(self.frame_size)
    }

    pub(crate) fn start(&self) -> u64 {
        self.region.start().as_ptr() as u64
    }
}

impl AsFd for Umem {
    /// The memory, to be passed on to another process.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// The size of that many frames, in bytes.
fn size(frames: u32, frame_size: u32) -> Result<u64, UmemError> {
    if frame_size != 2048 && frame_size != 4096 {
        return Err(UmemError::FrameSize(frame_size));
    }
    Ok(u64::from(frames) * u64::from(frame_size))
}

/// Some frames of a [`Umem`], owned exclusively: no other part has any of them.
pub struct UmemPart {
    umem: Umem,
    /// The number of its first frame in the whole UMEM.
    first: u32,
    count: u32,
}

impl UmemPart {
    /// The number of frames.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The size of a frame, in bytes.
    pub fn frame_size(&self) -> u32 {
        self.umem.frame_size
    }

    /// The address of frame number `frame` of this part.
    #[inline]
    pub fn addr_of(&self, frame: u32) -> u64 {
        self.umem.addr_of(self.first + frame)
    }

    /// The number, within this part, of the frame that contains `addr`; `None` for an address in
    /// another part.
    #[inline]
    pub fn frame_at(&self, addr: u64) -> Option<u32> {
        let frame = self.umem.frame_at(addr).checked_sub(u64::from(self.first))?;
        (frame < u64::from(self.count)).then_some(frame as u32)
    }

    /// The `len` bytes at `addr`, if they are within frame number `frame` of this part.
    ///
    /// # Safety
    /// As long as they are borrowed, the frame is with this process: the kernel does not have it
    /// from a fill or TX ring, and no other process that maps the memory uses it.
    #[inline]
    pub unsafe fn bytes(&self, frame: u32, addr: u64, len: u32) -> Option<&[u8]> {
        let place = self.place(frame, addr, len)?;
        // SAFETY: `place` points to `len` mapped bytes, all of them in this part, which stay mapped
        // as long as `self.umem` lives. No other part reaches them, and `self` is borrowed, so no
        // thread of this process writes to them meanwhile. The caller vouches for the kernel and
        // for other processes.
        Some(unsafe { std::slice::from_raw_parts(place.as_ptr(), len as usize) })
    }

    /// The `len` bytes at `addr`, if they are within frame number `frame` of this part, to write
    /// to.
    ///
    /// # Safety
    /// As for [`UmemPart::bytes`].
    #[inline]
    pub unsafe fn bytes_mut(&mut self, frame: u32, addr: u64, len: u32) -> Option<&mut [u8]> {
        let place = self.place(frame, addr, len)?;
        // SAFETY: as above; and `self` is borrowed mutably, so no thread of this process reads them
        // meanwhile.
        Some(unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), len as usize) })
    }

    /// The first of `len` bytes at `addr`, if they are within `frame`.
    #[inline]
    fn place(&self, frame: u32, addr: u64, len: u32) -> Option<NonNull<u8>> {
        if frame >= self.count {
            return None;
        }
        let offset = addr.checked_sub(self.addr_of(frame))?;
        let room = u64::from(self.frame_size()).checked_sub(u64::from(len))?;
        if offset > room {
            return None;
        }
        self.umem.region.place(addr, len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No kernel has any of these frames.
    fn bytes(part: &UmemPart, frame: u32, addr: u64, len: u32) -> Option<&[u8]> {
        // SAFETY: no socket has this memory, and no process maps it but this one, in turns.
        unsafe { part.bytes(frame, addr, len) }
    }

    fn bytes_mut(part: &mut UmemPart, frame: u32, addr: u64, len: u32) -> Option<&mut [u8]> {
        // SAFETY: as above.
        unsafe { part.bytes_mut(frame, addr, len) }
    }

    #[test]
    fn no_frame_is_given_out_twice() {
        let umem = Umem::new(8, 2048).expect("there is memory");
        let [one, other] = [3, 5].map(|count| umem.part(count).expect("enough are left"));
        assert_eq!((one.addr_of(0), one.count()), (0, 3));
        assert_eq!((other.addr_of(0), other.count()), (3 * 2048, 5));
        drop(one);
        assert!(matches!(umem.part(1), Err(UmemError::Frames(1, 0))));
        assert!(matches!(umem.clone().part(u32::MAX), Err(UmemError::Frames(u32::MAX, 0))));
    }

    #[test]
    fn what_one_process_writes_another_reads() {
        let umem = Umem::new(4, 2048).expect("there is memory");
        let mut part = umem.part(4).expect("enough are left");
        bytes_mut(&mut part, 1, 2048, 3).expect("ours").copy_from_slice(b"abc");
        let passed_on = || umem.as_fd().try_clone_to_owned().expect("a descriptor");
        let other = Umem::open(passed_on(), 4, 2048).expect("the same memory");
        drop((part, umem.clone()));
        let part = other.part(4).expect("all are left");
        assert_eq!(bytes(&part, 1, 2048, 3).expect("ours"), b"abc");
        for (frames, frame_size) in [(5, 2048), (3, 2048), (4, 4096)] {
            let refused = Umem::open(passed_on(), frames, frame_size);
            assert!(matches!(refused, Err(UmemError::Foreign { .. })), "{frames} x {frame_size}");
        }
        let file = std::fs::File::open("/dev/zero").expect("it is always there");
        assert!(matches!(Umem::open(file.into(), 4, 2048), Err(UmemError::Foreign { .. })));
    }

    #[test]
    fn bytes_written_into_a_frame_are_read_only_there() {
        let umem = Umem::new(4, 2048).expect("there is memory");
        let [mut one, mut other] = [2, 2].map(|count| umem.part(count).expect("enough are left"));
        bytes_mut(&mut one, 1, 2048 + 256, 3).expect("ours").copy_from_slice(b"abc");
        bytes_mut(&mut other, 0, 4096, 2048).expect("ours").fill(7);
        assert_eq!(bytes(&one, 1, 2048 + 255, 5).expect("ours"), b"\0abc\0");
        assert!(bytes(&one, 0, 0, 2048).expect("ours").iter().all(|byte| *byte == 0));
        assert!(
            bytes(&one, 1, 2048 + 259, 2048 - 259).expect("ours").iter().all(|byte| *byte == 0)
        );
    }

    #[test]
    fn bytes_outside_of_one_frame_of_the_part_are_out_of_reach() {
        let umem = Umem::new(6, 2048).expect("there is memory");
        let [_, mut middle, _] = [2, 2, 2].map(|count| umem.part(count).expect("enough are left"));
        let reachable = [(0, 4096, 2048), (0, 4096 + 2047, 1), (1, 6144, 0), (1, 8192 - 1, 1)];
        for (frame, addr, len) in reachable {
            assert_eq!(bytes(&middle, frame, addr, len).expect("ours").len(), len as usize);
        }
        let beyond = [
            (0, 0, 1),
            (0, 4095, 1),
            (0, 4095, 2),
            (0, 4096, 2049),
            (0, 4096 + 2047, 2),
            (0, 6144, 1),
            (1, 4096, 1),
            (1, 6144, u32::MAX),
            (1, 8192, 1),
            (2, 8192, 0),
            (2, 8192, 1),
            (u32::MAX, 4096, 1),
            (1, u64::MAX, 1),
            (1, u64::MAX - 1, u32::MAX),
        ];
        for (frame, addr, len) in beyond {
            assert!(bytes(&middle, frame, addr, len).is_none(), "{len} bytes at {addr}");
            assert!(bytes_mut(&mut middle, frame, addr, len).is_none(), "{len} bytes at {addr}");
        }
    }
}
