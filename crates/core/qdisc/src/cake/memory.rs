//! How much memory packets may take, and do.
//!
//! The memory of frames counts, not the length of packets: a short packet takes a whole frame.
//!
//! By default the limit is four times what the rate and the round trip need, at least 4 MiB and at
//! most 10,240 frames, as in Linux; but for the whole port. An instance gets the same part of it as
//! of the rate. So the same limit suits one queue or forty, and one busy queue or all of them. It
//! never exceeds a quarter of the worker's frames, so that arrivals in the other direction find
//! some. Nor does it exceed what the worker has left for the port: in a router ports compete for
//! frames, and where they run out, the worker can only refuse arrivals, whosever they are. So
//! memory is short a little earlier, and the longest queue pays.
//!
//! Source: `tc-cake(8)`, `memlimit`; following rate and share is ours (mq-cake, Netdev 0x19, leaves
//! it open).

use super::Config;
use crate::Share;
use narrows_packet::Packets;
use narrows_units::{Bytes, Rate};

/// The least for a whole port without a limit.
const PORT_LEAST: Bytes = Bytes(4 << 20);
/// The least for an instance: some turns of a few flows.
const INSTANCE_LEAST: Bytes = Bytes(256 << 10);
/// Times the product of rate and round trip.
const PRODUCTS: u64 = 4;
/// The most for a whole port without a limit, in frames: as many as Linux's own limit of packets.
const PORT_MOST: u64 = 10_240;
/// The part of a worker's frames.
const WORKER_PART: u64 = 4;

/// Frames that are left to the worker when memory is short: some batches, but no more than this
/// part of all.
const RESERVE: u32 = 256;
const RESERVE_PART: u32 = 64;

/// Memory counts as short until usage is down to 3/4 of the limit: otherwise a heap would be made
/// and dropped every few packets.
const RELIEF_PART: u64 = 4;

pub(super) struct Memory {
    used: Bytes,
    most: Bytes,
    limit: Bytes,
    /// The limit set by the worker's frames,
    bound: Bytes,
    /// and by those that it has left.
    left: Bytes,
}

impl Memory {
    pub(super) fn new(config: &Config) -> Self {
        let mut memory = Self {
            used: Bytes::ZERO,
            most: Bytes::ZERO,
            limit: Bytes::ZERO,
            bound: Bytes(u64::MAX),
            left: Bytes(u64::MAX),
        };
        memory.follow(config, Share::WHOLE);
        memory
    }

    /// Limits by `config` from now on, on a queue that gets `share` of the rate.
    pub(super) fn follow(&mut self, config: &Config, share: Share) {
        self.limit = config.memory.unwrap_or_else(|| share.of(of_port(config)).max(INSTANCE_LEAST));
    }

    /// The configured limit: the operator's, or that of the whole port.
    pub(super) fn limit_reported(config: &Config) -> Bytes {
        config.memory.unwrap_or_else(|| of_port(config))
    }

    /// A packet that takes `memory` is queued.
    #[inline]
    pub(super) fn take(&mut self, memory: Bytes) {
        self.used += memory;
        self.most = self.most.max(self.used);
    }

    /// Whether packets of `memory` in total can be queued without a shortage.
    #[inline]
    pub(super) fn has_room(&self, memory: Bytes) -> bool {
        self.used + memory <= self.most_now()
    }

    /// Packets lie in the frames of `packets`.
    #[inline]
    pub(super) fn follow_frames(&mut self, packets: &Packets) {
        self.bound = Bytes(packets.memory().0 / WORKER_PART);
    }

    /// So many packets arrive, which lie in frames of `packets` already.
    #[inline]
    pub(super) fn follow_spare(&mut self, packets: &Packets, arriving: usize) {
        let reserve = RESERVE.min(packets.places() / RESERVE_PART);
        let more =
            (u64::from(packets.spare_frames()) + arriving as u64).saturating_sub(reserve.into());
        let frame = packets.memory_for(Bytes::ZERO);
        self.left = self.used + Bytes(more.saturating_mul(frame.0));
    }

    /// The most that may be used now.
    #[inline]
    fn most_now(&self) -> Bytes {
        self.limit.min(self.bound).min(self.left)
    }

