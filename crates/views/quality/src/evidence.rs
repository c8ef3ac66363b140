//! What was measured of a line.

use serde::Serialize;

/// Two percentiles of a time, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latency {
    /// The median.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
}

impl Latency {
    /// The sum of two parts of a path. The sum of two percentiles is an upper bound of the
    /// percentile of the sum wherever both are rarely slow at once, and close to it where only one
    /// of them varies.
    #[must_use]
    pub fn then(self, other: Self) -> Self {
        Self { p50_ms: self.p50_ms + other.p50_ms, p99_ms: self.p99_ms + other.p99_ms }
    }
}

/// What was measured of what leaves through one port.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Measured {
    /// The delay in Narrows.
    pub delay: Option<Latency>,
    /// The round trip beyond the port.
    pub round_trip: Option<Latency>,
    /// The share of segments that were lost, before and beyond the port.
    pub loss: Option<f64>,
}

impl Measured {
    /// The delay and the round trip, if both are known.
    #[must_use]
    pub fn latency(&self) -> Option<Latency> {
        Some(self.delay?.then(self.round_trip?))
    }
}

/// The latency and the loss of a whole path, whose directions are `all`: the sum of all latencies,
/// and the highest loss. Unknown where it is unknown of a direction, or there is none.
pub(crate) fn path(all: impl Iterator<Item = Measured>) -> (Option<Latency>, Option<f64>) {
    let each = all.map(|one| (one.latency(), one.loss));
    let sum = each.reduce(|(latency, loss), (more, other)| {
        let latency = latency.zip(more).map(|(latency, more)| latency.then(more));
        (latency, loss.zip(other).map(|(loss, other)| loss.max(other)))
    });
    sum.unwrap_or_default()
}

/// One direction of a line.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Direction {
    /// The port.
    pub port: String,
    /// What was measured.
    #[serde(flatten)]
    pub measured: Measured,
}

/// What is known of a line over some time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Evidence {
    /// Its directions: two of a subscriber with a class at each port, one of a port.
    pub directions: Vec<Direction>,
    /// The rate that it may have in its slowest direction, in bits per second, if that is known.
    pub rate_bps: Option<u64>,
}

impl Evidence {
    /// What is missing for a score of the whole path.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        if self.directions.is_empty() {
            return vec!["traffic".to_owned()];
        }
        let of = |Direction { port, measured }: &Direction| {
            let parts = [
                ("delay", measured.delay.is_none()),
                ("round trips", measured.round_trip.is_none()),
                ("losses", measured.loss.is_none()),
            ];
            let missing = parts.into_iter().filter(|(_, is_missing)| *is_missing);
            missing.map(|(what, _)| format!("{what} at {port}")).collect::<Vec<_>>()
        };
        self.directions.iter().flat_map(of).collect()
    }

    /// What was measured, of each direction.
    pub fn measured(&self) -> impl Iterator<Item = Measured> {
        self.directions.iter().map(|direction| direction.measured)
    }
}
