//! The format of messages between boxes.
//!
//! A message is a version byte and the encoding of [`Body`] (`postcard`). A box says each time
//! which incarnation of its agent speaks and what its clock shows; the name of the sender is the
//! transport's knowledge, not the message's. Rates are in bits per second, times in nanoseconds of
//! the sender's clock unless they are echoes.
//!
//! A message has at most [`BYTES_MAX`] bytes; what is longer is sent as several.

use crate::shares::Demand;
use compact_str::CompactString;
use serde::{Deserialize, Serialize};

/// The version of the format. Others are not understood, and say so.
const VERSION: u8 = 2;

/// The most bytes of a message.
pub const BYTES_MAX: usize = 60_000;

/// The most bytes of a limit's name.
pub const NAME_MAX: usize = 63;

/// How many facts, loans or returns a message may carry, so that it stays below [`BYTES_MAX`]: a
/// fact has at most 63 bytes of name, 14 numbers of at most 10, and a flag.
pub(crate) const ITEMS_MAX: usize = 280;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Message {
    /// The incarnation of the sender's agent. A later one has a larger number, as far as the wall
    /// clock can tell.
    pub incarnation: u64,
    /// What the sender's clock shows, for lenders to return.
    pub stamp: u64,
    /// The content.
    pub body: Body,
}

/// What a message carries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// To all: what the sender has to say about its limits.
    Report(Report),
    /// To one box: loans.
    Loans(Loans),
    /// To one box: whose shares does it claim?
    Question(Question),
    /// To the box that asked.
    Answer(Answer),
}

/// What a box tells all others.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The number of the report. A gap shows that one was lost.
    pub number: u64,
    /// The limits of which something changed.
    pub facts: Vec<Fact>,
    /// Limits that the sender no longer has.
    pub gone: Vec<CompactString>,
}

/// What a box says of one limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fact {
    /// Its name.
    pub name: CompactString,
    /// What it says.
    pub said: Said,
}

/// What a box says of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Said {
    /// What the box's policy has as the limit of all boxes.
    pub limit_bps: u64,
    /// The box's safe share.
    pub safe_bps: u64,
    /// What of it is the share of boxes that are off.
    pub claimed_bps: u64,
    /// Whether the box waits for its agent's word after a start, so that its share can be claimed.
    pub rejoins: bool,
    /// What is in force there.
    pub in_force_bps: u64,
    /// What was sent there, lately.
    pub sent_bps: u64,
    /// The demand there.
    pub demand: Demand,
}

/// Asks a box whose shares it claims ([`claims`](crate::claims)).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    /// The incarnation of the receiver to which this is said.
    pub to: u64,
    /// The number of the question.
    pub number: u64,
}

/// Answers a box's question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The incarnation of the receiver, which asked.
    pub to: u64,
    /// The number of the question.
    pub number: u64,
    /// The boxes whose shares the sender claims.
    pub claims: Vec<CompactString>,
}

/// What one box tells another about loans in both directions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Loans {
    /// The incarnation of the receiver to which this is said.
    pub to: u64,
    /// What the sender lends to the receiver.
    pub lend: Option<Lend>,
    /// What the sender has of the receiver's.
    pub held: Option<Held>,
    /// Whether the sender missed reports of the receiver, which should then repeat all facts.
    pub repeat: bool,
}

/// A lender's word to a borrower.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Lend {
    /// The lender's count of leases with this borrower. A new one voids all loans of the last.
    pub generation: u64,
    /// The newest stamp of the borrower's clock that the lender received. The lease begins there.
    pub echo: u64,
    /// Offers that the borrower has not confirmed, the oldest first, without a gap.
    pub offers: Vec<Offer>,
}

/// A loan: from this version on, the borrower has so much of a limit.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// The number of the offer in its generation, from 1 without a gap.
    pub version: u64,
    /// The limit's name.
    pub name: CompactString,
    /// How much.
    pub bps: u64,
}

/// A borrower's word to a lender.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Held {
    /// The incarnation of the lender whose loans these are.
    pub lender: u64,
    /// The generation of the loans.
    pub generation: u64,
    /// Offers up to this version are in force at the borrower.
    pub version: u64,
    /// Limits of which less than the offer is in force, and how much.
    pub returned: Vec<(CompactString, u64)>,
}

/// Why bytes are no message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// Nothing there.
    #[error("the message is empty")]
    Empty,
    /// Another version.
    #[error(
        "the message has version {0}, and this agent understands version {VERSION}; run the same release of narrows-fleet on all boxes"
    )]
    Version(u8),
    /// More bytes than any message has.
    #[error("the message has {0} bytes; the most is {BYTES_MAX}")]
    TooLong(usize),
    /// Not what the format says.
    #[error("the message is malformed")]
    Malformed,
    /// A name that no limit has.
    #[error("the message has a name of {0} bytes; names have 1 to {NAME_MAX}")]
    Name(usize),
    /// A sender that is no member.
    #[error("{0} is not a member of this fleet; add it to the members in fleet.toml, or stop it")]
    Stranger(String),
}

impl Message {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Nothing in a message can fail to be encoded: no maps, no unsized parts.
        postcard::to_extend(self, vec![VERSION]).unwrap_or_default()
    }

    /// The message that these bytes are.
    ///
    /// # Errors
    ///
    /// Says what is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (&version, rest) = bytes.split_first().ok_or(MessageError::Empty)?;
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        if bytes.len() > BYTES_MAX {
            return Err(MessageError::TooLong(bytes.len()));
        }
        let (message, left) =
            postcard::take_from_bytes::<Self>(rest).map_err(|_| MessageError::Malformed)?;
        if !left.is_empty() {
            return Err(MessageError::Malformed);
        }
        match &message.body {
            Body::Report(report) => {
                check_names(report.facts.iter().map(|fact| &fact.name).chain(&report.gone))?;
            }
            Body::Loans(loans) => {
                let offers = loans.lend.iter().flat_map(|lend| &lend.offers);
                let held = loans.held.iter().flat_map(|held| &held.returned);
                check_names(offers.map(|offer| &offer.name).chain(held.map(|(name, _)| name)))?;
            }
            Body::Question(_) => {}
            Body::Answer(answer) => check_names(answer.claims.iter())?,
        }
        Ok(message)
    }
}

/// Refuses a name that no limit has.
fn check_names<'a>(mut names: impl Iterator<Item = &'a CompactString>) -> Result<(), MessageError> {
    match names.find(|name| name.is_empty() || name.len() > NAME_MAX) {
        Some(name) => Err(MessageError::Name(name.len())),
        None => Ok(()),
    }
}
