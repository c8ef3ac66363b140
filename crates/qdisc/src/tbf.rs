//! `tbf`.

use narrows_units::{Bytes, Rate, wire::Overhead};

/// Parameters of a token bucket filter, see `tc-tbf(8)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The rate that is kept on average.
    pub rate: Rate,
    /// How much may leave at once after a pause (`burst`), as charged.
    pub burst: Bytes,
    /// How much may be queued, for the whole limit: a seat gets its [`crate::Share`] of it.
    pub limit: Bytes,
    /// The rate that is never exceeded, not even by the burst, and the size of its bucket.
    pub peak: Option<Peak>,
    /// What a frame is charged.
    pub overhead: Overhead,
}

/// `peakrate` and `mtu`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peak {
    /// The rate that is never exceeded.
    pub rate: Rate,
    /// The size of its bucket; packets that are charged more can never leave.
    pub mtu: Bytes,
}
