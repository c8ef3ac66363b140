//! Which table a filter belongs to, and under which key.
//!
//! A filter's condition is a value under a mask. The masks, and the properties a packet needs
//! before a key can be made at all, are the filter's *shape*. Filters of one shape share a table
//! (tuple-space search: Srinivasan, Suri, Varghese, SIGCOMM 1999). Conditions that a mask cannot
//! express (a range of ports, an expression) are tested on the filter itself, after its key is
//! found.

use crate::ahead::Places;
use crate::fields::{
    ADDRESSES, CARRIED, DESTINATION_HIGH, DESTINATION_MAC, DESTINATION_PORT, DETAILS, ETHER_TYPE,
    HAS_FLAGS, HAS_ICMP, HAS_INNER_TAG, HAS_IP, HAS_PORTS, HAS_ROUTE, HAS_TAG, ICMP_CODE,
    ICMP_TYPE, INNER_TAG_TYPE, INNER_VLAN_ID, INNER_VLAN_PRIORITY, IS_FIRST, IS_FRAGMENT, IS_V6,
    KIND, MARK, METRIC, PROTOCOL, REALM, SOURCE_HIGH, SOURCE_LOW, SOURCE_MAC, SOURCE_PORT,
    TAG_TYPE, TCP_FLAGS, TRAFFIC_CLASS, TRANSPORT, TTL, VLAN_ID, VLAN_PRIORITY, WORDS, tag_number,
};
use crate::filter::CARRIERS;
use crate::flower::wide;
use crate::{
    ANY_PROTOCOL, Filter, Flower, Matches, Network, PortRange, Prefix, Route, Selector, Subject,
    is_tag,
};

/// The most words in a key. The filter itself tests any further ones.
pub(crate) const KEY_MAX: usize = WORDS;

/// The source of a word of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum From {
    /// One of the words of the parsed headers.
    Field(u8),
    /// Four bytes of the frame.
    Frame { offset: i16, is_behind_ip: bool, network: Network },
}

/// A word of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Read {
    pub(crate) from: From,
    pub(crate) mask: u64,
}

impl Read {
    /// This word of `subject`'s key; `None` if the packet does not have these bytes.
    #[inline]
    pub(crate) fn of(self, subject: &Subject<'_>) -> Option<u64> {
        let word = match self.from {
            From::Field(place) => subject.field(usize::from(place)),
            From::Frame { offset, is_behind_ip, network } => {
                u64::from(subject.word(offset, is_behind_ip, network)?)
            }
        };
        Some(word & self.mask)
    }

    /// Calls `put` with this word of the keys of those `subjects` at `places` that have one.
    /// Returns their places.
    #[inline(always)]
    pub(crate) fn of_all(
        self,
        subjects: &[Option<Subject<'_>>],
        places: Places,
        mut put: impl FnMut(usize, u64),
    ) -> Places {
        let mut have = Places::NONE;
        let mut each = |at: usize, word: Option<u64>| {
            if let Some(word) = word {
                put(at, word & self.mask);
                have.add(at);
            }
        };
        match self.from {
            From::Field(place) => {
                let place = usize::from(place);
                let word = |at: usize| Some(subjects[at].as_ref()?.field(place));
                places.for_each(|at| each(at, word(at)));
            }
            From::Frame { offset, is_behind_ip, network } => {
                let word = |at: usize| subjects[at].as_ref()?.word(offset, is_behind_ip, network);
                places.for_each(|at| each(at, word(at).map(u64::from)));
            }
        }
        have
    }
}

/// The kinds of packets that filters are for: bits of the word [`KIND`], and their values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Guard {
    pub(crate) mask: u64,
    pub(crate) value: u64,
}

impl Guard {
    #[inline]
    pub(crate) fn admits(self, kind: u64) -> bool {
        kind & self.mask == self.value
    }
}

/// What the filters of one table have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Shape {
    /// What is tested first.
    pub(crate) guard: Guard,
    /// How to read a key.
    pub(crate) reads: Vec<Read>,
}

