//! A filter, and the plain rule for whether it matches. The tables are tested against this rule.

use crate::{ActionId, Expression, Flower, Mark, Selector, Subject};
use std::sync::Arc;

/// The protocol of a filter that accepts all frames (`ETH_P_ALL`).
pub const ANY_PROTOCOL: u16 = 0x0003;

/// An IEEE 802.1Q tag, as the protocol of a filter.
pub const VLAN: u16 = 0x8100;

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
    /// An expression (`basic`); without one, any packet.
    Basic(Option<Expression>),
}

/// A filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// The priority (`pref`), never 0. Lower values are evaluated first.
    pub pref: u16,
    /// The EtherType of its packets, or [`ANY_PROTOCOL`].
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

    /// Its position among all filters: by priority, then by number.
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

/// The position of a filter with this `pref` and number.
pub fn order(pref: u16, handle: u32) -> u64 {
    u64::from(pref) << 32 | u64::from(handle)
}

/// The filters of a qdisc or a class, by their [order](Filter::order). A copy costs one pointer.
pub type Filters = crate::Sheaf<Arc<Filter>>;
