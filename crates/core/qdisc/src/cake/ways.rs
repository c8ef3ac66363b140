//! 8-way set-associative hashing: which flow, or host, a hash belongs to.
//!
//! A plain hash table of 1024 queues puts two of a hundred flows into one queue with near certainty
//! (the birthday paradox). Here a hash chooses a *set* of eight ways, and a tag identifies the way:
//! two flows share a queue only if all eight are in use.
//!
//! A way is *held* while it refers to something, *busy* while that is in use. A way that is held
//! and not busy is remembered until another flow needs it.
//!
//! Source: T. Høiland-Jørgensen, D. Täht, J. Morton, "Piece of CAKE", section III-C. Where ours
//! differs: a tag has 16 bits, beside the 7 bits of the set, so that a set is half a cache line.
//! Two flows collide with a probability of 2^-23.
//!
//! Cost: one cache line of tags, compared all at once, and two bytes of state; no branch.

use super::slab::NONE;
use narrows_cpu::equal_lanes;

/// Ways in a set.
pub(super) const WAYS: usize = 8;
/// Sets.
const SETS: usize = 128;

#[derive(Clone, Copy)]
#[repr(align(32))]
struct Set {
    tags: [u16; WAYS],
    slots: [u16; WAYS],
}

/// A bit for each way of a set: those that are held, and those that are busy.
#[derive(Clone, Copy, Default)]
struct State {
    held: u8,
    busy: u8,
}

/// The result of [`Ways::find`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The hash's slot, in the way that the hash names.
    Direct,
    /// The hash's slot, in another way of the set.
    Indirect,
    /// A way that is not busy; it is now the hash's.
    Free,
    /// All ways are busy: the hash shares the way that it names with another.
    Collision,
}

/// The slot of a hash: the result of [`Ways::known`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    /// [`NONE`] if it is not known.
    pub(super) slot: u16,
    /// Whether it is in another way than the hash names.
    pub(super) is_indirect: bool,
}

impl Known {
    pub(super) const NOTHING: Self = Self { slot: NONE, is_indirect: false };
}

/// The ways of one table.
pub(super) struct Ways {
    sets: Box<[Set; SETS]>,
    states: [State; SETS],
}

impl Ways {
    pub(super) fn new() -> Self {
        let set = Set { tags: [0; WAYS], slots: [NONE; WAYS] };
        Self { sets: Box::new([set; SETS]), states: [State::default(); SETS] }
    }

    /// The slot of `hash`. Branch-free, so the predictor has nothing to mispredict.
    #[inline]
    pub(super) fn known(&self, hash: u32) -> Known {
        let index = hash as usize % SETS;
        let set = &self.sets[index];
        let hits = equal_lanes(&set.tags, (hash >> 16) as u16) & self.states[index].held;
        let way = hit(hits);
        let slot = set.slots[way % WAYS];
        Known { slot: if hits == 0 { NONE } else { slot }, is_indirect: way != direct(hash) }
    }

    /// The way of `hash`. A new hash takes an idle way: an empty one if possible, or with `reuse`
    /// one that is held.
    pub(super) fn find(&mut self, hash: u32, reuse: bool) -> (u16, Found) {
        let index = hash as usize % SETS;
        let direct = direct(hash);
        let tag = (hash >> 16) as u16;
        let set = &mut self.sets[index];
        let State { held, busy } = self.states[index];
        let hits = equal_lanes(&set.tags, tag) & held;
        let (way, found) = if hits != 0 {
            let way = hit(hits);
            (way, if way == direct { Found::Direct } else { Found::Indirect })
        } else {
            let idle = !busy;
            let preferred = idle & if reuse { held } else { !held };
            let (way, found) = match first(preferred, direct).or_else(|| first(idle, direct)) {
                Some(way) => (way, Found::Free),
                None => (direct, Found::Collision),
            };
            set.tags[way] = tag;
            (way, found)
        };
        ((index * WAYS + way) as u16, found)
    }

    /// What `way` refers to, or [`NONE`].
    #[inline]
    pub(super) fn slot(&self, way: u16) -> u16 {
        self.sets[usize::from(way) / WAYS].slots[usize::from(way) % WAYS]
    }

    /// Makes `way` refer to `slot`, or to nothing.
    #[inline]
    pub(super) fn hold(&mut self, way: u16, slot: u16) {
        self.sets[usize::from(way) / WAYS].slots[usize::from(way) % WAYS] = slot;
        let bit = 1 << (usize::from(way) % WAYS);
        let held = &mut self.states[usize::from(way) / WAYS].held;
        *held = if slot == NONE { *held & !bit } else { *held | bit };
    }

