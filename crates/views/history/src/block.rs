//! The points of a series over a block of time, and how they are stored.

use crate::bits::{pack, unpack};
use crate::point::{COLUMNS, Point};

/// Whether the block has points exactly where its slot has.
const AS_SLOT: u8 = 1;
/// Whether each of its points is busy.
const ALL_BUSY: u8 = 2;

/// Up to 64 points. Idle ones take a bit, and places without a point none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Block {
    /// Where there are points.
    present: u64,
    /// Where these are not idle.
    busy: u64,
    /// The busy ones, in order.
    points: Vec<Point>,
}

impl Block {
    /// Where there are points: bit 0 is the first place.
    pub(crate) fn present(&self) -> u64 {
        self.present
    }

    /// Whether it has no busy point.
    pub(crate) fn is_idle(&self) -> bool {
        self.busy == 0
    }

    /// A block with idle points at `present`.
    pub(crate) fn idle(present: u64) -> Self {
        Self { present, ..Self::default() }
    }

    /// Sets the point at `place`, which is below 64; one that is there already makes way.
    pub(crate) fn put(&mut self, place: u64, point: Point) {
        let bit = 1u64 << (place & 63);
        let before = (self.busy & (bit - 1)).count_ones() as usize;
        self.present |= bit;
        match (self.busy & bit != 0, point.is_idle()) {
            (true, true) => {
                self.points.remove(before);
                self.busy &= !bit;
            }
            (true, false) => self.points[before] = point,
            (false, true) => {}
            (false, false) => {
                self.points.insert(before, point);
                self.busy |= bit;
            }
        }
    }

    /// The points, by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Point)> + '_ {
        let mut busy = self.points.iter();
        let places = (0..64u64).filter(|place| (self.present >> place) & 1 == 1);
        places.map(move |place| {
            let is_busy = (self.busy >> place) & 1 == 1;
            (
                place,
                if is_busy { busy.next().copied().unwrap_or_default() } else { Point::default() },
            )
        })
    }

    /// Adds the points of `earlier` where this block has none.
    pub(crate) fn fill_from(&mut self, earlier: &Self) {
        if earlier.present & !self.present == 0 {
            return;
        }
        for (place, point) in earlier.iter() {
            if (self.present >> place) & 1 == 0 {
                self.put(place, point);
            }
        }
    }

    /// Its bytes; `slot` is where the whole slot has points.
    pub(crate) fn encode(&self, slot: u64) -> Vec<u8> {
        let as_slot = self.present == slot;
        let all_busy = self.busy == self.present;
        let mut bytes = vec![(u8::from(as_slot) * AS_SLOT) | (u8::from(all_busy) * ALL_BUSY)];
        if !as_slot {
            bytes.extend_from_slice(&self.present.to_le_bytes());
        }
        if !all_busy {
            bytes.extend_from_slice(&self.busy.to_le_bytes());
        }
        for column in 0..COLUMNS {
            let column: Vec<u16> = self.points.iter().map(|point| point.0[column]).collect();
            pack(&column, &mut bytes);
        }
        bytes
    }

    /// The block with these `bytes`; none if they are not one.
    pub(crate) fn decode(mut bytes: &[u8], slot: u64) -> Option<Self> {
        let (flags, rest) = bytes.split_first()?;
        bytes = rest;
        let mut mask = |is_known: bool, known: u64| {
            if is_known {
                return Some(known);
            }
            let (mask, rest) = bytes.split_first_chunk()?;
            bytes = rest;
            Some(u64::from_le_bytes(*mask))
        };
        let present = mask(flags & AS_SLOT != 0, slot)?;
        let busy = mask(flags & ALL_BUSY != 0, present)?;
        if busy & !present != 0 {
            return None;
        }
        let mut points = vec![Point::default(); busy.count_ones() as usize];
        for column in 0..COLUMNS {
            let values = unpack(&mut bytes, points.len())?;
            points.iter_mut().zip(values).for_each(|(point, value)| point.0[column] = value);
        }
        bytes.is_empty().then_some(Self { present, busy, points })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn any_point() -> impl Strategy<Value = Point> {
        prop_oneof![Just(Point::default()), proptest::array::uniform9(0u16..300).prop_map(Point),]
    }

    fn any_points() -> impl Strategy<Value = Vec<(u64, Point)>> {
        proptest::collection::vec((0u64..60, any_point()), 0..90)
    }

    fn made(points: &[(u64, Point)]) -> Block {
        let mut block = Block::default();
        points.iter().for_each(|(place, point)| block.put(*place, *point));
        block
    }

    proptest! {
        #[test]
        fn a_block_is_a_map_from_places_to_points(points in any_points(), slot: u64) {
            let block = made(&points);
            let map: BTreeMap<u64, Point> = points.into_iter().collect();
            prop_assert!(block.iter().eq(map));
            let bytes = block.encode(slot);
            prop_assert_eq!(Block::decode(&bytes, slot), Some(block.clone()));
            let bytes = block.encode(block.present());
            prop_assert_eq!(Block::decode(&bytes, block.present()), Some(block));
        }

        #[test]
        fn what_an_earlier_process_stored_fills_gaps(one in any_points(), two in any_points()) {
            let mut block = made(&one);
            block.fill_from(&made(&two));
            let mut map: BTreeMap<u64, Point> = two.into_iter().collect();
            map.extend(one);
            prop_assert!(block.iter().eq(map));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, slot: u64) {
            let _ = Block::decode(&bytes, slot);
        }
    }
}
