//! The parameters of `codel`, and those that `fq_codel` shares.

use super::{Aqm, Terms};
use narrows_packet::{Headers, Reading};
use narrows_units::Nanos;

/// The delay from which ECN-capable packets are marked, regardless of CoDel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CeThreshold {
    /// The sojourn time that may not be exceeded (`ce_threshold`).
    pub sojourn: Nanos,
    /// Of which packets (`ce_threshold_selector`).
    pub selector: Selector,
}

/// Packets whose traffic class is `value` within `mask`: the code point in the upper six bits,
/// ECN in the lower two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selector {
    /// The parameters of `codel`.
    pub value: u8,
    /// Which bits count; 0 selects all packets.
    pub mask: u8,
}

impl Selector {
    /// Whether a packet with these headers is selected.
    #[inline]
    pub(super) const fn selects(self, headers: &Headers) -> bool {
        let class = headers.dscp << 2 | headers.ecn as u8;
        self.mask == 0 || class & self.mask == self.value
    }
}

/// The parameters of an instance. Plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// How many packets may be queued (`limit`).
    pub limit: u32,
    /// The sojourn time that is aimed at (`target`).
    pub target: Nanos,
    /// About the longest round trip of the senders (`interval`).
    pub interval: Nanos,
    /// Whether ECN-capable packets are marked instead of dropped (`ecn`, `noecn`).
    pub ecn: bool,
    /// The delay from which packets are marked regardless of CoDel (`ce_threshold`).
    pub ce_threshold: Option<Nanos>,
    /// The longest frame of the port, in bytes: this much behind a packet does not count as a
    /// queue.
    pub frame: u32,
}

impl Config {
    /// `codel` without any word, for frames of up to `frame` bytes.
    pub const fn for_frames_of(frame: u32) -> Self {
        Self {
            limit: 1000,
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            ecn: false,
            ce_threshold: None,
            frame,
        }
    }

    /// The packet fields that it reads.
    pub(crate) fn reading(&self) -> Reading {
        let headers = self.ecn || self.ce_threshold.is_some();
        Reading { headers, ..Reading::NOTHING }
    }

    pub(super) fn aqm(&self) -> Aqm {
        let Self { target, interval, ecn, .. } = *self;
        let selector = Selector::default();
        Aqm {
            terms: Terms { target, interval, frame: u64::from(self.frame) },
            ecn,
            ce_threshold: self.ce_threshold.map(|sojourn| CeThreshold { sojourn, selector }),
        }
    }
}

impl Default for Config {
    /// `codel` without any word, on Ethernet.
    fn default() -> Self {
        Self::for_frames_of(1514)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_packet::Ecn;

    #[test]
    fn a_selector_looks_at_the_whole_traffic_class() {
        let headers = Headers { dscp: 46, ecn: Ecn::Capable1, ..Headers::default() };
        for (value, mask, expected) in
            [(0, 0, true), (1, 3, true), (2, 3, false), (46 << 2, 0xfc, true), (0xb9, 0xff, true)]
        {
            assert_eq!(Selector { value, mask }.selects(&headers), expected, "{value}/{mask}");
        }
    }
}
