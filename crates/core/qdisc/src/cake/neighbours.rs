//! One instance per queue, and one `cake` for the port: what instances publish to each other.
//!
//! Instances that each divide their own part fairly are not fair together: a host with flows on
//! four queues gets four hosts' shares, and a voice tin has priority up to a quarter of *each*
//! queue's part. So they count together ([`Census`]):
//!
//! *Hosts.* A flow counts as one part of all backlogged flows of its host, on any queue. The sum
//! over a queue's flows is the queue's weight at the limit ([`crate::Meter::weigh`]). So each flow
//! gets in total what it would get on a single queue.
//!
//! *Tins.* A tin's threshold belongs to the port. Each queue gets the part of it that corresponds
//! to its part of the tin's flows. A tin's entitlement goes where its flows are: the part of the
//! rate that the tins use within their thresholds, the more important first, and the rest for those
//! without a threshold. So a queue's weight is the sum, over tins, of entitlement times part.
//!
//! *Below a class* the class's queues share its rate by [`crate::Qdisc::weight`]: by the hosts that
//! each has. Where there are tins, which take turns by quantum then, a tin's quantum goes where its
//! flows are: each queue gets the part of it that corresponds to its part of the tin's flows.
//!
//! All of it is computed once every [`PERIOD`], from figures that may be as old; the rate itself is
//! the meter's and exact.
//!
//! Cost: once per period some lines of shared memory and a dozen divisions.

use super::load::WHOLE_HOST;
use super::tins::Share;
use crate::{Census, TINS_MAX, TinCensus, Weight};
use narrows_units::{Nanos, Rate};

/// How often instances exchange figures: often enough to follow flows that come and go, and rarely
/// enough to cost little.
const PERIOD: Nanos = Nanos::from_micros(500);

/// The weight of a queue with all demand. A queue has at least [`LEAST_PART`] of it, for flows that
/// have not been published yet.
const WHOLE: u64 = 1 << 20;
const LEAST_PART: u64 = 256;

/// A tin without a backlog is entitled to its usage plus this part, and to a minimum, so that it
/// can grow.
const GROWTH_PART: u64 = 4;
const LEAST_GROWTH: u64 = (1 << 16) / 64;

/// At low rates a packet takes many periods, so usage is averaged over some 2^6 of them, and the
/// backlog over 2^4,
const USED_SHIFT: u32 = 6;
const WANTED_SHIFT: u32 = 4;
/// but not with the distant past.
const FORGOTTEN: Nanos = Nanos::from_millis(50);

/// The least share of tins without a threshold, in 1/65536.
const LEAST_REST: u64 = (1 << 16) / 16;

/// A tin's demand and share on this queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The weight of its backlogged flows.
    pub(super) weight: u64,
    /// Bytes sent, as charged.
    pub(super) sent: u64,
    /// The part of the tin's threshold that is this queue's, in 1/65536.
    pub(super) part: u32,
}

/// What an instance exchanges with its siblings.
pub(super) struct Neighbours {
    pub(super) census: Box<dyn Census>,
    /// How often they have been read, wrapping.
    pub(super) edition: u16,
    next: Nanos,
    last: Nanos,
    sums: [TinCensus; TINS_MAX],
    /// By tin, on average: the part of the rate that it uses, and of the time that it has a
    /// backlog, in 1/65536.
    used: [u64; TINS_MAX],
    wanted: [u64; TINS_MAX],
    /// Whether a backlog here has been published.
    has_published: bool,
}

impl Neighbours {
    pub(super) fn new(census: Box<dyn Census>) -> Self {
        Self {
            census,
            edition: 1,
            next: Nanos::ZERO,
            last: Nanos::ZERO,
            sums: [TinCensus::default(); TINS_MAX],
            used: [0; TINS_MAX],
            wanted: [0; TINS_MAX],
            has_published: false,
        }
    }

    /// Whether a backlog here has been published, and must be withdrawn when it ends.
    #[inline]
    pub(super) fn has_published(&self) -> bool {
        self.has_published
    }

    /// There is a backlog that has not been published.
    #[inline]
    pub(super) fn make_due(&mut self) {
        self.next = Nanos::ZERO;
    }

