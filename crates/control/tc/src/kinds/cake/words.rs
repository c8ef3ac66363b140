//! The words of `cake` that stand for values, and suggestions for misspelt ones.

use narrows_qdisc::cake::{AckFilter, Diffserv, Isolation};
use narrows_units::wire::{Framing, Overhead};

/// Named round-trip times, in microseconds.
pub(super) const ROUND_TRIPS: [(&str, u64); 8] = [
    ("datacentre", 100),
    ("lan", 1_000),
    ("metro", 10_000),
    ("regional", 30_000),
    ("internet", 100_000),
    ("oceanic", 300_000),
    ("satellite", 1_000_000),
    ("interplanetary", 1_000_000_000),
];

pub(super) const ISOLATIONS: [(&str, Isolation); 8] = [
    ("flowblind", Isolation::Flowblind),
    ("srchost", Isolation::Srchost),
    ("dsthost", Isolation::Dsthost),
    ("hosts", Isolation::Hosts),
    ("flows", Isolation::Flows),
    ("dual-srchost", Isolation::DualSrchost),
    ("dual-dsthost", Isolation::DualDsthost),
    ("triple-isolate", Isolation::TripleIsolate),
];

pub(super) const DIFFSERVS: [(&str, Diffserv); 5] = [
    ("besteffort", Diffserv::BestEffort),
    ("precedence", Diffserv::Precedence),
    ("diffserv3", Diffserv::Diffserv3),
    ("diffserv4", Diffserv::Diffserv4),
    ("diffserv8", Diffserv::Diffserv8),
];

pub(super) const ACK_FILTERS: [(&str, AckFilter); 3] = [
    ("no-ack-filter", AckFilter::Off),
    ("ack-filter", AckFilter::On),
    ("ack-filter-aggressive", AckFilter::Aggressive),
];

pub(super) const FRAMINGS: [(&str, Framing); 3] =
    [("noatm", Framing::Whole), ("atm", Framing::Atm), ("ptm", Framing::Ptm)];

/// The overhead that a link adds to a network-layer packet.
pub(super) struct Link {
    pub(super) name: &'static str,
    /// Bytes added to those of earlier words.
    pub(super) adds: i32,
    /// The framing, if the link determines it.
    pub(super) framing: Option<Framing>,
    /// The minimum frame, if there is one.
    pub(super) minimum: Option<u32>,
}

const fn link(name: &'static str, adds: i32, framing: Option<Framing>) -> Link {
    Link { name, adds, framing, minimum: None }
}

const ATM: Option<Framing> = Some(Framing::Atm);
const PTM: Option<Framing> = Some(Framing::Ptm);

pub(super) const LINKS: [Link; 13] = [
    link("pppoa-vcmux", 10, ATM),
    link("pppoa-llc", 14, ATM),
    link("pppoe-vcmux", 32, ATM),
    link("pppoe-llcsnap", 40, ATM),
    link("bridged-vcmux", 24, ATM),
    link("bridged-llcsnap", 32, ATM),
    link("ipoa-vcmux", 8, ATM),
    link("ipoa-llcsnap", 16, ATM),
    link("pppoe-ptm", 30, PTM),
    link("bridged-ptm", 22, PTM),
    link("ether-vlan", 4, None),
    Link { name: "docsis", adds: 18, framing: Some(Framing::Whole), minimum: Some(64) },
    // Preamble, header, FCS and the gap between frames; 84 is the shortest frame with them.
    Link { name: "ethernet", adds: 38, framing: None, minimum: Some(84) },
];

/// `conservative`: the packet plus one ATM cell, which no link exceeds.
pub(super) const CONSERVATIVE: i32 = 48;

/// What the word of a link says by itself: the overhead over a network-layer packet.
pub fn link_overhead(word: &str) -> Option<Overhead> {
    let (per_frame, framing, minimum) = match word {
        "raw" => (0, None, None),
        "conservative" => (CONSERVATIVE, ATM, None),
        _ => {
            let link = LINKS.iter().find(|link| link.name == word)?;
            (link.adds, link.framing, link.minimum)
        }
    };
    let (framing, minimum) = (framing.unwrap_or_default(), minimum.unwrap_or_default());
    Some(Overhead { per_frame, minimum, framing })
}

/// Words that are in no table above.
const OTHER_WORDS: [&str; 28] = [
    "bandwidth",
    "unlimited",
    "autorate-ingress",
    "rtt",
    "nat",
    "nonat",
    "inner",
    "noinner",
    "wash",
    "nowash",
    "split-gso",
    "no-split-gso",
    "ingress",
    "egress",
    "raw",
    "conservative",
    "overhead",
    "mpu",
    "memlimit",
    "fwmark",
    "coordination",
    "sync",
    "fleet",
    "nofleet",
    "autorate",
    "noautorate",
    "via-ethernet",
    "help",
];

pub(super) fn value<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

pub(super) fn name<T: Copy + PartialEq>(table: &[(&'static str, T)], wanted: T) -> &'static str {
    // Every value is in its table; a test checks it.
    table.iter().find(|(_, value)| *value == wanted).map_or("", |(name, _)| name)
}

/// The most similar word, if one is similar enough.
pub(super) fn nearest(word: &str) -> Option<&'static str> {
    /// The most wrong letters, and one per how many letters.
    const WRONG_LETTERS: usize = 2;
    const LETTERS_PER_WRONG: usize = 3;
    let tables = ROUND_TRIPS.iter().map(|(name, _)| *name);
    let tables = tables.chain(ISOLATIONS.iter().map(|(name, _)| *name));
    let tables = tables.chain(DIFFSERVS.iter().map(|(name, _)| *name));
    let tables = tables.chain(ACK_FILTERS.iter().map(|(name, _)| *name));
    let tables = tables.chain(FRAMINGS.iter().map(|(name, _)| *name));
    let tables = tables.chain(LINKS.iter().map(|link| link.name));
    let near = tables
        .chain(OTHER_WORDS)
        .map(|known| (strsim::damerau_levenshtein(word, known), known))
        .filter(|(wrong, known)| *wrong <= WRONG_LETTERS.max(known.len() / LETTERS_PER_WRONG));
    near.min_by_key(|(wrong, _)| *wrong).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_nearly_right_is_recognized() {
        for (wrong, right) in [
            ("datacenter", "datacentre"),
            ("bandwith", "bandwidth"),
            ("triple-isolated", "triple-isolate"),
            ("ack_filter", "ack-filter"),
            ("diffserv5", "diffserv3"),
            ("autorate_ingress", "autorate-ingress"),
        ] {
            assert_eq!(nearest(wrong), Some(right), "{wrong}");
        }
        assert_eq!(nearest("turbo"), None);
    }

    #[test]
    fn every_value_has_a_name() {
        assert!(!name(&ISOLATIONS, Isolation::default()).is_empty());
        assert!(!name(&DIFFSERVS, Diffserv::default()).is_empty());
        assert!(!name(&FRAMINGS, Framing::Ptm).is_empty());
        assert!(!name(&ACK_FILTERS, AckFilter::Aggressive).is_empty());
    }
}
