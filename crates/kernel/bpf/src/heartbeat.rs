//! Heartbeats: when each worker last ran, in memory that the steering programs read.
//!
//! A worker's cell is a cache line of an array map that is mapped into this process. The worker
//! writes it with plain stores, so a heartbeat needs no system call. The steering programs of both
//! ports compare it with the clock for each frame, so a worker that hangs is bypassed even while
//! the whole process is stopped.
//!
//! *Access.* One worker writes a cell and anyone reads it, always as atomic numbers, because the
//! kernel may read at any time. No value is ever used as an address.
//!
//! Non-goals: what happens to the frames of a silent worker.
#![allow(unsafe_code)]

use crate::load::explained;
use crate::maps::map;
use crate::steer::SteerError;
use libbpf_rs::{MapHandle, MapType, libbpf_sys};
use narrows_units::Nanos;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most workers: one per queue, `QUEUES_MAX` of `programs/heartbeat.h`.
const HEARTS: usize = 256;

/// `struct heart` of `programs/heartbeat.h`.
#[repr(C, align(64))]
struct Cell {
    /// By the kernel's monotonic clock, in nanoseconds; 0 if there is no worker.
    beat: AtomicU64,
    /// How often the worker found that it had been silent for too long.
    silences: AtomicU64,
    /// How long the last of them was, in nanoseconds.
    last_silence: AtomicU64,
    _unused: [u64; 5],
}

/// The cells of all workers; unmapped when dropped.
struct Cells(NonNull<Cell>);

// SAFETY: a mapping is a plain region of memory; which thread unmaps it does not matter.
unsafe impl Send for Cells {}
// SAFETY: it shares only atomics.
unsafe impl Sync for Cells {}

impl Cells {
    const BYTES: usize = HEARTS * size_of::<Cell>();

