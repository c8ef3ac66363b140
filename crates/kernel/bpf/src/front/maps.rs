//! The counters and accounts of a port's front programs, which survive a change of program.

use super::term::{COUNTERS_MAX, Term};
use crate::load::{LoadError, explained};
use crate::maps::{by_cpu, map, map_of_maps, put, sums};
use libbpf_rs::{MapCore, MapHandle, MapType, libbpf_sys};
use narrows_units::{Nanos, Rate};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::iter::Sum;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// As many of each, by counter.
const COUNTERS: u32 = COUNTERS_MAX as u32;
/// Bytes of `struct counter`, of `struct common`, and of `struct row`.
const COUNTER_BYTES: u32 = 48;
const COMMON_BYTES: u32 = 64;
const ROW_BYTES: u32 = 128;
/// `WAYS`, `TICKS_SHIFT` and `BYTE_SHIFT` of `programs/police.h`.
const WAYS: u32 = 8;
const TICKS_SHIFT: u32 = 6;
const BYTE_SHIFT: u32 = 12;
/// The longest time that the program reckons with: 100 days.
const TIME_MAX: Nanos = Nanos(100 * 86_400 * 1_000_000_000);

/// The counts of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Packets that it saw.
    pub packets: u64,
    /// The bytes of their frames.
    pub bytes: u64,
    /// The dropped packets.
    pub drops: u64,
    /// The packets that did not conform:
    pub overlimits: u64,
    /// because they were blocked,
    pub blocked: u64,
    /// or because too many came that had no account.
    pub newcomers: u64,
}

impl Sum for Counted {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            packets: sum.packets + one.packets,
            bytes: sum.bytes + one.bytes,
            drops: sum.drops + one.drops,
            overlimits: sum.overlimits + one.overlimits,
            blocked: sum.blocked + one.blocked,
            newcomers: sum.newcomers + one.newcomers,
        })
    }
}

/// The counters and accounts of a port's front programs, which a new program takes over.
pub struct FrontMaps {
    counters: MapHandle,
    dropped: MapHandle,
    /// Where the first program is to count drops, in the place of `dropped`.
    inherited: Option<OwnedFd>,
    commons: MapHandle,
    accounts: MapHandle,
    /// The rows of each, by its counter, and their number.
    tables: BTreeMap<u8, (u32, MapHandle)>,
    secret: [u64; 2],
}

impl FrontMaps {
    /// Makes them.
    ///
    /// # Errors
    /// If the kernel refuses them.
    pub fn new() -> Result<Self, LoadError> {
        Self::counting_on(None)
    }

    /// Makes them for programs that go on counting drops in `inherited`, if given, which is where
    /// those of another process [count](Self::counts_dropped).
    ///
    /// # Errors
    /// If the kernel refuses them.
    pub fn counting_on(inherited: Option<OwnedFd>) -> Result<Self, LoadError> {
        let made = explained(Self::make)?;
        Ok(Self { inherited, ..made })
    }

    fn make() -> Result<Self, libbpf_rs::Error> {
        let counter = |name, count| map(MapType::PercpuArray, name, [4, COUNTER_BYTES, count], 0);
        let random = RandomState::new();
        Ok(Self {
            counters: counter("counters", COUNTERS)?,
            dropped: counter("dropped", 1)?,
            inherited: None,
            commons: map(MapType::Array, "commons", [4, COMMON_BYTES, COUNTERS], 0)?,
            accounts: map_of_maps("accounts", &rows(1)?, COUNTERS)?,
            tables: BTreeMap::new(),
            secret: [random.hash_one(0), random.hash_one(1)],
        })
    }

    pub(super) fn all(&self) -> [&MapHandle; 3] {
        [&self.counters, &self.commons, &self.accounts]
    }

    pub(super) fn secret(&self) -> [u64; 2] {
        self.secret
    }

    /// Allocates tables for the accounts of `terms`, and frees unused ones. Tables of unchanged
    /// size keep their accounts.
    pub(super) fn make_room(&mut self, terms: &[Term]) -> Result<(), libbpf_rs::Error> {
        let mut wanted = BTreeMap::new();
        for (number, accounts) in terms.iter().flat_map(Term::accounts) {
            wanted.insert(number, row_count(accounts.room));
        }
        for (number, count) in &wanted {
            if self.tables.get(number).is_none_or(|(present, _)| present != count) {
                let table = rows(*count)?;
                put(&self.accounts, u32::from(*number), &table)?;
                self.tables.insert(*number, (*count, table));
            }
        }
        let gone = self.tables.extract_if(.., |number, _| !wanted.contains_key(number));
        for (number, _) in gone {
            self.accounts.delete(&u32::from(number).to_ne_bytes())?;
        }
        Ok(())
    }

    /// The counter `number`, summed over all CPUs; zero if it cannot be read.
    pub fn get(&self, number: u8) -> Counted {
        counted(&self.counters, u32::from(number)).into_iter().sum()
    }

    /// All that was dropped, by CPU.
    pub fn dropped(&self) -> Vec<Counted> {
        counted(&self.dropped, 0)
    }

    /// Where programs count what they drop, to be passed on to another process.
    pub fn counts_dropped(&self) -> BorrowedFd<'_> {
        self.inherited.as_ref().map_or(self.dropped.as_fd(), AsFd::as_fd)
    }

    /// Reads drops from now on where a loaded program counts them.
    pub(super) fn count_in(&mut self, dropped: MapHandle) {
        (self.dropped, self.inherited) = (dropped, None);
    }
}

/// The counter `number` of `map` on each CPU; none if it cannot be read.
fn counted(map: &MapHandle, number: u32) -> Vec<Counted> {
    let of = |slot: Vec<u8>| {
        let [packets, bytes, drops, overlimits, blocked, newcomers] = sums(&[slot]);
        Counted { packets, bytes, drops, overlimits, blocked, newcomers }
    };
    by_cpu(map, number).unwrap_or_default().into_iter().map(of).collect()
}

/// An empty table of `count` rows.
fn rows(count: u32) -> Result<MapHandle, libbpf_rs::Error> {
    map(MapType::Array, "rows", [4, ROW_BYTES, count], libbpf_sys::BPF_F_INNER_MAP)
}

/// How many rows have room for as many accounts: a power of two.
pub(super) fn row_count(room: u32) -> u32 {
    let rows = room.div_ceil(WAYS).max(1);
    rows.checked_next_power_of_two().unwrap_or(1 << 31)
}

/// `time` in ticks of the program.
pub(super) fn ticks_of(time: Nanos) -> u64 {
    time.0.min(TIME_MAX.0) << TICKS_SHIFT
}

/// The ticks, in parts of one, that a byte takes at `rate`.
pub(super) fn ticks_per_byte(rate: Rate) -> u64 {
    let ticks = 1_000_000_000_u128 << (TICKS_SHIFT + BYTE_SHIFT);
    // A packet of 64 KiB is within the program's numbers.
    (ticks / u128::from(rate.bytes_per_sec().max(1))).clamp(1, 1 << 47) as u64
}
