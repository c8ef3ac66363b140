//! What an instance has done, beyond what every qdisc tells: `struct tc_codel_xstats`.

use narrows_units::Nanos;

/// What CoDel has done to packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Signals {
    /// Packets marked instead of dropped.
    pub ecn_mark: u64,
    /// Packets marked because they had stood for longer than `ce_threshold`.
    pub ce_mark: u64,
    /// The longest packet that was seen leaving, in bytes.
    pub max_packet: u32,
}

impl Signals {
    /// Adds those of another queue.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.ecn_mark += other.ecn_mark;
        self.ce_mark += other.ce_mark;
        self.max_packet = self.max_packet.max(other.max_packet);
    }
}

/// The state of the law at one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Signals since the present series started, including those that helped before.
    pub count: u32,
    /// The initial `count` of the series.
    pub last_count: u32,
    /// The delay of the last sent packet.
    pub sojourn: Nanos,
    /// Whether it signals.
    pub is_dropping: bool,
    /// The time to the next signal, from the last call; negative if it is overdue, 0 if there was
    /// no signal yet.
    pub drop_next_nanos: i64,
}

/// The figures of one instance, or of several together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// The state of the law; of several queues, that of the queue with the longest delay.
    pub state: State,
    /// Its statistics.
    pub signals: Signals,
    /// Packets dropped because the limit was reached.
    pub drop_overlimit: u64,
}

impl Figures {
    /// Adds the figures of the instance of another queue.
    pub fn merge(&mut self, other: &Self) {
        if other.state.sojourn > self.state.sojourn {
            self.state = other.state;
        }
        self.signals.merge(&other.signals);
        self.drop_overlimit += other.drop_overlimit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_two_queues_are_their_sum_and_the_state_of_the_longer_one() {
        let state = |ms| State { sojourn: Nanos::from_millis(ms), ..State::default() };
        let signals = |marks, max_packet| Signals { ecn_mark: marks, ce_mark: 1, max_packet };
        let mut sum = Figures { state: state(3), signals: signals(4, 1514), drop_overlimit: 2 };
        sum.merge(&Figures { state: state(5), signals: signals(3, 60), drop_overlimit: 1 });
        let merged = Signals { ecn_mark: 7, ce_mark: 2, max_packet: 1514 };
        assert_eq!(sum, Figures { state: state(5), signals: merged, drop_overlimit: 3 });
    }
}
