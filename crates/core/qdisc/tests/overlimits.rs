//! `overlimits` beside a model of how Linux drives a qdisc.
//!
//! The model asks for packets after every arrival and whenever its timer fires, until it is
//! refused, and counts refusals: `qdisc_run`, `qdisc_watchdog`, and the counter of `tbf_dequeue`
//! and `cake_dequeue`.

use narrows_packet::{Batch, PacketId, Packets};
use narrows_qdisc::bucket::{Bucket, Shape};
use narrows_qdisc::{Config, Meter, Next, Qdisc, Spec, Take, cake, fifo, tbf};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use proptest::prelude::*;
use std::collections::VecDeque;

/// A byte takes a microsecond.
const RATE: Rate = Rate::from_bits_per_sec(8_000_000);
const BURST: Bytes = Bytes(2_000);
const LIMIT: Bytes = Bytes(20_000);
const MEAN_LEN: u64 = 800;

/// When a packet may leave.
enum Shaper {
    /// By `tbf`'s bucket.
    Bucket(Bucket),
    /// By `cake`'s clock: when the next one may.
    Clock(Nanos),
}

impl Shaper {
    fn arrives(&mut self, is_first: bool, now: Nanos) {
        if let Self::Clock(next) = self
            && is_first
        {
            *next = now.max(*next);
        }
    }

    /// Whether `len` may leave at `now`, or when.
    fn take(&mut self, len: Bytes, now: Nanos) -> Take {
        match self {
            Self::Bucket(bucket) => bucket.take(len, Nanos::ZERO, now),
            Self::Clock(next) if *next <= now => {
                *next += RATE.time_for(len);
                Take::Granted
            }
            Self::Clock(next) => Take::Wait(*next),
        }
    }
}

/// The model.
struct Linux {
    shaper: Shaper,
    queue: VecDeque<Bytes>,
    timer: Option<Nanos>,
    overlimits: u64,
}

impl Linux {
    fn arrives(&mut self, len: Bytes, now: Nanos) {
        self.catch_up(now);
        self.shaper.arrives(self.queue.is_empty(), now);
        let is_limited = matches!(self.shaper, Shaper::Bucket(_));
        let queued = Bytes(self.queue.iter().map(|len| len.0).sum());
        if !is_limited || queued + len <= LIMIT {
            self.queue.push_back(len);
        }
        self.run(now);
    }

    /// All timer events until `now`.
    fn catch_up(&mut self, now: Nanos) {
        while let Some(at) = self.timer.take_if(|at| *at <= now) {
            self.run(at);
        }
    }

    fn run(&mut self, now: Nanos) {
        while let Some(&len) = self.queue.front() {
            if let Take::Wait(at) = self.shaper.take(len, now) {
                self.overlimits += 1;
                self.timer = Some(at);
                return;
            }
            self.queue.pop_front();
        }
        self.timer = None;
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Tbf,
    Cake,
}

impl Kind {
    fn linux(self) -> Linux {
        let shape = Shape { rate: RATE, burst: BURST, peak: None };
        let shaper = match self {
            Self::Tbf => Shaper::Bucket(Bucket::new(shape)),
            Self::Cake => Shaper::Clock(Nanos::ZERO),
        };
        Linux { shaper, queue: VecDeque::new(), timer: None, overlimits: 0 }
    }

    fn spec(self) -> Spec {
        let overhead = Overhead::NONE;
        match self {
            Self::Tbf => {
                let inner = Spec::new(Config::Fifo(fifo::Config::Bytes(LIMIT)));
                let peak = None;
                let config = tbf::Config { rate: RATE, burst: BURST, limit: LIMIT, peak, overhead };
                Spec { children: vec![inner], ..Spec::new(Config::Tbf(config)) }
            }
            // No queue signals congestion.
            Self::Cake => Spec::new(Config::Cake(cake::Config {
                rate: Some(RATE),
                diffserv: cake::Diffserv::BestEffort,
                interval: Nanos::from_secs(1000),
                target: Nanos::from_secs(1000),
                ..cake::Config::default()
            })),
        }
    }
}

/// A qdisc and the worker that asks it.
struct Worker {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    next_id: u32,
    next: Next,
}

impl Worker {
    fn new(kind: Kind) -> Self {
        let qdisc = kind.spec().build();
        let mut packets = Packets::new(1024);
        packets.prepare(qdisc.reading());
        Self { qdisc, packets, next_id: 0, next: Next::Empty }
    }