    /// Whether more is used than may be.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.used > self.most_now()
    }

    /// Whether the shortage is well over once `free` is given back.
    #[inline]
    pub(super) fn is_relieved(&self, free: Bytes) -> bool {
        let limit = self.most_now();
        self.used.0 - free.0 < limit.0 - limit.0 / RELIEF_PART
    }

    /// A packet that took `memory` is gone.
    #[inline]
    pub(super) fn give_back(&mut self, memory: Bytes) {
        self.used = self.used - memory;
    }

    pub(super) fn most(&self) -> Bytes {
        self.most
    }
}

/// The limit of a whole port of which the operator says nothing.
fn of_port(config: &Config) -> Bytes {
    let most = Bytes(PORT_MOST * u64::from(config.frame));
    let product = |rate: Rate| Bytes(rate.bytes_in(config.interval).0.saturating_mul(PRODUCTS));
    config.rate.map_or(most, |rate| product(rate).max(PORT_LEAST).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(bits_per_sec: u64, share: Share) -> u64 {
        let rate = Some(Rate::from_bits_per_sec(bits_per_sec));
        let config = Config { rate, ..Config::default() };
        let mut memory = Memory::new(&config);
        memory.follow(&config, share);
        memory.limit.0
    }

    #[test]
    fn the_limit_is_four_round_trips_of_the_rate_and_at_least_four_mebibytes() {
        assert_eq!(limit(10_000_000, Share::WHOLE), 4 << 20);
        assert_eq!(limit(200_000_000, Share::WHOLE), 10_000_000);
    }

    #[test]
    fn no_port_may_have_more_than_ten_thousand_frames_wait_however_fast_it_is() {
        assert_eq!(limit(100_000_000_000, Share::WHOLE), 10_240 * 1514);
        let unlimited = Config::default();
        assert_eq!(Memory::limit_reported(&unlimited), Bytes(10_240 * 1514));
    }

    #[test]
    fn a_queue_has_the_part_of_the_limit_that_it_has_of_the_rate() {
        assert_eq!(limit(200_000_000, Share::one_of(4)), 2_500_000);
        assert_eq!(limit(10_000_000, Share::one_of(64)), 256 << 10);
    }

    #[test]
    fn an_operators_limit_is_kept_and_a_workers_frames_bound_all() {
        let config = Config { memory: Some(Bytes(100_000)), ..Config::default() };
        let mut memory = Memory::new(&config);
        memory.follow(&config, Share::one_of(8));
        assert_eq!(memory.limit, Bytes(100_000));
        let many = Packets::new(1000);
        memory.follow_frames(&many);
        memory.take(Bytes(100_000));
        assert!(!memory.is_short());
        memory.take(Bytes(2048));
        assert!(memory.is_short());
        memory.give_back(Bytes(2048));
        memory.follow_frames(&Packets::new(100));
        assert!(memory.is_short(), "a quarter of 200 KiB");
        memory.follow_frames(&many);
        assert!(!memory.is_relieved(Bytes::ZERO));
        assert!(memory.is_relieved(Bytes(30_000)));
    }

    #[test]
    fn memory_is_short_before_the_workers_frames_are() {
        let config = Config { memory: Some(Bytes(1 << 30)), ..Config::default() };
        let mut memory = Memory::new(&config);
        let mut packets = Packets::new(64_000);
        memory.follow_frames(&packets);
        let frame = packets.memory_for(Bytes::ZERO);
        let mut room = |spare, arriving: u64| {
            packets.set_spare_frames(spare);
            memory.follow_spare(&packets, arriving as usize);
            memory.has_room(Bytes(arriving * frame.0))
        };
        assert!(room(RESERVE, 64) && !room(RESERVE - 1, 64));
        assert!(!room(0, 1) && room(u32::MAX, 64));
        // A worker with few frames keeps back fewer.
        let mut few = Packets::new(640);
        few.set_spare_frames(10);
        memory.follow_spare(&few, 1);
        assert!(memory.has_room(frame));
        few.set_spare_frames(9);
        memory.follow_spare(&few, 1);
        assert!(!memory.has_room(frame));
    }
}
