//! Arrivals in batches: common questions are asked and counted once per batch.
//!
//! Most batches are *plain*: flows have their own queues, no filter for ACKs and no rate estimator
//! is on, no packet is too long and all fit the memory. This is determined while the packets' flows
//! are looked up; then each packet only has to be queued behind its flow. Other batches are
//! processed packet by packet. All figures are the same either way.
//!
//! A packet of the batch can affect those behind it only by taking over a way: because the flow
//! that rested there is forgotten, or because all eight of a set are in use and two must share.
//! Packets whose flow was found there are looked up again.
//!
//! Between lookup and queueing, flows are prefetched: a processor waits for several of them at
//! once. The packets at the tails of queues need no prefetching: they are only written to.

use super::arrival::Place;
use super::sizes::Sizes;
use super::slab::NONE;
use super::tin::Came;
use super::ways::Known;
use super::{AckFilter, Cake};
use crate::TINS_MAX;
use narrows_cpu::prefetch;
use narrows_packet::{Bytes32, PacketId, Packets};
use narrows_units::{Bytes, Nanos};

/// Packets whose flows are looked up before the first of them is queued.
const AHEAD: usize = 32;

/// A packet that is about to be queued.
#[derive(Clone, Copy)]
struct Coming {
    place: Place,
    len: u32,
}

impl Coming {
    const NOBODY: Self = Self { place: Place::UNKNOWN, len: 0 };
}

/// Look-ahead: the metadata and flows of some packets, before the first of them is queued.
struct Looked {
    all: [Coming; AHEAD],
    sizes: Sizes,
    /// By tin.
    came: [Came; TINS_MAX],
}

impl Cake {
    /// Queues all of `ids`.
    #[inline]
    pub(super) fn arrive_all(&mut self, packets: &mut Packets, ids: &[PacketId], now: Nanos) {
        for ids in ids.chunks(AHEAD) {
            if !self.arrive_plain(packets, ids, now) {
                for &id in ids {
                    self.arrive(packets, id, now);
                }
            }
        }
    }

    /// Queues `ids`, at most [`AHEAD`], if they are plain. Returns whether they were.
    fn arrive_plain(&mut self, packets: &mut Packets, ids: &[PacketId], now: Nanos) -> bool {
        let is_plain = self.config.isolation.tells_flows_apart()
            && self.estimator.is_none()
            && self.config.ack_filter == AckFilter::Off
            && !self.overflow.is_live();
        if !is_plain {
            return false;
        }
        let mut looked = Looked {
            all: [Coming::NOBODY; AHEAD],
            sizes: self.sizes.ahead(),
            came: [Came::NOTHING; TINS_MAX],
        };
        match (self.tins.len(), self.sizes.is_plain()) {
            (1, true) => self.look_up_all::<true, true>(packets, ids, &mut looked),
            (1, false) => self.look_up_all::<true, false>(packets, ids, &mut looked),
            (_, true) => self.look_up_all::<false, true>(packets, ids, &mut looked),
            (_, false) => self.look_up_all::<false, false>(packets, ids, &mut looked),
        }
        let Looked { mut all, sizes, came } = looked;
        let begins = self.backlog.is_empty();
        if begins {
            self.memory.follow_frames(packets);
        }
        let longest = came.iter().fold(0, |longest, came| longest.max(came.longest));
        let memory = packets.memory_for_all(ids, Bytes32(longest).into());
        if self.limiter.is_too_long(sizes.most()) || !self.memory.has_room(memory) {
            return false;
        }
        if begins {
            self.begin(now);
        }
        self.sizes.catch_up(&sizes);
        self.memory.take(memory);
        for (tin, came) in self.tins.iter_mut().zip(came) {
            if came.packets != 0 {
                tin.receive(came, now);
                self.backlog.bytes.0 += came.bytes;
            }
        }
        self.displaced = NONE;
        let mut indirect = [0; TINS_MAX];
        for (at, &id) in ids.iter().enumerate() {
            let Coming { mut place, len } = all[at % AHEAD];
            if place.flow == NONE {
                place = self.unknown(place.tin, &packets.headers(id), now);
                self.look_up_again(&mut all);
            }
            let at = usize::from(place.tin);
            indirect[at % TINS_MAX] += u64::from(place.is_indirect);
            self.line_up(at, place.flow, packets, id, Bytes32(len), now);
        }
        for (tin, indirect) in self.tins.iter_mut().zip(indirect) {
            tin.figures.way_indirect_hits += indirect;
        }
        true
    }

