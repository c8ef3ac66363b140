//! What an instance has done: `struct tc_cake_stats` and what `tc -s` prints of it.

use narrows_units::{Bytes, Nanos, Rate, Spread};

/// The figures of one instance, or of several together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// The most memory that its packets have taken.
    pub memory_used: Bytes,
    /// Its limit.
    pub memory_limit: Bytes,
    /// For all queues of the port together, not for each.
    pub memory_is_of_port: bool,
    /// The rate of arrivals that the estimator measures; the limit if it is off.
    pub capacity_estimate: Rate,
    /// The shortest and the longest packet before overhead; `None` before the first one.
    pub network_size: Option<(u32, u32)>,
    /// The shortest and the longest packet with overhead; `None` before the first one.
    pub adjusted_size: Option<(u32, u32)>,
    /// Queues that divide the limit at the moment, as this one sees it; 0 if it has no siblings.
    pub active_queues: u32,
    /// Instances whose figures these are.
    pub instances: u32,
    /// Where the network layer begins on average, in bytes.
    pub average_offset: u32,
    /// Memory of the instance itself, without packets and without what siblings share.
    pub own_memory: Bytes,
    /// By tin, in the order in which they are shown.
    pub tins: Vec<TinFigures>,
    /// Likewise, the delays of sent packets.
    pub delays: Vec<Spread>,
}

/// The figures of one tin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TinFigures {
    /// The rate up to which it goes first.
    pub threshold: Rate,
    /// CoDel's target.
    pub target: Nanos,
    /// CoDel's interval.
    pub interval: Nanos,
    /// The moving average of the sojourn time that follows peaks.
    pub peak_delay: Nanos,
    /// The plain moving average of the sojourn time.
    pub average_delay: Nanos,
    /// The moving average of the sojourn time that follows sparse flows, the least.
    pub base_delay: Nanos,
    /// The backlog.
    pub backlog: Bytes,
    /// Packets that arrived, dropped ones included.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows in a way other than their own, within its set.
    pub way_indirect_hits: u64,
    /// Flows that were new.
    pub way_misses: u64,
    /// Flows that had to share a queue, because all of their set were in use.
    pub way_collisions: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets marked.
    pub marks: u64,
    /// Acknowledgements dropped.
    pub ack_drops: u64,
    /// Sparse flows: with less queued than a quantum, and without a full turn yet.
    pub sparse_flows: u32,
    /// Flows that have more.
    pub bulk_flows: u32,
    /// Flows that BLUE drops from.
    pub unresponsive_flows: u32,
    /// The longest packet.
    pub max_len: u32,
    /// Bytes that a flow may send in its turn.
    pub quantum: u32,
}

impl Figures {
    /// Adds the figures of the instance of another queue: sums, and the worst of what cannot be
    /// added. Averages are weighed by packets.
    pub fn merge(&mut self, other: &Self) {
        let packets =
            [self, other].map(|figures| figures.tins.iter().map(|tin| tin.packets).sum::<u64>());
        self.memory_used += other.memory_used;
        if other.memory_is_of_port {
            self.memory_limit = self.memory_limit.max(other.memory_limit);
            self.memory_is_of_port = true;
        } else {
            self.memory_limit += other.memory_limit;
        }
        self.capacity_estimate = self.capacity_estimate.max(other.capacity_estimate);
        self.network_size = wider(self.network_size, other.network_size);
        self.adjusted_size = wider(self.adjusted_size, other.adjusted_size);
        self.instances += other.instances;
        self.active_queues = self.active_queues.max(other.active_queues);
        let offsets = [self.average_offset, other.average_offset].map(u64::from);
        self.average_offset = weighed(offsets, packets) as u32;
        self.own_memory += other.own_memory;
        if self.tins.is_empty() {
            self.tins.clone_from(&other.tins);
            self.delays.clone_from(&other.delays);
            return;
        }
        for (mine, theirs) in self.tins.iter_mut().zip(&other.tins) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.delays.iter_mut().zip(&other.delays) {
            mine.merge(theirs);
        }
    }

