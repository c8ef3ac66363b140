//! `basic`: comparisons, joined by `and`, `or` and `not`.
//!
//! As in the kernel, a comparison with a field that the packet does not have is false, and `not`
//! makes it true.
//!
//! Source: `tc-ematch(8)`, `net/sched/em_cmp.c`, `em_nbyte.c`, `em_u32.c`, `em_meta.c`.

use crate::{Network, Selector, Subject};
use std::cmp::Ordering;
use std::sync::Arc;

/// How deep parentheses may nest.
pub const EXPRESSION_DEPTH_MAX: usize = 16;

/// A condition on a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expression {
    /// All of these hold.
    And(Vec<Expression>),
    /// At least one of these holds.
    Or(Vec<Expression>),
    /// This does not hold.
    Not(Box<Expression>),
    /// Four bytes have a value (`u32`).
    Word(Selector),
    /// A number in the frame satisfies a comparison (`cmp`).
    Number {
        /// Its position.
        at: Spot,
        /// Its size in bytes: 1, 2 or 4.
        size: u8,
        /// The bits that are compared.
        mask: u32,
        /// Whether the least significant byte comes first (`trans`).
        is_little_endian: bool,
        /// The comparison.
        relation: Relation,
        /// The right-hand side.
        value: u32,
    },
    /// The frame contains these bytes (`nbyte`).
    Bytes {
        /// Their position.
        at: Spot,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The packet is in a set (`ipset`). Sets are looked up in the driver, so the classifier never
    /// sees such a filter: `narrows_policy` keeps them apart.
    Set(SetMatch),
    /// Metadata of the packet satisfies a comparison (`meta`).
    Meta {
        /// Which metadata.
        what: Meta,
        /// By how many bits the value is shifted right.
        shift: u8,
        /// The bits that are compared after the shift.
        mask: u32,
        /// The comparison.
        relation: Relation,
        /// The right-hand side.
        value: u32,
    },
}

/// A look-up in a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetMatch {
    /// The set's name.
    pub set: Arc<str>,
    /// Which of the packet's addresses.
    pub address: End,
    /// Which of its ports, if the set has ports.
    pub port: Option<End>,
}

/// Source or destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// A position in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The layer that the offset is relative to.
    pub layer: Layer,
    /// The offset in bytes; negative values point before the layer.
    pub offset: i16,
}

/// Where a layer begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// At the Ethernet header.
    Link,
    /// At the IP header, or after all VLAN tags ([`Network`](crate::Network)).
    Network,
    /// After the IP header.
    Transport,
}

/// A comparison of two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// Equal.
    Equal,
    /// Less than.
    Less,
    /// Greater than.
    Greater,
}

/// Metadata of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meta {
    /// The mark.
    Mark,
    /// The length of its frame, Ethernet header included.
    Length,
    /// The EtherType after all tags.
    Protocol,
    /// The outer VLAN tag.
    Vlan,
    /// The class that an action has set.
    Priority,
}

impl Expression {
    pub(crate) fn matches(&self, subject: &Subject<'_>, network: Network) -> bool {
        match self {
            Self::And(all) => all.iter().all(|one| one.matches(subject, network)),
            Self::Or(any) => any.iter().any(|one| one.matches(subject, network)),
            Self::Not(not) => !not.matches(subject, network),
            Self::Word(selector) => selector.matches(subject, network),
            Self::Number { at, size, mask, is_little_endian, relation, value } => {
                let size = usize::from((*size).min(4));
                let mut number = [0; 4];
                let Some(bytes) = at.bytes(subject, network).and_then(|bytes| bytes.get(..size))
                else {
                    return false;
                };
                let number = if *is_little_endian {
                    number[..size].copy_from_slice(bytes);
                    u32::from_le_bytes(number)
                } else {
                    number[4 - size..].copy_from_slice(bytes);
                    u32::from_be_bytes(number)
                };
                // As in the kernel, a mask of 0 means all bits.
                let mask = if *mask == 0 { u32::MAX } else { *mask };
                relation.holds(number & mask, *value)
            }
            Self::Bytes { at, bytes } => {
                at.bytes(subject, network).is_some_and(|frame| frame.starts_with(bytes))
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
    /// The frame from this position on.
    fn bytes<'a>(&self, subject: &Subject<'a>, network: Network) -> Option<&'a [u8]> {
        subject.at(self.layer, self.offset, network)
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
                let tag = keys.tag?;
                Some(u32::from(tag.priority) << 13 | u32::from(tag.id))
            }
            Self::Priority => Some(subject.priority),
        }
    }
}
