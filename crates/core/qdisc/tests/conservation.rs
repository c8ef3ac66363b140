//! Whatever is done to a qdisc: packets in = packets out + queued + dropped, and in order.

use narrows_packet::{Batch, PacketId, Packets};
use narrows_qdisc::pacing::{self, Structure};
use narrows_qdisc::{
    Config, Handover, NodeId, Slot, Spec, Verdict, bands, codel, fifo, fq_codel, netem, red, sfq,
    tbf,
};
use narrows_units::wire::{Framing, Overhead};
use narrows_units::{Bytes, Nanos, Rate};
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
    /// A `red` over a `bfifo`, or over a leaf.
    Red(Option<Leaf>),
    TbfOverRed,
    /// A `netem` with this below it, with a rate or without.
    NetemOver(bool, Below),
    TbfOverNetemOver(Below),
    /// A size table over this.
    Stab(Below),
    TbfOverStab(Below),
}

/// What is below a `netem`.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Below {
    Tbf,
    Netem,
    Red,
    Leaf(Leaf),
}

const BELOW: [Below; 7] = [
    Below::Tbf,
    Below::Netem,
    Below::Red,
    Below::Leaf(Leaf::Codel),
    Below::Leaf(Leaf::FqCodel),
    Below::Leaf(Leaf::Sfq),
    Below::Leaf(Leaf::Netem(true)),
];

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
                | Self::Red(_)
                | Self::NetemOver(..)
                | Self::Stab(_)
        )
    }

    fn is_netem(self) -> bool {
        matches!(self, Self::Leaf(Leaf::Netem(_)) | Self::NetemOver(..))
    }

    fn has_rate(self) -> bool {
        matches!(self, Self::Leaf(Leaf::Netem(true)) | Self::NetemOver(true, _))
    }

    /// How many of its qdiscs, from the root on, hold all that is queued.
    fn wholes(self) -> usize {
        match self {
            Self::NetemOver(..) => 1,
            Self::TbfOverNetemOver(_) | Self::TbfOverStab(_) => 2,
            // Below it bytes are others.
            Self::Stab(_) => 1,
            _ => usize::MAX,
        }
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
        prop::option::of(prop::sample::select(LEAVES.to_vec())).prop_map(Kind::Red),
        Just(Kind::TbfOverRed),
        (any::<bool>(), prop::sample::select(BELOW.to_vec()))
            .prop_map(|(has_rate, below)| Kind::NetemOver(has_rate, below)),
        prop::sample::select(BELOW.to_vec()).prop_map(Kind::TbfOverNetemOver),
        prop::sample::select(BELOW.to_vec()).prop_map(Kind::Stab),
        prop::sample::select(BELOW.to_vec()).prop_map(Kind::TbfOverStab),
    ]
}

/// The specification of `kind`, with its name and that of all below it.
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
        Kind::Red(None) => red(spec(Kind::Bfifo, size), size),
        Kind::Red(Some(kind)) => red(plain(leaf(kind, size)), size),
        Kind::TbfOverRed => tbf(spec(Kind::Red(None), size)),
        Kind::NetemOver(has_rate, below) => {
            let below = spec_below(below, size);
            Spec { children: vec![below], ..plain(leaf(Leaf::Netem(has_rate), size)) }
        }
        Kind::TbfOverNetemOver(below) => tbf(spec(Kind::NetemOver(false, below), size)),
        Kind::Stab(below) => stab(spec_below(below, size), size),
        Kind::TbfOverStab(below) => tbf(stab(spec_below(below, size), size)),
    }
}

fn spec_below(below: Below, size: u32) -> Spec {
    match below {
        Below::Tbf => spec(Kind::Tbf, size),
        Below::Netem => spec(Kind::NetemOver(false, Below::Tbf), size),
        Below::Red => spec(Kind::Red(None), size),
        Below::Leaf(kind) => Spec::new(leaf(kind, size)),
    }
}

