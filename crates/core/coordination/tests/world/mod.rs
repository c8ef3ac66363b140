//! Queues that share a limit, in virtual time.

use narrows_coordination::{Coordination, Limit, Strategy};
use narrows_packet::{Batch, PacketId, Packets};
use narrows_qdisc::{Config, Handover, Meter, Next, Qdisc, Spec, Verdict, fifo, tbf};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use proptest::prelude::*;
use proptest::strategy::Strategy as Generator;
use std::sync::Arc;

/// Packets that a queue may hold.
const CAPACITY: u32 = 4096;

/// A packet that has left.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    pub at: Nanos,
    pub queue: usize,
    pub len: Bytes,
}

/// A packet on its way in.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub queue: usize,
    /// Nanoseconds after the one before.
    pub after: u64,
    pub len: u32,
}

/// Packets of up to `longest` bytes for the first four queues, in bursts and apart.
#[allow(dead_code, reason = "each test file uses a part")]
pub fn arrival(longest: u32) -> impl Generator<Value = Arrival> {
    let after = prop_oneof![0u64..20, 0u64..30_000];
    (0usize..4, after, 60..=longest).prop_map(|(queue, after, len)| Arrival { queue, after, len })
}

/// The burst that `fair` states: at least six full frames (three below 750 Mbit/s) and 32 us.
#[allow(dead_code, reason = "each test file uses a part")]
pub fn stated_burst(limit: Limit) -> u64 {
    let frames = if limit.rate >= Rate::from_bits_per_sec(750_000_000) { 6 } else { 3 };
    limit.burst.0.max(limit.rate.bytes_in(Nanos::from_micros(32)).0).max(frames * 1_538)
}

struct Queue {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    free: Vec<PacketId>,
    poll: Nanos,
}

/// A limit and its queues.
#[allow(dead_code, reason = "each test file uses a part")]
pub struct World {
    pub coordination: Arc<Coordination>,
    pub departures: Vec<Departure>,
    queues: Vec<Queue>,
}

/// A `tbf` that keeps `limit` by way of `meter`.
pub fn spec(limit: Limit, meter: Option<Box<dyn Meter>>) -> Spec {
    let Limit { rate, burst, peak, backlog } = limit;
    let tbf = tbf::Config { rate, burst, limit: backlog, peak, overhead: Overhead::NONE };
    let fifo = Config::Fifo(fifo::Config::Packets(CAPACITY));
    let inner = Spec::new(fifo);
    Spec { metering: meter.into(), children: vec![inner], ..Spec::new(Config::Tbf(tbf)) }
}

#[allow(dead_code, reason = "each test file uses a part")]
impl World {
    pub fn new(strategy: Strategy, limit: Limit, queues: usize) -> Self {
        let coordination = Coordination::new(strategy, limit, queues);
        let queue = |number| Queue {
            qdisc: spec(limit, Some(coordination.meter(number))).build(),
            packets: Packets::new(CAPACITY),
            free: (0..CAPACITY).rev().map(PacketId).collect(),
            poll: Nanos::MAX,
        };
        let queues = (0..queues).map(queue).collect();
        Self { coordination, departures: Vec::new(), queues }
    }

    /// Hands a packet to a queue; the worker polls it afterwards.
    pub fn offer(&mut self, number: usize, len: u32, now: Nanos) -> Verdict {
        let queue = &mut self.queues[number];
        let Some(id) = queue.free.pop() else { return Verdict::Dropped };
        queue.packets.arrive(id, len, now);
        let verdict = queue.qdisc.enqueue(&mut queue.packets, id, now);
        let mut dropped = Batch::new(1);
        queue.packets.reclaim(&mut dropped);
        queue.free.extend(dropped.as_slice());
        self.poll(number, now);
        verdict
    }

    /// Tells a queue that `bytes` left beside all queues.
    pub fn owe(&mut self, number: usize, bytes: Bytes, now: Nanos) {
        self.queues[number].qdisc.owe(bytes, now);
    }

    /// Sends all packets of a queue that may leave.
    pub fn poll(&mut self, number: usize, now: Nanos) {
        let queue = &mut self.queues[number];
        let mut out = Batch::new(64);
        queue.poll = match queue.qdisc.dequeue(&mut queue.packets, now, &mut out) {
            Next::Now => now,
            Next::At(at) | Next::Held(at) => {
                assert!(at > now, "told to wait until {at} at {now}");
                at
            }
            Next::Empty => Nanos::MAX,
        };
        for id in out.as_slice() {
            let len = queue.packets.len(*id);
            self.departures.push(Departure { at: now, queue: number, len });
            queue.free.push(*id);
        }
    }

