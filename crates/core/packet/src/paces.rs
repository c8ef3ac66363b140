//! The rates that filters give to packets.
//!
//! A packet carries the *number* of its rate, in three bytes of its metadata; a table has the rate
//! itself. So a rate that changes applies to queued packets, too, and a packet's rate costs neither
//! room for a rate nor a division: the table has the time of a byte.
//!
//! *Rates of members.* A million members of a set may have a rate each. A table of those would be
//! read from memory for each packet, and every change would copy it. So numbers beyond the table's
//! *are* rates: bytes per second with six significant decimal digits, as operators write them, and
//! rounded down otherwise. Such a rate costs a division, and packets keep the one that they arrived
//! with.
//!
//! *Changes.* A qdisc that has given its packets times must give them new ones if a rate becomes
//! higher. It keeps the table that it used, so that noticing another one is one comparison.
//!
//! Cost: 24 bytes for each number of the table up to the highest. A change copies the table.
//!
//! Non-goals: which packet has which rate (filters), what a rate applies to (the qdisc).

use narrows_units::{ByteTime, Rate};
use std::sync::Arc;

/// The number of a rate, in three bytes, so that all metadata of a packet fits a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PaceId([u8; 3]);

impl PaceId {
    /// The packet has no rate of its own.
    pub const NONE: Self = Self([0; 3]);
    /// The highest number of a rate in a table. Those above are rates themselves.
    pub const MAX: u32 = (1 << 16) - 1;

    /// The digits of a rate that is its own number, as their upper bound,
    const DIGITS: u64 = 1_000_000;
    /// and how many numbers a power of ten has: the first digit is no 0.
    const PER_POWER: u64 = Self::DIGITS / 10 * 9;

    /// The rate `number` of a table, from 1; `None` beyond [`PaceId::MAX`] and for 0.
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 || number > Self::MAX { None } else { Self::from_number(number) }
    }

    /// `rate` itself in whole bytes per second, of which the first six digits count; `None` below
    /// one byte per second.
    pub const fn of(rate: Rate) -> Option<Self> {
        let (mut digits, mut power) = (rate.bytes_per_sec(), 0);
        if digits == 0 {
            return None;
        }
        while digits >= Self::DIGITS {
            digits /= 10;
            power += 1;
        }
        Self::from_number(Self::MAX + (power * Self::PER_POWER + digits) as u32)
    }

    /// The rate that this number is; `None` if it is one of a table.
    #[inline]
    pub const fn rate(self) -> Option<Rate> {
        let Some(code) = self.number().checked_sub(Self::MAX) else { return None };
        if code == 0 {
            return None;
        }
        let code = code as u64;
        let power =
            if code < Self::DIGITS { 0 } else { (code - Self::DIGITS / 10) / Self::PER_POWER };
        let bytes = (code - power * Self::PER_POWER).saturating_mul(10_u64.pow(power as u32));
        Some(Rate::from_bytes_per_sec(bytes))
    }

    /// That number; `None` beyond three bytes and for 0.
    pub const fn from_number(number: u32) -> Option<Self> {
        let [low, middle, high, beyond] = number.to_le_bytes();
        if number == 0 || beyond != 0 { None } else { Some(Self([low, middle, high])) }
    }

    /// The number; 0 for none.
    #[inline]
    pub const fn number(self) -> u32 {
        let [low, middle, high] = self.0;
        u32::from_le_bytes([low, middle, high, 0])
    }
}

/// A rate, and what a byte takes at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    /// The rate; zero for none.
    pub rate: Rate,
    /// The time of a byte.
    pub byte_time: ByteTime,
}

impl Pace {
    /// `rate`.
    pub const fn of(rate: Rate) -> Self {
        Self { rate, byte_time: ByteTime::of(rate) }
    }

    const NONE: Self = Self { rate: Rate::from_bits_per_sec(0), byte_time: ByteTime::ZERO };
}

/// The rates of all numbers, shared between workers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Paces {
    /// By number. That of 0 is none.
    all: Arc<[Pace]>,
}

impl Paces {
    /// These rates with `changes` of numbers up to [`PaceId::MAX`]. A number without a rate has
    /// none.
    #[must_use]
    pub fn with(&self, changes: &[(PaceId, Rate)]) -> Self {
        let changes = || changes.iter().filter(|(id, _)| (1..=PaceId::MAX).contains(&id.number()));
        let highest = changes().map(|(id, _)| id.number() as usize).max();
        let Some(highest) = highest else { return self.clone() };
        let mut all = self.all.to_vec();
        all.resize(all.len().max(highest + 1), Pace::NONE);
        for (id, rate) in changes() {
            all[id.number() as usize] = Pace::of(*rate);
        }
        Self { all: all.into() }
    }

    /// Whether there is no rate.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The rate of `id`, if it has one.
    #[inline]
    pub fn get(&self, id: PaceId) -> Option<Pace> {
        match id.number() {
            0 => None,
            1..=PaceId::MAX => self.numbered(id),
            _ => id.rate().map(Pace::of),
        }
    }

    #[inline]
    fn numbered(&self, id: PaceId) -> Option<Pace> {
        self.all.get(id.number() as usize).filter(|pace| !pace.rate.is_zero()).copied()
    }