/// A filter in the form that tables use.
pub(crate) struct Compiled {
    pub(crate) shape: Shape,
    /// The key; one word per read.
    pub(crate) key: Vec<u64>,
    /// Whether the filter itself must be tested, too.
    pub(crate) is_partial: bool,
}

impl Compiled {
    pub(crate) fn of(filter: &Filter) -> Self {
        let mut draft = Draft::default();
        match filter.protocol {
            ANY_PROTOCOL => {}
            protocol if is_tag(protocol) => draft.half(TAG_TYPE, protocol),
            protocol => draft.ether_type(protocol),
        }
        let network = Network::of(filter.protocol);
        let mut frame = Vec::new();
        match &filter.matches {
            Matches::All => {}
            Matches::Flower(flower) => draft.flower(flower),
            Matches::Mark(mark) => {
                draft.is_contradiction |= mark.is_impossible();
                draft.bits(MARK, u64::from(mark.value), u64::from(mark.mask));
            }
            Matches::Route(route) => draft.route(route),
            Matches::Basic(expression) => draft.is_partial |= expression.is_some(),
            Matches::Words(words) => {
                draft.is_partial |= words.len() > KEY_MAX;
                let reads = words.iter().take(KEY_MAX).map(|word| {
                    let Selector { offset, is_behind_ip, .. } = *word;
                    let from = From::Frame { offset, is_behind_ip, network };
                    let mask = u64::from(word.mask);
                    (Read { from, mask }, u64::from(word.value) & mask)
                });
                frame.extend(reads);
            }
        }
        let fields = (KIND + 1..WORDS).filter(|place| draft.masks[*place] != 0);
        let fields = fields.map(|place| {
            let mask = draft.masks[place];
            (Read { from: From::Field(place as u8), mask }, draft.values[place] & mask)
        });
        let (reads, key) = fields.chain(frame).unzip();
        let guard = Guard { mask: draft.masks[KIND], value: draft.values[KIND] };
        let is_partial = draft.is_partial || draft.is_contradiction;
        Self { shape: Shape { guard, reads }, key, is_partial }
    }
}

#[derive(Default)]
struct Draft {
    values: [u64; WORDS],
    masks: [u64; WORDS],
    is_partial: bool,
    /// Whether some bits are required to have two values. Nothing matches; the filter itself says
    /// so.
    is_contradiction: bool,
}

impl Draft {
    fn bits(&mut self, place: usize, value: u64, mask: u64) {
        let value = value & mask;
        let both = self.masks[place] & mask;
        self.is_contradiction |= (self.values[place] ^ value) & both != 0;
        self.values[place] = self.values[place] & !mask | value;
        self.masks[place] |= mask;
    }

    /// One of the EtherTypes in [`KIND`].
    fn half(&mut self, shift: u32, ether_type: u16) {
        self.bits(KIND, u64::from(ether_type) << shift, 0xffff << shift);
    }

    /// The EtherType behind all tags, or of the IP that is carried.
    fn ether_type(&mut self, ether_type: u16) {
        let shift = if CARRIERS.contains(&ether_type) { ETHER_TYPE } else { CARRIED };
        self.half(shift, ether_type);
    }

    fn flag(&mut self, flag: u64, is: bool) {
        self.bits(KIND, if is { flag } else { 0 }, flag);
    }

    fn route(&mut self, route: &Route) {
        self.flag(HAS_ROUTE, true);
        for (place, realm) in [(DESTINATION_MAC, route.to), (SOURCE_MAC, route.from)] {
            if let Some(realm) = realm {
                self.bits(place, u64::from(realm) << REALM, 0xffff << REALM);
            }
        }
        if let Some(metric) = route.metric {
            self.bits(MARK, u64::from(metric) << METRIC, u64::MAX << METRIC);
        }
    }

