//! The flows' rates and start times: the same for all structures.

use super::rates::{FLOWS_LEAST, Rates};
use super::work::{PACKET_TIME, START};
use anyhow::{Result, ensure};
use narrows_packet::PacketId;
use narrows_units::Nanos;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg32;

/// The length of each packet.
pub(super) const PACKET_LEN: u32 = 1500;
/// The most flows: more than anybody has, and their packets still fit into the memory of small
/// machines.
const FLOWS_MOST: u32 = 1 << 22;
/// A flow has as many packets as pass in this time: 128 of all flows.
const WINDOW: f64 = 128.0 * PACKET_TIME.0 as f64;
/// The coarsest spacing that a flow states: the power of two below [`WINDOW`].
const SPACING_MOST: u32 = 13;
/// Bits of an EDT below the nanosecond: the rounding loses a ten-millionth of the fastest rate.
const FRACTION: u32 = 16;

/// A flow, in half a cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct Flow {
    /// The EDT of its last packet, in 2^-16 ns.
    edt: u64,
    /// The gap between two packets, in 2^-16 ns.
    gap: u64,
    /// The structure's return value for its last packet.
    pub(super) slot: Nanos,
    /// As in [`narrows_qdisc::pacing::Slot`].
    pub(super) spacing: u32,
}

impl Flow {
    /// A flow that starts after the part `phase` of a gap.
    fn new(gap: f64, phase: f64) -> Self {
        let fixed = |nanos: f64| (nanos * f64::from(1_u32 << FRACTION)).round() as u64;
        let first = (START.0 << FRACTION) + fixed(gap * phase);
        Self {
            // The first packet's EDT is a gap after that.
            edt: first - fixed(gap),
            gap: fixed(gap),
            slot: Nanos::ZERO,
            spacing: (gap as u64).ilog2().min(SPACING_MOST),
        }
    }

    /// The EDT of the packet that comes next.
    #[inline]
    pub(super) fn advance(&mut self) -> Nanos {
        self.edt += self.gap;
        Nanos(self.edt >> FRACTION)
    }
}

/// All flows, before their first packet.
pub struct Plan {
    pub(super) flows: Box<[Flow]>,
    /// The order in which their first packets are inserted.
    pub(super) order: Vec<u32>,
    /// The first packet of each flow, and finally the number of packets.
    first: Vec<u32>,
    /// How many packets there are.
    pub(super) packets: u32,
    /// The longest time from a packet's insertion to its EDT.
    pub(super) longest: Nanos,
}

impl Plan {
    /// The plan of `flows` flows, always the same.
    pub fn new(flows: u32, rates: Rates) -> Result<Self> {
        ensure!(
            (FLOWS_LEAST..=FLOWS_MOST).contains(&flows),
            "{FLOWS_LEAST} to {FLOWS_MOST} flows, not {flows}"
        );
        let mut chance = Pcg32::seed_from_u64(1);
        let mut gaps = rates.gaps(flows);
        gaps.shuffle(&mut chance);
        let mut order: Vec<u32> = (0..flows).collect();
        order.shuffle(&mut chance);
        let (mut first, mut packets, mut longest) = (Vec::with_capacity(gaps.len() + 1), 0, 0.0);
        for gap in &gaps {
            first.push(packets);
            let window = (WINDOW / gap).ceil();
            packets += window as u32;
            longest = f64::max(longest, window * gap);
        }
        first.push(packets);
        let mut part = || f64::from(chance.next_u32()) / (f64::from(u32::MAX) + 1.0);
        let flows = gaps.into_iter().map(|gap| Flow::new(gap, part())).collect();
        Ok(Self { flows, order, first, packets, longest: Nanos(longest.ceil() as u64) })
    }

    /// The number of packets, all of which are always queued.
    pub fn packets(&self) -> u64 {
        u64::from(self.packets)
    }

    /// The number of packets that leave while the slowest flow sends one.
    pub fn round(&self) -> u64 {
        self.longest.0 / PACKET_TIME.0
    }

    /// The packets of flow `flow`.
    pub(super) fn ids(&self, flow: u32) -> impl Iterator<Item = PacketId> + use<> {
        let flow = flow as usize;
        (self.first[flow]..self.first[flow + 1]).map(PacketId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_equal_flows_have_eight_packets_each_and_many_have_one() {
        assert_eq!(Plan::new(16, Rates::Equal).unwrap().packets, 128);
        let plan = Plan::new(1024, Rates::Equal).unwrap();
        assert_eq!(plan.packets, 1024);
        assert_eq!(plan.round(), 1024);
        assert_eq!(plan.ids(7).collect::<Vec<_>>(), [PacketId(7)]);
    }

    #[test]
    fn every_packet_is_of_one_flow() {
        let plan = Plan::new(1024, Rates::Mix).unwrap();
        let mut ids: Vec<u32> =
            plan.order.iter().flat_map(|flow| plan.ids(*flow)).map(|id| id.0).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..plan.packets));
        assert!((1025..1024 + 129).contains(&plan.packets), "{}", plan.packets);
    }

    #[test]
    fn a_flow_keeps_its_rate_to_the_nanosecond_and_states_how_coarse_it_may_be_held() {
        let mut flow = Flow::new(1200.25, 0.5);
        let first = flow.advance();
        assert_eq!(first, START + Nanos(600));
        for _ in 0..4000 {
            flow.advance();
        }
        assert_eq!(flow.advance(), first + Nanos(4_802_200));
        assert_eq!(flow.spacing, 10);
        assert_eq!(Flow::new(1e9, 0.0).spacing, 13);
        assert_eq!(size_of::<Flow>(), 32);
    }

    #[test]
    fn too_few_flows_and_too_many_are_refused() {
        for flows in [0, 15, FLOWS_MOST + 1] {
            assert!(Plan::new(flows, Rates::Mix).is_err());
        }
    }
}
