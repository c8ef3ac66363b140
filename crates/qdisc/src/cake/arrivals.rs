//! Packets come in together: what many have in common is asked and counted once.
//!
//! Most batches are *plain*: flows have queues of their own, nobody filters acknowledgements or
//! estimates the rate, no packet is too long and all fit the memory. That is found out while the packets'
//! flows are looked up; then all that is left is to put each behind its flow. What is not plain goes
//! one by one, and every figure comes out as if all had.
//!
//! Between looking up and queueing flows are brought near: a processor waits for several of them at
//! once. The packets behind which others will stand need not be: they are only written to.

use super::arrival::Place;
use super::slab::NONE;
use super::{AckFilter, Cake};
use narrows_cpu::prefetch;
use narrows_packet::{Bytes32, PacketId, Packets};
use narrows_units::Nanos;

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

    /// Queues `ids`, at most [`AHEAD`], if they are plain: whether they were.
    #[inline(always)]
    fn arrive_plain(&mut self, packets: &mut Packets, ids: &[PacketId], now: Nanos) -> bool {
        let is_plain = self.config.isolation.tells_flows_apart()
            && self.estimator.is_none()
            && self.config.ack_filter == AckFilter::Off
            && !self.overflow.is_live();
        if !is_plain {
            return false;
        }
        let mut all = [Coming::NOBODY; AHEAD];
        let mut sizes = self.sizes.ahead();
        let mut longest = 0;
        for (coming, &id) in all.iter_mut().zip(ids) {
            let (meta, headers) = packets.meta_and_headers(id);
            let len = meta.len;
            let charge = sizes.charge(len.into(), headers.network_offset);
            longest = longest.max(len.0);
            self.describe(meta, headers, charge);
            let place = self.look_up_hash(headers, headers.flow);
            if let Some(flow) = self.flows.get(place.flow) {
                prefetch(flow);
            }
            *coming = Coming { place, len: len.0 };
        }
        let begins = self.backlog.is_empty();
        if begins {
            self.memory.follow_frames(packets);
        }
        let memory = packets.memory_for_all(ids, Bytes32(longest).into());
        if self.seat.is_too_long(sizes.most()) || !self.memory.has_room(memory) {
            return false;
        }
        if begins {
            self.begin(now);
        }
        self.sizes.catch_up(&sizes);
        self.memory.take(memory);
        self.forgotten = NONE;
        for (at, &id) in ids.iter().enumerate() {
            let Coming { mut place, len } = all[at % AHEAD];
            if place.flow == NONE {
                place = self.unknown(place.tin, &packets.headers(id), now);
                self.look_up_again(&mut all);
            }
            self.append(place, packets, id, Bytes32(len), now);
        }
        true
    }

    /// Whoever belongs to the flow that was forgotten last, if any was, is unknown again.
    fn look_up_again(&mut self, all: &mut [Coming; AHEAD]) {
        if self.forgotten == NONE {
            return;
        }
        for Coming { place, .. } in all {
            if place.flow == self.forgotten {
                place.flow = NONE;
            }
        }
        self.forgotten = NONE;
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

    /// All that can be seen of an instance after `batches`, each of which is queued by `arrive` and
    /// followed by departures.
    fn seen(
        config: Config,
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
                // Spread over all sets, so that no two flows collide.
                let flow = flow * 0x0001_0003;
                let dscp = (flow % 64) as u8;
                let network_offset = 14 + 4 * (flow % 3) as u16;
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
        fn packets_that_come_together_fare_as_if_they_came_one_by_one(
            batches in prop::collection::vec(prop::collection::vec((0_u32..40, 60_u32..9000), 0..40), 1..20),
            isolation in prop_oneof![
                3 => Just(Isolation::TripleIsolate), 1 => Just(Isolation::Srchost)
            ],
            memory in prop_oneof![Just(None), (20_000_u64..200_000).prop_map(Some)],
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
            let together = seen(config, &batches, Cake::arrive_all);
            let one_by_one = seen(config, &batches, |cake, packets, ids, now| {
                for &id in ids {
                    let _: Verdict = cake.arrive(packets, id, now);
                }
            });
            prop_assert_eq!(together, one_by_one);
        }
    }
}