    /// Whether it is time to exchange figures.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// Data about siblings from before `now` is outdated.
    fn begin_period(&mut self, now: Nanos) {
        self.next = now + PERIOD;
        self.edition = self.edition.wrapping_add(1);
    }

    /// Publishes what `tins` have, and reads the totals. Of how many tins.
    fn exchange(&mut self, tins: &[Part], now: Nanos) -> usize {
        let count = tins.len().min(TINS_MAX);
        let mut own = [TinCensus::default(); TINS_MAX];
        for (own, tin) in own.iter_mut().zip(tins) {
            *own = TinCensus { weight: tin.weight, sent: tin.sent };
        }
        self.census.tell(&own[..count]);
        self.has_published = own.iter().any(|tin| tin.weight != 0);
        self.census.sum(&mut self.sums[..count]);
        self.begin_period(now);
        count
    }

    /// Exchanges figures below a class with one tin: a queue's weight is its number of hosts,
    /// `hosts` in 1/65536. Unpublished flows count for a quarter.
    pub(super) fn meet_in_class(&mut self, hosts: u64, now: Nanos) -> Weight {
        self.begin_period(now);
        let one = u64::from(Weight::ONE.0);
        let weight = (hosts * one / WHOLE_HOST).max(one / 4);
        Weight(u32::try_from(weight).unwrap_or(u32::MAX))
    }

    /// Exchanges figures below a class with several `tins`: sets each tin's part here of its flows
    /// on all queues. A queue's weight is its part of all quanta.
    pub(super) fn meet_by_tin(
        &mut self,
        shares: &[Share],
        tins: &mut [Part],
        now: Nanos,
    ) -> Weight {
        self.exchange(tins, now);
        let (mut sum, mut possible) = (0, 0);
        for ((tin, share), sums) in tins.iter_mut().zip(shares).zip(&self.sums) {
            let others = sums.weight.saturating_sub(tin.weight);
            let is_here = tin.weight != 0;
            // A queue without a flow may get one at any moment.
            tin.part = part(if is_here { tin.weight } else { WHOLE_HOST }, others);
            let quantum = u64::from(share.quantum) * u64::from(tin.part);
            sum += if is_here { quantum } else { 0 };
            possible = possible.max(quantum);
        }
        let weight = if self.has_published { sum } else { possible };
        // The quanta of all tins have less than 13 bits.
        Weight(((weight >> 8) as u32).max(1))
    }

    /// Publishes what `tins` have, and reads the totals: the tins' parts, and the weight of this
    /// queue. `rate` is that of the port.
    pub(super) fn meet(
        &mut self,
        shares: &[Share],
        tins: &mut [Part],
        rate: Rate,
        now: Nanos,
    ) -> Weight {
        let before = self.sums;
        let count = self.exchange(tins, now);
        let passed = now.since(self.last);
        self.last = now;

        let window = u128::from(rate.bytes_in(passed).0.max(1));
        let is_long = passed > FORGOTTEN;
        for (tin, sums) in self.sums[..count].iter().enumerate() {
            let sent = sums.sent.wrapping_sub(before[tin].sent);
            let used = u64::try_from((u128::from(sent) << 16) / window).unwrap_or(u64::MAX);
            let wanted = u64::from(sums.weight != 0) << 16;
            follow(&mut self.used[tin], used.min(1 << 20), if is_long { 0 } else { USED_SHIFT });
            follow(&mut self.wanted[tin], wanted, if is_long { 0 } else { WANTED_SHIFT });
        }
        let mut left = 1 << 16;
        let mut sum = 0;
        let mut possible = 0;
        for (tin, own) in tins.iter_mut().enumerate().rev() {
            let all = self.sums[tin].weight;
            let part = |weight: u64, all: u64| match all {
                0 => 0,
                all => ((u128::from(weight) << 16) / u128::from(all)).min(1 << 16) as u64,
            };
            let is_here = part(own.weight, all);
            // A queue without a flow may get one at any moment.
            let others = all.saturating_sub(own.weight);
            let weight = if own.weight == 0 { WHOLE_HOST } else { own.weight };
            own.part = part(weight, others + weight) as u32;
            let threshold = u64::from(shares[tin].threshold);
            let entitled = if threshold >= 1 << 16 {
                left.max(LEAST_REST)
            } else {
                let used = self.used[tin];
                let grown = threshold.min(used + used / GROWTH_PART + LEAST_GROWTH);
                let wanted = self.wanted[tin];
                ((threshold * wanted + grown * ((1 << 16) - wanted)) >> 16).min(left)
            };
            if all != 0 {
                left -= entitled.min(left);
                sum += entitled * is_here;
            }
            possible = possible.max(entitled * u64::from(own.part));
        }
        // A queue without demand has the weight of its first flow, so that the first packets of a
        // flow do not leave the queue with almost no share.
        if !self.has_published {
            sum = possible;
        }
        // The sum is in 1/2^32 of everything.
        let weight = (sum >> 12).clamp(WHOLE / LEAST_PART, WHOLE);
        Weight(weight as u32)
    }
}

