//! The layout of the maps of `programs/tree.h`, in Rust.

use super::Image;
use super::table::Table;

/// The most classes of a port, number 0 included, which is no class.
pub const CLASSES_MAX: u32 = 1024;
/// The most masks by which rules ask.
pub const MASKS_MAX: usize = 32;
/// The most rules.
pub const RULES_MAX: usize = 16_384;
/// The most bytes of a key that sieve masks.
pub(super) const SIEVES_MAX: usize = 8;
/// In the place of a mask: the mark is the name of a class.
pub(super) const BY_NAME: u16 = MASKS_MAX as u16;
/// The bytes of a key that sieves can be for: all but the mark.
pub(super) const KEY_BYTES: usize = 42;
/// The most slots behind a rule's own place in which it may be, that one included.
pub(super) const PROBES_MAX: usize = 8;
/// The size of `struct slot`.
pub(super) const SLOT_BYTES: usize = 64;
/// The most classes on a way from a leaf to the root.
pub const LEVELS_MAX: usize = 8;
/// In the place of a class: such packets are dropped.
pub const NOWHERE: u32 = u32::MAX;
/// A bit beside the number of the plan in force: it has terms.
pub(super) const HAS_TERMS: u32 = 2;
/// Priorities of packets.
pub const PRIORITIES: usize = 16;

/// The size of `struct node`.
pub(super) const NODE_BYTES: usize = 128;
/// The size of `struct seat`.
pub(super) const SEAT_BYTES: usize = 96;

/// The fields of a packet that rules compare: `struct key`. As a mask, the bits that count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Key {
    /// Where from; an IPv4 address in the last four bytes.
    pub source: u128,
    /// Where to.
    pub destination: u128,
    /// The source's port.
    pub source_port: u16,
    /// The destination's port.
    pub destination_port: u16,
    /// The EtherType behind all tags; 0 if there is none.
    pub ether_type: u16,
    /// The protocol in the IP packet.
    pub protocol: u8,
    /// The code point and the two bits of ECN.
    pub traffic_class: u8,
    /// 4, 6, or 0 for neither.
    pub ip: u8,
    /// 1 if there are ports.
    pub has_ports: u8,
    /// What a filter in front has set.
    pub mark: u32,
}

impl Key {
    /// The bits of it that are set in `mask`.
    #[must_use]
    pub fn masked(&self, mask: &Self) -> Self {
        Self {
            source: self.source & mask.source,
            destination: self.destination & mask.destination,
            source_port: self.source_port & mask.source_port,
            destination_port: self.destination_port & mask.destination_port,
            ether_type: self.ether_type & mask.ether_type,
            protocol: self.protocol & mask.protocol,
            traffic_class: self.traffic_class & mask.traffic_class,
            ip: self.ip & mask.ip,
            has_ports: self.has_ports & mask.has_ports,
            mark: self.mark & mask.mark,
        }
    }

    /// As the program has it, with the number of the mask.
    pub(super) fn bytes(&self, mask: u16) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes[..16].copy_from_slice(&self.source.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.destination.to_be_bytes());
        bytes[32..34].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[34..36].copy_from_slice(&self.destination_port.to_be_bytes());
        bytes[36..38].copy_from_slice(&self.ether_type.to_be_bytes());
        bytes[38..KEY_BYTES].copy_from_slice(&[
            self.protocol,
            self.traffic_class,
            self.ip,
            self.has_ports,
        ]);
        bytes[KEY_BYTES..44].copy_from_slice(&mask.to_ne_bytes());
        bytes[44..].copy_from_slice(&self.mark.to_ne_bytes());
        bytes
    }
}

/// A rule: packets that are `key` under a mask are of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The number of the mask.
    pub mask: u16,
    /// The packet's fields under it.
    pub key: Key,
    /// The least of those that match decides.
    pub order: u64,
    /// The class's number, or [`NOWHERE`].
    pub class: u32,
}

/// A mask of rules, and their least order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mask {
    /// The bits that count.
    pub bits: Key,
    /// The least order.
    pub first: u64,
}