    fn map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: asks for a new region at an address of the kernel's choosing. The map behind
        // it has `HEARTS` values of the size of a cell, one after the other.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), Self::BYTES, access, flags, fd, 0)? };
        NonNull::new(start.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn of(&self, queue: u32) -> Option<&Cell> {
        // SAFETY: the region holds `HEARTS` cells, page-aligned, for as long as `self` lives, and
        // a cell of atomics is valid for any bytes. `_unused` is never accessed.
        let all = unsafe { std::slice::from_raw_parts(self.0.as_ptr(), HEARTS) };
        all.get(queue as usize)
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        // SAFETY: exactly the region that `map` obtained, unmapped once; references into it do
        // not outlive `self`. A failure leaves it mapped, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}

/// The heartbeats of all workers of two ports; see the module's documentation.
#[derive(Clone)]
pub struct Heartbeats {
    map: Arc<MapHandle>,
    cells: Arc<Cells>,
    /// How far this process's monotonic clock is ahead of the kernel's, in nanoseconds.
    ahead: u64,
}

/// The state of a worker as seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pulse {
    /// When it last came round, by this process's monotonic clock.
    pub beat: Nanos,
    /// How often it found that it had been silent for too long.
    pub silences: u64,
    /// How long the last of them was.
    pub last_silence: Nanos,
}

impl Heartbeats {
    /// Makes the map.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges or memory.
    pub fn new() -> Result<Self, SteerError> {
        let sizes = [4, size_of::<Cell>() as u32, HEARTS as u32];
        let create = || map(MapType::Array, "heartbeats", sizes, libbpf_sys::BPF_F_MMAPABLE);
        let map = explained(create).map_err(SteerError::Load)?;
        let cells = Cells::map(map.as_fd())
            .map_err(|error| SteerError::Map { map: "heartbeats", source: error.into() })?;
        Ok(Self { map: Arc::new(map), cells: Arc::new(cells), ahead: ahead_of_the_kernel() })
    }

    /// The heart of the worker of `queue`, which beats for the first time at `now`; `None` beyond
    /// the queues that a steering program serves.
    pub fn heart(&self, queue: u32, now: Nanos) -> Option<Heart> {
        self.cells.of(queue)?;
        let mut heart = Heart { cells: self.cells.clone(), queue, ahead: self.ahead, last: now };
        heart.beat(now);
        Some(heart)
    }

    /// The state of the worker of `queue`.
    pub fn pulse(&self, queue: u32) -> Pulse {
        let Some(cell) = self.cells.of(queue) else { return Pulse::default() };
        // Pairs with the Release in `Heart::recover`.
        let silences = cell.silences.load(Ordering::Acquire);
        Pulse {
            beat: Nanos(cell.beat.load(Ordering::Relaxed).wrapping_add(self.ahead)),
            silences,
            last_silence: Nanos(cell.last_silence.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// A worker's own heart.
pub struct Heart {
    cells: Arc<Cells>,
    queue: u32,
    ahead: u64,
    last: Nanos,
}

impl Heart {
    /// When it last beat.
    #[inline]
    pub fn last(&self) -> Nanos {
        self.last
    }

    /// Publishes the worker's beat at `now`.
    pub fn beat(&mut self, now: Nanos) {
        self.last = now;
        if let Some(cell) = self.cells.of(self.queue) {
            // An independent number: nothing else must be consistent with it.
            cell.beat.store(now.0.wrapping_sub(self.ahead), Ordering::Relaxed);
        }
    }

    /// Publishes that the worker was silent for `silence`. Its next beat shows that it is back.
    pub fn recover(&mut self, silence: Nanos) {
        if let Some(cell) = self.cells.of(self.queue) {
            cell.last_silence.store(silence.0, Ordering::Relaxed);
            // Only this thread writes it. Release: a reader of the new number sees the duration.
            let silences = cell.silences.load(Ordering::Relaxed);
            cell.silences.store(silences + 1, Ordering::Release);
        }
    }
}

/// How far this process's monotonic clock is ahead of the one that programs in the kernel read, in
/// nanoseconds, modulo 2^64: a time namespace, as containers may have one, shifts it.
pub(crate) fn ahead_of_the_kernel() -> u64 {
    // Where there are no time namespaces there is no such file.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    parse_offset(&offsets).unwrap_or(0)
}

/// `monotonic SECONDS NANOSECONDS`, of which the seconds may be negative.
fn parse_offset(offsets: &str) -> Option<u64> {
    let line = offsets.lines().find_map(|line| line.trim_start().strip_prefix("monotonic"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((seconds.wrapping_mul(1_000_000_000)).wrapping_add(nanos) as u64)
}

/// Whether this kernel's XDP programs may read the clock that is a tick old and costs next to
/// nothing (Linux 5.11).
pub(crate) fn has_coarse_clock() -> bool {
    let (program, helper) =
        (libbpf_sys::BPF_PROG_TYPE_XDP, libbpf_sys::BPF_FUNC_ktime_get_coarse_ns);
    // SAFETY: takes two numbers, and no options.
    unsafe { libbpf_sys::libbpf_probe_bpf_helper(program, helper, std::ptr::null()) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_namespace_shifts_the_clock_either_way() {
        let text = |seconds: i64| format!("monotonic  {seconds:>10}         5\nboottime 7 0\n");
        assert_eq!(parse_offset(&text(0)), Some(5));
        assert_eq!(parse_offset(&text(2)), Some(2_000_000_005));
        let behind = parse_offset(&text(-2)).unwrap();
        assert_eq!(10_000_000_000u64.wrapping_sub(behind), 11_999_999_995);
        assert_eq!(parse_offset("boottime 7 0\n"), None);
        assert_eq!(parse_offset("monotonic x 0\n"), None);
    }

    #[test]
    fn a_worker_s_beats_are_visible_in_its_own_cell_only() {
        let hearts = match Heartbeats::new() {
            Ok(hearts) => hearts,
            Err(error) => return eprintln!("SKIPPED: no map can be made: {error}"),
        };
        assert!(hearts.heart(HEARTS as u32, Nanos(1)).is_none());
        let mut heart = hearts.heart(3, Nanos(1_000)).unwrap();
        assert_eq!(hearts.pulse(3).beat, Nanos(1_000));
        heart.beat(Nanos(5_000));
        assert_eq!((heart.last(), hearts.pulse(3).beat), (Nanos(5_000), Nanos(5_000)));
        heart.recover(Nanos(4_000));
        let pulse = hearts.pulse(3);
        assert_eq!((pulse.silences, pulse.last_silence), (1, Nanos(4_000)));
        assert_eq!(hearts.pulse(2).silences, 0);
        // The kernel sees the same.
        use libbpf_rs::MapCore;
        let value = hearts.map.lookup(&3u32.to_ne_bytes(), libbpf_rs::MapFlags::ANY).unwrap();
        let beat = u64::from_ne_bytes(value.unwrap()[..8].try_into().unwrap());
        assert_eq!(beat, 5_000u64.wrapping_sub(hearts.ahead));
        // A worker may outlive its observer.
        drop(hearts);
        heart.beat(Nanos(6_000));
    }
}
