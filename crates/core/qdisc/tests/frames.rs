//! Where flows have queues of their own, no flow takes the frames that others need.

use narrows_packet::{Batch, DropReason, Headers, PacketId, Packets};
use narrows_qdisc::pacing::{self, Codel, Structure};
use narrows_qdisc::{Config, Qdisc, Spec, Verdict, fq};
use narrows_units::{Nanos, Rate};

/// Frames in which packets may wait.
const FRAMES: u32 = 600;
const NOW: Nanos = Nanos::from_secs(1);

/// Flows and qdiscs that could each hold more packets than there are frames.
fn qdiscs() -> Vec<Config> {
    let rate = Some(Rate::from_bits_per_sec(1_000));
    let (limit, flow_limit, horizon) = (100_000, 100_000, Nanos::from_secs(1_000_000));
    let paced = |structure, codel| {
        let default = pacing::Config::new(structure, 1514);
        let maxrate = rate;
        Config::Pacing(pacing::Config { maxrate, limit, flow_limit, horizon, codel, ..default })
    };
    vec![
        Config::Fq(fq::Config { max_rate: rate, limit, flow_limit, ..fq::Config::default() }),
        paced(Structure::Carousel, None),
        paced(Structure::Eiffel, None),
        paced(Structure::FlowBundler, None),
        paced(Structure::FlowBundler, Some(Codel::default())),
    ]
}

struct World {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    free: Vec<PacketId>,
}

impl World {
    fn new(config: Config) -> Self {
        let qdisc = Spec::new(config).build();
        let mut packets = Packets::new(FRAMES);
        packets.prepare(qdisc.reading());
        Self { qdisc, packets, free: (0..FRAMES).map(PacketId).collect() }
    }

    /// One of the shortest packets of `flow` arrives.
    fn arrive(&mut self, flow: u32) -> Verdict {
        let id = self.free.pop().expect("a frame is left to receive into");
        self.packets.arrive(id, 60, NOW);
        self.packets.set_headers(id, Headers { flow, ..Headers::default() });
        self.packets.set_spare_frames(self.free.len() as u32);
        let verdict = self.qdisc.enqueue(&mut self.packets, id, NOW);
        let mut back = Batch::new(8);
        self.packets.reclaim(&mut back);
        self.free.extend(back.as_slice());
        verdict
    }
}

#[test]
fn a_flow_that_floods_gets_half_of_the_frames_and_others_find_theirs() {
    for config in qdiscs() {
        let mut world = World::new(config.clone());
        for _ in 0..10 * FRAMES {
            world.arrive(1);
        }
        let queued = world.qdisc.backlog().packets;
        assert!(queued.abs_diff(FRAMES / 2) <= 1, "{queued}: {config:?}");
        let drops = world.packets.drops().get(DropReason::NoFrame);
        assert_eq!(drops, u64::from(10 * FRAMES - queued), "{config:?}");
        for flow in 2..100 {
            assert_eq!(world.arrive(flow), Verdict::Queued, "{flow}: {config:?}");
        }
    }
}

#[test]
fn flows_that_flood_together_get_the_same_and_leave_as_much() {
    for config in qdiscs() {
        let mut world = World::new(config.clone());
        for _ in 0..10 * FRAMES {
            for flow in 1..=5 {
                world.arrive(flow);
            }
        }
        let left = world.free.len() as u32;
        assert!(left.abs_diff(FRAMES / 6) <= 6, "{left} are left: {config:?}");
        assert_eq!(world.arrive(6), Verdict::Queued, "{config:?}");
    }
}
