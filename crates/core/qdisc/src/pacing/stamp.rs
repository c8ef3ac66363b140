//! Earliest departure times: when a flow's next packet may leave.
//!
//! A packet may leave once the previous one has had the time that it takes at its flow's rate. The
//! time of a byte is computed once per rate, exact to 2^-64 ns, and added up exact to 2^-32 ns: no
//! packet costs a division, and a flow that is backlogged for ten seconds is off by less than a
//! nanosecond. A packet that comes later than its time leaves at once and earns no credit.
//!
//! *Two frames.* A flow's departures may be rounded up to a power of two no longer than the time of
//! its longest frame ([`Terms::spacing`]). Departures that are rounded to one slot are less than
//! that apart, so all but the last of them are less than a frame together: less than two frames
//! leave in a slot. If a rate changes while packets are queued, or slots are pushed behind one
//! another, this would not follow; so a flow's bytes in its last slot are counted, and the excess
//! goes behind it. If the structure's own slots are longer than a frame takes, no rate could be
//! kept that way: a slot then takes what the rate yields in it, and a frame.
//!
//! *Bounded bundles.* The paper chooses slots by a flow's rate alone. With many slow flows that
//! makes bursts of any size: a thousand flows at 10 Mbit/s meet in slots of a millisecond, a
//! megabyte at once. Some hundred packets save all that batching can save (its Fig. 5b); beyond
//! that, a larger batch only causes drops downstream. So a slot is at most as long as [`BUNDLE`]
//! packets take to leave from here, at any rates of their flows.
//!
//! Source: D. Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching"
//! (ToN 2025), sections II.B, IV.B and Fig. 5; A. Saeed et al., "Carousel" (SIGCOMM 2017), section
//! 4.
//!
//! *A rate of a packet's own* makes other terms ([`Terms::slowed`]), unless the qdisc's rate is
//! lower: that is the upper bound of all. They are computed for each packet, from a table that has
//! the time of a byte ([`narrows_packet::Paces`]); so no packet costs a division.
//!
//! Cost: two multiplications per packet; four more and a constant divisor for one with a rate of
//! its own.

use super::{Config, Structure};
use narrows_packet::{Pace, PaceId, Paces};
use narrows_units::{ByteTime, Nanos, Rate};

/// Packets that may as well leave together.
const BUNDLE: u32 = 128;
/// Frames of a flow that may leave together.
const FRAMES: u32 = 2;
/// A time, exact to 2^-32 ns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Moment {
    pub(super) nanos: u64,
    pub(super) fraction: u32,
}

impl Moment {
    /// The beginning of a nanosecond.
    #[inline]
    pub(super) const fn at(time: Nanos) -> Self {
        Self { nanos: time.0, fraction: 0 }
    }

    /// The first nanosecond that begins no earlier.
    #[inline]
    pub(super) const fn rounded_up(self) -> Nanos {
        Nanos(self.nanos.saturating_add((self.fraction != 0) as u64))
    }
}

/// The rate by which packets of a flow are stamped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    /// The time that a byte takes.
    byte: ByteTime,
    /// The granularity to which a departure may be rounded up, as a power of two of nanoseconds.
    spacing: u32,
    /// The granularity as the structure decides, as a power of two of nanoseconds.
    finest: u32,
    /// Bytes of a flow that may leave in one slot.
    pub(super) allowance: u32,
}

impl Terms {
    pub(super) fn new(config: &Config) -> Self {
        let finest = match config.structure {
            // The structure has slots of any length, of which the shortest is not used.
            Structure::FlowBundler => config.granularity.0.max(1).next_power_of_two().ilog2(),
            Structure::Carousel | Structure::Eiffel => 0,
        };
        let rate = config.maxrate.filter(|rate| !rate.is_zero());
        let Some(rate) = rate else {
            let (byte, allowance) = (ByteTime::ZERO, u32::MAX);
            return Self { byte, spacing: finest, finest, allowance };
        };
        let byte = ByteTime::of(rate);
        Self { byte, spacing: finest, finest, allowance: allowance(config, rate) }.spaced(config)
    }

    /// These terms, with slots as long as a frame takes.
    #[inline]
    fn spaced(self, config: &Config) -> Self {
        let spacing = self.byte.rounded_up(config.frame).0.max(1).ilog2();
        Self { spacing: spacing.max(self.finest), ..self }
    }

