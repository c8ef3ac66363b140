//! Which tin a packet belongs to, and what a tin may do.
//!
//! Tins are kept in order of priority: the last one goes first while it is within its threshold.
//! They are shown from the least important to the most.
//!
//! Source: `tc-cake(8)` (thresholds, quanta); RFC 2474, 2597, 3246, 5865, 8325, 8622 (code points);
//! RFC 791 and 1349 for older ones.

use super::Diffserv;
use crate::TINS_MAX;
use narrows_packet::Headers;

/// One of 256 parts: thresholds and quanta of the eight-tin schemes shrink by 7/8 a tin.
const WHOLE: u64 = 1 << 16;

/// A tin of a scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    /// The part of the rate up to which it goes first, in 1/65536.
    pub(super) threshold: u32,
    /// Its quantum among tins where there is no rate, in bytes.
    pub(super) quantum: u32,
}

/// The tins of a scheme.
pub(super) struct Scheme {
    /// By tin.
    pub(super) shares: Vec<Share>,
    /// The tins in the order in which they are shown and in which marks count them.
    pub(super) shown: &'static [u8],
    /// By code point.
    tins: [u8; 64],
    mark_mask: u32,
}

const IN_ORDER: [u8; TINS_MAX] = [0, 1, 2, 3, 4, 5, 6, 7];
/// Bulk comes before best effort.
const BULK_FIRST: [u8; 4] = [1, 0, 2, 3];

/// Code points.
const LE: u8 = 1;
const TOS_RELIABLE: u8 = 1;
const TOS_THROUGHPUT: u8 = 2;
const TOS_DELAY: u8 = 4;
const CS: [u8; 8] = [0, 8, 16, 24, 32, 40, 48, 56];
const AF1: [u8; 3] = [10, 12, 14];
const AF2: [u8; 3] = [18, 20, 22];
const AF3: [u8; 3] = [26, 28, 30];
const AF4: [u8; 3] = [34, 36, 38];
const VA: u8 = 44;
const EF: u8 = 46;

impl Scheme {
    pub(super) fn new(diffserv: Diffserv, mark_mask: u32) -> Self {
        let part = |threshold: u64, quantum: u32| Share { threshold: threshold as u32, quantum };
        let best_effort = part(WHOLE, 1024);
        let bulk = part(WHOLE / 16, 64);
        let voice = part(WHOLE / 4, 256);
        let eight = || {
            let mut share = part(WHOLE, 256);
            let shrink = |value: u32| value / 8 * 7 + value % 8 * 7 / 8;
            (0..TINS_MAX)
                .map(|_| {
                    let next = part(u64::from(shrink(share.threshold)), shrink(share.quantum));
                    std::mem::replace(&mut share, next)
                })
                .collect::<Vec<_>>()
        };
        let (shares, shown, tins): (_, &'static [u8], _) = match diffserv {
            Diffserv::BestEffort => (vec![best_effort], &IN_ORDER[..1], [0; 64]),
            Diffserv::Precedence => (eight(), &IN_ORDER, precedence()),
            Diffserv::Diffserv3 => (vec![best_effort, bulk, voice], &BULK_FIRST[..3], three()),
            Diffserv::Diffserv4 => {
                let video = part(WHOLE / 2, 512);
                (vec![best_effort, bulk, video, voice], &BULK_FIRST, four())
            }
            Diffserv::Diffserv8 => (eight(), &IN_ORDER, eight_tins()),
        };
        Self { shares, shown, tins, mark_mask }
    }

    /// The tin of a packet.
    #[inline]
    pub(super) fn tin(&self, headers: &Headers) -> usize {
        if self.shares.len() == 1 {
            return 0;
        }
        if self.mark_mask != 0 {
            let mark = (headers.mark & self.mark_mask) >> self.mark_mask.trailing_zeros();
            if let Some(&tin) = (mark as usize).checked_sub(1).and_then(|at| self.shown.get(at)) {
                return usize::from(tin);
            }
        }
        // Address resolution is as urgent as routing.
        let dscp = if headers.is_arp { CS[7] } else { headers.dscp };
        usize::from(self.tins[usize::from(dscp) % 64])
    }
}

/// A table in which `points` have `tin`.
fn with(mut table: [u8; 64], tin: u8, points: &[u8]) -> [u8; 64] {
    for &point in points {
        table[usize::from(point)] = tin;
    }
    table
}

fn precedence() -> [u8; 64] {
    std::array::from_fn(|point| (point / 8) as u8)
}