    /// The queue that is polled next, and when.
    pub fn next_poll(&self) -> (usize, Nanos) {
        let polls = self.queues.iter().map(|queue| queue.poll).enumerate();
        polls.min_by_key(|(_, poll)| *poll).unwrap_or((0, Nanos::MAX))
    }

    /// Polls every queue when it asks for it, each `late` later, until `end`.
    pub fn run_until(&mut self, end: Nanos, late: Nanos) {
        loop {
            let (number, at) = self.next_poll();
            if at + late >= end {
                return;
            }
            self.poll(number, at + late);
        }
    }

    /// Offers all of it, polls until nothing is left, and returns when the last packet left and how
    /// much was accepted.
    pub fn replay(&mut self, arrivals: &[Arrival], late: Nanos) -> (Nanos, u64) {
        let (mut now, mut accepted) = (Nanos(1), 0);
        for arrival in arrivals {
            now += Nanos(arrival.after);
            self.run_until(now, late);
            if self.offer(arrival.queue, arrival.len, now) == Verdict::Queued {
                accepted += u64::from(arrival.len);
            }
        }
        self.run_until(Nanos::MAX, late);
        (self.departures.last().map_or(Nanos::ZERO, |last| last.at), accepted)
    }

    /// Keeps `numbers` full of packets of `len` bytes until `end`.
    pub fn flood_until(&mut self, numbers: &[usize], len: &[u32], from: Nanos, end: Nanos) {
        let mut now = from;
        while now < end {
            for (number, len) in numbers.iter().zip(len.iter().cycle()) {
                while self.queues[*number].qdisc.backlog().packets < 3 {
                    if self.offer(*number, *len, now) == Verdict::Dropped {
                        break;
                    }
                }
            }
            let (number, at) = self.next_poll();
            now = at.max(now);
            if now < end {
                self.poll(number, now);
            }
        }
    }

    /// Offers each queue packets of `len` bytes at even intervals, at the given rate (zero for
    /// none), until `end`; workers poll when they asked for it.
    pub fn offer_evenly(&mut self, rates: &[Rate], len: u32, from: Nanos, end: Nanos) {
        // In 1/1024 ns, so that rates are exact.
        let interval = |rate: &Rate| {
            let bits = u128::from(len) * 8_000_000_000 * 1024;
            bits.checked_div(u128::from(rate.bits_per_sec())).unwrap_or(u128::MAX >> 1)
        };
        let intervals: Vec<u128> = rates.iter().map(interval).collect();
        let phase = |number: usize| u128::from(from.0) << 10 | (number as u128 * 1_987);
        let mut next: Vec<u128> =
            (0..rates.len()).map(|number| phase(number) + intervals[number] / 3).collect();
        loop {
            let (number, arrival) = next.iter().copied().enumerate().min_by_key(|n| n.1).unwrap();
            let arrival = Nanos(u64::try_from(arrival >> 10).unwrap_or(u64::MAX));
            let (polled, poll) = self.next_poll();
            if arrival.min(poll) >= end {
                return;
            }
            if arrival <= poll {
                next[number] += intervals[number];
                self.offer(number, len, arrival);
            } else {
                self.poll(polled, poll);
            }
        }
    }

    pub fn backlog(&self) -> Bytes {
        Bytes(self.queues.iter().map(|queue| queue.qdisc.backlog().bytes.0).sum())
    }

    /// Applies `spec` to a queue.
    pub fn retune(&mut self, number: usize, spec: Spec, now: Nanos) {
        let Queue { qdisc, packets, .. } = &mut self.queues[number];
        qdisc.retune(spec, &mut Handover::new(packets, now));
    }

    /// Bytes that left `queue` (all for `None`) from `from` on and before `end`.
    pub fn sent(&self, queue: Option<usize>, from: Nanos, end: Nanos) -> u64 {
        let wanted = |d: &&Departure| {
            d.at >= from && d.at < end && queue.is_none_or(|queue| queue == d.queue)
        };
        self.departures.iter().filter(wanted).map(|d| d.len.0).sum()
    }

    /// The most by which any window exceeds the rate of `limit`, in bytes, rounded up.
    pub fn worst_excess(&self, limit: Limit, from: Nanos) -> u64 {
        // The largest debt of a bucket with unlimited debt.
        let (mut owed, mut worst, mut last) = (0i128, 0i128, from);
        for departure in self.departures.iter().filter(|departure| departure.at >= from) {
            let earned =
                i128::from(limit.rate.bits_per_sec()) * i128::from(departure.at.since(last).0);
            owed = (owed - earned).max(0) + i128::from(departure.len.0) * 8_000_000_000;
            worst = worst.max(owed);
            last = departure.at;
        }
        (worst as u128).div_ceil(8_000_000_000) as u64
    }
}
