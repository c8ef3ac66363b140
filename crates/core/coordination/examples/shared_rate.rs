//! Two queues share 100 Mbit/s under each of the built-in strategies, in virtual time.
//!
//! `cargo run -p narrows-coordination --example shared_rate` prints what leaves when the load is
//! uneven (80/20), and when both queues want more than their share.
//!
//! Each queue has a `tbf` with a meter at the same limit, and traffic of its own. This is what a
//! program that embeds `narrows-qdisc` has to do: provide packets, a clock and a loop.

use narrows_coordination::{Coordination, Limit, Strategy};
use narrows_packet::{Batch, PacketId, Packets};
use narrows_qdisc::{Config, Meter, Metering, Next, Qdisc, Slot, Spec, fifo, tbf};
use narrows_units::wire::Overhead;
use narrows_units::{Bytes, Nanos, Rate};

/// The limit that both queues share.
const RATE: Rate = Rate::from_bits_per_sec(100_000_000);
/// Its burst: 1 ms of the rate.
const BURST: Bytes = Bytes(12_500);
/// How much may be queued, over both queues.
const BACKLOG: Bytes = Bytes(125_000);
/// How many queues there are.
const QUEUES: usize = 2;

/// The length of each frame, in bytes.
const FRAME: u32 = 1500;
/// How long each run lasts.
const LENGTH: Nanos = Nanos::from_secs(1);
/// Packets that may exist at once, per queue.
const PACKETS: u32 = 1024;
/// Packets per call.
const BATCH: usize = 64;

/// One queue with everything that its worker owns.
struct Queue {
    slot: Slot,
    packets: Packets,
    /// Ids that are not in use.
    free: Vec<PacketId>,
    /// The time between two arrivals.
    interval: Nanos,
    arrival: Nanos,
    wake: Nanos,
    sent: u64,
}

impl Queue {
    fn new(meter: Box<dyn Meter>, offered: Rate) -> Self {
        let config = tbf::Config {
            rate: RATE,
            burst: BURST,
            limit: BACKLOG,
            peak: None,
            overhead: Overhead::NONE,
        };
        let spec = Spec {
            metering: Metering::Shared(meter),
            children: vec![Spec::new(Config::Fifo(fifo::Config::Bytes(BACKLOG)))],
            ..Spec::new(Config::Tbf(config))
        };
        let interval = offered.time_for(Bytes(u64::from(FRAME)));
        Self {
            slot: Slot::new(spec),
            packets: Packets::new(PACKETS),
            free: (0..PACKETS).map(PacketId).collect(),
            interval,
            arrival: interval,
            wake: Nanos::MAX,
            sent: 0,
        }
    }

    /// Enqueues what has arrived by `now`, and sends what may leave.
    fn step(&mut self, now: Nanos) {
        let Self { slot, packets, free, .. } = self;
        let qdisc: &mut dyn Qdisc = slot.qdisc_mut();
        while self.arrival <= now {
            let id = free.pop().expect("fewer packets are queued than there are ids");
            packets.arrive(id, FRAME, self.arrival);
            qdisc.enqueue(packets, id, now);
            self.arrival += self.interval;
        }
        let mut out = Batch::new(BATCH);
        let next = qdisc.dequeue(packets, now, &mut out);
        self.sent += out.as_slice().len() as u64 * u64::from(FRAME);
        free.extend(out.as_slice());
        out.clear();
        // Dropped packets have to be collected, or their ids are lost.
        packets.reclaim(&mut out);
        free.extend(out.as_slice());
        self.wake = match next {
            Next::Now => now,
            Next::At(time) | Next::Held(time) => time,
            Next::Empty => Nanos::MAX,
        };
    }
}

/// Offers each queue its rate for a second of virtual time, and returns the rates that leave.
fn run(meters: [Box<dyn Meter>; QUEUES], offered: [Rate; QUEUES]) -> [Rate; QUEUES] {
    let mut pairs = meters.into_iter().zip(offered);
    let mut queues: [Queue; QUEUES] = std::array::from_fn(|_| {
        let (meter, offered) = pairs.next().expect("a meter and a rate for each queue");
        Queue::new(meter, offered)
    });
    loop {
        let due = |queue: &Queue| queue.arrival.min(queue.wake);
        let next = queues.iter_mut().min_by_key(|queue| due(queue)).expect("two queues");
        let now = due(next);
        if now > LENGTH {
            return queues.map(|queue| Rate::of(Bytes(queue.sent), LENGTH));
        }
        next.step(now);
    }
}

/// Prints a line: the rate of each queue, in Mbit/s, and the used part of the limit.
fn print(name: &str, offered: [Rate; QUEUES], sent: [Rate; QUEUES]) {
    let mbit = |rates: [Rate; QUEUES]| rates.map(|rate| rate.bits_per_sec() as f64 / 1e6);
    let [wanted, got] = [mbit(offered), mbit(sent)];
    let used = got.iter().sum::<f64>() / (RATE.bits_per_sec() as f64 / 1e6);
    println!(
        "{name:<8} offered {:>5.1} + {:>5.1}   sent {:>5.1} + {:>5.1} Mbit/s   {:>5.1} % used",
        wanted[0],
        wanted[1],
        got[0],
        got[1],
        100.0 * used
    );
}

fn main() {
    let limit = Limit { rate: RATE, burst: BURST, peak: None, backlog: BACKLOG };
    for offered in [[82, 21], [300, 100]] {
        let offered = offered.map(|mbit| Rate::from_bits_per_sec(mbit * 1_000_000));
        for strategy in Strategy::ALL {
            let coordination = Coordination::new(strategy, limit, QUEUES);
            let meters = std::array::from_fn(|queue| coordination.meter(queue));
            print(strategy.name(), offered, run(meters, offered));
        }
    }
}
