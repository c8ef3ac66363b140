//! Which flow begins when, from which host to which, and how much it carries.
//!
//! Every host has a Poisson process of requests: half of the hosts (or another part) answer one
//! with flows to several other hosts at once, which is *fan-out*, the others with one,
//! *one-to-one*. Rates are such that a host's flows together make up the load of its line: requests
//! of sixteen flows are sixteen times rarer.
//!
//! Which hosts fan out, where a flow goes and how long it is follow from the seed alone, and so are
//! the same for every structure.

use super::topology::Topology;
use crate::traffic::seed::{Purpose, exponential, generator};
use narrows_trace::Sizes;
use narrows_units::{Nanos, Rate};
use rand::RngExt;
use rand_pcg::Pcg64;

/// The offered load.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// How many flows in all.
    pub flows: u32,
    /// The flows' load, as a part of the hosts' lines.
    pub load: f64,
    /// Which part of the hosts fans out.
    pub fanning_out: f64,
    /// The number of hosts.
    pub fanout: u32,
    /// The load of a flow.
    pub sizes: Sizes,
    /// No connection is paced faster.
    pub max_rate: Option<Rate>,
    /// No connection is paced faster than its share of the line, if its host's connections have
    /// equal ones.
    pub shared: bool,
}

/// Which hosts fan out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pattern {
    /// Flows to several hosts begin at once.
    Fanout,
    /// One flow at a time begins.
    OneToOne,
}

impl Pattern {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Fanout, Self::OneToOne];
}

/// A planned flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) start: Nanos,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: u64,
    pub(super) pattern: Pattern,
}

/// By host: which pattern it has.
pub(super) fn patterns(traffic: &Traffic, hosts: u32, seed: u64) -> Vec<Pattern> {
    let mut chance = generator(seed, 0, Purpose::Sources, 0);
    let fanning_out = (f64::from(hosts) * traffic.fanning_out).round() as usize;
    let mut order: Vec<usize> = (0..hosts as usize).collect();
    shuffle(&mut order, fanning_out, &mut chance);
    let mut patterns = vec![Pattern::OneToOne; hosts as usize];
    for &host in order.iter().take(fanning_out) {
        patterns[host] = Pattern::Fanout;
    }
    patterns
}

/// Draws the first `count` of `items` from all of them.
fn shuffle<T>(items: &mut [T], count: usize, chance: &mut Pcg64) {
    for place in 0..count.min(items.len()) {
        let other = chance.random_range(place..items.len());
        items.swap(place, other);
    }
}

/// All flows, in the order in which they begin.
pub(super) fn plan(
    traffic: &Traffic,
    topology: &Topology,
    patterns: &[Pattern],
    seed: u64,
) -> Vec<Plan> {
    let line = topology.downlink.bytes_per_sec() as f64;
    // The flows per second that a host starts.
    let flows_per_sec = traffic.load * line / traffic.sizes.mean();
    let mut hosts: Vec<Requests> = (0..)
        .zip(patterns)
        .map(|(host, &pattern)| {
            let at_once = if pattern == Pattern::Fanout { traffic.fanout } else { 1 };
            let others = (0..topology.hosts()).filter(|other| *other != host).collect();
            let chance = generator(seed, 0, Purpose::Packets, u64::from(host));
            let gap = f64::from(at_once) / flows_per_sec * 1e9;
            let mut requests = Requests { host, pattern, at_once, others, chance, gap, next: 0.0 };
            requests.pass();
            requests
        })
        .collect();
    let mut plans = Vec::with_capacity((traffic.flows + traffic.fanout) as usize);
    while plans.len() < traffic.flows as usize {
        // Times are no NaN, and of two alike the host with the lower number is first.
        let first = hosts.iter_mut().min_by(|one, other| one.next.total_cmp(&other.next));
        let Some(first) = first else { break };
        first.begin(&traffic.sizes, &mut plans);
        first.pass();
    }
    plans.truncate(traffic.flows as usize);
    plans
}

/// The requests of a host.
struct Requests {
    host: u32,
    pattern: Pattern,
    at_once: u32,
    others: Vec<u32>,
    chance: Pcg64,
    /// On average, in nanoseconds.
    gap: f64,
    /// When the next one comes, in nanoseconds.
    next: f64,
}

impl Requests {
    fn pass(&mut self) {
        self.next += exponential(&mut self.chance) * self.gap;
    }

    /// The flows of a request, each to another host.
    fn begin(&mut self, sizes: &Sizes, plans: &mut Vec<Plan>) {
        let count = self.at_once as usize;
        shuffle(&mut self.others, count, &mut self.chance);
        for &to in self.others.iter().take(count) {
            plans.push(Plan {
                start: Nanos(self.next as u64),
                from: self.host,
                to,
                bytes: sizes.draw(&mut self.chance),
                pattern: self.pattern,
            });
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fabric::topology::tests::paper;

    pub(crate) fn traffic(flows: u32) -> Traffic {
        let sizes = Sizes::new(&[(10_000, 0.5), (1_000_000, 1.0)]).unwrap();
        Traffic {
            flows,
            load: 0.8,
            fanning_out: 0.5,
            fanout: 16,
            sizes,
            max_rate: None,
            shared: false,
        }
    }

    #[test]
    fn flows_make_up_the_load_of_all_hosts_and_of_each_half() {
        let (traffic, topology) = (traffic(100_000), paper());
        let patterns = patterns(&traffic, topology.hosts(), 7);
        assert_eq!(patterns.iter().filter(|it| **it == Pattern::Fanout).count(), 72);
        let plans = plan(&traffic, &topology, &patterns, 7);
        assert_eq!(plans.len(), 100_000);
        assert!(plans.is_sorted_by_key(|plan| plan.start));
        let span = plans[plans.len() - 1].start.as_secs_f64();
        for pattern in Pattern::ALL {
            let of_pattern = plans.iter().filter(|plan| plan.pattern == pattern);
            let bytes: u64 = of_pattern.map(|plan| plan.bytes).sum();
            let load = bytes as f64 / span / (72.0 * 1.25e9);
            assert!((load - 0.8).abs() < 0.03, "{pattern:?}: {load}");
        }
    }

    #[test]
    fn a_request_that_fans_out_is_to_as_many_different_hosts_at_once() {
        let (traffic, topology) = (traffic(5000), paper());
        let patterns = patterns(&traffic, topology.hosts(), 7);
        let plans = plan(&traffic, &topology, &patterns, 7);
        assert!(plans.iter().all(|plan| plan.from != plan.to && plan.to < 144));
        assert!(plans.iter().all(|plan| patterns[plan.from as usize] == plan.pattern));
        let requests =
            plans.chunk_by(|one, other| (one.start, one.from) == (other.start, other.from));
        for request in requests.filter(|request| request[0].pattern == Pattern::Fanout).skip(1) {
            let hosts: std::collections::BTreeSet<u32> =
                request.iter().map(|plan| plan.to).collect();
            assert_eq!(hosts.len(), request.len());
            assert!(request.len() == 16 || request.last() == plans.last());
        }
    }
}