    fn arrives(&mut self, len: Bytes, now: Nanos) {
        let id = PacketId(self.next_id % 1024);
        self.next_id += 1;
        self.packets.arrive(id, len.0 as u32, now);
        self.packets.set_headers(id, narrows_packet::Headers::default());
        self.qdisc.enqueue(&mut self.packets, id, now);
        // Dropped numbers are reused much later.
        self.packets.reclaim(&mut Batch::new(64));
    }

    fn asks(&mut self, now: Nanos) {
        let mut out = Batch::new(64);
        self.next = self.qdisc.dequeue(&mut self.packets, now, &mut out);
    }

    /// Polls as requested until `now`.
    fn catch_up(&mut self, now: Nanos) {
        while let Next::At(at) = self.next
            && at <= now
        {
            self.asks(at);
        }
    }

    fn overlimits(&self) -> u64 {
        let mut stats = Vec::new();
        self.qdisc.stats(&mut stats);
        stats[0].overlimits
    }
}

/// A packet comes so long after another, and the worker asks so long after that without need.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    after: Nanos,
    len: Bytes,
    idle: Nanos,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let micros = prop_oneof![0..50_u64, 0..1_500_u64, 0..10_000_u64];
    (micros, 200..1_400_u64, 0..2_000_u64).prop_map(|(after, len, idle)| Arrival {
        after: Nanos::from_micros(after),
        len: Bytes(len),
        idle: Nanos::from_micros(idle),
    })
}

proptest! {
    /// Where the worker asks when Linux does, it counts the same; asking in between counts nothing.
    #[test]
    fn a_punctual_worker_counts_as_linux_does(
        kind in prop::sample::select(vec![Kind::Tbf, Kind::Cake]),
        arrivals in prop::collection::vec(arrival(), 1..200),
    ) {
        let (mut linux, mut worker) = (kind.linux(), Worker::new(kind));
        let mut now = Nanos::from_secs(1);
        for Arrival { after, len, idle } in arrivals {
            let early = now + idle.min(after);
            now += after;
            worker.catch_up(early);
            worker.asks(early);
            worker.catch_up(now);
            worker.arrives(len, now);
            worker.asks(now);
            linux.arrives(len, now);
            prop_assert_eq!(worker.overlimits(), linux.overlimits);
        }
        worker.catch_up(Nanos::MAX);
        linux.catch_up(Nanos::MAX);
        prop_assert_eq!(worker.overlimits(), linux.overlimits);
    }

    /// A worker that polls at its own times, within the burst, counts nearly the same while there
    /// is a backlog.
    #[test]
    fn a_late_worker_counts_nearly_as_linux_does(
        kind in prop::sample::select(vec![Kind::Tbf, Kind::Cake]),
        load in 1.2..5.0_f64,
        every_us in 1..1_500_u64,
    ) {
        let (mut linux, mut worker) = (kind.linux(), Worker::new(kind));
        let gap = Nanos::from_micros((MEAN_LEN as f64 / load) as u64);
        let start = Nanos::from_secs(1);
        let mut asked = start;
        for number in 0..1_000 {
            let now = start + Nanos(gap.0 * number);
            while asked + Nanos::from_micros(every_us) <= now {
                asked += Nanos::from_micros(every_us);
                worker.asks(asked);
            }
            worker.arrives(Bytes(MEAN_LEN), now);
            linux.arrives(Bytes(MEAN_LEN), now);
        }
        let (ours, theirs) = (worker.overlimits() as f64, linux.overlimits as f64);
        prop_assert!((ours / theirs - 1.0).abs() < 0.1, "{} instead of {}", ours, theirs);
    }
}