/// A class: `struct class`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Class {
    /// The assured rate, in bytes per second.
    pub rate: u64,
    /// The ceiling, in bytes per second.
    pub ceil: u64,
    /// Credit after a pause, in ns.
    pub burst: u64,
    /// How far ahead it may be sold, in ns: the length of its virtual queue.
    pub limit: u64,
    /// The virtual delay that its AQM aims at, in ns.
    pub target: u64,
    /// How long senders have to respond, in ns.
    pub interval: u64,
    /// For how long a busy CPU buys at once, in ns.
    pub batch: u32,
    /// Its weight among those that borrow.
    pub quantum: u32,
    /// The overhead per frame.
    pub per_frame: i32,
    /// The least that a frame is charged.
    pub minimum: u32,
    /// The class above it; 0 at the root.
    pub parent: u32,
    /// The first class below it; 0 at a leaf.
    pub child: u32,
    /// The next sibling; 0 at the last.
    pub sibling: u32,
    /// Who borrows first: 0 before 7.
    pub prio: u32,
}

/// The size of `struct class`, in words of eight bytes.
pub(crate) const CLASS_WORDS: usize = 10;

impl Class {
    /// `struct class`.
    pub(crate) fn words(&self) -> [u64; CLASS_WORDS] {
        let Self { rate, ceil, burst, limit, target, interval, .. } = *self;
        let Self { batch, quantum, minimum, parent, child, sibling, prio, .. } = *self;
        let pair = |first: u32, second: u32| {
            let [first, second] = [first, second].map(u32::to_ne_bytes);
            let mut word = [0; 8];
            word[..4].copy_from_slice(&first);
            word[4..].copy_from_slice(&second);
            u64::from_ne_bytes(word)
        };
        let short = [
            pair(batch, quantum),
            pair(self.per_frame as u32, minimum),
            pair(parent, child),
            pair(sibling, prio),
        ];
        let [batch, frame, links, place] = short;
        [rate, ceil, burst, limit, target, interval, batch, frame, links, place]
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.words().into_iter().flat_map(u64::to_ne_bytes).collect()
    }
}

/// The header of a plan: `struct plan`.
pub(super) fn plan(image: &Image, table: &Table) -> Vec<u8> {
    let Image { masks, otherwise, names, terms, .. } = image;
    let every = u32::MAX.checked_shr(32 - masks.len() as u32).unwrap_or(0);
    let mut bytes = Vec::new();
    let words = [masks.len() as u32, every, table.shift, table.sieves.len() as u32];
    let words = words.into_iter().chain([names.major, names.unknown, terms.len() as u32, 0]);
    bytes.extend(words.flat_map(u32::to_ne_bytes));
    let sieves = table.sieves.iter().map(|sieve| sieve.at);
    bytes.extend(sieves.chain(std::iter::repeat(0)).take(SIEVES_MAX));
    bytes.extend(otherwise.iter().flat_map(|class| class.to_ne_bytes()));
    let none = (Key::default(), u64::MAX);
    let masks = masks.iter().zip(&table.first).map(|(mask, first)| (mask.bits, *first));
    for (bits, first) in masks.chain(std::iter::repeat(none)).take(MASKS_MAX) {
        bytes.extend(bits.bytes(0));
        bytes.extend(first.to_ne_bytes());
    }
    bytes
}

/// Sums of the 64-bit words of `struct seat` and `struct totals` over all CPUs.
pub(super) fn sums<const N: usize>(per_cpu: &[Vec<u8>]) -> [u64; N] {
    let mut sums = [0u64; N];
    for value in per_cpu {
        for (sum, word) in sums.iter_mut().zip(value.as_chunks().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_in_c() {
        let class = Class { quantum: 1, prio: 2, ..Class::default() }.bytes();
        assert_eq!((class.len(), class[52], class[76]), (80, 1, 2));
        let plan = plan(&Image::default(), &Table::default());
        assert_eq!(plan.len(), 32 + SIEVES_MAX + 64 + MASKS_MAX * 56);
        assert_eq!(plan[4..8], [0; 4]);
    }

    #[test]
    fn the_words_of_all_cpus_are_added_up() {
        let cpu = |a: u64, b: u64| [a.to_ne_bytes(), b.to_ne_bytes()].concat();
        assert_eq!(sums::<2>(&[cpu(1, 2), cpu(10, 20)]), [11, 22]);
        assert_eq!(sums::<2>(&[]), [0, 0]);
    }
}
