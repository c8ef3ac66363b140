//! How long a shaper delays a departure so that several leave at once.
//!
//! Each wake-up of a worker costs some microseconds, many times the cost of a packet, and at the
//! end of the flow it wakes another thread. If a queue is backlogged anyway, its head may leave
//! slightly later: everything else that is due by then, in this queue or in another of the same
//! thread, leaves with it. The bucket keeps the credit earned meanwhile, no arrival could have
//! overtaken, and the rate is the same. Measured by `narrows bench waking` and, at a binding limit,
//! by `narrows bench forward`.
//!
//! Short queues are not delayed: their departures are as precise as the timer. Where light flows
//! overtake, they are delayed, too, since a worker whose queue waits does not poll arrivals: it
//! polls twice per frame time. Waking up for every arrival instead costs a sixth more of the
//! machine (`narrows bench waking`).

use crate::Share;
use crate::bucket::Shape;
use narrows_units::{Bytes, Nanos, Rate};
use std::ops::RangeInclusive;

/// The longest that a departure may wait for others, where a queue stands: short enough that the
/// ring can hold the arrivals.
const LONGEST: Nanos = Nanos::from_micros(250);

/// The longest that a departure may wait where a queue is [`DEEP`]: `tbf` at 20 Mbit/s takes a
/// tenth less of the machine than with half of it (`narrows bench waking`). Arrivals may not go
/// unseen for longer.
const LONGEST_IF_DEEP: Nanos = Nanos::from_micros(500);

/// A queue is deep if it stands for this many times as long.
const DEEP: u64 = 8;

/// The longest wait if light flows overtake, and for how long they may wait unseen: half a frame
/// time, within these bounds. On one queue they wait that long on average for a frame that has
/// begun to leave.
const BESIDE_LIGHT: RangeInclusive<Nanos> = Nanos::from_micros(100)..=LONGEST;

/// A bucket must be able to keep the credit earned while a departure waits and while the worker is
/// late: the delay is at most this part of the time in which it fills.
const PART_OF_BURST: u64 = 8;

/// A queue's part of the bucket holds at least this many packets. A smaller one is full soon after
/// a packet has left, and further credit is lost.
const PACKETS: u64 = 2;

/// How long to wait, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Coalescing {
    time: Nanos,
    /// The credit that the limit earns in that time.
    earned: Bytes,
    /// How long to wait if this much is queued.
    deep: (Bytes, Nanos),
    /// The smaller one of the two whole buckets.
    bucket: Bytes,
    /// The highest cost of a packet at which a departure may wait,
    dearest: Bytes,
    /// and of the usual one.
    usual: Bytes,
    /// For how long arrivals may go unseen.
    unseen: Nanos,
}

impl Coalescing {
    /// The delay that a bucket of `shape` allows.
    pub(crate) fn new(shape: &Shape) -> Self {
        Self::no_longer_than(LONGEST, LONGEST_IF_DEEP, shape)
    }

    /// The delay that a bucket of `shape` allows if light flows overtake, and most frames cost
    /// `frame`.
    pub(crate) fn beside_light_flows(shape: &Shape, frame: Bytes) -> Self {
        let half = Nanos(shape.rate.time_for(frame).0 / 2);
        let unseen = half.clamp(*BESIDE_LIGHT.start(), *BESIDE_LIGHT.end());
        Self { unseen, ..Self::no_longer_than(unseen, unseen, shape) }
    }

    fn no_longer_than(longest: Nanos, if_deep: Nanos, shape: &Shape) -> Self {
        let part = |rate: Rate, size: Bytes| Nanos(rate.time_for(size).0 / PART_OF_BURST);
        let of_peak = shape.peak.map_or(Nanos::MAX, |peak| part(peak.rate, peak.mtu));
        let most = part(shape.rate, shape.burst).min(of_peak);
        let (time, if_deep) = (longest.min(most), if_deep.min(most));
        let earned = shape.rate.bytes_in(time);
        let deep = (Bytes(shape.rate.bytes_in(if_deep).0 * DEEP), if_deep);
        let bucket = shape.peak.map_or(shape.burst, |peak| peak.mtu.min(shape.burst));
        let (dearest, usual) = (Bytes::ZERO, Bytes(u64::MAX));
        Self { time, earned, deep, bucket, dearest, usual, unseen: longest }.of_bucket(Share::WHOLE)
    }

    /// That of a queue which has this `part` of the bucket.
    pub(crate) fn of_bucket(self, part: Share) -> Self {
        Self { dearest: Bytes(part.of(self.bucket).0 / PACKETS), ..self }
    }

    /// For a limit's only queue: no other queue departs meanwhile, so two packets of its own have
    /// to come of the wait, and arrivals wait for the same rate.
    pub(crate) fn alone(self) -> Self {
        Self { usual: Bytes(self.earned.0 / 2), unseen: Nanos::MAX, ..self }
    }

