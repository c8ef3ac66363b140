//! What a port's queues and `slow_path` know of each other, in memory of both: the limit that they
//! keep together, what the kernel has sent, and whether packets wait.
//!
//! *Claims.* The program adds up what it lets pass. Any worker may ask what has been added since
//! any of them asked last; exactly one of them gets each byte, and charges it. The mark of what is
//! claimed is in the map, too, so that another process goes on from there.
//!
//! Memory ordering: relaxed, but for claims. Each number is complete in itself, and no other memory
//! is reached through it.

use super::{SlowPath, SlowPathCounters};
use crate::heartbeat::ahead_of_the_kernel;
use crate::load::{Tries, explained, keep};
use crate::mapped::{Mapped, Region};
use crate::tree::TreeError;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use narrows_units::wire::{Framing, Overhead};
use narrows_units::{Bytes, Nanos, Rate};
use skeleton::SlowPathSkelBuilder;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/slow_path.skel.rs"));
}

/// The words of `struct share` of `programs/slow_path.h`, and where some of them are.
const WORDS: usize = 16;
const SENT_PACKETS: usize = 0;
const SENT_BYTES: usize = 1;
const DROPPED_PACKETS: usize = 2;
const DROPPED_BYTES: usize = 3;
const CHARGED: usize = 4;
#[cfg(test)]
const CLOCK: usize = 5;
#[cfg(test)]
const CONTROL_CLOCK: usize = 6;
const RATE: usize = 8;
const OVERHEAD: usize = 9;
const WAITING_AT: usize = 10;
const CLAIMED: usize = 11;

/// The name of the map.
const NAME: &str = "shares";

/// How often it is written at most that packets wait.
const WAITS_EVERY: u64 = 1_000_000;

/// A map that a port's queues and the kernel's program share. Clones are of the same port.
#[derive(Clone)]
pub struct SlowPathShare {
    map: Arc<OwnedFd>,
    words: Arc<Region<AtomicU64>>,
    /// How far this process's monotonic clock is ahead of the kernel's, in nanoseconds.
    ahead: u64,
}

impl SlowPathShare {
    /// That of a port without a limit.
    ///
    /// # Errors
    /// If the kernel refuses the map: for lack of privileges or memory.
    pub fn new() -> Result<Self, TreeError> {
        let made = explained(|| Mapped::<AtomicU64>::of_one_value(NAME, WORDS));
        let made = made.map_err(TreeError::Load)?;
        Self::open(keep(made.map()).map_err(TreeError::Load)?)
    }

    /// That of a port of another process, whose [`map`](Self::map) this is.
    ///
    /// # Errors
    /// If it is none.
    pub fn open(map: OwnedFd) -> Result<Self, TreeError> {
        let words = Region::of(map.as_fd(), WORDS);
        let words = words.map_err(|error| TreeError::Map { map: NAME, source: error.into() })?;
        Ok(Self { map: Arc::new(map), words: Arc::new(words), ahead: ahead_of_the_kernel() })
    }

    /// To be passed on to another process.
    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Loads the program that keeps to it. It is not attached yet.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn program(&self) -> Result<SlowPath, TreeError> {
        let mut tries = Tries::new();
        let program = tries.explained(|storage| {
            let mut open = SlowPathSkelBuilder::default().open(storage)?;
            open.maps.shares.reuse_fd(self.map())?;
            Ok(keep(&open.load()?.progs.slow_path))
        });
        Ok(SlowPath::of(program.flatten().map_err(TreeError::Load)?))
    }

    /// Makes `rate` the limit of all that leaves through the port together, where a frame counts
    /// with `overhead`. Without one, what the kernel sends is counted and not charged.
    pub fn set_limit(&self, limit: Option<(Rate, Overhead)>) {
        let (rate, overhead) = limit.unwrap_or((Rate::default(), Overhead::NONE));
        let framing: u16 = match overhead.framing {
            Framing::Whole => 0,
            Framing::Atm => 1,
            Framing::Ptm => 2,
        };
        let minimum = u16::try_from(overhead.minimum).unwrap_or(u16::MAX);
        let mut word = [0; 8];
        word[..4].copy_from_slice(&overhead.per_frame.to_ne_bytes());
        word[4..6].copy_from_slice(&minimum.to_ne_bytes());
        word[6..].copy_from_slice(&framing.to_ne_bytes());
        self.set(OVERHEAD, u64::from_ne_bytes(word));
        self.set(RATE, rate.bytes_per_sec());
    }

    /// The bytes that left since any worker asked, as the limit counts them: the caller charges
    /// them.
    #[inline]
    pub fn claim(&self) -> Bytes {
        // In this order: what is claimed was charged before. Acquire, and Release below: so a
        // reader of a claim sees as much charged as its writer.
        let claimed = self.words[CLAIMED].load(Ordering::Acquire);
        let charged = self.get(CHARGED);
        if charged == claimed {
            return Bytes::ZERO;
        }
        let is_ours = self.words[CLAIMED]
            .compare_exchange(claimed, charged, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if is_ours { Bytes(charged.wrapping_sub(claimed)) } else { Bytes::ZERO }
    }

    /// Tells the program that packets wait at the limit at `now`.
    #[inline]
    pub fn waits(&self, now: Nanos) {
        let now = now.0.wrapping_sub(self.ahead);
        // Another worker may have written a later time.
        if now.wrapping_sub(self.get(WAITING_AT)) as i64 > WAITS_EVERY as i64 {
            self.set(WAITING_AT, now);
        }
    }

    /// What the kernel has sent.
    pub fn counters(&self) -> SlowPathCounters {
        let words = [SENT_PACKETS, SENT_BYTES, DROPPED_PACKETS, DROPPED_BYTES];
        SlowPathCounters::of(words.map(|word| self.get(word)))
    }

    #[inline]
    fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
