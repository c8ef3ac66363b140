//! Three bands by priority, served by weighted deficit round robin.
//!
//! A packet has the priority that Linux gives to those that it forwards: by two bits of the old
//! type of service, which are in the middle of today's code point (RFC 1349; `rt_tos2priority()`).
//! `priomap` maps it to a band; the last bands are for the least important packets. Bands share by
//! weighted deficit round robin, so that none of them starves; within a band new flows go before
//! old ones.
//!
//! The other priorities (control, filler, and those above 7) are for packets that have a socket.
//!
//! Cost: O(1).

use super::Config;
use super::flow::Flow;
use super::list::List;

/// How many bands there are.
pub const BANDS: usize = 3;
/// How many priorities there are.
pub const PRIORITIES: usize = 16;

/// The priority by the second and third bit of the code point, the lowest being the first: best
/// effort, bulk (throughput), interactive (low delay), and both at once.
const BY_SERVICE: [u8; 4] = [0, 2, 6, 4];

/// Which of them a packet with that code point has.
#[inline]
const fn service(dscp: u8) -> usize {
    (dscp >> 1) as usize % BY_SERVICE.len()
}

/// The flows of a band that are not held.
#[derive(Clone, Copy)]
pub(super) struct Band {
    fresh: List,
    old: List,
    /// How many there are.
    flows: u32,
    /// Bytes that it may still send in its turn.
    credit: i64,
    weight: u32,
    packets: u32,
}

pub(super) struct Bands {
    bands: [Band; BANDS],
    /// Whose turn it is.
    turn: usize,
    /// The band of each kind of service.
    by_service: [u8; BY_SERVICE.len()],
}

impl Bands {
    pub(super) fn new(config: &Config) -> Self {
        let (fresh, old) = (List::EMPTY, List::EMPTY);
        let band = |weight| Band { fresh, old, flows: 0, credit: 0, weight, packets: 0 };
        let by_service = BY_SERVICE.map(|priority| {
            let band = config.priomap[usize::from(priority)];
            band.min(BANDS as u8 - 1)
        });
        Self { bands: config.weights.map(band), turn: 0, by_service }
    }

    pub(super) fn set_weights(&mut self, weights: [u32; BANDS]) {
        for (band, weight) in self.bands.iter_mut().zip(weights) {
            band.weight = weight;
        }
    }

    /// The band of a packet with that code point.
    #[inline]
    pub(super) fn of(&self, dscp: u8) -> u8 {
        self.by_service[service(dscp)]
    }

    /// The flows that are not held.
    pub(super) fn flows(&self) -> u32 {
        self.bands.iter().map(|band| band.flows).sum()
    }

    /// Packets in each.
    pub(super) fn packets(&self) -> [u32; BANDS] {
        self.bands.map(|band| band.packets)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, band: u8) -> &mut Band {
        &mut self.bands[usize::from(band)]
    }

    /// The band that is next; unspecified while all flows are held or idle.
    #[inline]
    pub(super) fn turn(&mut self) -> Option<&mut Band> {
        if !self.bands.iter().any(Band::has_flows) {
            return None;
        }
        while !self.bands[self.turn].has_flows() || self.bands[self.turn].credit <= 0 {
            self.turn = (self.turn + 1) % BANDS;
            let band = &mut self.bands[self.turn];
            let weight = i64::from(band.weight);
            band.credit = (band.credit + weight).min(weight);
        }
        Some(&mut self.bands[self.turn])
    }

    /// Any band with flows, regardless of turns.
    pub(super) fn any(&mut self) -> Option<&mut Band> {
        self.bands.iter_mut().find(|band| band.has_flows())
    }
}

impl Band {
    #[inline]
    fn has_flows(&self) -> bool {
        self.fresh.front().is_some() || self.old.front().is_some()
    }

    /// The flow that goes first, and whether it is new.
    #[inline]
    pub(super) fn front(&self) -> Option<(u32, bool)> {
        match self.fresh.front() {
            Some(id) => Some((id, true)),
            None => self.old.front().map(|id| (id, false)),
        }
    }

    /// Takes the flow that goes first.
    #[inline]
    pub(super) fn pop(&mut self, flows: &[Flow]) {
        self.flows -= 1;
        if self.fresh.front().is_some() {
            self.fresh.pop_front(flows);
        } else {
            self.old.pop_front(flows);
        }
    }

    /// Puts `id`, which is in no list, behind all others that are new.
    #[inline]
    pub(super) fn welcome(&mut self, flows: &mut [Flow], id: u32) {
        self.flows += 1;
        self.fresh.push_back(flows, id);
    }

    /// Puts `id`, which is in no list, behind all others.
    #[inline]
    pub(super) fn line_up(&mut self, flows: &mut [Flow], id: u32) {
        self.flows += 1;
        self.old.push_back(flows, id);
    }

    /// How many packets are queued in it.
    #[inline]
    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// Counts an arrival.
    #[inline]
    pub(super) fn count(&mut self) {
        self.packets += 1;
    }

    /// Counts a departure.
    #[inline]
    pub(super) fn discount(&mut self) {
        self.packets -= 1;
    }

    /// `bytes` of it were sent.
    #[inline]
    pub(super) fn charge(&mut self, bytes: u64) {
        self.credit -= bytes as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_follow_the_type_of_service() {
        // TOS 0x08 is throughput, 0x10 delay, 0x02 cost.
        for (tos, expected) in [(0, 0), (0x02, 0), (0x08, 2), (0x10, 6), (0x18, 4), (0xb8, 4)] {
            assert_eq!(BY_SERVICE[service(tos >> 2)], expected, "{tos:#x}");
        }
        // CS1 to CS7 have no meaning in the old type of service.
        assert!((0..8).all(|class| service(class << 3) == 0));
    }

    #[test]
    fn by_default_interactive_packets_go_first_and_bulk_last() {
        let bands = Bands::new(&Config::default());
        assert_eq!([0, 2, 4, 6].map(|dscp| bands.of(dscp)), [1, 2, 0, 1]);
    }

    #[test]
    fn a_band_without_flows_has_no_turn() {
        let mut bands = Bands::new(&Config::default());
        assert!(bands.turn().is_none());
        let mut flows = [Flow::new(0, 0)];
        bands.get_mut(2).line_up(&mut flows, 0);
        bands.get_mut(2).charge(1_000_000);
        let band = bands.turn().unwrap();
        assert_eq!(band.front(), Some((0, false)));
        assert!(band.credit > 0);
    }
}
