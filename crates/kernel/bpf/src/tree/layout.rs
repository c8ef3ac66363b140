//! The layout of the maps of `programs/tree.h`, in Rust.

use super::table::Table;
use super::{Image, Scope};

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
pub const LEVELS_MAX: usize = 24;
/// The most scopes, the outermost one included.
pub const SCOPES_MAX: usize = 1024;
/// In a rule's key, how far above the number of the mask that of the scope is.
pub(super) const SCOPE_SHIFT: u32 = 6;
/// The most scopes on a packet's way.
pub const SCOPES_DEEP: usize = 32;
/// In the place of a class: such packets are dropped.
pub const NOWHERE: u32 = u32::MAX;
/// In the place of a class, with the number of a scope: the search goes on there.
pub const SCOPE: u32 = 1 << 31;
/// A bit beside the number of the plan in force: it has terms.
pub(super) const HAS_TERMS: u32 = 2;
/// … somebody follows a line beyond a port of which packets pass.
pub(super) const HAS_LINES: u32 = 4;
/// Priorities of packets.
pub const PRIORITIES: usize = 16;
/// The most classes on the way in a label, the topmost one included.
pub const LABEL_LEVELS: usize = 8;
/// The most lenders that a label names.
pub const LENDERS_MAX: usize = 32;
/// The highest rate of a class with a label, in bytes per second.
pub const LABEL_RATE_MAX: u64 = 1 << 40;

/// The size of `struct node`.
pub(super) const NODE_BYTES: usize = 128;
/// The size of `struct class_slot`.
pub(super) const CLASS_SLOT_BYTES: usize = 96;
/// The size of `struct valve`.
pub(super) const VALVE_BYTES: usize = 128;

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
    /// The EtherType behind all tags, or that of IP in PPPoE or MPLS; 0 if there is none.
    pub ether_type: u16,
    /// The protocol in the IP packet.
    pub protocol: u8,
    /// The code point and the two bits of ECN.
    pub traffic_class: u8,
    /// 4, 6, or 0 for neither.
    pub ip: u8,
    /// 1 if there are ports; from the second bit on, what IP is in ([`carrier`](crate::carrier)).
    pub has: u8,
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
            has: self.has & mask.has,
            mark: self.mark & mask.mark,
        }
    }

    /// As the program has it, with the numbers of scope and mask.
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
            self.has,
        ]);
        bytes[KEY_BYTES..44].copy_from_slice(&mask.to_ne_bytes());
        bytes[44..].copy_from_slice(&self.mark.to_ne_bytes());
        bytes
    }
}

/// A rule: packets that are `key` under a mask are of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The number of the scope.
    pub scope: u16,
    /// The number of the mask.
    pub mask: u16,
    /// The packet's fields under it.
    pub key: Key,
    /// The least of those that match decides.
    pub order: u64,
    /// The class's number, [`NOWHERE`], or a scope with [`SCOPE`].
    pub class: u32,
}

impl Rule {
    /// The key of its slot.
    pub(super) fn bytes(&self) -> [u8; 48] {
        self.key.bytes(self.scope << SCOPE_SHIFT | self.mask)
    }
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
    /// The assured rate, in bytes per second; 0 if nothing limits it, and it only counts.
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
    /// The least that a frame is charged, before framing.
    pub minimum: u16,
    /// How the link divides frames.
    pub framing: Framing,
    /// By whose rules it may send.
    pub rules: Rules,
    /// The class above it; 0 at the root.
    pub parent: u32,
    /// The first class below it; 0 at a leaf.
    pub child: u32,
    /// The next sibling; 0 at the last.
    pub sibling: u32,
    /// Who borrows first: 0 before 15.
    pub prio: u8,
    /// At a leaf, whether it shares its rate among hosts first.
    pub hosts: Hosts,
    /// At a leaf, the class above it whose assured rate counts as its own; 0 for itself.
    pub lender: u16,
}

/// How a link divides frames: `WHOLE`, `ATM` and `PTM` of `programs/overhead.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Framing {
    /// Not at all.
    #[default]
    Whole = 0,
    /// Into cells of 53 bytes that carry 48.
    Atm = 1,
    /// With a byte more for every started 64.
    Ptm = 2,
}

/// `enum hosts` of `programs/tree.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Hosts {
    /// Flows share, whatever hosts they are of.
    #[default]
    FlowsAlone = 0,
    /// Hosts that packets come from.
    Sources = 1,
    /// Hosts that packets go to.
    Destinations = 2,
    /// Hosts that packets come from, as they were before network address translation.
    SourcesInside = 3,
    /// Hosts that packets go to, as they will be once addresses are translated back.
    DestinationsInside = 4,
}

/// `enum rules` of `programs/tree.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Rules {
    /// HTB's.
    #[default]
    Htb = 0,
    /// FlowValve's, by its [`Label`].
    FlowValve = 1,
}

/// What a class under FlowValve's rules has besides: `struct label`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Label {
    /// What its bucket holds beyond an epoch's worth, in bytes.
    pub burst: u64,
    /// What the bucket of its ceiling holds beyond an epoch's worth, in bytes.
    pub cburst: u64,
    /// The assured rates of the classes below it together, in bytes per second.
    pub promised: u64,
    /// Its weight among those beside it with the same priority.
    pub weight: u32,
    /// Whether its ceiling is less than what it could borrow.
    pub is_limited: bool,
    /// The classes from the topmost one down to itself, at most [`LABEL_LEVELS`].
    pub path: Vec<u16>,
    /// The classes from which it borrows, in their order, at most [`LENDERS_MAX`].
    pub lenders: Vec<u16>,
}

