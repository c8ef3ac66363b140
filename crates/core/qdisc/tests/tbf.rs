//! A `tbf`'s behaviour, seen from outside.

use narrows_packet::{Backlog, Batch, DropReason, Headers, PacketId, Packets};
use narrows_qdisc::{Config, Handover, Next, NodeId, Qdisc, Spec, Stats, Verdict, cake, fifo, tbf};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use proptest::prelude::*;

fn spec(config: tbf::Config) -> Spec {
    let inner = Config::Fifo(fifo::Config::Bytes(config.limit));
    let inner = Spec::new(inner);
    Spec { children: vec![inner], ..Spec::new(Config::Tbf(config)) }
}

/// One byte a nanosecond.
const RATE: Rate = Rate::from_bits_per_sec(8_000_000_000);

fn config(burst: u64, limit: u64) -> tbf::Config {
    let (burst, limit) = (Bytes(burst), Bytes(limit));
    tbf::Config { rate: RATE, burst, limit, peak: None, overhead: Overhead::NONE }
}

struct Bench {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    next_id: u32,
}

impl Bench {
    fn new(config: tbf::Config) -> Self {
        Self { qdisc: spec(config).build(), packets: Packets::new(1024), next_id: 0 }
    }

    fn offer(&mut self, len: u32, now: u64) -> Verdict {
        let id = PacketId(self.next_id);
        self.next_id += 1;
        self.packets.arrive(id, len, Nanos(now));
        self.qdisc.enqueue(&mut self.packets, id, Nanos(now))
    }

    /// The departures at `now`, and when to ask again.
    fn poll(&mut self, now: u64) -> (Vec<u32>, Next) {
        let mut out = Batch::new(64);
        let next = self.qdisc.dequeue(&mut self.packets, Nanos(now), &mut out);
        (out.as_slice().iter().map(|id| id.0).collect(), next)
    }

    fn stats(&self) -> Vec<Stats> {
        let mut stats = Vec::new();
        self.qdisc.stats(&mut stats);
        stats
    }
}

#[test]
fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
    let mut bench = Bench::new(config(2_000, 10_000));
    (0..4).for_each(|_| assert_eq!(bench.offer(1_000, 0), Verdict::Queued));
    // A little later than it may, so that others leave with it.
    assert_eq!(bench.poll(0), (vec![0, 1], Next::At(Nanos(1_250))));
    assert_eq!(bench.poll(999), (vec![], Next::At(Nanos(1_250))));
    assert_eq!(bench.poll(1_000), (vec![2], Next::At(Nanos(2_000))));
    assert_eq!(bench.poll(2_000), (vec![3], Next::Empty));
}

#[test]
fn held_packets_count_as_queued_here_and_below() {
    let mut bench = Bench::new(config(1_000, 10_000));
    (0..3).for_each(|_| assert_eq!(bench.offer(1_000, 0), Verdict::Queued));
    bench.poll(0);
    bench.poll(1);
    let stats = bench.stats();
    assert_eq!(stats.len(), 2);
    for stats in &stats {
        assert_eq!((stats.sent_packets, stats.sent_bytes), (1, 1_000));
        assert_eq!((stats.backlog.packets, stats.backlog.bytes), (2, Bytes(2_000)));
    }
    assert_eq!((stats[0].overlimits, stats[1].overlimits), (2, 0));
}

#[test]
fn packets_that_could_never_leave_are_dropped_on_arrival() {
    let mut bench = Bench::new(config(1_000, 10_000));
    assert_eq!(bench.offer(1_001, 0), Verdict::Dropped);
    assert_eq!(bench.packets.drops().get(DropReason::TooLong), 1);
    assert_eq!(bench.stats()[0].drops, 1);
}

#[test]
fn the_overhead_counts_towards_the_longest_packet() {
    let overhead = Overhead { per_frame: 24, ..Overhead::NONE };
    let mut bench = Bench::new(tbf::Config { overhead, ..config(1_000, 10_000) });
    assert_eq!(bench.offer(977, 0), Verdict::Dropped);
    assert_eq!(bench.offer(976, 0), Verdict::Queued);
}

