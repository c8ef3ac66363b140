//! Whatever is done to a qdisc: packets in = packets out + queued + dropped, and in order.

use narrows_packet::{Batch, PacketId, Packets};
use narrows_qdisc::pacing::{self, Structure};
use narrows_qdisc::{
    Config, Handover, NodeId, Slot, Spec, Verdict, codel, fifo, fq_codel, netem, sfq, tbf,
};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Kinds, as deep as they can be stacked.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Noqueue,
    Pfifo,
    Bfifo,
    Tbf,
    TbfOverTbf,
    Pacing(Structure),
    /// With queue management, which drops what is first.
    Codel(Structure),
    TbfOverPacing(Structure),
    TbfOverCodel(Structure),
    Leaf(Leaf),
    TbfOverLeaf(Leaf),
}

/// Kinds that have nothing below them. All packets are of one flow.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Leaf {
    Codel,
    FqCodel,
    Sfq,
    /// With a rate or without.
    Netem(bool),
}

const LEAVES: [Leaf; 5] =
    [Leaf::Codel, Leaf::FqCodel, Leaf::Sfq, Leaf::Netem(false), Leaf::Netem(true)];

/// Of every `netem`: with a shorter one later packets would overtake those that are under way.
const DELAY: Nanos = Nanos(9_000);

/// A leaf with limits that are reached.
fn leaf(leaf: Leaf, size: u32) -> Config {
    let (target, interval) = (Nanos(u64::from(size)), Nanos(u64::from(size) * 100));
    let limit = size / 20;
    match leaf {
        Leaf::Codel => Config::Codel(codel::Config {
            limit,
            target,
            interval,
            ..codel::Config::for_frames_of(100)
        }),
        Leaf::FqCodel => Config::FqCodel(fq_codel::Config {
            limit,
            target,
            interval,
            flows: 2,
            memory_limit: Bytes(u64::from(size) * 100),
            drop_batch: 1 + size % 5,
            ..fq_codel::Config::for_frames_of(100)
        }),
        Leaf::Sfq => Config::Sfq(sfq::Config {
            limit,
            depth: 1 + size / 30,
            headdrop: size.is_multiple_of(2),
            perturb: Nanos(u64::from(size) * 200),
            ..sfq::Config::for_frames_of(1514)
        }),
        Leaf::Netem(has_rate) => Config::Netem(netem::Config {
            limit,
            delay: DELAY,
            loss: netem::Loss::Random(netem::Happening {
                probability: netem::Probability(u32::MAX / 20),
                correlation: netem::Probability::NEVER,
            }),
            rate: has_rate.then_some(netem::RateLimit {
                rate: Rate::from_bits_per_sec(u64::from(size) * 100_000),
                overhead: 4,
                cell: 0,
                cell_overhead: 0,
            }),
            ..netem::Config::for_frames_of(1514)
        }),
    }
}

const FIFOS: [Kind; 2] = [Kind::Pfifo, Kind::Bfifo];

const STRUCTURES: [Structure; 3] = [Structure::Carousel, Structure::Eiffel, Structure::FlowBundler];

impl Kind {
    fn is_tbf(self) -> bool {
        !matches!(
            self,
            Self::Noqueue
                | Self::Pfifo
                | Self::Bfifo
                | Self::Pacing(_)
                | Self::Codel(_)
                | Self::Leaf(_)
        )
    }

    /// Whether taking out some packets would disturb its order: then it is all or nothing.
    fn drains_as_a_whole(self) -> bool {
        !matches!(self, Self::Noqueue | Self::Pfifo | Self::Bfifo | Self::Tbf | Self::TbfOverTbf)
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Noqueue),
        Just(Kind::Pfifo),
        Just(Kind::Bfifo),
        Just(Kind::Tbf),
        Just(Kind::TbfOverTbf),
        prop::sample::select(STRUCTURES.to_vec()).prop_map(Kind::Pacing),
        prop::sample::select(STRUCTURES.to_vec()).prop_map(Kind::Codel),
        prop::sample::select(STRUCTURES.to_vec()).prop_map(Kind::TbfOverPacing),
        prop::sample::select(STRUCTURES.to_vec()).prop_map(Kind::TbfOverCodel),
        prop::sample::select(LEAVES.to_vec()).prop_map(Kind::Leaf),
        prop::sample::select(LEAVES.to_vec()).prop_map(Kind::TbfOverLeaf),
    ]
}

/// The same with its name and that of all below it.
fn named(kind: Kind, size: u32, [name, below]: [u64; 2]) -> Spec {
    let mut spec = Spec { id: NodeId(name), ..spec(kind, size) };
    let mut at = &mut spec;
    while let Some(child) = at.children.first_mut() {
        child.id = NodeId(below);
        at = child;
    }
    spec
}

