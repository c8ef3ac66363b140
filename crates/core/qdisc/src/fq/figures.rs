//! What an instance has done and holds, beyond what every qdisc tells: `struct tc_fq_qd_stats`.

use super::bands::BANDS;
use narrows_units::Nanos;

/// The figures of one instance, or of several together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Flows that are remembered.
    pub flows: u32,
    /// Those of them without packets.
    pub inactive_flows: u32,
    /// Those of them that wait for their time.
    pub throttled_flows: u32,
    /// How long the next of those waits, counted from when the instance was asked last.
    pub next_departure: Option<Nanos>,
    /// Flows that were forgotten because nothing had come for long.
    pub gc: u64,
    /// Packets that went before all flows.
    pub highprio: u64,
    /// Times that a flow had to wait for its time.
    pub throttled: u64,
    /// The lateness of flows, a moving average.
    pub latency: Nanos,
    /// Packets marked.
    pub ce_marks: u64,
    /// Packets dropped because their flow had too many.
    pub flow_limit_drops: u64,
    /// Packets dropped because their time was beyond the horizon.
    pub horizon_drops: u64,
    /// Packets whose time became the horizon.
    pub horizon_caps: u64,
    /// Packets queued, by band.
    pub band_packets: [u32; BANDS],
    /// Packets dropped because their band had too many.
    pub band_drops: [u64; BANDS],
}

impl Figures {
    /// Adds the figures of the instance of another queue: sums, the worst latency, the next
    /// departure.
    pub fn merge(&mut self, other: &Self) {
        self.flows += other.flows;
        self.inactive_flows += other.inactive_flows;
        self.throttled_flows += other.throttled_flows;
        let departures = [self.next_departure, other.next_departure];
        self.next_departure = departures.into_iter().flatten().min();
        self.gc += other.gc;
        self.highprio += other.highprio;
        self.throttled += other.throttled;
        self.latency = self.latency.max(other.latency);
        self.ce_marks += other.ce_marks;
        self.flow_limit_drops += other.flow_limit_drops;
        self.horizon_drops += other.horizon_drops;
        self.horizon_caps += other.horizon_caps;
        for band in 0..BANDS {
            self.band_packets[band] += other.band_packets[band];
            self.band_drops[band] += other.band_drops[band];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_two_queues_are_their_sum_the_worst_latency_and_the_next_departure() {
        let one = Figures {
            flows: 3,
            next_departure: Some(Nanos(500)),
            latency: Nanos(7),
            band_drops: [1, 0, 2],
            ..Figures::default()
        };
        let other = Figures { flows: 4, latency: Nanos(9), ..Figures::default() };
        let mut sum = other;
        sum.merge(&one);
        assert_eq!((sum.flows, sum.latency, sum.band_drops), (7, Nanos(9), [1, 0, 2]));
        assert_eq!(sum.next_departure, Some(Nanos(500)));
        sum.merge(&Figures { next_departure: Some(Nanos(400)), ..Figures::default() });
        assert_eq!(sum.next_departure, Some(Nanos(400)));
    }
}