#[test]
fn the_queue_ends_at_the_limit_in_bytes_and_not_before() {
    let mut bench = Bench::new(config(1_000, 6_000));
    (0..6).for_each(|_| assert_eq!(bench.offer(1_000, 0), Verdict::Queued));
    assert_eq!(bench.offer(1, 0), Verdict::Dropped);
    assert_eq!(bench.packets.drops().get(DropReason::Limit), 1);
}

#[test]
fn packets_queued_before_the_bucket_shrank_still_leave() {
    let mut bench = Bench::new(config(1_000, 10_000));
    (0..2).for_each(|_| assert_eq!(bench.offer(1_000, 0), Verdict::Queued));
    assert_eq!(bench.poll(0).0, [0]);
    bench.qdisc.retune(spec(config(100, 10_000)), &mut Handover::new(&mut bench.packets, Nanos(0)));
    assert_eq!(bench.poll(0), (vec![], Next::At(Nanos(100))));
    assert_eq!(bench.poll(100), (vec![1], Next::Empty));
    assert_eq!(bench.offer(100, 101), Verdict::Queued);
    assert_eq!(bench.poll(101).1, Next::At(Nanos(1_100)), "the debt is paid first");
}

#[test]
fn a_new_qdisc_below_counts_the_packet_that_is_held_as_its_own() {
    let mut bench = Bench::new(config(1_000, 10_000));
    (0..3).for_each(|_| assert_eq!(bench.offer(1_000, 0), Verdict::Queued));
    assert_eq!(bench.poll(0).0, [0]);
    let mut changed = spec(config(1_000, 10_000));
    changed.children[0].id = NodeId(7);
    bench.qdisc.retune(changed, &mut Handover::new(&mut bench.packets, Nanos(0)));
    let below = |bench: &Bench| {
        let stats = &bench.stats()[1];
        (stats.id, stats.sent_packets, stats.sent_bytes, stats.backlog)
    };
    let queued = Backlog { packets: 2, bytes: Bytes(2_000) };
    assert_eq!(below(&bench), (NodeId(7), 0, 0, queued));
    assert_eq!(bench.poll(3_000).0, [1]);
    assert_eq!(bench.poll(6_000).0, [2]);
    assert_eq!(below(&bench), (NodeId(7), 2, 2_000, Backlog::default()));
}

