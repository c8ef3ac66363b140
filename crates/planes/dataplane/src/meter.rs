//! The rates that `narrows show` states: what passed in the last second.

use narrows_forwarding::{PerPort, PortId};
use narrows_units::{Bytes, Nanos, Rate};

/// The byte counts of a port.
#[derive(Clone, Copy, Default)]
pub(crate) struct Passed {
    /// What arrived there.
    pub(crate) rx_bytes: u64,
    /// What left there.
    pub(crate) tx_bytes: u64,
}

/// The byte counts of all ports at one moment.
#[derive(Clone, Default)]
struct Sample {
    at: Nanos,
    ports: PerPort<Passed>,
}

/// Two samples of the byte counters, a second or so apart.
#[derive(Default)]
pub(crate) struct RateMeter {
    before: Sample,
    last: Sample,
}

impl RateMeter {
    /// Takes the counters, by port, at `at`.
    pub(crate) fn sample(&mut self, at: Nanos, ports: PerPort<Passed>) {
        self.before = std::mem::replace(&mut self.last, Sample { at, ports });
    }

    /// The rate of arrivals at `port`.
    pub(crate) fn rx(&self, port: PortId) -> Rate {
        self.rate(port, |passed| passed.rx_bytes)
    }

    /// The rate of departures at `port`.
    pub(crate) fn tx(&self, port: PortId) -> Rate {
        self.rate(port, |passed| passed.tx_bytes)
    }

    fn rate(&self, port: PortId, bytes: impl Fn(&Passed) -> u64) -> Rate {
        let of = |sample: &Sample| sample.ports.get(port).map_or(0, &bytes);
        let passed = of(&self.last).saturating_sub(of(&self.before));
        Rate::of(Bytes(passed), self.last.at - self.before.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_difference_of_the_last_two_samples() {
        let mut meter = RateMeter::default();
        let passed = |[rx_bytes, tx_bytes]: [u64; 2]| Passed { rx_bytes, tx_bytes };
        let ports = |ports: [[u64; 2]; 2]| ports.into_iter().map(passed).collect();
        meter.sample(Nanos::from_secs(1), ports([[0, 0], [100, 0]]));
        meter.sample(Nanos::from_secs(2), ports([[0, 1000], [350, 0]]));
        assert_eq!(meter.rx(PortId::SECOND), Rate::from_bytes_per_sec(250));
        assert_eq!(meter.tx(PortId::FIRST), Rate::from_bytes_per_sec(1000));
        assert_eq!(meter.rx(PortId::FIRST), Rate::default());
    }
}
