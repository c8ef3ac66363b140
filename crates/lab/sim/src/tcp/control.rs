//! The interface between a sender and its congestion control.
//!
//! Windows are in segments and may have a fraction: a sender has no more in flight than the whole
//! segments in it.

use crate::setup::Control;
use crate::tcp::cubic::Cubic;
use crate::tcp::dctcp::Dctcp;
use crate::tcp::reno::Reno;
use narrows_units::Nanos;

/// The first window, in segments (RFC 6928).
pub(crate) const INITIAL_WINDOW: f64 = 10.0;
/// The least window after a reduction without a time-out, in segments.
pub(crate) const LEAST_WINDOW: f64 = 2.0;

/// A segment has been acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    /// When.
    pub(crate) now: Nanos,
    /// Smoothed, with queues.
    pub(crate) round_trip: Nanos,
    /// The number of the transmission: they count up.
    pub(crate) transmission: u64,
    /// The number of the next one.
    pub(crate) next: u64,
    /// It was sent before the last loss was known, or there is more window than is used: the
    /// window does not grow.
    pub(crate) recovering: bool,
    /// It came marked (ECN CE).
    pub(crate) marked: bool,
}

/// How fast to send.
pub(crate) trait CongestionControl {
    /// How much may be in flight, in segments.
    fn window(&self) -> f64;

    /// Where slow start ends, in segments; infinite while unknown.
    fn threshold(&self) -> f64;

    /// A segment has been acknowledged.
    fn acked(&mut self, ack: &Ack);

    /// Something was lost; at most once a round trip.
    fn lost(&mut self);

    /// A time-out: all segments in flight count as lost.
    fn timed_out(&mut self);

    /// Whether it responds to marks in its own way, and so needs ECN-capable segments.
    fn marks(&self) -> bool {
        false
    }
}

/// A new one.
pub(crate) fn new(control: Control) -> Box<dyn CongestionControl> {
    match control {
        Control::Cubic => Box::new(Cubic::new()),
        Control::Reno => Box::new(Reno::new()),
        Control::Dctcp => Box::new(Dctcp::new()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An acknowledgement with nothing special about it.
    pub(crate) fn ack() -> Ack {
        Ack {
            now: Nanos::ZERO,
            round_trip: Nanos::from_millis(100),
            transmission: 0,
            next: 0,
            recovering: false,
            marked: false,
        }
    }
}