/// A size table over `child`.
fn stab(child: Spec, size: u32) -> Spec {
    let framing = if size.is_multiple_of(2) { Framing::Atm } else { Framing::Whole };
    let overhead = Overhead { per_frame: size as i32 % 100 - 50, minimum: size % 90, framing };
    Spec { children: vec![child], ..Spec::new(Config::Stab(overhead)) }
}

/// A `red` over `child` whose thresholds are reached.
fn red(child: Spec, size: u32) -> Spec {
    let config = red::Config {
        limit: size * 15,
        min: size * 2,
        max: size * 10,
        avpkt: 1000,
        burst: 1 + size / 100,
        bandwidth: Rate::from_bits_per_sec(10_000_000),
        probability: red::Config::probability_of(0.3),
        ecn: size.is_multiple_of(2),
        harddrop: false,
        nodrop: size.is_multiple_of(4),
        adaptive: size.is_multiple_of(3),
        stream: 0,
    };
    Spec { children: vec![child], ..Spec::new(Config::Red(config)) }
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
                    let are_stabs = [kind, other].iter().all(|kind| matches!(kind, Kind::Stab(_)));
                    let carries_on = kind.is_tbf() && other.is_tbf()
                        || are_stabs
                        // Without a rate its packets would overtake those of before.
                        || kind.is_netem() && other.is_netem() && kind.has_rate() == other.has_rate();
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
            for stats in stats.iter().take(kind.wholes()) {
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
    kinds.push(Kind::Red(None));
    kinds.extend(BELOW.map(|below| Kind::NetemOver(true, below)));
    kinds.extend(BELOW.map(Kind::TbfOverNetemOver));
    kinds.extend(BELOW.map(Kind::Stab));
    kinds.extend(BELOW.map(Kind::TbfOverStab));
    for (a, &built) in kinds.iter().enumerate() {
        for (b, &offered) in kinds.iter().enumerate() {
            let carries_on = spec(built, 300).config.carries_on(&spec(offered, 400).config);
            let are_fifos = [built, offered].iter().all(|kind| FIFOS.contains(kind));
            let are_tbfs = built.is_tbf() && offered.is_tbf();
            let are_netems = built.is_netem() && offered.is_netem();
            let are_stabs = [built, offered].iter().all(|kind| matches!(kind, Kind::Stab(_)));
            let expected = a == b || are_fifos || are_tbfs || are_netems || are_stabs;
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

/// Trees in which a `netem` duplicates, at the root or below others.
fn duplicating(which: usize, size: u32) -> Spec {
    let duplicate = |share: u32, children| {
        let Config::Netem(config) = leaf(Leaf::Netem(share.is_multiple_of(2)), size) else {
            unreachable!("it is a netem")
        };
        let probability = netem::Probability(u32::MAX / share);
        let duplicate = netem::Happening { probability, ..Default::default() };
        Spec { children, ..Spec::new(Config::Netem(netem::Config { duplicate, ..config })) }
    };
    let plain = || duplicate(1, Vec::new());
    match which {
        0 => plain(),
        1 => duplicate(2, vec![plain()]),
        2 => duplicate(3, vec![spec(Kind::Tbf, size)]),
        3 => Spec { children: vec![duplicate(2, vec![plain()])], ..spec(Kind::Tbf, size) },
        4 => red(plain(), size),
        5 => duplicate(2, vec![spec(Kind::Red(None), size)]),
        6 => stab(duplicate(2, vec![plain()]), size),
        _ => {
            let class = |id, quantum| bands::Class { id, quantum };
            let config = bands::Config {
                discipline: bands::Discipline::Ets,
                classes: vec![class(1, None), class(2, Some(3000))],
                otherwise: Some(1 + (size % 2) as u16),
            };
            let children = vec![plain(), duplicate(2, vec![plain()])];
            Spec { children, ..Spec::new(Config::Bands(config)) }
        }
    }
}

proptest! {
    /// Copies are packets of their own: whatever is done, each is sent, queued or dropped, and one
    /// without a frame is counted as dropped. No original is lost for it.
    #[test]
    fn copies_add_up(
        which in 0usize..8,
        size in 50u32..1_000,
        steps in prop::collection::vec((0u32..3, 0u64..30_000, 0usize..12, 60u32..1_600), 1..200),
    ) {
        let mut slot = Slot::new(duplicating(which, size));
        let mut packets = Packets::new(512);
        packets.prepare(slot.qdisc().reading());
        let mut free: Vec<PacketId> = (0..512).map(PacketId).collect();
        let (mut came, mut left, mut copied, mut now) = (0u64, 0u64, 0u64, Nanos(1));
        for (arrivals, pause, room, len) in steps {
            now += Nanos(pause);
            let spare = free.split_off(free.len().saturating_sub(4));
            packets.put_aside(&spare, Bytes(1_500));
            for _ in 0..arrivals {
                let Some(id) = free.pop() else { break };
                packets.arrive(id, len, now);
                came += 1;
                slot.qdisc_mut().enqueue(&mut packets, id, now);
            }
            let mut out = Batch::new(room);
            slot.qdisc_mut().dequeue(&mut packets, now, &mut out);
            for (of, copy) in packets.copies().collect::<Vec<_>>() {
                prop_assert_ne!(of, copy);
                // In a size table, one may have left and the other not.
                prop_assert!(which == 6 || packets.len(of) == packets.len(copy));
            }
            copied += packets.take_copied();
            let mut back = Batch::new(600);
            packets.take_aside(&mut back);
            let mut dropped = Batch::new(600);
            packets.reclaim(&mut dropped);
            left += out.len() as u64;
            for batch in [&out, &back, &dropped] {
                free.extend(batch.as_slice());
            }
            let mut seen: Vec<PacketId> = free.clone();
            seen.sort();
            seen.dedup();
            prop_assert_eq!(seen.len(), free.len(), "a frame came back twice");
            let queued = u64::from(slot.qdisc().backlog().packets);
            prop_assert_eq!(free.len() as u64 + queued, 512);
            prop_assert_eq!(came + copied, left + queued + packets.drops().total());
        }
        let mut stats = Vec::new();
        slot.stats(&mut stats);
        prop_assert_eq!(stats[0].sent_packets, left);
    }
}

#[test]
fn all_are_duplicated_while_there_are_frames_and_no_original_is_lost_without() {
    let duplicate =
        netem::Happening { probability: netem::Probability::ALWAYS, ..Default::default() };
    let config = netem::Config { duplicate, ..netem::Config::default() };
    let mut qdisc = Spec::new(Config::Netem(config)).build();
    let mut packets = Packets::new(16);
    packets.prepare(qdisc.reading());
    assert!(qdisc.reading().copies);
    packets.put_aside(&[PacketId(10), PacketId(11)], Bytes(100));
    // The third finds no frame, the fourth is too long for one.
    for (id, len, verdict) in [
        (0, 100, Verdict::Copied),
        (1, 101, Verdict::Queued),
        (2, 60, Verdict::Copied),
        (3, 60, Verdict::Queued),
    ] {
        packets.arrive(PacketId(id), len, Nanos(1));
        assert_eq!(qdisc.enqueue(&mut packets, PacketId(id), Nanos(1)), verdict, "{id}");
    }
    assert_eq!(packets.take_copied(), 4);
    assert_eq!(packets.drops().get(narrows_packet::DropReason::NoFrame), 2);
    let mut out = Batch::new(16);
    qdisc.dequeue(&mut packets, Nanos(1), &mut out);
    let lens: Vec<u64> = out.as_slice().iter().map(|id| packets.len(*id).0).collect();
    assert_eq!(lens, [100, 100, 101, 60, 60, 60]);
}
