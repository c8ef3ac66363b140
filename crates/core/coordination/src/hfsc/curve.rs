//! Service curves, and how far a class has come on one.
//!
//! A curve of two pieces is two straight lines. How far a class has come on a line is one word: the
//! time at which the line reaches the service that the class has had. Service advances both words
//! by the time that its bytes take at each slope; the beginning of a backlogged period moves a word
//! that is in the past to the present. So queues that share a class need no lock: each of these is
//! one atomic update.
//!
//! *Concave* curves (a steeper first piece, for less delay) are the lower of both lines. The lower
//! of two concave curves, which a new backlogged period begins with (`rtsc_min` in the kernel), is
//! the lower of each line by itself, so nothing is lost. *Convex* curves are the higher of both
//! lines; a new period keeps the old curve or begins a new one, as in the kernel.
//!
//! Times are nanoseconds, virtual ones too, and wrap.
//!
//! Memory ordering: relaxed. Each word is valid by itself; a reader that sees one of two updates is
//! off by a packet for a moment.
//!
//! Source: I. Stoica, H. Zhang, T. S. E. Ng, "A hierarchical fair service curve algorithm for
//! link-sharing, real-time and priority services" (1997), sections 4 and 5; `sch_hfsc.c`.

use crate::byte_time::ByteTime;
use crate::sync::{AtomicU64, Ordering};
use narrows_qdisc::hfsc;
use narrows_units::Bytes;

/// No time is further away than this, so that times can be compared though they wrap: 36 years.
const FAR: u64 = 1 << 60;

/// Whether the time `one` comes before `other`. Times wrap.
#[inline]
pub(super) const fn is_before(one: u64, other: u64) -> bool {
    (one.wrapping_sub(other) as i64) < 0
}

/// The later of two times.
#[inline]
pub(super) const fn later(one: u64, other: u64) -> u64 {
    if is_before(one, other) { other } else { one }
}

/// The earlier of two times.
#[inline]
pub(super) const fn earlier(one: u64, other: u64) -> u64 {
    if is_before(one, other) { one } else { other }
}

/// Moves the time in `word` to `at`, unless it is later.
#[inline]
pub(super) fn advance_to(word: &AtomicU64, at: u64) {
    let mut present = word.load(Ordering::Relaxed);
    while is_before(present, at) {
        match word.compare_exchange_weak(present, at, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(newer) => present = newer,
        }
    }
}

/// How the two lines make a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// Both are the same: the second is used.
    Straight,
    /// The lower of both.
    Concave,
    /// The higher of both.
    Convex,
    /// Convex, and its first segment is flat.
    Delayed,
}

/// A service curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Curve {
    lines: [ByteTime; 2],
    /// By how much the second line begins later than the first; negative for a concave curve.
    offset: u64,
    shape: Shape,
}

impl Curve {
    pub(super) fn of(curve: hfsc::Curve) -> Self {
        let hfsc::Curve { m1, d, m2 } = curve;
        let lines = [m1, m2].map(ByteTime::of);
        let shape = match m1.cmp(&m2) {
            std::cmp::Ordering::Less if m1.bits_per_sec() == 0 => Shape::Delayed,
            std::cmp::Ordering::Less => Shape::Convex,
            std::cmp::Ordering::Equal => Shape::Straight,
            std::cmp::Ordering::Greater => Shape::Concave,
        };
        // What the first piece serves, at the slope of the second.
        let bytes = u128::from(m1.bits_per_sec()) * u128::from(d.0) / 8_000_000_000;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let second = (u128::from(bytes) * u128::from(lines[1].word())) >> 32;
        let second = u64::try_from(second).unwrap_or(u64::MAX).min(FAR);
        let offset = match shape {
            Shape::Straight => 0,
            _ => d.0.min(FAR).wrapping_sub(second),
        };
        Self { lines, offset, shape }
    }

    /// The time that a byte takes in the long run; in the first piece, if nothing is served after
    /// it.
    pub(super) fn byte_time(&self) -> ByteTime {
        let [first, second] = self.lines;
        if self.offset.wrapping_neg() == FAR { first } else { second }
    }

    /// The time of a curve whose lines have come to these times.
    #[inline]
    fn time(&self, [first, second]: [u64; 2]) -> u64 {
        match self.shape {
            Shape::Concave => later(first, second),
            Shape::Convex => earlier(first, second),
            Shape::Straight | Shape::Delayed => second,
        }
    }
}

/// How far a class has come on a curve: the time at which each line reaches the service that it has
/// had.
#[derive(Default)]
pub(super) struct Progress([AtomicU64; 2]);