fn three() -> [u8; 64] {
    let table = with([0; 64], 1, &[CS[1], LE]);
    with(table, 2, &[TOS_DELAY, VA, EF, CS[6], CS[7]])
}

fn four() -> [u8; 64] {
    let mut table = with([0; 64], 2, &[TOS_DELAY, CS[2], CS[3]]);
    for class in [AF2, AF3, AF4] {
        table = with(table, 2, &class);
    }
    // Least effort now has the code point that once meant reliability.
    let table = with(table, 1, &[CS[1], LE]);
    with(table, 3, &[CS[4], CS[5], VA, EF, CS[6], CS[7]])
}

fn eight_tins() -> [u8; 64] {
    let mut table = with([2; 64], 1, &AF1);
    table = with(table, 1, &[CS[1], TOS_THROUGHPUT]);
    for class in [AF3, AF4] {
        table = with(table, 3, &class);
    }
    table = with(table, 3, &[CS[3]]);
    table = with(table, 4, &AF2);
    table = with(table, 4, &[TOS_DELAY]);
    table = with(table, 5, &[CS[2]]);
    table = with(table, 6, &[CS[4], CS[5], VA, EF]);
    table = with(table, 7, &[CS[6], CS[7]]);
    with(table, 0, &[TOS_RELIABLE])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place, in the order in which tins are shown, of a code point.
    fn place(diffserv: Diffserv, dscp: u8) -> usize {
        let scheme = Scheme::new(diffserv, 0);
        let tin = scheme.tin(&Headers { dscp, ..Headers::default() });
        scheme.shown.iter().position(|&shown| usize::from(shown) == tin).unwrap()
    }

    #[test]
    fn code_points_go_where_the_manual_says() {
        for (dscp, three, four, eight) in [
            (0, 1, 1, 2),
            (LE, 0, 0, 0),
            (CS[1], 0, 0, 1),
            (AF1[0], 1, 1, 1),
            (CS[2], 1, 2, 5),
            (AF2[1], 1, 2, 4),
            (CS[3], 1, 2, 3),
            (AF3[2], 1, 2, 3),
            (AF4[0], 1, 2, 3),
            (CS[4], 1, 3, 6),
            (CS[5], 1, 3, 6),
            (VA, 2, 3, 6),
            (EF, 2, 3, 6),
            (CS[6], 2, 3, 7),
            (CS[7], 2, 3, 7),
            (TOS_DELAY, 2, 2, 4),
            (63, 1, 1, 2),
        ] {
            assert_eq!(place(Diffserv::Diffserv3, dscp), three, "diffserv3 {dscp}");
            assert_eq!(place(Diffserv::Diffserv4, dscp), four, "diffserv4 {dscp}");
            assert_eq!(place(Diffserv::Diffserv8, dscp), eight, "diffserv8 {dscp}");
            assert_eq!(place(Diffserv::Precedence, dscp), usize::from(dscp / 8));
            assert_eq!(place(Diffserv::BestEffort, dscp), 0);
        }
    }

    #[test]
    fn address_resolution_is_urgent() {
        let arp = Headers { is_arp: true, ..Headers::default() };
        assert_eq!(Scheme::new(Diffserv::Diffserv4, 0).tin(&arp), 3);
    }

    #[test]
    fn a_mark_counts_the_tins_as_they_are_shown() {
        let scheme = Scheme::new(Diffserv::Diffserv4, 0xf0);
        let tin = |mark| scheme.tin(&Headers { mark, dscp: EF, ..Headers::default() });
        assert_eq!([0x10, 0x20, 0x30, 0x40].map(tin), [1, 0, 2, 3]);
        assert_eq!([0x00, 0x50, 0x01].map(tin), [3; 3], "no mark, none that exists, other bits");
    }

    #[test]
    fn thresholds_and_quanta_are_the_manuals() {
        let shares = |diffserv| {
            let scheme = Scheme::new(diffserv, 0);
            let shown = scheme.shown.iter().map(|&tin| scheme.shares[usize::from(tin)]);
            shown.map(|share| (share.threshold, share.quantum)).collect::<Vec<_>>()
        };
        assert_eq!(shares(Diffserv::Diffserv3), [(4096, 64), (65536, 1024), (16384, 256)]);
        let four = [(4096, 64), (65536, 1024), (32768, 512), (16384, 256)];
        assert_eq!(shares(Diffserv::Diffserv4), four);
        let eight = shares(Diffserv::Diffserv8);
        assert_eq!(eight.len(), 8);
        assert_eq!(eight[..3], [(65536, 256), (57344, 224), (50176, 196)]);
    }
}
