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

/// One direction of a line: what leaves through one port.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Direction {
    /// The port.
    pub port: String,
    /// The delay in Narrows.
    pub delay: Option<Latency>,
    /// The round trip beyond the port.
    pub round_trip: Option<Latency>,
    /// The share of segments that were lost, before and beyond the port.
    pub loss: Option<f64>,
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
    /// The latency of all that was measured: of two directions, a round trip over the whole path.
    ///
    /// # Errors
    /// Lists what is missing.
    pub fn latency(&self) -> Result<Latency, Vec<String>> {
        let mut all = Latency::default();
        let mut missing = Vec::new();
        for direction in &self.directions {
            let parts = [("delay", direction.delay), ("round trips", direction.round_trip)];
            for (what, part) in parts {
                match part {
                    Some(part) => all = all.then(part),
                    None => missing.push(format!("{what} at {}", direction.port)),
                }
            }
        }
        if self.directions.is_empty() {
            missing.push("traffic".to_owned());
        }
        if missing.is_empty() { Ok(all) } else { Err(missing) }
    }

    /// The share of segments that were lost in any direction.
    ///
    /// # Errors
    /// Lists what is missing.
    pub fn loss(&self) -> Result<f64, Vec<String>> {
        let missing = self.directions.iter().filter(|direction| direction.loss.is_none());
        let missing: Vec<String> =
            missing.map(|direction| format!("losses at {}", direction.port)).collect();
        let known = self.directions.iter().filter_map(|direction| direction.loss);
        match known.reduce(f64::max) {
            Some(loss) if missing.is_empty() => Ok(loss),
            Some(_) => Err(missing),
            None => Err(vec!["losses".to_owned()]),
        }
    }
}
