//! The filters of a program in front of a plane: what a packet must match, and what happens to it.
//! Plain data.

use crate::Headers;
use narrows_units::{Bytes, Nanos, Rate};

/// The most terms in a program: `TERMS_MAX` of `programs/front.bpf.c`.
pub const TERMS_MAX: usize = 32;
/// The most look-ups in a term: `LOOK_UPS_MAX` there.
pub const LOOK_UPS_MAX: usize = 4;
/// The most words of the frame in a term: `SELECTORS_MAX` there.
pub const SELECTORS_MAX: usize = 4;
/// The most steps in a term: `STEPS_MAX` there.
pub const STEPS_MAX: usize = 3;
/// The most actions with counters: `COUNTERS_MAX` of `programs/police.h`.
pub const COUNTERS_MAX: usize = 96;
/// Which of a packet's two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
}

/// A look-up in a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookUp {
    /// The set's number, below [`SETS_MAX`](narrows_sets::SETS_MAX).
    pub set: u16,
    /// Whose address is looked up.
    pub address: Endpoint,
    /// Whose port, if the set has ports.
    pub port: Option<Endpoint>,
    /// Whether the packet must not be in the set.
    pub is_negated: bool,
}

impl LookUp {
    /// `LOOK_UP`, `BY_DESTINATION` and `BY_DESTINATION_PORT` of `programs/sets.h`.
    pub(super) fn how(self) -> u8 {
        let by_destination = self.address == Endpoint::Destination;
        let by_destination_port = self.port == Some(Endpoint::Destination);
        1 | u8::from(by_destination) << 1 | u8::from(by_destination_port) << 2
    }
}

/// A comparison of four bytes of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Their value under the mask.
    pub value: u32,
    /// The bits that are compared.
    pub mask: u32,
    /// Their offset in bytes from the start of the network header.
    pub offset: i16,
    /// Whether the offset counts from the transport header instead.
    pub is_behind_ip: bool,
    /// Whether the network header is what is behind all tags, also where IP is in it.
    pub is_in_carrier: bool,
}

/// What happens to a packet next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It continues to the plane.
    Pass = 0,
    /// It is dropped.
    Drop = 1,
    /// The next filter applies.
    Continue = 2,
    /// The next step applies; after the last one, as `Pass`.
    Pipe = 3,
}

/// The key of an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccountKey {
    /// Each source: an IPv4 address, or the first 64 bits of an IPv6 address.
    Source = 1,
    /// Each destination's whole address.
    Destination = 2,
    /// Each flow: both addresses, protocol and ports.
    Flow = 3,
}

/// The accounts of a policer that limits each source, destination or flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accounts {
    /// Their key.
    pub key: AccountKey,
    /// How long a key that exceeds its rate is blocked; [`Nanos::ZERO`]: not at all.
    pub block: Nanos,
    /// The number of accounts; rounded up to a power of two.
    pub room: u32,
    /// How many keys without an account get one per second, and at once; not 0.
    pub newcomers: u32,
}

/// The limits within which packets conform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policer {
    /// Rate and burst.
    pub rate: Option<(Rate, Bytes)>,
    /// Packets per second and burst; not 0.
    pub packets: Option<(u64, u64)>,
    /// The longest packet in bytes; 0 for any.
    pub longest: u32,
    /// Overhead in bytes that is added to each packet.
    pub per_frame: i32,
    /// The least size that a packet counts as, in bytes.
    pub minimum: u32,
    /// The accounts; `None` for a single account that all packets share.
    pub accounts: Option<Accounts>,
}

/// The action of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Only decides what happens next.
    Decide,
    /// Polices. It needs a counter, whose number its accounts share.
    Police(Policer),
    /// Sets what later filters in the driver read, and a tree behind them.
    Edit {
        /// Bits of the mark, and which.
        mark: Option<(u32, u32)>,
        /// The priority: a class, its major number in the upper half, or a number below 16.
        priority: Option<u32>,
    },
}

/// A step of a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The action.
    pub does: Does,
    /// What happens next.
    pub then: Then,
    /// What happens next to a packet that does not conform.
    pub exceed: Then,
    /// The number of its counter, below [`COUNTERS_MAX`].
    pub counter: Option<u8>,
}

/// A filter: the packets that it matches, and what happens to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    /// The headers that it asks for.
    pub headers: Headers,
    /// The mark's value and mask.
    pub mark: Option<(u32, u32)>,
    /// Words of the frame; at most [`SELECTORS_MAX`].
    pub words: Vec<Word>,
    /// All must match; at most [`LOOK_UPS_MAX`].
    pub look_ups: Vec<LookUp>,
    /// The actions; at most [`STEPS_MAX`].
    pub steps: Vec<Step>,
    /// Whether the next term is an alternative of the same filter. The last one's steps apply.
    pub has_more: bool,
}

impl Term {
    /// A term without conditions and actions.
    pub fn any() -> Self {
        Self {
            headers: Headers::default(),
            mark: None,
            words: Vec::new(),
            look_ups: Vec::new(),
            steps: Vec::new(),
            has_more: false,
        }
    }

    /// Whether a condition or key needs the transport header.
    pub(super) fn reads_transport(&self) -> bool {
        let of_flows = |step: &Step| match step.does {
            Does::Police(Policer { accounts: Some(accounts), .. }) => {
                accounts.key == AccountKey::Flow
            }
            _ => false,
        };
        self.headers.ask_for_transport()
            || self.words.iter().any(|word| word.is_behind_ip)
            || self.look_ups.iter().any(|look_up| look_up.port.is_some())
            || self.steps.iter().any(of_flows)
    }

    /// Whether it sets anything.
    pub(super) fn edits(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.does, Does::Edit { .. }))
    }

    /// The accounts of its policers, with the numbers of their counters.
    pub(super) fn accounts(&self) -> impl Iterator<Item = (u8, Accounts)> {
        self.steps.iter().filter_map(|step| match step.does {
            Does::Police(Policer { accounts: Some(accounts), .. }) => {
                Some((step.counter?, accounts))
            }
            _ => None,
        })
    }
}