/// The size of `struct label`, in words of eight bytes.
pub(crate) const LABEL_WORDS: usize = 4 + LABEL_LEVELS / 4 + LENDERS_MAX / 4;

impl Label {
    /// `struct label`.
    pub(crate) fn words(&self) -> [u64; LABEL_WORDS] {
        let Self { burst, cburst, promised, weight, is_limited, path, lenders } = self;
        let pair = [*weight, u32::from(*is_limited)].map(u32::to_ne_bytes);
        let numbers = |of: &[u16], most: usize| {
            of.iter().copied().chain(std::iter::repeat(0)).take(most).collect::<Vec<u16>>()
        };
        let classes = [numbers(path, LABEL_LEVELS), numbers(lenders, LENDERS_MAX)].concat();
        let classes = classes.into_iter().flat_map(u16::to_ne_bytes);
        let bytes: Vec<u8> = pair.into_iter().flatten().chain(classes).collect();
        let mut words = [0; LABEL_WORDS];
        words[..3].copy_from_slice(&[*burst, *cburst, *promised]);
        for (word, bytes) in words[3..].iter_mut().zip(bytes.chunks_exact(8)) {
            let mut whole = [0; 8];
            whole.copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        words
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.words().into_iter().flat_map(u64::to_ne_bytes).collect()
    }
}

/// The size of `struct class`, in words of eight bytes.
pub(crate) const CLASS_WORDS: usize = 10;

impl Class {
    /// `struct class`.
    pub(crate) fn words(&self) -> [u64; CLASS_WORDS] {
        let Self { rate, ceil, burst, limit, target, interval, .. } = *self;
        let Self { batch, quantum, minimum, parent, child, sibling, prio, lender, .. } = *self;
        let pair = |first: u32, second: u32| {
            let [first, second] = [first, second].map(u32::to_ne_bytes);
            let mut word = [0; 8];
            word[..4].copy_from_slice(&first);
            word[4..].copy_from_slice(&second);
            u64::from_ne_bytes(word)
        };
        let short = |first: u16, second: u16| {
            let [[a, b], [c, d]] = [first, second].map(u16::to_ne_bytes);
            u32::from_ne_bytes([a, b, c, d])
        };
        let kinds = u16::from_ne_bytes([self.framing as u8, self.rules as u8]);
        let order = u16::from_ne_bytes([prio, self.hosts as u8]);
        let (least, place) = (short(minimum, kinds), short(order, lender));
        let pairs = [
            pair(batch, quantum),
            pair(self.per_frame as u32, least),
            pair(parent, child),
            pair(sibling, place),
        ];
        let [batch, frame, links, place] = pairs;
        [rate, ceil, burst, limit, target, interval, batch, frame, links, place]
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.words().into_iter().flat_map(u64::to_ne_bytes).collect()
    }
}

/// The header of a plan: `struct plan`.
pub(super) fn plan(image: &Image, table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend([table.shift, table.sieves.len() as u32].into_iter().flat_map(u32::to_ne_bytes));
    let sieves = table.sieves.iter().map(|sieve| sieve.at);
    bytes.extend(sieves.chain(std::iter::repeat(0)).take(SIEVES_MAX));
    bytes.extend(scope(&image.outermost, table, 0));
    let none = (Key::default(), u64::MAX);
    let masks = image.masks.iter().zip(&table.first).map(|(mask, first)| (mask.bits, *first));
    for (bits, first) in masks.chain(std::iter::repeat(none)).take(MASKS_MAX) {
        bytes.extend(bits.bytes(0));
        bytes.extend(first.to_ne_bytes());
    }
    bytes
}

/// The scope `number` of a plan: `struct scope`.
pub(super) fn scope(scope: &Scope, table: &Table, number: u16) -> Vec<u8> {
    let Scope { major, unknown, otherwise } = scope;
    let words = [table.masks_of(number), *major, *unknown].map(u32::to_ne_bytes);
    let terms = table.terms_of(number).map(u16::to_ne_bytes);
    let otherwise = otherwise.iter().flat_map(|class| class.to_ne_bytes());
    words.into_iter().flatten().chain(terms.into_iter().flatten()).chain(otherwise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_in_c() {
        let class = Class { quantum: 1, prio: 2, lender: 3, ..Class::default() }.bytes();
        assert_eq!((class.len(), class[52], class[76], class[78]), (80, 1, 2, 3));
        let kinds = Class { framing: Framing::Ptm, rules: Rules::FlowValve, ..Class::default() };
        assert_eq!(kinds.bytes()[62..64], [2, 1]);
        let hosts = Class { hosts: Hosts::Destinations, ..Class::default() };
        assert_eq!(hosts.bytes()[76..78], [0, 2]);
        let label = Label { weight: 7, path: vec![5], lenders: vec![9; 32], ..Label::default() };
        let bytes = label.bytes();
        assert_eq!((bytes.len(), bytes[24], bytes[32], bytes[34]), (112, 7, 5, 0));
        assert!(bytes[48..].chunks_exact(2).all(|lender| lender == [9, 0]), "{bytes:?}");
        let plan = plan(&Image::default(), &Table::default());
        assert_eq!(plan.len(), 8 + SIEVES_MAX + 80 + MASKS_MAX * 56);
        assert_eq!(plan[16..20], [0; 4]);
    }
}
