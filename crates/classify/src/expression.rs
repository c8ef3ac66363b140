//! `basic`: comparisons, joined by `and`, `or` and `not`.
//!
//! As in the kernel a comparison with what a packet does not have is false, and `not` makes it
//! true.
//!
//! Source: `tc-ematch(8)`, `net/sched/em_cmp.c`, `em_nbyte.c`, `em_u32.c`, `em_meta.c`.

use crate::{Selector, Subject};
use std::cmp::Ordering;
use std::sync::Arc;

/// How deep parentheses may stand one inside of the other.
pub const EXPRESSION_DEPTH_MAX: usize = 16;

/// What a packet has to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expression {
    /// Every one of these.
    And(Vec<Expression>),
    /// One of these at least.
    Or(Vec<Expression>),
    /// Not this.
    Not(Box<Expression>),
    /// Four bytes have a value (`u32`).
    Word(Selector),
    /// A number in the frame compares so (`cmp`).
    Number {
        /// Where it stands.
        at: Spot,
        /// How many bytes it takes: 1, 2 or 4.
        size: u8,
        /// The bits that count.
        mask: u32,
        /// Whether the least significant byte comes first (`trans`).
        is_little_endian: bool,
        /// How it compares,
        relation: Relation,
        /// to what.
        value: u32,
    },
    /// These bytes stand in the frame (`nbyte`).
    Bytes {
        /// Where.
        at: Spot,
        /// What they are.
        bytes: Vec<u8>,
    },
    /// It is in a set (`ipset`). Sets are looked up in the driver, so no filter with one comes
    /// here: `narrows_policy` keeps them apart.
    Set(SetMatch),
    /// Something that is known of a packet compares so (`meta`).
    Meta {
        /// What is known.
        what: Meta,
        /// By how many bits it is shifted to the right.
        shift: u8,
        /// The bits that count then.
        mask: u32,
        /// How it compares,
        relation: Relation,
        /// to what.
        value: u32,
    },
}

/// What is looked up in a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetMatch {
    /// The set's name.
    pub set: Arc<str>,
    /// Whose address.
    pub address: End,
    /// Whose port, where the set has ports.
    pub port: Option<End>,
}

/// An end of a packet's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// A place in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// From where on it counts.
    pub layer: Layer,
    /// How many bytes further; below 0 is before.
    pub offset: i16,
}

/// Where a layer begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// With the Ethernet header.
    Link,
    /// Behind all tags.
    Network,
    /// Behind the IP header.
    Transport,
}

/// How two numbers compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// They are the same.
    Equal,
    /// The first is less.
    Less,
    /// The first is greater.
    Greater,
}

/// What is known of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meta {
    /// The mark.
    Mark,
    /// The length of its frame, Ethernet header included.
    Length,
    /// The EtherType behind all tags.
    Protocol,
    /// The VLAN's tag.
    Vlan,
    /// The class that an action has set.
    Priority,
}

impl Expression {
    pub(crate) fn matches(&self, subject: &Subject<'_>) -> bool {
        match self {
            Self::And(all) => all.iter().all(|one| one.matches(subject)),
            Self::Or(any) => any.iter().any(|one| one.matches(subject)),
            Self::Not(not) => !not.matches(subject),
            Self::Word(selector) => selector.matches(subject),
            Self::Number { at, size, mask, is_little_endian, relation, value } => {
                let size = usize::from((*size).min(4));
                let mut number = [0; 4];
                let Some(bytes) = at.bytes(subject).and_then(|bytes| bytes.get(..size)) else {
                    return false;
                };
                let number = if *is_little_endian {
                    number[..size].copy_from_slice(bytes);
                    u32::from_le_bytes(number)
                } else {
                    number[4 - size..].copy_from_slice(bytes);
                    u32::from_be_bytes(number)
                };
                // As in the kernel no mask at all is none.
                let mask = if *mask == 0 { u32::MAX } else { *mask };
                relation.holds(number & mask, *value)
            }
            Self::Bytes { at, bytes } => {
                at.bytes(subject).is_some_and(|frame| frame.starts_with(bytes))
            }
            Self::Set(_) => false,
            Self::Meta { what, shift, mask, relation, value } => {
                let Some(known) = what.of(subject) else { return false };
                let known = known.checked_shr(u32::from(*shift)).unwrap_or(0);
                let mask = if *mask == 0 { u32::MAX } else { *mask };
                relation.holds(known & mask, *value)
            }
        }
    }
}

impl Spot {
    /// The frame from here on.
    fn bytes<'a>(&self, subject: &Subject<'a>) -> Option<&'a [u8]> {
        subject.at(self.layer, self.offset)
    }
}

impl Relation {
    fn holds(self, one: u32, other: u32) -> bool {
        one.cmp(&other)
            == match self {
                Self::Equal => Ordering::Equal,
                Self::Less => Ordering::Less,
                Self::Greater => Ordering::Greater,
            }
    }
}

impl Meta {
    fn of(self, subject: &Subject<'_>) -> Option<u32> {
        let keys = subject.keys();
        match self {
            Self::Mark => Some(subject.mark()),
            Self::Length => u32::try_from(subject.len()).ok(),
            Self::Protocol => Some(u32::from(keys.ether_type)),
            Self::Vlan => {
                let id = keys.vlan_id?;
                Some(u32::from(keys.vlan_priority) << 13 | u32::from(id))
            }
            Self::Priority => Some(subject.priority),
        }
    }
}