impl Progress {
    /// Of a class that has had nothing, at time 0.
    pub(super) fn new(curve: Option<&Curve>) -> Self {
        let offset = curve.map_or(0, |curve| curve.offset);
        Self([0, offset].map(AtomicU64::new))
    }

    #[inline]
    fn times(&self) -> [u64; 2] {
        [&self.0[0], &self.0[1]].map(|word| word.load(Ordering::Relaxed))
    }

    /// A backlogged period begins at `now`: from here on the class follows the lower of the curve
    /// that it followed and a new one (`rtsc_min`).
    pub(super) fn begin(&self, curve: &Curve, now: u64) {
        match curve.shape {
            Shape::Straight => advance_to(&self.0[1], now),
            Shape::Concave => {
                advance_to(&self.0[0], now);
                advance_to(&self.0[1], now.wrapping_add(curve.offset));
            }
            Shape::Convex | Shape::Delayed => {
                let [first, second] = self.times();
                if !is_before(now, earlier(first, second)) {
                    self.restart(curve, now);
                }
            }
        }
    }

    /// Begins the curve anew at `now`.
    pub(super) fn restart(&self, curve: &Curve, now: u64) {
        self.0[0].store(now, Ordering::Relaxed);
        self.0[1].store(now.wrapping_add(curve.offset), Ordering::Relaxed);
    }

    /// The class has been served `bytes` more, after `before` others.
    #[inline]
    pub(super) fn serve(&self, curve: &Curve, before: u64, bytes: Bytes) {
        let span = curve.lines[1].span(before, bytes).0;
        let present = self.0[1].fetch_add(span, Ordering::Relaxed);
        self.serve_first(curve, present, before, bytes);
    }

    /// The first line's part of [`Self::serve`]; the second was at `second`.
    #[inline]
    fn serve_first(&self, curve: &Curve, second: u64, before: u64, bytes: Bytes) {
        let first = &self.0[0];
        match curve.shape {
            Shape::Straight => {}
            // A flat line never reaches more than it began with.
            Shape::Delayed => first.store(second.wrapping_add(FAR), Ordering::Relaxed),
            Shape::Concave | Shape::Convex => {
                first.fetch_add(curve.lines[0].span(before, bytes).0, Ordering::Relaxed);
            }
        }
    }

    /// As [`Self::serve`], if the curve has reached at `now` what the class has had before. Returns
    /// whether it has.
    #[inline]
    pub(super) fn sell(&self, curve: &Curve, before: u64, bytes: Bytes, now: u64) -> bool {
        let [first, second] = &self.0;
        let span = curve.lines[1].span(before, bytes).0;
        let mut present = second.load(Ordering::Relaxed);
        loop {
            if is_before(now, curve.time([first.load(Ordering::Relaxed), present])) {
                return false;
            }
            match second.compare_exchange_weak(
                present,
                present.wrapping_add(span),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(newer) => present = newer,
            }
        }
        self.serve_first(curve, present, before, bytes);
        true
    }

    /// Undoes [`Self::serve`] of the last `bytes`, which followed `before` others.
    pub(super) fn take_back(&self, curve: &Curve, before: u64, bytes: Bytes) {
        for (word, line) in self.0.iter().zip(curve.lines) {
            word.fetch_sub(line.span(before, bytes).0, Ordering::Relaxed);
        }
    }

    /// Comes no further than [`FAR`] behind `now`.
    #[inline]
    pub(super) fn limit(&self, now: u64) {
        for word in &self.0 {
            let far = now.wrapping_add(FAR);
            if is_before(far, word.load(Ordering::Relaxed)) {
                word.store(far, Ordering::Relaxed);
            }
        }
    }

    /// The time at which the curve reaches what the class has had.
    #[inline]
    pub(super) fn reached(&self, curve: &Curve) -> u64 {
        curve.time(self.times())
    }

    /// The time at which the curve reaches `bytes` more, which follow `before` others: the deadline
    /// of a packet.
    #[inline]
    pub(super) fn deadline(&self, curve: &Curve, before: u64, bytes: Bytes) -> u64 {
        let [first, second] = self.times();
        let [one, other] = curve.lines.map(|line| line.span(before, bytes).0);
        curve.time([first.wrapping_add(one), second.wrapping_add(other)])
    }

    /// The time from which on the class may be served to keep its deadlines. For a concave curve,
    /// that is the curve itself; for a convex one, its second slope from the beginning of the
    /// period, so that the steeper piece can be kept when it comes.
    #[inline]
    pub(super) fn eligible(&self, curve: &Curve) -> u64 {
        let [first, second] = self.times();
        match curve.shape {
            Shape::Straight => second,
            Shape::Concave => later(first, second),
            Shape::Convex | Shape::Delayed => second.wrapping_sub(curve.offset),
        }
    }
}
