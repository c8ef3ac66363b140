//! The cost of a frame on the wire.
//!
//! A limit is only right if it counts what the bottleneck counts: framing, minimum sizes, ATM
//! cells. Every qdisc uses [`Overhead::cost`]; nothing else computes a length. The order is that of
//! `tc-cake(8)` and of the kernel's `psched_l2t_ns()`: overhead first, then the minimum, then the
//! link's framing.
//!
//! Cost: an add, a maximum and, only with ATM or PTM, one division by a constant.

use crate::Bytes;

/// How the link divides frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Framing {
    /// Frames are not divided.
    #[default]
    Whole,
    /// ATM: cells of 53 bytes carry 48 each, the last one padded (`linklayer atm|adsl`).
    Atm,
    /// PTM (VDSL2): one more byte for every started 64 (64b/65b encoding).
    Ptm,
}

/// Payload of an ATM cell, in bytes.
const ATM_CELL_PAYLOAD: u64 = 48;
/// An ATM cell on the wire, in bytes.
const ATM_CELL: u64 = 53;
/// Bytes that share one byte of PTM encoding.
const PTM_BLOCK: u64 = 64;

/// How a shaper counts a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Overhead {
    /// Added to every frame, in bytes; negative if the frame carries headers that the bottleneck
    /// does not see (`overhead`).
    pub per_frame: i32,
    /// The minimum before framing, in bytes (`mpu`).
    pub minimum: u32,
    /// How the link divides frames.
    pub framing: Framing,
}

impl Overhead {
    /// Frames count as they are, with Ethernet header, without FCS.
    pub const NONE: Self = Self { per_frame: 0, minimum: 0, framing: Framing::Whole };

    /// The cost of a frame of `frame` bytes.
    #[inline]
    pub fn cost(&self, frame: Bytes) -> Bytes {
        let added = frame.0.saturating_add_signed(i64::from(self.per_frame));
        let length = added.max(u64::from(self.minimum));
        Bytes(match self.framing {
            Framing::Whole => length,
            Framing::Atm => length.div_ceil(ATM_CELL_PAYLOAD).saturating_mul(ATM_CELL),
            Framing::Ptm => length.saturating_add(length.div_ceil(PTM_BLOCK)),
        })
    }
}

impl Overhead {
    /// The charge of `outer` for what this charges, as one. `None` if no single charge is that:
    /// once a frame is divided, nothing more can be added to it.
    pub fn then(self, outer: Self) -> Option<Self> {
        if outer == Self::NONE {
            return Some(self);
        }
        let raised = u64::from(self.minimum).saturating_add_signed(i64::from(outer.per_frame));
        let joined = Self {
            per_frame: self.per_frame.checked_add(outer.per_frame)?,
            minimum: u32::try_from(raised).ok()?.max(outer.minimum),
            framing: outer.framing,
        };
        (self.framing == Framing::Whole).then_some(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_of_a_charge_is_one_unless_the_first_divides() {
        let overheads = [-20, 0, 4, 30].into_iter().flat_map(|per_frame| {
            [0, 10, 84].map(|minimum| Overhead { per_frame, minimum, framing: Framing::Whole })
        });
        let overheads: Vec<Overhead> = overheads.collect();
        for inner in &overheads {
            for outer in &overheads {
                for framing in [Framing::Whole, Framing::Atm, Framing::Ptm] {
                    let outer = Overhead { framing, ..*outer };
                    let both = inner.then(outer).unwrap();
                    for len in [0, 1, 14, 60, 84, 1514] {
                        let expected = outer.cost(inner.cost(Bytes(len)));
                        assert_eq!(both.cost(Bytes(len)), expected, "{inner:?} {outer:?} {len}");
                    }
                }
            }
        }
        let atm = Overhead { framing: Framing::Atm, ..Overhead::NONE };
        assert_eq!(atm.then(Overhead::NONE), Some(atm));
        assert_eq!(atm.then(Overhead { per_frame: 1, ..Overhead::NONE }), None);
    }

    #[test]
    fn a_plain_frame_costs_what_it_weighs() {
        assert_eq!(Overhead::NONE.cost(Bytes(1514)), Bytes(1514));
    }

    #[test]
    fn ethernet_preamble_fcs_and_gap_make_64_bytes_84() {
        let ethernet = Overhead { per_frame: 24, minimum: 84, framing: Framing::Whole };
        assert_eq!(ethernet.cost(Bytes(60)), Bytes(84));
        assert_eq!(ethernet.cost(Bytes(1514)), Bytes(1538));
    }

    #[test]
    fn atm_pads_the_last_cell() {
        let atm = Overhead { framing: Framing::Atm, ..Overhead::NONE };
        assert_eq!(atm.cost(Bytes(48)), Bytes(53));
        assert_eq!(atm.cost(Bytes(49)), Bytes(106));
    }

    #[test]
    fn ptm_adds_a_byte_for_every_started_64() {
        let ptm = Overhead { framing: Framing::Ptm, ..Overhead::NONE };
        assert_eq!(ptm.cost(Bytes(64)), Bytes(65));
        assert_eq!(ptm.cost(Bytes(65)), Bytes(67));
    }

    #[test]
    fn headers_taken_off_never_make_a_frame_negative() {
        let less = Overhead { per_frame: -64, ..Overhead::NONE };
        assert_eq!(less.cost(Bytes(14)), Bytes(0));
        assert_eq!(Overhead { minimum: 46, ..less }.cost(Bytes(14)), Bytes(46));
    }
}