    /// For how long arrivals may go unseen where some of them need not wait for their queue's
    /// share.
    pub(crate) fn longest_unseen(&self) -> Nanos {
        self.unseen
    }

    /// When to ask again for a packet that costs `cost` and may leave at `at`, with `behind`
    /// bytes queued behind it.
    #[inline]
    pub(crate) fn until(&self, at: Nanos, cost: Bytes, behind: Bytes) -> Nanos {
        self.until_one_of(at, [cost, cost], behind)
    }

    /// When to ask again for one of a queue's packets that may leave at `at`: the longest costs
    /// `longest`, most `usual`, and `behind` bytes are queued behind it.
    #[inline]
    pub(crate) fn until_one_of(
        &self,
        at: Nanos,
        [usual, longest]: [Bytes; 2],
        behind: Bytes,
    ) -> Nanos {
        let stands = behind >= usual.max(self.earned);
        let (deep, if_deep) = self.deep;
        if !stands || longest > self.dearest || usual > self.usual {
            at
        } else if behind >= deep {
            at + if_deep
        } else {
            at + self.time
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tbf::Peak;

    fn shape(mbit: u64, burst: u64) -> Shape {
        Shape { rate: Rate::from_bits_per_sec(mbit * 1_000_000), burst: Bytes(burst), peak: None }
    }

    const AT: Nanos = Nanos::from_secs(1);
    const FULL: Bytes = Bytes(1514);
    const MANY: Bytes = Bytes(1_000_000);

    #[test]
    fn a_standing_queue_leaves_in_groups() {
        for (mbit, standing) in [(20, 9_999), (100, 49_999), (1000, 499_999)] {
            let coalescing = Coalescing::new(&shape(mbit, 1_000_000));
            assert_eq!(coalescing.until(AT, FULL, Bytes(standing)), AT + LONGEST);
            // Four milliseconds.
            let deep = Bytes(standing + 1);
            assert_eq!(coalescing.until(AT, FULL, deep), AT + LONGEST_IF_DEEP);
        }
    }

    #[test]
    fn a_short_queue_leaves_on_time() {
        let coalescing = Coalescing::new(&shape(20, 1_000_000));
        assert_eq!(coalescing.until(AT, FULL, Bytes(100)), AT);
        // It would be empty before the time is up.
        let coalescing = Coalescing::new(&shape(1000, 1_000_000));
        assert_eq!(coalescing.until(AT, FULL, FULL), AT);
    }

    #[test]
    fn a_small_bucket_allows_less_or_nothing() {
        let coalescing = Coalescing::new(&shape(1000, 32_000));
        assert_eq!(coalescing.until(AT, FULL, MANY), AT + Nanos(32_000));
        let coalescing = Coalescing::new(&shape(1000, 3_000));
        assert_eq!(coalescing.until(AT, FULL, MANY), AT);
        let beside_peak = |mtu| {
            let peak = Peak { rate: Rate::from_bits_per_sec(2_000_000_000), mtu: Bytes(mtu) };
            Coalescing::new(&Shape { peak: Some(peak), ..shape(1000, 1_000_000) })
        };
        assert_eq!(beside_peak(4_000).until(AT, FULL, MANY), AT + Nanos(2_000));
        assert_eq!(beside_peak(3_000).until(AT, FULL, MANY), AT);
    }

    #[test]
    fn light_flows_are_delayed_by_half_a_frame() {
        let time = |mbit, burst| {
            let coalescing = Coalescing::beside_light_flows(&shape(mbit, burst), FULL);
            (coalescing.until(AT, FULL, MANY) - AT, coalescing.longest_unseen())
        };
        let (least, most) = (Nanos::from_micros(100), Nanos::from_micros(250));
        assert_eq!(time(10, 1_000_000), (most, most));
        assert_eq!(time(50, 1_000_000), (Nanos(121_120), Nanos(121_120)));
        assert_eq!(time(1000, 1_000_000), (least, least));
        assert_eq!(time(1000, 32_000), (Nanos(32_000), least));
    }

    #[test]
    fn an_only_queue_waits_where_two_packets_come_of_it() {
        let until = |mbit, usual| {
            let coalescing = Coalescing::beside_light_flows(&shape(mbit, 1_000_000), FULL).alone();
            coalescing.until_one_of(AT, [Bytes(usual), FULL], MANY)
        };
        let least = AT + Nanos::from_micros(100);
        assert_eq!((until(100, 1514), until(250, 1514)), (AT, least));
        assert_eq!((until(100, 626), until(100, 625)), (AT, least));
    }

    #[test]
    fn a_queue_with_a_small_part_of_the_bucket_leaves_on_time() {
        let coalescing = Coalescing::new(&shape(20, 4 * 1514 * 2));
        assert_eq!(coalescing.of_bucket(Share::one_of(4)).until(AT, FULL, FULL), AT + LONGEST);
        assert_eq!(coalescing.of_bucket(Share::one_of(5)).until(AT, FULL, FULL), AT);
    }
}
