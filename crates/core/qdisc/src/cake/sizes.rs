//! The charge of a packet, and the range of lengths.

use super::Config;
use super::ewma::average;
use narrows_units::{Bytes, wire::Overhead};

/// The average offset follows by 1/256,
const SHIFT: u32 = 8;
/// and is kept in 1/65536 byte.
const FRACTION: u32 = 16;

/// Charges, and remembers extremes.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    overhead: Overhead,
    network_length: bool,
    /// Neither changes anything.
    is_plain: bool,
    network: Range,
    adjusted: Range,
    offset: u64,
}

/// From the least to the most.
#[derive(Clone, Copy)]
struct Range {
    least: u32,
    most: u32,
}

impl Range {
    const NOTHING: Self = Self { least: u32::MAX, most: 0 };

    #[inline]
    fn take_in(&mut self, value: u32) {
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    fn join(&mut self, other: Self) {
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }

    fn get(self) -> Option<(u32, u32)> {
        (self.least <= self.most).then_some((self.least, self.most))
    }
}

impl Sizes {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            overhead: config.overhead,
            network_length: config.network_length,
            is_plain: config.overhead == Overhead::NONE && !config.network_length,
            network: Range::NOTHING,
            adjusted: Range::NOTHING,
            offset: 0,
        }
    }

    /// Charges by `config` from now on. The extremes start over if lengths change.
    pub(super) fn follow(&mut self, config: &Config) {
        if (self.overhead, self.network_length) != (config.overhead, config.network_length) {
            *self = Self { offset: self.offset, ..Self::new(config) };
        }
    }

    /// A copy that continues from here with extremes of its own, and may replace this one.
    #[inline]
    pub(super) fn ahead(&self) -> Self {
        Self { network: Range::NOTHING, adjusted: Range::NOTHING, ..*self }
    }

    /// Adopts the extremes of `ahead`, which continued from here.
    #[inline]
    pub(super) fn catch_up(&mut self, ahead: &Self) {
        self.offset = ahead.offset;
        self.network.join(ahead.network);
        self.adjusted.join(ahead.adjusted);
    }

    /// The highest charge so far; zero before the first packet.
    #[inline]
    pub(super) fn most(&self) -> u32 {
        if self.is_plain { self.network.most } else { self.adjusted.most }
    }

    /// The charge of a frame of `len` bytes whose network layer begins at `offset`.
    #[inline]
    pub(super) fn charge(&mut self, len: Bytes, offset: u16) -> u32 {
        if self.is_plain {
            return self.charge_plainly(len.0 as u32, offset);
        }
        self.offset = average(self.offset, u64::from(offset) << FRACTION, SHIFT);
        let stripped = if self.network_length { offset } else { 0 };
        let (network, adjusted) = adjust(self.overhead, len, stripped);
        self.network.take_in(network);
        self.adjusted.take_in(adjusted);
        adjusted
    }

    /// The charge of a frame of `len` bytes whose network layer begins at `offset`, where packets
    /// are charged their length.
    #[inline(always)]
    pub(super) fn charge_plainly(&mut self, len: u32, offset: u16) -> u32 {
        self.offset = average(self.offset, u64::from(offset) << FRACTION, SHIFT);
        self.network.take_in(len);
        len
    }

    /// Whether packets are charged their length.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// The shortest and the longest packet so far, before overhead and with it.
    pub(super) fn extremes(&self) -> [Option<(u32, u32)>; 2] {
        let adjusted = if self.is_plain { self.network } else { self.adjusted };
        [self.network.get(), adjusted.get()]
    }

    /// Where the network layer begins on average, in bytes, rounded.
    pub(super) fn average_offset(&self) -> u32 {
        ((self.offset + (1 << (FRACTION - 1))) >> FRACTION) as u32
    }
}

/// A frame's length without the `stripped` bytes, and with `overhead`. Not inlined, so that
/// configurations without it do not pay for it.
#[inline(never)]
fn adjust(overhead: Overhead, len: Bytes, stripped: u16) -> (u32, u32) {
    let network = len - Bytes(u64::from(stripped));
    (network.0 as u32, overhead.cost(network).0 as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::wire::Framing;

    fn config(per_frame: i32, framing: Framing, network_length: bool) -> Config {
        let overhead = Overhead { per_frame, minimum: 64, framing };
        Config { overhead, network_length, ..Config::default() }
    }

    const ETHERNET: u16 = 14;

    #[test]
    fn raw_is_the_frame_and_overhead_counts_from_the_network_layer() {
        let mut raw = Sizes::new(&Config::default());
        assert_eq!(raw.charge(Bytes(1514), ETHERNET), 1514);
        let mut adsl = Sizes::new(&config(40, Framing::Atm, true));
        assert_eq!(adsl.charge(Bytes(1514), ETHERNET), 1540u32.div_ceil(48) * 53);
        assert_eq!(adsl.charge(Bytes(34), ETHERNET), 64u32.div_ceil(48) * 53);
        assert_eq!(adsl.extremes(), [Some((20, 1500)), Some((106, 1749))]);
    }

    #[test]
    fn before_the_first_packet_there_are_no_extremes() {
        assert_eq!(Sizes::new(&Config::default()).extremes(), [None, None]);
    }

    #[test]
    fn the_offset_becomes_that_of_the_packets() {
        let mut sizes = Sizes::new(&Config::default());
        for _ in 0..5000 {
            sizes.charge(Bytes(100), ETHERNET);
        }
        assert_eq!(sizes.average_offset(), 14);
    }
}