    /// Queues that divide the limit at the moment. Each instance estimates them from its share,
    /// which may be that of a queue with hardly any demand.
    pub fn queues_active(&self) -> u32 {
        self.active_queues.min(self.instances)
    }
}

impl TinFigures {
    fn merge(&mut self, other: &Self) {
        let packets = [self.packets, other.packets];
        let average = |delays: [Nanos; 2]| Nanos(weighed(delays.map(|delay| delay.0), packets));
        self.average_delay = average([self.average_delay, other.average_delay]);
        self.base_delay = average([self.base_delay, other.base_delay]);
        self.peak_delay = self.peak_delay.max(other.peak_delay);
        self.backlog += other.backlog;
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.way_indirect_hits += other.way_indirect_hits;
        self.way_misses += other.way_misses;
        self.way_collisions += other.way_collisions;
        self.drops += other.drops;
        self.marks += other.marks;
        self.ack_drops += other.ack_drops;
        self.sparse_flows += other.sparse_flows;
        self.bulk_flows += other.bulk_flows;
        self.unresponsive_flows += other.unresponsive_flows;
        self.max_len = self.max_len.max(other.max_len);
    }
}

/// From the least of both to the most of both.
fn wider(one: Option<(u32, u32)>, other: Option<(u32, u32)>) -> Option<(u32, u32)> {
    match (one, other) {
        (Some((low, high)), Some((least, most))) => Some((low.min(least), high.max(most))),
        (one, other) => one.or(other),
    }
}

/// The average of two values, weighted by their numbers of packets.
fn weighed(values: [u64; 2], packets: [u64; 2]) -> u64 {
    let sum = |at: usize| u128::from(values[at]) * u128::from(packets[at]);
    let average = (sum(0) + sum(1)).checked_div(u128::from(packets[0]) + u128::from(packets[1]));
    average.map_or(values[0].max(values[1]), |average| average as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(packets: u64, delay: u64, size: Option<(u32, u32)>) -> Figures {
        let average_delay = Nanos(delay);
        let peak_delay = Nanos(2 * delay);
        let tin = TinFigures { packets, average_delay, peak_delay, ..TinFigures::default() };
        Figures { network_size: size, tins: vec![tin], ..Figures::default() }
    }

    #[test]
    fn averages_of_two_queues_are_weighed_by_packets_and_peaks_are_the_worst() {
        let mut sum = figures(3, 100, None);
        sum.merge(&figures(1, 500, Some((60, 1514))));
        assert_eq!(sum.tins[0].packets, 4);
        assert_eq!(sum.tins[0].average_delay, Nanos(200));
        assert_eq!(sum.tins[0].peak_delay, Nanos(1000));
        assert_eq!(sum.network_size, Some((60, 1514)));
    }

    #[test]
    fn a_port_s_limit_is_shown_once_and_queue_limits_are_summed() {
        let limit = Bytes(4 << 20);
        let merged = |memory_is_of_port| {
            let one = Figures { memory_limit: limit, memory_is_of_port, ..Figures::default() };
            let mut sum = Figures::default();
            (0..4).for_each(|_| sum.merge(&one));
            sum.memory_limit
        };
        assert_eq!([true, false].map(merged), [limit, Bytes(16 << 20)]);
    }

    #[test]
    fn no_more_queues_are_active_than_there_are() {
        let one = |active_queues| Figures { active_queues, instances: 1, ..Figures::default() };
        let mut sum = Figures::default();
        [2, 16, 3, 2].into_iter().for_each(|active| sum.merge(&one(active)));
        assert_eq!(sum.queues_active(), 4);
        let mut sum = Figures::default();
        [2, 2, 1, 2].into_iter().for_each(|active| sum.merge(&one(active)));
        assert_eq!(sum.queues_active(), 2);
    }

    #[test]
    fn figures_added_to_none_are_the_same_figures() {
        let some = figures(7, 100, Some((70, 80)));
        let mut sum = Figures::default();
        sum.merge(&some);
        assert_eq!(sum, some);
    }
}