/// A qdisc of that kind with limits and rates derived from `size`.
fn spec(kind: Kind, size: u32) -> Spec {
    let plain = |config| Spec::new(config);
    let tbf = |child| {
        let config = tbf::Config {
            rate: Rate::from_bits_per_sec(u64::from(size) * 100_000),
            burst: Bytes(u64::from(1_000 + size)),
            limit: Bytes(u64::from(size) * 20),
            peak: None,
            overhead: Overhead { per_frame: 4, ..Overhead::NONE },
        };
        Spec { children: vec![child], ..Spec::new(Config::Tbf(config)) }
    };
    match kind {
        Kind::Noqueue => plain(Config::Noqueue),
        Kind::Pfifo => plain(Config::Fifo(fifo::Config::Packets(size / 50))),
        Kind::Bfifo => plain(Config::Fifo(fifo::Config::Bytes(Bytes(u64::from(size) * 15)))),
        Kind::Tbf => tbf(spec(Kind::Pfifo, size)),
        Kind::TbfOverTbf => tbf(spec(Kind::Tbf, size)),
        Kind::Pacing(structure) | Kind::Codel(structure) => plain(Config::Pacing(pacing::Config {
            // So little that there are drops.
            codel: matches!(kind, Kind::Codel(_)).then_some(pacing::Codel {
                target: Nanos(u64::from(size)),
                interval: Nanos(u64::from(size) * 100),
                ecn: true,
            }),
            maxrate: Some(Rate::from_bits_per_sec(u64::from(size) * 100_000)),
            limit: size / 20,
            flow_limit: size / 30,
            horizon: Nanos(u64::from(size) * 10_000),
            ..pacing::Config::new(structure, 1514)
        })),
        Kind::TbfOverPacing(structure) => tbf(spec(Kind::Pacing(structure), size)),
        Kind::TbfOverCodel(structure) => tbf(spec(Kind::Codel(structure), size)),
        Kind::Leaf(kind) => plain(leaf(kind, size)),
        Kind::TbfOverLeaf(kind) => tbf(plain(leaf(kind, size))),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue { len: u32 },
    Dequeue { after: u64, room: usize },
    DequeueOne,
    Retune { size: u32 },
    Drain,
    Replace { kind: Kind, size: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0u32..2_000).prop_map(|len| Step::Enqueue { len }),
        6 => (0u64..200_000, 0usize..6).prop_map(|(after, room)| Step::Dequeue { after, room }),
        2 => Just(Step::DequeueOne),
        1 => (50u32..1_000).prop_map(|size| Step::Retune { size }),
        1 => Just(Step::Drain),
        1 => (kind(), 50u32..1_000).prop_map(|(kind, size)| Step::Replace { kind, size }),
    ]
}

/// Removes dropped packets from the model. Returns their number.
fn forget(packets: &mut Packets, model: &mut VecDeque<(PacketId, u32)>) -> u64 {
    let mut dropped = Batch::new(256);
    packets.reclaim(&mut dropped);
    let before = model.len();
    model.retain(|(id, _)| !dropped.as_slice().contains(id));
    assert_eq!(before - model.len(), dropped.len(), "what was dropped had come, and only once");
    dropped.len() as u64
}

