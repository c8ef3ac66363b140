//! The hot path allocates nothing: once its flows are known, no qdisc allocates memory, under any
//! load.

use narrows_packet::{Batch, Headers, PacketId, Packets};
use narrows_qdisc::pacing::{self, Codel, Key, Structure};
use narrows_qdisc::{
    Config, Next, Qdisc, Spec, bands, cake, codel, fifo, fq, fq_codel, netem, sfq, tbf,
};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};

const FLOWS: u32 = 64;
const CLASSES: u32 = 4;
const PACKETS: u32 = 2_048;
/// The total rate of all flows: each packet of 1500 bytes takes 12 us.
const RATE: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// How much of it is offered, in percent: so that there are drops.
const OFFERED: u64 = 120;
const BATCH: usize = 32;

/// A qdisc and its packets, of which those that left come again.
struct World {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    free: Vec<PacketId>,
    came: u64,
    left: u64,
    now: Nanos,
    arrivals: Batch,
    out: Batch,
}

impl World {
    fn new(spec: Spec) -> Self {
        let qdisc = spec.build();
        let mut packets = Packets::new(PACKETS);
        packets.prepare(qdisc.reading());
        Self {
            qdisc,
            packets,
            free: (0..PACKETS).map(PacketId).collect(),
            came: 0,
            left: 0,
            now: Nanos::from_secs(1),
            arrivals: Batch::new(BATCH),
            out: Batch::new(BATCH),
        }
    }

    /// Lets `span` pass. Packets arrive in batches, from each flow in turn.
    fn run(&mut self, span: Nanos) {
        let apart = RATE.time_for(Bytes(1500)).0 * BATCH as u64 * 100 / OFFERED;
        let end = self.now + span;
        while self.now < end {
            self.now += Nanos(apart);
            self.arrive();
            self.depart();
        }
    }

    fn arrive(&mut self) {
        self.arrivals.clear();
        while self.arrivals.has_room() {
            let Some(id) = self.free.pop() else { break };
            let flow = self.came as u32 % FLOWS;
            self.packets.arrive(id, 1500, self.now);
            let headers = Headers {
                flow: flow.wrapping_mul(0x9e37_79b9),
                destination: flow,
                ..Headers::default()
            };
            self.packets.set_headers(id, headers);
            self.packets.meta_mut(id).class = 1 + flow % CLASSES;
            self.arrivals.push(id);
            self.came += 1;
        }
        self.qdisc.enqueue_all(&mut self.packets, self.arrivals.as_slice(), self.now);
    }

    fn depart(&mut self) {
        loop {
            self.out.clear();
            let next = self.qdisc.dequeue(&mut self.packets, self.now, &mut self.out);
            self.left += self.out.len() as u64;
            self.free.extend_from_slice(self.out.as_slice());
            if next != Next::Now {
                break;
            }
        }
        while self.packets.unreclaimed() > 0 {
            self.out.clear();
            self.packets.reclaim(&mut self.out);
            self.free.extend_from_slice(self.out.as_slice());
        }
    }
}

/// Every kind, with limits that it reaches.
fn kinds() -> Vec<(&'static str, Spec)> {
    let fifo = || Spec::new(Config::Fifo(fifo::Config::Packets(500)));
    let tbf = tbf::Config {
        rate: RATE,
        burst: Bytes(100_000),
        limit: Bytes(1_000_000),
        peak: None,
        overhead: Overhead::NONE,
    };
    let each = Rate::from_bits_per_sec(RATE.bits_per_sec() / u64::from(FLOWS));
    let paced = |structure| pacing::Config {
        maxrate: Some(each),
        flow_limit: 20,
        ..pacing::Config::new(structure, 1514)
    };
    let codel = Codel { target: Nanos::from_millis(1), ..Codel::default() };
    let cake = cake::Config { rate: Some(RATE), ..cake::Config::default() };
    let fq = fq::Config { max_rate: Some(each), flow_limit: 20, ..fq::Config::default() };
    let rate = netem::RateLimit { rate: RATE, overhead: 0, cell: 0, cell_overhead: 0 };
    let netem = netem::Config {
        delay: Nanos::from_millis(5),
        jitter: Nanos::from_millis(2),
        distribution: netem::Distribution::Normal,
        ..netem::Config::default()
    };
    let flowbundler = paced(Structure::FlowBundler);
    let configs = [
        ("cake", Config::Cake(cake)),
        ("fq", Config::Fq(fq)),
        ("netem", Config::Netem(netem)),
        ("netem rate", Config::Netem(netem::Config { rate: Some(rate), ..netem })),
        ("carousel", Config::Pacing(paced(Structure::Carousel))),
        ("eiffel", Config::Pacing(paced(Structure::Eiffel))),
        ("flowbundler", Config::Pacing(flowbundler)),
        ("flowbundler codel", Config::Pacing(pacing::Config { codel: Some(codel), ..flowbundler })),
        (
            "flowbundler apart hosts safeguard",
            Config::Pacing(pacing::Config { apart: Key::Hosts, safeguard: true, ..flowbundler }),
        ),
    ];
    let mut kinds = vec![
        ("pfifo", fifo()),
        ("tbf", Spec { children: vec![fifo()], ..Spec::new(Config::Tbf(tbf)) }),
    ];
    let leaves = [
        ("tbf codel", Config::Codel(codel::Config::default())),
        (
            "tbf fq_codel",
            Config::FqCodel(fq_codel::Config { limit: 500, ..fq_codel::Config::default() }),
        ),
        (
            "tbf sfq",
            Config::Sfq(sfq::Config { perturb: Nanos::from_millis(20), ..sfq::Config::default() }),
        ),
    ];
    let limited =
        |config| Spec { children: vec![Spec::new(config)], ..Spec::new(Config::Tbf(tbf)) };
    kinds.extend(leaves.map(|(name, config)| (name, limited(config))));
    kinds.extend(configs.map(|(name, config)| (name, Spec::new(config))));
    // The shaper above the classes holds one of their packets.
    let disciplines = [
        ("prio", bands::Discipline::Prio, CLASSES),
        ("drr", bands::Discipline::Drr, 0),
        ("ets", bands::Discipline::Ets, 1),
    ];
    kinds.extend(disciplines.map(|(name, discipline, strict)| {
        let class = |id| bands::Class { id: id as u16, quantum: (id > strict).then_some(300 * id) };
        let classes = (1..=CLASSES).map(class).collect();
        let config = bands::Config { discipline, classes, otherwise: None };
        let children = (0..CLASSES).map(|_| fifo()).collect();
        let below = Spec { children, ..Spec::new(Config::Bands(config)) };
        (name, Spec { children: vec![below], ..Spec::new(Config::Tbf(tbf)) })
    }));
    kinds
}

#[test]
fn once_its_flows_are_known_a_qdisc_allocates_nothing() {
    for (name, spec) in kinds() {
        let mut world = None;
        let built = allocation_counter::measure(|| world = Some(World::new(spec)));
        assert!(built.count_total > 0, "{name}: nothing is counted");
        let mut world = world.unwrap();
        world.run(Nanos::from_millis(200));
        let before = world.left;
        let memory = allocation_counter::measure(|| world.run(Nanos::from_millis(500)));
        assert!(world.left - before > 30_000, "{name}: {} packets left", world.left - before);
        assert_eq!(memory.count_total, 0, "{name}");
    }
}
