//! A filter, and the plain rule for whether it matches. The tables are tested against this rule.

use crate::fields::tag_number;
use crate::{ActionId, Expression, Flower, Mark, Route, Selector, Subject};
use narrows_packet::dissect::Keys;
use std::sync::Arc;

/// The protocol of a filter that accepts all frames (`ETH_P_ALL`).
pub const ANY_PROTOCOL: u16 = 0x0003;

/// An IEEE 802.1Q tag, as the protocol of a filter.
pub const VLAN: u16 = 0x8100;

/// A service provider's tag (IEEE 802.1ad), likewise.
pub const SERVICE_VLAN: u16 = 0x88a8;

/// The EtherTypes of what carries IP further: PPPoE sessions, and MPLS.
pub(crate) const CARRIERS: [u16; 3] = [0x8864, 0x8847, 0x8848];

/// Whether packets of a protocol of filters have a tag of this type first.
pub fn is_tag(protocol: u16) -> bool {
    tag_number(protocol) != 0
}

/// Where the network layer of a filter's packets begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Network {
    /// At the IP header, also that of a packet in PPPoE or MPLS. Without IP, behind all tags.
    Ip,
    /// Behind all tags: for filters whose packets are those of PPPoE or MPLS.
    Carrier,
}

impl Network {
    /// For filters with this protocol.
    pub fn of(protocol: u16) -> Self {
        if CARRIERS.contains(&protocol) { Self::Carrier } else { Self::Ip }
    }
}

/// The condition of a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Matches {
    /// Any packet (`matchall`).
    All,
    /// Named fields (`flower`).
    Flower(Flower),
    /// Words of the packet (`u32`).
    Words(Vec<Selector>),
    /// The mark (`fw`).
    Mark(Mark),
    /// The route (`route`).
    Route(Route),
    /// An expression (`basic`); without one, any packet.
    Basic(Option<Expression>),
}

/// A filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// The priority (`pref`), never 0. Lower values are evaluated first.
    pub pref: u16,
    /// The EtherType of its packets, or [`ANY_PROTOCOL`]: that of the outer tag, what is behind all
    /// tags, or that of the IP which this carries.
    pub protocol: u16,
    /// The number within its `pref`. Filters of one `pref` are evaluated in the order of their
    /// numbers.
    pub handle: u32,
    /// The condition.
    pub matches: Matches,
    /// The minor number of the class that it assigns; 0 for none.
    pub class: u32,
    /// The class that the operator named where there are no classes (ingress, egress): major number
    /// in the upper half, minor in the lower; 0 for none. It is shown and has no effect.
    pub named: u32,
    /// The actions for matching packets, in order.
    pub actions: Vec<ActionId>,
    /// Whether it is not to be given to hardware. None is; it is shown again.
    pub skips_hardware: bool,
}

impl Filter {
    /// One that assigns `class`, without actions.
    pub fn new(pref: u16, handle: u32, protocol: u16, matches: Matches, class: u32) -> Self {
        let (named, actions, skips_hardware) = (0, Vec::new(), false);
        Self { pref, protocol, handle, matches, class, named, actions, skips_hardware }
    }

    /// The kind, as `tc` calls it.
    pub fn kind(&self) -> &'static str {
        match self.matches {
            Matches::All => "matchall",
            Matches::Flower(_) => "flower",
            Matches::Words(_) => "u32",
            Matches::Mark(_) => "fw",
            Matches::Route(_) => "route",
            Matches::Basic(_) => "basic",
        }
    }

    /// Its position among all filters: by priority, then by number.
    pub fn order(&self) -> u64 {
        order(self.pref, self.handle)
    }

    /// Whether it matches `subject`.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        let keys = subject.keys();
        let is_of_protocol = match self.protocol {
            ANY_PROTOCOL => true,
            protocol if is_tag(protocol) => keys.tag.is_some_and(|tag| tag.ether_type == protocol),
            protocol => is_of(protocol, &keys),
        };
        let network = Network::of(self.protocol);
        is_of_protocol
            && match &self.matches {
                Matches::All => true,
                Matches::Flower(flower) => flower.matches(&keys),
                Matches::Words(words) => words.iter().all(|word| word.matches(subject, network)),
                Matches::Mark(mark) => mark.matches(subject.mark()),
                Matches::Route(route) => route.matches(subject.route()),
                Matches::Basic(expression) => {
                    expression.as_ref().is_none_or(|e| e.matches(subject, network))
                }
            }
    }
}

/// Whether packets with `keys` are of an EtherType behind their tags: their own, or that of the IP
/// that they carry.
pub(crate) fn is_of(ether_type: u16, keys: &Keys) -> bool {
    [keys.ether_type, keys.carried].contains(&ether_type)
}

/// The position of a filter with this `pref` and number.
pub fn order(pref: u16, handle: u32) -> u64 {
    u64::from(pref) << 32 | u64::from(handle)
}

/// The filters of a qdisc or a class, by their [order](Filter::order). A copy costs one pointer.
pub type Filters = crate::PersistentMap<Arc<Filter>>;