proptest! {
    #[test]
    fn nothing_is_lost_and_nothing_overtakes(
        first in kind(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut kind = first;
        let mut names = [1, 2];
        let mut slot = Slot::new(named(first, 300, names));
        let mut packets = Packets::new(256);
        let mut now = Nanos(1);
        // The packets that should be queued, in order; all other arrivals have left or were
        // dropped.
        let mut model: VecDeque<(PacketId, u32)> = VecDeque::new();
        let (mut came, mut left, mut dropped) = (0, 0, 0);
        for step in steps {
            match step {
                Step::Enqueue { len } => {
                    let id = PacketId(came);
                    came += 1;
                    packets.arrive(id, len, now);
                    let verdict = slot.qdisc_mut().enqueue(&mut packets, id, now);
                    model.push_back((id, len));
                    let gone = forget(&mut packets, &mut model);
                    prop_assert_eq!(gone == 0, verdict == Verdict::Queued);
                    dropped += gone;
                }
                Step::Dequeue { after, room } => {
                    now += Nanos(after);
                    let mut out = Batch::new(room);
                    slot.qdisc_mut().dequeue(&mut packets, now, &mut out);
                    dropped += forget(&mut packets, &mut model);
                    for id in out.as_slice() {
                        prop_assert_eq!(Some(*id), model.pop_front().map(|(id, _)| id));
                        left += 1;
                    }
                }
                Step::DequeueOne => {
                    let taken = slot.qdisc_mut().dequeue_one(&mut packets, now);
                    dropped += forget(&mut packets, &mut model);
                    if let Ok(id) = taken {
                        prop_assert_eq!(Some(id), model.pop_front().map(|(id, _)| id));
                        left += 1;
                    }
                }
                Step::Retune { size } => {
                    slot.take_over(named(kind, size, names), &mut Handover::new(&mut packets, now));
                }
                Step::Drain => loop {
                    let id = slot.qdisc_mut().drain(&mut packets);
                    prop_assert_eq!(id, model.pop_front().map(|(id, _)| id));
                    left += u64::from(id.is_some());
                    if id.is_none() || !kind.drains_as_a_whole() {
                        break;
                    }
                },
                Step::Replace { kind: other, size } => {
                    let carries_on = kind.is_tbf() && other.is_tbf();
                    names[1] += 1;
                    names[0] = if carries_on { names[0] } else { names[1] };
                    kind = other;
                    slot.take_over(named(kind, size, names), &mut Handover::new(&mut packets, now));
                }
            }
            let backlog = slot.qdisc_mut().backlog();
            prop_assert_eq!(backlog.packets as usize, model.len());
            let bytes = model.iter().map(|(_, len)| u64::from(*len)).sum();
            prop_assert_eq!(backlog.bytes, Bytes(bytes));
            let mut stats = Vec::new();
            slot.stats(&mut stats);
            for stats in &stats {
                prop_assert_eq!(stats.backlog, backlog);
            }
            let queued = u64::from(backlog.packets);
            prop_assert_eq!(u64::from(came), left + queued + packets.drops().total());
            prop_assert_eq!(dropped, packets.drops().total());
        }
    }
}

#[test]
fn a_kind_carries_on_as_itself_and_nothing_else() {
    let mut kinds = vec![Kind::Noqueue, Kind::Pfifo, Kind::Bfifo, Kind::Tbf, Kind::TbfOverTbf];
    kinds.extend(STRUCTURES.map(Kind::Pacing));
    kinds.extend(STRUCTURES.map(Kind::Codel));
    kinds.extend(STRUCTURES.map(Kind::TbfOverPacing));
    kinds.extend(STRUCTURES.map(Kind::TbfOverCodel));
    kinds.extend(LEAVES.map(Kind::Leaf));
    kinds.extend(LEAVES.map(Kind::TbfOverLeaf));
    for (a, &built) in kinds.iter().enumerate() {
        for (b, &offered) in kinds.iter().enumerate() {
            let carries_on = spec(built, 300).config.carries_on(&spec(offered, 400).config);
            let are_fifos = [built, offered].iter().all(|kind| FIFOS.contains(kind));
            let are_tbfs = built.is_tbf() && offered.is_tbf();
            let are_netems =
                [built, offered].iter().all(|kind| matches!(kind, Kind::Leaf(Leaf::Netem(_))));
            let expected = a == b || are_fifos || are_tbfs || are_netems;
            assert_eq!(carries_on, expected, "{built:?}, {offered:?}");
        }
    }
}

#[test]
fn a_pfifo_takes_its_limit_in_packets_and_a_bfifo_in_bytes() {
    for (config, fit) in [(fifo::Config::Packets(3), 3), (fifo::Config::Bytes(Bytes(299)), 2)] {
        let mut packets = Packets::new(8);
        let mut qdisc = Spec::new(Config::Fifo(config)).build();
        let queued = (0..8).filter(|id| {
            packets.arrive(PacketId(*id), 100, Nanos(0));
            qdisc.enqueue(&mut packets, PacketId(*id), Nanos(0)) == Verdict::Queued
        });
        assert_eq!(queued.count(), fit);
    }
}

#[test]
fn a_noqueue_stages_a_few_batches_and_drops_for_the_ring_beyond() {
    let places = fifo::NOQUEUE_STAGING;
    let mut packets = Packets::new(places + 1);
    let mut qdisc = spec(Kind::Noqueue, 0).build();
    for id in 0..places {
        packets.arrive(PacketId(id), 60, Nanos(0));
        assert_eq!(qdisc.enqueue(&mut packets, PacketId(id), Nanos(0)), Verdict::Queued);
    }
    packets.arrive(PacketId(places), 60, Nanos(0));
    assert_eq!(qdisc.enqueue(&mut packets, PacketId(places), Nanos(0)), Verdict::Dropped);
    assert_eq!(packets.drops().get(narrows_packet::DropReason::RingFull), 1);
}