    /// Looks up the flows of `ids`, if there is but one tin or more, and where packets are charged
    /// their length or something else.
    #[inline(always)]
    fn look_up_all<const ONE: bool, const PLAIN: bool>(
        &self,
        packets: &mut Packets,
        ids: &[PacketId],
        looked: &mut Looked,
    ) {
        let ways = |tin: usize| self.tins[tin].tables.as_ref().map(|tables| &tables.ways);
        let only = if ONE { ways(0) } else { None };
        let mut sizes = looked.sizes;
        let (mut bytes, mut longest) = (0, 0);
        for (coming, &id) in looked.all.iter_mut().zip(ids) {
            let (meta, headers) = packets.meta_and_headers(id);
            let Bytes32(len) = meta.len;
            let offset = headers.network_offset;
            let charge = if PLAIN {
                sizes.charge_plainly(len, offset)
            } else {
                sizes.charge(Bytes(u64::from(len)), offset)
            };
            self.describe(meta, headers, charge);
            let tin = if ONE { 0 } else { self.scheme.tin(headers) };
            if ONE {
                bytes += u64::from(len);
                longest = if PLAIN { 0 } else { len.max(longest) };
            } else {
                looked.came[tin % TINS_MAX].add(len);
            }
            let ways = if ONE { only } else { ways(tin) };
            let Known { slot, is_indirect } =
                ways.map_or(Known::NOTHING, |ways| ways.known(headers.flow));
            if let Some(flow) = self.flows.get(slot) {
                prefetch(flow);
            }
            coming.len = len;
            coming.place.flow = slot;
            coming.place.tin = tin as u8;
            coming.place.is_indirect = is_indirect;
        }
        if ONE {
            // If packets are charged their length, the longest is the one that was charged most.
            let longest = if PLAIN { sizes.most() } else { longest };
            looked.came[0] = Came { packets: ids.len() as u32, longest, bytes };
        }
        looked.sizes = sizes;
    }

    /// If a flow has lost its way to another, packets that were looked up to it are looked up
    /// again: the flow is forgotten, or has collided with the way's new flow.
    #[inline(never)]
    fn look_up_again(&mut self, all: &mut [Coming; AHEAD]) {
        if self.displaced == NONE {
            return;
        }
        for Coming { place, .. } in all {
            if place.flow == self.displaced {
                place.flow = NONE;
            }
        }
        self.displaced = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Isolation};
    use super::*;
    use crate::{Qdisc, Stats, Verdict};
    use narrows_packet::{Batch, Headers};
    use narrows_units::{Bytes, Rate, wire::Overhead};
    use proptest::prelude::*;

    const PACKETS: u32 = 64;

    /// The visible state of an instance after `batches`, each queued by `arrive` and followed by
    /// departures. Flows are spread over `sets` sets.
    fn seen(
        config: Config,
        sets: u32,
        batches: &[Vec<(u32, u32)>],
        arrive: impl Fn(&mut Cake, &mut Packets, &[PacketId], Nanos),
    ) -> (Vec<PacketId>, Vec<Stats>, String) {
        let mut cake = Cake::new(config, None, None);
        let mut packets = Packets::new(PACKETS * 4);
        let mut free: Vec<PacketId> = (0..PACKETS * 4).map(PacketId).collect();
        let (mut all, mut now) = (Vec::new(), Nanos::from_secs(1));
        let mut left = Batch::new(8);
        for batch in batches {
            now += Nanos::from_micros(100);
            let mut ids = Vec::new();
            for &(flow, len) in batch {
                let Some(id) = free.pop() else { break };
                packets.arrive(id, len, now);
                let flow = flow << 16 | (flow / sets % 8) << 7 | (flow % sets);
                let dscp = (flow >> 16) as u8 % 64;
                let network_offset = 14 + 4 * ((flow >> 16) % 3) as u16;
                let headers =
                    Headers { flow, source: flow, dscp, network_offset, ..Headers::default() };
                packets.set_headers(id, headers);
                ids.push(id);
            }
            arrive(&mut cake, &mut packets, &ids, now);
            for back in [true, false] {
                left.clear();
                if back {
                    packets.reclaim(&mut left);
                } else {
                    cake.dequeue(&mut packets, now, &mut left);
                    all.extend_from_slice(left.as_slice());
                }
                free.extend_from_slice(left.as_slice());
            }
        }
        let mut stats = Vec::new();
        cake.stats(&mut stats);
        let charges: Vec<_> = all.iter().map(|&id| *packets.meta(id)).collect();
        (all, stats, format!("{charges:?} {:?}", packets.drops()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// The oracle queues them one by one.
        #[test]
        fn a_batch_of_arrivals_has_the_effect_of_single_ones(
            batches in prop::collection::vec(prop::collection::vec((0_u32..40, 60_u32..9000), 0..40), 1..20),
            isolation in prop_oneof![
                3 => Just(Isolation::TripleIsolate), 1 => Just(Isolation::Srchost)
            ],
            memory in prop_oneof![Just(None), (20_000_u64..200_000).prop_map(Some)],
            // With all sets no two flows collide; with few, most do.
            sets in prop_oneof![Just(128_u32), 1_u32..5],
            network_length: bool,
            autorate in prop::bool::weighted(0.2),
            wash: bool,
        ) {
            let rate = Some(Rate::from_bits_per_sec(1_000_000_000));
            let per_frame = if network_length { 38 } else { 0 };
            let overhead = Overhead { per_frame, ..Overhead::NONE };
            let memory = memory.map(Bytes);
            let base = Config { rate, isolation, memory, network_length, overhead, ..Config::default() };
            let config = Config { autorate, wash, ..base };
            let together = seen(config, sets, &batches, Cake::arrive_all);
            let one_by_one = seen(config, sets, &batches, |cake, packets, ids, now| {
                for &id in ids {
                    let _: Verdict = cake.arrive(packets, id, now);
                }
            });
            prop_assert_eq!(together, one_by_one);
        }
    }
}