    fn flower(&mut self, flower: &Flower) {
        if let Some(id) = flower.vlan_id {
            self.flag(HAS_TAG, true);
            self.bits(DETAILS, u64::from(id) << VLAN_ID, 0xfff << VLAN_ID);
        }
        if let Some(priority) = flower.vlan_priority {
            self.flag(HAS_TAG, true);
            self.bits(DETAILS, u64::from(priority) << VLAN_PRIORITY, 7 << VLAN_PRIORITY);
            self.is_contradiction |= priority > 7;
        }
        match flower.vlan_ether_type {
            Some(ether_type) if is_tag(ether_type) => {
                self.flag(HAS_TAG, true);
                self.bits(KIND, tag_number(ether_type) << INNER_TAG_TYPE, 7 << INNER_TAG_TYPE);
            }
            Some(ether_type) => {
                self.flag(HAS_TAG, true);
                self.ether_type(ether_type);
            }
            None => {}
        }
        if let Some(id) = flower.inner_vlan_id {
            self.flag(HAS_INNER_TAG, true);
            self.bits(DETAILS, u64::from(id) << INNER_VLAN_ID, 0xfff << INNER_VLAN_ID);
        }
        if let Some(priority) = flower.inner_vlan_priority {
            self.flag(HAS_INNER_TAG, true);
            self.bits(
                DETAILS,
                u64::from(priority) << INNER_VLAN_PRIORITY,
                7 << INNER_VLAN_PRIORITY,
            );
            self.is_contradiction |= priority > 7;
        }
        if let Some(ether_type) = flower.inner_vlan_ether_type {
            self.flag(HAS_INNER_TAG, true);
            self.ether_type(ether_type);
        }
        self.pair(DESTINATION_MAC, 0, flower.destination_mac);
        self.pair(SOURCE_MAC, 0, flower.source_mac);
        if flower.wants_ip() {
            self.flag(HAS_IP, true);
        }
        if let Some(protocol) = flower.protocol {
            self.bits(TRANSPORT, u64::from(protocol) << PROTOCOL, 0xff << PROTOCOL);
        }
        self.pair(TRANSPORT, TRAFFIC_CLASS, wide(flower.traffic_class));
        self.pair(TRANSPORT, TTL, wide(flower.ttl));
        self.prefix(flower.destination, 0, [ADDRESSES, DESTINATION_HIGH]);
        self.prefix(flower.source, 32, [SOURCE_LOW, SOURCE_HIGH]);
        self.ports(flower.destination_port, DESTINATION_PORT);
        self.ports(flower.source_port, SOURCE_PORT);
        if flower.tcp_flags.is_some() {
            self.flag(HAS_FLAGS, true);
        }
        if flower.icmp_type.is_some() || flower.icmp_code.is_some() {
            self.flag(HAS_ICMP, true);
        }
        self.pair(DETAILS, TCP_FLAGS, wide(flower.tcp_flags));
        self.pair(DETAILS, ICMP_TYPE, wide(flower.icmp_type));
        self.pair(DETAILS, ICMP_CODE, wide(flower.icmp_code));
        if let Some(is) = flower.is_fragment {
            self.flag(IS_FRAGMENT, is);
        }
        if let Some(is) = flower.is_first_fragment {
            self.flag(IS_FIRST, is);
        }
    }

    fn pair(&mut self, place: usize, shift: u32, pair: Option<(u64, u64)>) {
        if let Some((value, mask)) = pair {
            self.bits(place, value << shift, mask << shift);
        }
    }

    fn prefix(&mut self, prefix: Option<Prefix>, v4_shift: u32, [low, high]: [usize; 2]) {
        let Some(prefix) = prefix else { return };
        let (bits, mask) = (prefix.bits().0, prefix.mask());
        self.flag(IS_V6, prefix.is_v6());
        if prefix.is_v6() {
            self.bits(low, bits as u64, mask as u64);
            self.bits(high, (bits >> 64) as u64, (mask >> 64) as u64);
        } else {
            self.bits(ADDRESSES, (bits as u64) << v4_shift, (mask as u64) << v4_shift);
        }
    }

    fn ports(&mut self, range: Option<PortRange>, shift: u32) {
        let Some(PortRange { first, last }) = range else { return };
        self.flag(HAS_PORTS, true);
        if first == last {
            self.bits(TRANSPORT, u64::from(first) << shift, 0xffff << shift);
        } else {
            self.is_partial |= (first, last) != (0, u16::MAX);
        }
    }
}
