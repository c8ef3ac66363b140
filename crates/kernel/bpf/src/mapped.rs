//! Array maps in this process's memory: stores without a system call, which programs read.
//!
//! *Access.* This process and the kernel's programs may both access it at any time. So it is
//! accessed only as atomic numbers, and no value is ever used as an address.
#![allow(unsafe_code)]

use crate::maps::map;
use libbpf_rs::{MapHandle, MapType, libbpf_sys};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Types that a value of an array map may be viewed as.
///
/// # Safety
/// It is made of atomic numbers only, without padding, its size is a multiple of 8, and any bytes
/// are one.
pub(crate) unsafe trait OfAtomics {}

// SAFETY: an atomic, 8 bytes.
unsafe impl OfAtomics for AtomicU64 {}

/// `struct table` of `programs/sets.h`.
#[repr(C)]
pub(crate) struct SharedTable {
    pub(crate) lengths: [AtomicU64; 2],
    pub(crate) counts: AtomicU64,
    pub(crate) reserved: AtomicU64,
}

// SAFETY: atomics one behind the other, 32 bytes.
unsafe impl OfAtomics for SharedTable {}

/// `struct server` of `programs/balance.h`, and `struct row` of `programs/connections.h`.
#[repr(C)]
pub(crate) struct SharedLine(pub(crate) [AtomicU64; 8]);

// SAFETY: atomics one behind the other, 64 bytes.
unsafe impl OfAtomics for SharedLine {}

/// `struct hop` of `programs/fib.h`.
#[repr(C)]
pub(crate) struct SharedHop {
    pub(crate) how: AtomicU64,
    /// Both addresses, and the tag.
    pub(crate) words: [AtomicU64; 2],
    /// Of the routes to it.
    pub(crate) attributes: AtomicU64,
}

// SAFETY: atomics one behind the other, 32 bytes.
unsafe impl OfAtomics for SharedHop {}

/// An array map of `T`, mapped.
pub(crate) struct Mapped<T: OfAtomics> {
    map: MapHandle,
    region: Region<T>,
}

/// Values of an array map, unmapped when dropped. The map lives on while they are mapped.
pub(crate) struct Region<T: OfAtomics> {
    start: NonNull<T>,
    len: usize,
    of: PhantomData<T>,
}

// SAFETY: a mapping is a plain region of memory; which thread unmaps it does not matter.
unsafe impl<T: OfAtomics> Send for Region<T> {}
// SAFETY: it shares only atomics.
unsafe impl<T: OfAtomics> Sync for Region<T> {}

impl<T: OfAtomics> Mapped<T> {
    /// Makes an array map of `len` values, all zeros.
    pub(crate) fn new(name: &str, len: usize) -> Result<Self, libbpf_rs::Error> {
        Self::of_values(name, len, 1)
    }

    /// Makes an array map of one value, which consists of `len` of `T`, all zeros.
    pub(crate) fn of_one_value(name: &str, len: usize) -> Result<Self, libbpf_rs::Error> {
        Self::of_values(name, 1, len)
    }

    /// Makes an array map of `count` values, each `each` of `T`.
    fn of_values(name: &str, count: usize, each: usize) -> Result<Self, libbpf_rs::Error> {
        let sizes = [4, (each * size_of::<T>()) as u32, count as u32];
        let map = map(MapType::Array, name, sizes, libbpf_sys::BPF_F_MMAPABLE)?;
        let region = Region::of(map.as_fd(), count * each)?;
        Ok(Self { map, region })
    }

    /// The array map `map` of another process, of `len` values.
    ///
    /// # Errors
    /// If they are shorter by a page, or it cannot be mapped.
    pub(crate) fn on(map: MapHandle, len: usize) -> Result<Self, libbpf_rs::Error> {
        let region = Region::of(map.as_fd(), len)?;
        Ok(Self { map, region })
    }

    /// The map.
    pub(crate) fn map(&self) -> &MapHandle {
        &self.map
    }

    /// Its values, without a descriptor of the map.
    pub(crate) fn into_region(self) -> Region<T> {
        self.region
    }
}

impl<T: OfAtomics> Region<T> {
    /// The values of the array map `map`, which are as long as `len` of `T` together.
    ///
    /// # Errors
    /// If they are shorter by a page, or it cannot be mapped.
    pub(crate) fn of(map: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let bytes = len * size_of::<T>();
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: asks for a new region at an address of the kernel's choosing. The values of the
        // map behind it are one after the other without gaps: the size of `T` is a multiple of 8.
        // The kernel maps no more pages than the map has.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, access, flags, map, 0)? };
        let start = NonNull::new(start.cast());
        let start = start.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { start, len, of: PhantomData })
    }
}

impl<T: OfAtomics> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.region
    }
}

impl<T: OfAtomics> Deref for Region<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the region holds `len` values of `T`, page-aligned, for as long as `self` lives,
        // and any bytes are valid atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: OfAtomics> Drop for Region<T> {
    fn drop(&mut self) {
        let bytes = self.len * size_of::<T>();
        // SAFETY: exactly the region that `of` obtained, unmapped once; references into it
        // do not outlive `self`. A failure leaves it mapped, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), bytes) };
    }
}