    /// Whether this is the very table `other`, and not only an equal one.
    #[inline]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.all, &other.all)
    }

    /// Whether the rate of `id` is higher than in `before`, or there is none any more.
    pub fn is_raised_since(&self, before: &Self, id: PaceId) -> bool {
        self.byte_time(id) < before.byte_time(id)
    }

    /// Whether the rate of `id` is another one than in `before`.
    pub fn differs_from(&self, before: &Self, id: PaceId) -> bool {
        self.byte_time(id) != before.byte_time(id)
    }

    fn byte_time(&self, id: PaceId) -> ByteTime {
        self.get(id).map_or(ByteTime::ZERO, |pace| pace.byte_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn id(number: u32) -> PaceId {
        PaceId::new(number).unwrap()
    }

    #[test]
    fn a_number_has_three_bytes() {
        assert_eq!(size_of::<PaceId>(), 3);
        assert_eq!((PaceId::new(0), PaceId::new(PaceId::MAX + 1)), (None, None));
        for number in [1, 255, 256, PaceId::MAX] {
            assert_eq!((id(number).number(), id(number).rate()), (number, None));
        }
    }

    #[test]
    fn every_rate_has_a_number_of_three_bytes_that_no_other_has() {
        let of = |bytes| PaceId::of(Rate::from_bytes_per_sec(bytes));
        assert_eq!((of(0), PaceId::of(Rate::from_bits_per_sec(7))), (None, None));
        // Numbers follow one another without a gap.
        let mut before = PaceId::MAX;
        for bytes in 1..2_000_000 {
            let number = of(bytes).unwrap().number();
            assert!(number == before + 1 || number == before && bytes % 10 != 0, "{bytes}");
            before = number;
        }
        let highest = of(u64::MAX / 8).unwrap();
        assert!(highest.number() < (1 << 24) - 1, "the last number is free for others to use");
        assert_eq!(highest.rate().unwrap().bytes_per_sec(), 2_305_840_000_000_000_000);
    }

    #[test]
    fn a_rate_as_operators_write_it_is_kept_exactly() {
        for mbit in (1..1000).chain([1_000, 1_500, 2_500, 10_000, 25_000, 98_700, 400_000]) {
            let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
            assert_eq!(PaceId::of(rate).unwrap().rate(), Some(rate));
        }
    }

    #[test]
    fn a_table_takes_no_number_that_is_a_rate() {
        let rate = Rate::from_bits_per_sec(5_000_000);
        let own = PaceId::of(rate).unwrap();
        let paces = Paces::default().with(&[(own, Rate::from_bits_per_sec(7))]);
        assert!(paces.is_empty());
        assert_eq!(paces.get(own), Some(Pace::of(rate)));
        let more = paces.with(&[(id(3), Rate::from_bits_per_sec(7))]);
        assert!(!more.is_raised_since(&paces, own) && !more.differs_from(&paces, own));
    }

    proptest! {
        #[test]
        fn a_rate_that_is_its_own_number_is_rounded_down_to_six_digits(
            bytes in (0u32..61).prop_flat_map(|power| 1u64 << power..1 << (power + 1)),
        ) {
            let id = PaceId::of(Rate::from_bytes_per_sec(bytes)).unwrap();
            let got = id.rate().unwrap();
            let digits = bytes.to_string();
            let kept = digits.len().min(6);
            let zeros = "0".repeat(digits.len() - kept);
            prop_assert_eq!(got.bytes_per_sec().to_string(), format!("{}{zeros}", &digits[..kept]));
            prop_assert_eq!(PaceId::of(got), Some(id));
            prop_assert_eq!(PaceId::from_number(id.number()), Some(id));
        }

        /// The oracle is a map from numbers to rates.
        #[test]
        fn each_number_has_the_rate_that_it_got_last(
            steps in prop::collection::vec(prop::collection::vec((1u32..50, 0u64..9), 0..5), 1..20),
        ) {
            let (mut paces, mut model) = (Paces::default(), BTreeMap::new());
            for changes in steps {
                let before = model.clone();
                let rate = |bps: u64| Rate::from_bits_per_sec(bps * 1000);
                let changes: Vec<_> =
                    changes.iter().map(|(number, bps)| (id(*number), rate(*bps))).collect();
                let next = paces.with(&changes);
                prop_assert_eq!(next.is(&paces), changes.is_empty());
                model.extend(changes.into_iter().map(|(id, rate)| (id.number(), rate)));
                for number in 1..60 {
                    let of = |model: &BTreeMap<u32, Rate>| {
                        model.get(&number).copied().filter(|rate| !rate.is_zero())
                    };
                    prop_assert_eq!(next.get(id(number)).map(|pace| pace.rate), of(&model));
                    prop_assert_eq!(paces.get(id(number)).map(|pace| pace.rate), of(&before));
                    // Without a rate nothing takes time.
                    let is_raised = match (of(&before), of(&model)) {
                        (None, _) => false,
                        (Some(_), None) => true,
                        (Some(before), Some(now)) => now > before,
                    };
                    prop_assert_eq!(next.is_raised_since(&paces, id(number)), is_raised);
                    let differs = of(&before) != of(&model);
                    prop_assert_eq!(next.differs_from(&paces, id(number)), differs);
                }
                prop_assert!(next.get(PaceId::NONE).is_none());
                paces = next;
            }
        }
    }
}