/// The part of `weight` in the sum of `weight` and `others`, in 1/65536.
fn part(weight: u64, others: u64) -> u32 {
    ((u128::from(weight) << 16) / u128::from((weight + others).max(1))) as u32
}

/// A moving average that follows `value` by one part of 2^`shift`, from either side up to it.
fn follow(average: &mut u64, value: u64, shift: u32) {
    let part = |distance: u64| distance.div_ceil(1 << shift);
    *average = if value >= *average {
        *average + part(value - *average)
    } else {
        *average - part(*average - value)
    };
}

#[cfg(test)]
mod tests {
    use super::super::Diffserv;
    use super::super::tins::Scheme;
    use super::*;
    use crate::HostKey;
    use std::sync::{Arc, Mutex};

    /// The published figures of all, by handle.
    type Published = Arc<Mutex<Vec<[TinCensus; TINS_MAX]>>>;

    struct Table {
        published: Published,
        handle: usize,
    }

    impl Census for Table {
        fn count(&mut self, _host: HostKey, _change: i32) {}

        fn flows(&self, _host: HostKey) -> u32 {
            0
        }

        fn tell(&mut self, tins: &[TinCensus]) {
            self.published.lock().unwrap()[self.handle][..tins.len()].copy_from_slice(tins);
        }

        fn sum(&self, tins: &mut [TinCensus]) {
            let published = self.published.lock().unwrap();
            for (at, tin) in tins.iter_mut().enumerate() {
                let column = published.iter().map(|row| row[at]);
                *tin = column.fold(TinCensus::default(), |sum, one| TinCensus {
                    weight: sum.weight + one.weight,
                    sent: sum.sent + one.sent,
                });
            }
        }
    }

    const RATE: Rate = Rate::from_bits_per_sec(800_000_000);
    /// The bytes that the rate allows in a millisecond.
    const MS: u64 = 100_000;

    /// The weights of queues whose tins have these (weight, bytes sent a millisecond), and the
    /// parts of the thresholds.
    fn meet(diffserv: Diffserv, queues: &[Vec<(u64, u64)>]) -> (Vec<u32>, Vec<Vec<u32>>) {
        let shares = Scheme::new(diffserv, 0).shares;
        let published =
            Published::new(Mutex::new(vec![<[TinCensus; TINS_MAX]>::default(); queues.len()]));
        let handle =
            |handle| Neighbours::new(Box::new(Table { published: Arc::clone(&published), handle }));
        let mut handles: Vec<Neighbours> = (0..queues.len()).map(handle).collect();
        let mut weights = Vec::new();
        let mut parts = Vec::new();
        for ms in 1..=50 {
            (weights, parts) = (Vec::new(), Vec::new());
            for (handle, queue) in handles.iter_mut().zip(queues) {
                let part = |&(weight, sent): &(u64, u64)| Part { weight, sent: sent * ms, part: 0 };
                let mut tins: Vec<Part> = queue.iter().map(part).collect();
                let weight = handle.meet(&shares, &mut tins, RATE, Nanos::from_millis(ms));
                weights.push(weight.0);
                parts.push(tins.iter().map(|tin| tin.part).collect());
            }
        }
        (weights, parts)
    }