    /// Says whether `way` is in use.
    #[inline]
    pub(super) fn set_busy(&mut self, way: u16, busy: bool) {
        let bit = 1 << (usize::from(way) % WAYS);
        let set = &mut self.states[usize::from(way) / WAYS].busy;
        *set = if busy { *set | bit } else { *set & !bit };
    }

    /// The memory that it has allocated, in bytes.
    pub(super) const fn memory() -> usize {
        size_of::<[Set; SETS]>()
    }
}

/// The way that `hash` names.
#[inline]
const fn direct(hash: u32) -> usize {
    (hash >> 7) as usize % WAYS
}

/// The way that was hit. There is one at most: a way that is held gets a tag only when no other has
/// it.
#[inline]
fn hit(hits: u8) -> usize {
    debug_assert!(hits.count_ones() <= 1, "{hits:#b}");
    hits.trailing_zeros() as usize
}

/// The first of `ways` from `direct` on, around the set.
#[inline]
fn first(ways: u8, direct: usize) -> Option<usize> {
    let turned = ways.rotate_right(direct as u32);
    (turned != 0).then(|| (turned.trailing_zeros() as usize + direct) % WAYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// The bits of a hash that distinguish two.
    fn identity(hash: u32) -> (usize, u16) {
        (hash as usize % SETS, (hash >> 16) as u16)
    }

    proptest! {
        /// The oracle is a map from the known bits of a hash to its slot: a hash is found where the
        /// map has it, and no busy hash is pushed out.
        #[test]
        fn a_busy_hash_is_found_and_never_pushed_out(
            steps in prop::collection::vec((0u32..40, any::<bool>(), any::<bool>()), 1..400),
            seed in any::<u32>(),
        ) {
            let mut ways = Ways::new();
            // Few sets, so that they fill up.
            let hash = |flow: u32| (flow.wrapping_mul(0x9e37_79b9) ^ seed) & !0x7e;
            let mut model: HashMap<(usize, u16), (u16, bool)> = HashMap::new();
            for (slot, (flow, busy, reuse)) in (0u16..).zip(steps) {
                let hash = hash(flow);
                let looked_up = ways.known(hash);
                let (way, found) = ways.find(hash, reuse);
                let is_known = matches!(found, Found::Direct | Found::Indirect);
                prop_assert_eq!(looked_up.slot != NONE, is_known);
                if is_known {
                    let is_indirect = found == Found::Indirect;
                    let expected = Known { slot: ways.slot(way), is_indirect };
                    prop_assert_eq!(looked_up, expected);
                }
                let known = model.get(&identity(hash)).copied();
                match found {
                    Found::Direct | Found::Indirect => {
                        let (at, _) = known.expect("only known hashes are found");
                        prop_assert_eq!(at, way);
                    }
                    Found::Free => {
                        prop_assert_eq!(known, None);
                        let pushed_out = model.iter().find(|(_, (at, _))| *at == way);
                        prop_assert!(pushed_out.is_none_or(|(_, (_, busy))| !busy));
                        model.retain(|_, (at, _)| *at != way);
                        ways.hold(way, slot);
                    }
                    Found::Collision => {
                        prop_assert_eq!(known, None);
                        let set = identity(hash).0;
                        let busy = model.iter().filter(|(key, (_, busy))| key.0 == set && *busy);
                        prop_assert_eq!(busy.count(), WAYS);
                        // The way is now known by the new tag.
                        model.retain(|_, (at, _)| *at != way);
                    }
                }
                let busy = busy || found == Found::Collision;
                ways.set_busy(way, busy);
                model.insert(identity(hash), (way, busy));
            }
        }
    }

    #[test]
    fn a_thousand_flows_spread_well_collide_rarely() {
        let mut ways = Ways::new();
        let mut collisions = 0;
        for flow in 0..700u32 {
            let mut hash = flow.wrapping_mul(0x9e37_79b9);
            hash ^= hash >> 15;
            hash = hash.wrapping_mul(0x85eb_ca6b);
            hash ^= hash >> 13;
            let (way, found) = ways.find(hash, false);
            collisions += u32::from(found == Found::Collision);
            ways.hold(way, flow as u16);
            ways.set_busy(way, true);
        }
        // A plain table of as many queues would have some 190.
        assert!(collisions < 40, "{collisions} of 700 collide");
    }

    #[test]
    fn an_empty_way_goes_before_a_held_one_unless_reuse_is_set() {
        let hash = |tag: u32| tag << 16;
        let mut ways = Ways::new();
        let (first, _) = ways.find(hash(1), false);
        ways.hold(first, 1);
        let (second, found) = ways.find(hash(2), false);
        assert_ne!(second, first);
        assert_eq!(found, Found::Free);
        assert_eq!(ways.find(hash(1), false).0, first);
        assert_eq!(ways.find(hash(3), true), (first, Found::Free));
    }
}