    /// The terms for a packet whose own rate is `pace`; `None` if these are for it, too, because
    /// their rate is no higher.
    #[inline]
    pub(super) fn slowed(&self, pace: &Pace, config: &Config) -> Option<Self> {
        let Pace { rate, byte_time: byte } = *pace;
        (byte > self.byte)
            .then(|| Self { byte, allowance: allowance(config, rate), ..*self }.spaced(config))
    }

    /// The terms for a packet whose own rate has the number `id` in `paces`.
    #[inline]
    pub(super) fn of(&self, id: PaceId, paces: &Paces, config: &Config) -> Self {
        let own = paces.get(id);
        own.and_then(|own| self.slowed(&own, config)).unwrap_or(*self)
    }

    /// When the next packet may leave after one of `len` bytes that may leave at `departure`.
    #[inline]
    pub(super) fn after(&self, departure: Moment, len: u32) -> Moment {
        let (nanos, part) = self.byte.of_bytes(len);
        let (fraction, carry) = departure.fraction.overflowing_add(part);
        let nanos = departure.nanos.saturating_add(nanos).saturating_add(u64::from(carry));
        Moment { nanos, fraction }
    }

    /// Whether a byte takes less time than by `other`.
    pub(super) fn is_faster_than(&self, other: &Self) -> bool {
        self.byte < other.byte
    }

    /// To how many nanoseconds a departure may be rounded up where `bundle` is the longest that a
    /// slot should be, both as powers of two.
    #[inline]
    pub(super) fn spacing(&self, bundle: u32) -> u32 {
        self.spacing.min(bundle).max(self.finest)
    }
}

