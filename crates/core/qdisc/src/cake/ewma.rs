//! The exponentially weighted moving average of delays, rates and packet sizes.
//!
//! Its weight is a power of two, so that it costs two shifts. It never quite reaches a sample.
//!
//! Source: `cake_ewma` in Linux's `sch_cake.c`.
//!
//! Non-goals: the shares of tins (`neighbours.rs`), which must reach their ends.

/// A moving average that follows `sample` by one part of 2^`shift`.
#[inline]
pub(super) fn average(average: u64, sample: u64, shift: u32) -> u64 {
    average - (average >> shift) + (sample >> shift)
}