    #[test]
    fn a_queue_s_weight_is_the_sum_of_its_flows() {
        let host = 1 << 16;
        // One host's only flow and a quarter of another's, and the rest of that one's.
        let best_effort = |weight| vec![(weight, MS / 4)];
        let queues = [host + host / 4, host / 4, host / 4, host / 4].map(best_effort);
        let (weights, _) = meet(Diffserv::BestEffort, &queues);
        let ratio = f64::from(weights[0]) / f64::from(weights[1]);
        assert!((ratio - 5.0).abs() < 0.01, "{weights:?}");
        assert_eq!(weights[1..], [weights[1]; 3]);
    }

    #[test]
    fn below_a_class_a_tins_quantum_is_divided_by_where_its_flows_are() {
        let shares = Scheme::new(Diffserv::Diffserv3, 0).shares;
        let published = Published::new(Mutex::new(vec![<[TinCensus; TINS_MAX]>::default(); 2]));
        let mut handles = [0, 1].map(|handle| {
            Neighbours::new(Box::new(Table { published: Arc::clone(&published), handle }))
        });
        let one = 1 << 16;
        // Best effort on both queues, voice on the second.
        let queues = [[3 * one, 0, 0], [one, 0, one]];
        let mut meet = |handle: usize| {
            let mut tins = queues[handle].map(|weight| Part { weight, sent: 0, part: 0 });
            let weight = handles[handle].meet_by_tin(&shares, &mut tins, Nanos::ZERO);
            (weight.0, tins.map(|tin| tin.part))
        };
        meet(0);
        let (second, parts) = meet(1);
        assert_eq!((parts[0], parts[2]), (1 << 14, 1 << 16));
        let (first, parts) = meet(0);
        assert_eq!((parts[0], parts[1], parts[2]), (3 << 14, 1 << 16, 1 << 15));
        assert_eq!((first, second), (768 << 8, (256 + 256) << 8));
    }

    #[test]
    fn a_threshold_is_divided_by_where_the_flows_are() {
        let one = 1 << 16;
        let queues = [
            vec![(one, MS / 2), (0, 0), (0, 0), (3 * one, MS / 8)],
            vec![(one, MS / 4), (0, 0), (0, 0), (one, MS / 8)],
        ];
        let (_, parts) = meet(Diffserv::Diffserv4, &queues);
        assert_eq!(parts[0][3], 3 << 14);
        assert_eq!(parts[1][3], 1 << 14);
        assert_eq!(parts[0][0], 1 << 15);
        assert_eq!(parts[0][1], 1 << 16, "the first would have all of it");
    }

    #[test]
    fn a_queue_without_flows_has_the_part_that_its_first_flow_would_have() {
        let one = 1 << 16;
        let tins = |weight| vec![(0, 0), (0, 0), (0, 0), (weight, MS / 16)];
        let (_, parts) = meet(Diffserv::Diffserv4, &[tins(3 * one), tins(0)]);
        assert_eq!((parts[0][3], parts[1][3]), (1 << 16, 1 << 14));
    }

    #[test]
    fn an_important_tin_gets_its_threshold_wherever_it_is_and_the_others_the_rest() {
        let one = 1 << 16;
        let best_effort = vec![(one, MS * 3 / 4), (0, 0), (0, 0), (0, 0)];
        let voice = |sent| vec![(0, 0), (0, 0), (0, 0), (one, sent)];
        let (weights, _) = meet(Diffserv::Diffserv4, &[best_effort.clone(), voice(MS / 4)]);
        let ratio = f64::from(weights[0]) / f64::from(weights[1]);
        assert!((ratio - 3.0).abs() < 0.05, "{weights:?}");
        // A tin that sends less, and in which no packet waits, leaves more.
        let content = vec![(0, 0), (0, 0), (0, 0), (0, MS / 20)];
        let (weights, _) = meet(Diffserv::Diffserv4, &[best_effort, content]);
        assert!(u64::from(weights[0]) > WHOLE / 10 * 9, "{weights:?}");
    }

    #[test]
    fn a_queue_without_flows_has_the_weight_of_one() {
        let nobody = vec![(0, 0)];
        let (weights, _) = meet(Diffserv::BestEffort, &[nobody, vec![(3 << 16, MS)]]);
        assert_eq!(u64::from(weights[0]), WHOLE / 4);
        assert_eq!(u64::from(weights[1]), WHOLE);
    }
}