/// Bytes of a flow of this rate that may leave in one slot.
fn allowance(config: &Config, rate: Rate) -> u32 {
    let slot = match config.structure {
        Structure::FlowBundler => Nanos(config.granularity.0.max(1).next_power_of_two()),
        Structure::Carousel | Structure::Eiffel => config.granularity,
    };
    let frame = u64::from(config.frame);
    let most = (frame * u64::from(FRAMES)).max(rate.bytes_in(slot).0.saturating_add(frame));
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// The recent time for [`BUNDLE`] departures. Read for each packet, computed once per bundle.
#[derive(Debug)]
pub(super) struct Bundle {
    /// Since when packets are counted.
    since: Nanos,
    /// How many have left since, those of that very moment included.
    packets: u32,
    /// How long a bundle takes, in nanoseconds; [`Bundle::UNKNOWN`] until one has left.
    time: u64,
    /// How long a bundle takes, as a power of two of nanoseconds.
    power: u32,
}

impl Bundle {
    const UNKNOWN: u64 = u64::MAX;
    /// The most by which a bundle may take longer than the previous one: a pause says nothing about
    /// later packets.
    const GROWTH: u64 = 8;

    pub(super) const fn new() -> Self {
        Self { since: Nanos::ZERO, packets: 0, time: Self::UNKNOWN, power: Self::UNKNOWN.ilog2() }
    }

    /// The longest that a slot should be, as a power of two of nanoseconds.
    #[inline]
    pub(super) const fn power(&self) -> u32 {
        self.power
    }

    /// Counts packets that leave at `now`.
    #[inline]
    pub(super) fn count(&mut self, packets: u32, now: Nanos) {
        // Simultaneous departures belong together, any number of them.
        if self.packets >= BUNDLE && now > self.since {
            self.close(now);
        }
        if self.packets == 0 {
            self.since = now;
        }
        self.packets = self.packets.saturating_add(packets);
    }

    fn close(&mut self, now: Nanos) {
        let elapsed = now.since(self.since).0;
        let time = elapsed.saturating_mul(u64::from(BUNDLE)) / u64::from(self.packets);
        self.time = match self.time {
            Self::UNKNOWN => time,
            before => before / 2 + time.min(before.saturating_mul(Self::GROWTH)) / 2,
        }
        .max(1);
        self.power = self.time.ilog2();
        self.packets = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::Bytes;
    use proptest::prelude::*;

    fn terms(bps: u64, structure: Structure) -> Terms {
        let maxrate = Some(Rate::from_bits_per_sec(bps));
        Terms::new(&Config { maxrate, ..Config::new(structure, 1514) })
    }

    proptest! {
        /// The oracle adds up bytes and divides once, in 128 bits.
        #[test]
        fn a_rate_is_exact_however_many_packets_it_is_made_of(
            bps in 8u64..2_000_000_000_000,
            lens in prop::collection::vec(0u32..9_000, 1..300),
            start in 0u64..1 << 60,
        ) {
            let terms = terms(bps, Structure::FlowBundler);
            let mut next = Moment::at(Nanos(start));
            for len in &lens {
                next = terms.after(next, *len);
            }
            let bytes: u64 = lens.iter().copied().map(u64::from).sum();
            let exact = u128::from(start) + u128::from(bytes) * 8_000_000_000 / u128::from(bps);
            let got = u128::from(next.nanos);
            prop_assert!(got <= exact && exact - got <= 1, "{got} is not {exact}");
        }

        /// Slots are shorter than a frame takes, and not needlessly so.
        #[test]
        fn two_frames_never_share_a_slot_and_could_if_it_were_longer(
            bps in 8u64..2_000_000_000_000,
        ) {
            let terms = terms(bps, Structure::FlowBundler);
            let frame = Rate::from_bits_per_sec(bps).time_for(Bytes(1514)).0;
            let slot = 1u64 << terms.spacing(63);
            prop_assert!(slot <= frame && frame < 2 * slot);
            prop_assert_eq!(terms.allowance, 2 * 1514);
        }
    }

    proptest! {
        /// The oracle is a qdisc whose `maxrate` is the lower of both.
        #[test]
        fn a_packet_s_own_rate_is_as_good_as_the_qdisc_s(
            maxrate in prop::option::of(8u64..2_000_000_000_000), own in 8u64..2_000_000_000_000,
            granularity in 1u64..10_000_000, of in 0usize..3,
        ) {
            let structure =
                [Structure::Carousel, Structure::Eiffel, Structure::FlowBundler][of];
            let with = |bps: Option<u64>| {
                let maxrate = bps.map(Rate::from_bits_per_sec);
                let granularity = Nanos(granularity);
                Config { maxrate, granularity, ..Config::new(structure, 1514) }
            };
            let pace = Pace::of(Rate::from_bits_per_sec(own));
            let config = with(maxrate);
            let terms = Terms::new(&config);
            let lower = Terms::new(&with(Some(maxrate.map_or(own, |rate| rate.min(own)))));
            prop_assert_eq!(terms.slowed(&pace, &config).unwrap_or(terms), lower);
        }
    }

    #[test]
    fn a_slot_longer_than_a_frame_s_time_holds_the_rate_s_worth() {
        let fast = terms(100_000_000_000, Structure::Carousel);
        assert_eq!(fast.allowance, 12_500 + 1514);
        assert_eq!(terms(1_000_000_000, Structure::Carousel).allowance, 2 * 1514);
    }

    #[test]
    fn without_a_rate_nothing_takes_time() {
        let none = Terms::new(&Config::new(Structure::FlowBundler, 1514));
        let now = Moment::at(Nanos(77));
        assert_eq!(none.after(now, 9000), now);
        assert_eq!((none.allowance, none.spacing(63)), (u32::MAX, 0));
    }

    #[test]
    fn a_bundle_takes_as_long_as_its_packets() {
        for batch in [1u32, 7, 64, 500] {
            let mut bundle = Bundle::new();
            for turn in 0..4000u64 {
                bundle.count(batch, Nanos(5_000_000 + turn * u64::from(batch) * 1000));
            }
            // A microsecond each: 128 us are 2^17 ns, nearly.
            assert_eq!(bundle.power(), 16, "batches of {batch}");
        }
    }

    #[test]
    fn a_pause_does_not_make_bundles_long() {
        let mut bundle = Bundle::new();
        let mut now = 0;
        let run = |bundle: &mut Bundle, now: &mut u64, packets: u32| {
            for _ in 0..packets {
                *now += 1000;
                bundle.count(1, Nanos(*now));
            }
        };
        assert_eq!(bundle.power(), 63);
        run(&mut bundle, &mut now, 1000);
        assert_eq!(bundle.power(), 16);
        now += 3_600_000_000_000;
        run(&mut bundle, &mut now, 4 * 128);
        assert!(bundle.power() <= 17, "{}", bundle.power());
    }
}
