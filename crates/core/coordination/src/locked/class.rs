//! A class: its tokens, in nanoseconds as in the kernel, and the queues that wait to borrow from
//! it.

use super::turns::Turns;
use narrows_qdisc::OWED_MAX;
use narrows_qdisc::htb::{Class, PRIORITIES};
use narrows_units::{Bytes, Nanos, Rate};

/// No bucket is smaller than this time at its rate.
const LEAST_TIME: i64 = 250_000;
/// Nor than this.
const FRAME: Bytes = Bytes(1514);
/// No debt and no credited pause is longer than this: `mbuffer`, as in the kernel.
const LONGEST: i64 = 60_000_000_000;

/// What a class may do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// It has tokens (`HTB_CAN_SEND`).
    Sends,
    /// It has some at its ceiling only (`HTB_MAY_BORROW`), until then.
    Borrows(Nanos),
    /// It has none at its ceiling (`HTB_CANT_SEND`), until then.
    Waits(Nanos),
}

/// Nanoseconds that bytes take, in 2^-32.
#[derive(Default)]
struct Pace(u64);

impl Pace {
    fn of(rate: Rate) -> Self {
        let bits = u128::from(rate.bits_per_sec().max(1));
        Self(u64::try_from((8_000_000_000u128 << 32) / bits).unwrap_or(u64::MAX))
    }

    fn span(&self, bytes: Bytes) -> i64 {
        let span = (u128::from(bytes.0) * u128::from(self.0)) >> 32;
        i64::try_from(span).unwrap_or(i64::MAX).min(LONGEST)
    }

    fn depth(&self, burst: Bytes) -> i64 {
        self.span(burst.max(FRAME)).max(LEAST_TIME)
    }
}

/// A class: its tokens in nanoseconds, and the borrowers that wait for it.
#[derive(Default)]
pub(super) struct LockedClass {
    parent: Option<u32>,
    rate: Pace,
    ceil: Pace,
    buffer: i64,
    cbuffer: i64,
    prio: usize,
    quantum: u64,
    tokens: i64,
    ctokens: i64,
    /// When tokens were counted last.
    at: Nanos,
    /// The queues that send for it.
    pub(super) queues: Turns,
    /// By priority, the classes that borrow from it.
    pub(super) borrowers: [Turns; PRIORITIES],
    /// Its virtual time among borrowers.
    pub(super) time: u64,
}

impl LockedClass {
    /// Applies new parameters. Tokens are carried over, up to the new bursts.
    pub(super) fn set(&mut self, class: &Class) {
        self.parent = class.parent;
        self.rate = Pace::of(class.rate);
        self.ceil = Pace::of(class.ceil.max(class.rate));
        self.buffer = self.rate.depth(class.burst);
        self.cbuffer = self.ceil.depth(class.cburst);
        self.prio = usize::from(class.prio).min(PRIORITIES - 1);
        self.quantum = u64::from(class.quantum).max(1);
        self.tokens = self.tokens.min(self.buffer);
        self.ctokens = self.ctokens.min(self.cbuffer);
    }

    pub(super) fn parent(&self) -> Option<u32> {
        self.parent
    }

    pub(super) fn prio(&self) -> usize {
        self.prio
    }

    pub(super) fn quantum(&self) -> u64 {
        self.quantum
    }

    /// The time that counts since the last packet.
    fn passed(&self, now: Nanos) -> i64 {
        i64::try_from(now.since(self.at).0).unwrap_or(LONGEST).min(LONGEST)
    }

    pub(super) fn mode(&self, now: Nanos) -> Mode {
        let passed = self.passed(now);
        let until = |tokens: i64| now + Nanos(tokens.unsigned_abs());
        match (self.ctokens + passed, self.tokens + passed) {
            (ceil, _) if ceil < 0 => Mode::Waits(until(ceil)),
            (_, rate) if rate < 0 => Mode::Borrows(until(rate)),
            _ => Mode::Sends,
        }
    }

    /// Charges `bytes` at the ceiling and, where `rate` is true, at the rate. Otherwise they are
    /// borrowed, and tokens earned meanwhile are kept without a bound, as in the kernel.
    pub(super) fn charge(&mut self, bytes: Bytes, rate: bool, now: Nanos) {
        let passed = self.passed(now);
        let account = |tokens: i64, most: i64, pace: &Pace| {
            ((tokens + passed).min(most) - pace.span(bytes)).max(1 - LONGEST)
        };
        self.tokens = match rate {
            true => account(self.tokens, self.buffer, &self.rate),
            false => self.tokens + passed,
        };
        self.ctokens = account(self.ctokens, self.cbuffer, &self.ceil);
        self.at = self.at.max(now);
    }

    /// Charges `bytes` that left elsewhere, as of the last packet.
    pub(super) fn owe(&mut self, bytes: Bytes, now: Nanos) {
        let most = (OWED_MAX.0 as i64).saturating_add(self.passed(now));
        let account = |tokens: i64, pace: &Pace| (tokens - pace.span(bytes)).max(-most).min(tokens);
        self.tokens = account(self.tokens, &self.rate);
        self.ctokens = account(self.ctokens, &self.ceil);
    }

    /// Takes back an unused charge.
    pub(super) fn put_back(&mut self, bytes: Bytes, rate: bool) {
        self.tokens += if rate { self.rate.span(bytes) } else { 0 };
        self.ctokens += self.ceil.span(bytes);
    }

    /// The credit at the rate and at the ceiling.
    pub(super) fn tokens(&self, now: Nanos) -> [i64; 2] {
        let passed = self.passed(now);
        [(self.tokens + passed).min(self.buffer), (self.ctokens + passed).min(self.cbuffer)]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use narrows_units::wire::Overhead;

    /// 1 Gbit/s assured, 2 at most: 8 and 4 ns per byte.
    fn class() -> LockedClass {
        let (rate, ceil) = (1_000_000_000, 2_000_000_000);
        let mut class = LockedClass::default();
        class.set(&Class {
            parent: None,
            rate: Rate::from_bits_per_sec(rate),
            ceil: Rate::from_bits_per_sec(ceil),
            burst: Bytes(100_000),
            cburst: Bytes(100_000),
            prio: 9,
            quantum: 0,
            overhead: Overhead::NONE,
        });
        class
    }

    #[test]
    fn a_class_sends_then_borrows_then_waits() {
        let mut class = class();
        let now = Nanos::from_secs(1);
        assert_eq!(class.mode(now), Mode::Sends);
        class.charge(Bytes(100_001), true, now);
        assert_eq!(class.tokens(now), [-8, -4]);
        assert_eq!(class.mode(now), Mode::Waits(now + Nanos(4)));
        assert_eq!(class.mode(now + Nanos(5)), Mode::Borrows(now + Nanos(8)));
        assert_eq!(class.mode(now + Nanos(8)), Mode::Sends);
        class.put_back(Bytes(1), true);
        assert_eq!(class.tokens(now), [0, 0]);
        assert_eq!((class.prio(), class.quantum()), (7, 1));
    }

    #[test]
    fn borrowed_bytes_are_charged_at_the_ceiling_only() {
        let mut class = class();
        let now = Nanos::from_secs(1);
        class.charge(Bytes(100_000), true, now);
        class.charge(Bytes(1_000), false, now + Nanos(10_000));
        assert_eq!(class.tokens(now + Nanos(10_000)), [10_000, 6_000]);
    }
}
