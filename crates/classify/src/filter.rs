//! What a filter is, and whether it matches: the naive rules to which tables are held.

use crate::{ActionId, Expression, Flower, Mark, Selector, Subject};
use std::sync::Arc;

/// What a filter's protocol says of frames of any sort (`ETH_P_ALL`).
pub const ANY_PROTOCOL: u16 = 0x0003;

/// A tag of IEEE 802.1Q, as a filter's protocol.
pub const VLAN: u16 = 0x8100;

/// What a packet has to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Matches {
    /// Any (`matchall`).
    All,
    /// What `flower` lists.
    Flower(Flower),
    /// These words of it (`u32`).
    Words(Vec<Selector>),
    /// Its mark (`fw`).
    Mark(Mark),
    /// What an expression says (`basic`); any, without one.
    Basic(Option<Expression>),
}

/// A filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// When it is asked: the lowest first (`pref`); never 0.
    pub pref: u16,
    /// The EtherType of its packets, or [`ANY_PROTOCOL`].
    pub protocol: u16,
    /// Its number among those of its `pref`, which are asked in the order of their numbers.
    pub handle: u32,
    /// What a packet has to be.
    pub matches: Matches,
    /// The class of such a packet, by its minor number; 0 for none.
    pub class: u32,
    /// The class that it names where there are none (ingress, egress), major number above, minor
    /// below; 0 for none. It is shown, and does nothing.
    pub named: u32,
    /// What is done with such a packet, in order.
    pub actions: Vec<ActionId>,
}

impl Filter {
    /// The kind, as `tc` calls it.
    pub fn kind(&self) -> &'static str {
        match self.matches {
            Matches::All => "matchall",
            Matches::Flower(_) => "flower",
            Matches::Words(_) => "u32",
            Matches::Mark(_) => "fw",
            Matches::Basic(_) => "basic",
        }
    }

    /// Its place among all: by its priority, then by its number.
    pub fn order(&self) -> u64 {
        order(self.pref, self.handle)
    }

    /// Whether it matches `subject`.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        let keys = subject.keys();
        let is_of_protocol = match self.protocol {
            ANY_PROTOCOL => true,
            VLAN => keys.vlan_id.is_some(),
            protocol => keys.ether_type == protocol,
        };
        is_of_protocol
            && match &self.matches {
                Matches::All => true,
                Matches::Flower(flower) => flower.matches(&keys),
                Matches::Words(words) => words.iter().all(|word| word.matches(subject)),
                Matches::Mark(mark) => mark.matches(subject.mark()),
                Matches::Basic(expression) => {
                    expression.as_ref().is_none_or(|e| e.matches(subject))
                }
            }
    }
}

/// The place of a filter of `pref` with the number `handle`.
pub fn order(pref: u16, handle: u32) -> u64 {
    u64::from(pref) << 32 | u64::from(handle)
}

/// The filters of a qdisc or a class, by their [order](Filter::order): copied with one pointer.
pub type Filters = crate::Sheaf<Arc<Filter>>;
