//! What a direction did in an interval, before it is rounded: what can be merged exactly.

use crate::Times;

/// What was sent, dropped and measured in an interval.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// The seconds that were seen. 0: the interval has no figures.
    pub seconds: f64,
    /// Bits sent.
    pub bits: f64,
    /// The highest rate of a part of the interval, in bits per second.
    pub peak_bps: f64,
    /// Packets dropped.
    pub drops: f64,
    /// The delays of the packets that were sent.
    pub delays: Times,
    /// Round trips beyond the port. Of a port: each. Of a class: the medians of its windows.
    pub round_trips: Times,
    /// Round trips as above. Of a class: the 99th percentiles of its windows.
    pub slow_round_trips: Times,
    /// Segments that were watched for losses.
    pub segments: f64,
    /// Those lost before the port.
    pub lost_before: f64,
    /// Those lost beyond it.
    pub lost_beyond: f64,
}

impl Summary {
    /// Of `seconds` in which `bits` were sent and `drops` packets dropped.
    pub fn sent(seconds: f64, bits: f64, drops: f64) -> Self {
        let peak_bps = if seconds > 0.0 { bits / seconds } else { 0.0 };
        Self { seconds, bits, peak_bps, drops, ..Self::default() }
    }

    /// Adds a later or earlier part of the same interval.
    pub fn merge(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.bits += other.bits;
        self.peak_bps = self.peak_bps.max(other.peak_bps);
        self.drops += other.drops;
        self.delays.merge(&other.delays);
        self.round_trips.merge(&other.round_trips);
        self.slow_round_trips.merge(&other.slow_round_trips);
        self.segments += other.segments;
        self.lost_before += other.lost_before;
        self.lost_beyond += other.lost_beyond;
    }

    /// The mean rate, in bits per second.
    pub fn mean_bps(&self) -> f64 {
        if self.seconds > 0.0 { self.bits / self.seconds } else { 0.0 }
    }

    /// The shares lost before and beyond the port; none if nothing was watched.
    pub fn losses(&self) -> Option<[f64; 2]> {
        let share = |lost: f64| (lost / self.segments).clamp(0.0, 1.0);
        (self.segments > 0.0).then(|| [share(self.lost_before), share(self.lost_beyond)])
    }
}