#[test]
fn a_tbf_below_a_tbf_keeps_both_rates() {
    let slow = tbf::Config { rate: Rate::from_bits_per_sec(800_000_000), ..config(1_000, 9_000) };
    let outer = Spec { children: vec![spec(slow)], ..spec(config(1_000, 9_000)) };
    let mut packets = Packets::new(4);
    let mut qdisc = outer.build();
    for id in 0..3 {
        packets.arrive(PacketId(id), 1_000, Nanos(0));
        assert_eq!(qdisc.enqueue(&mut packets, PacketId(id), Nanos(0)), Verdict::Queued);
    }
    let mut out = Batch::new(4);
    let next = qdisc.dequeue(&mut packets, Nanos(0), &mut out);
    assert_eq!((out.as_slice(), next), (&[PacketId(0)][..], Next::At(Nanos(10_000))));
    let next = qdisc.dequeue(&mut packets, Nanos(10_000), &mut out);
    assert_eq!((out.len(), next), (2, Next::At(Nanos(20_000))));
    let mut stats = Vec::new();
    qdisc.stats(&mut stats);
    assert_eq!(stats.iter().map(|stats| stats.backlog.packets).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn drops_of_the_qdisc_below_count_here_too() {
    // Queue management drops at departure, and on arrival for lack of memory.
    let impatient = cake::Config {
        interval: Nanos::from_micros(100),
        target: Nanos::from_micros(5),
        memory: Some(Bytes(100 * 2048)),
        ..cake::Config::default()
    };
    let slow = tbf::Config { rate: Rate::from_bits_per_sec(8_000_000), ..config(2_000, 900_000) };
    let inner = Spec::new(Config::Cake(impatient));
    let spec = Spec { children: vec![inner], ..Spec::new(Config::Tbf(slow)) };
    let mut qdisc = spec.build();
    let mut packets = Packets::new(1024);
    packets.prepare(qdisc.reading());
    for id in 0..1_000 {
        // Many at once, then twice the rate.
        let now = Nanos::from_micros(u64::from(id.max(300)) * 500);
        packets.arrive(PacketId(id), 1_000, now);
        packets.set_headers(PacketId(id), Headers::default());
        qdisc.enqueue(&mut packets, PacketId(id), now);
        qdisc.dequeue(&mut packets, now, &mut Batch::new(64));
    }
    let mut stats = Vec::new();
    qdisc.stats(&mut stats);
    let dropped = packets.drops();
    assert!(
        dropped.get(DropReason::Aqm) > 10 && dropped.get(DropReason::Limit) > 10,
        "{dropped:?}"
    );
    assert_eq!((stats[0].drops, stats[1].drops), (dropped.total(), dropped.total()));
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    after: u64,
    len: u32,
    /// Whether the worker is late, and by how much.
    late: u64,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let after = prop_oneof![0u64..20, 0u64..3_000];
    let late = prop_oneof![4 => Just(0u64), 1 => 0u64..5_000];
    (after, 60u32..1_600, late).prop_map(|(after, len, late)| Arrival { after, len, late })
}

proptest! {
    /// Whenever packets come and however late the worker is: in any window no more leaves than the
    /// rate allows, plus the burst; nor than the peak rate allows, plus its bucket. All that was
    /// accepted leaves, in order, and no later than if the bucket had always been empty and the
    /// last one had waited for others.
    #[test]
    fn no_window_exceeds_the_limit_and_nothing_starves(
        mbit in 1u64..20_000,
        peak in prop::option::of(1u64..40_000),
        burst in 1_600u64..6_000,
        arrivals in prop::collection::vec(arrival(), 1..80),
    ) {
        let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
        let peak = peak.map(|mbit| {
            tbf::Peak { rate: Rate::from_bits_per_sec(mbit * 1_000_000), mtu: Bytes(1_600) }
        });
        let mut bench = Bench::new(tbf::Config { rate, peak, ..config(burst, 20_000) });
        let mut left: Vec<(u64, u64)> = Vec::new();
        let (mut now, mut accepted) = (0, Vec::new());
        let mut poll = |bench: &mut Bench, now, order: &mut Vec<u32>| {
            let (ids, next) = bench.poll(now);
            left.extend(ids.iter().map(|id| (now, bench.packets.len(PacketId(*id)).0)));
            order.extend(ids);
            next
        };
        let mut order = Vec::new();
        for arrival in arrivals {
            now += arrival.after;
            let id = bench.next_id;
            if bench.offer(arrival.len, now) == Verdict::Queued {
                accepted.push(id);
            }
            now += arrival.late;
            poll(&mut bench, now, &mut order);
        }
        let Backlog { packets, bytes: queued } = bench.qdisc.backlog();
        let slowest = peak.map_or(rate, |peak| peak.rate.min(rate));
        let waits = rate.time_for(Bytes(burst)).0 / 8;
        // Each is paid for in whole nanoseconds.
        let latest = now + slowest.time_for(queued).0 + waits + u64::from(packets) + 1;
        let mut next = Next::Now;
        while next != Next::Empty {
            if let Next::At(at) = next {
                prop_assert!(at.0 > now && at.0 <= latest, "{at} is not in {now} .. {latest}");
                now = at.0;
            }
            next = poll(&mut bench, now, &mut order);
        }
        prop_assert_eq!(order, accepted);
        let limits = peak.iter().map(|peak| (peak.rate, peak.mtu)).chain([(rate, Bytes(burst))]);
        for (rate, burst) in limits {
            for first in 0..left.len() {
                let mut bytes = 0;
                for (at, len) in &left[first..] {
                    bytes += len;
                    let window = u128::from(at - left[first].0);
                    let allowed = u128::from(rate.bits_per_sec()) * window
                        + u128::from(burst.0) * 8_000_000_000;
                    prop_assert!(u128::from(bytes) * 8_000_000_000 <= allowed);
                }
            }
        }
    }
}
