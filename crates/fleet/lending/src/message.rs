//! The format of messages between boxes.
//!
//! A message is a version byte and the encoding of [`Body`] (`postcard`). A box says each time
//! which incarnation of its agent speaks and what its clock shows; the name of the sender is the
//! transport's knowledge, not the message's. Rates are in bits per second, times in nanoseconds of
//! the sender's clock unless they are echoes.
//!
//! A message has at most [`BYTES_MAX`] bytes; what is longer is sent as several.
//!
//! *Versions.* Version 3 is version 2 and, behind a report, the [`Flows`] of each fact as a number.
//! Agents that understand only version 2 refuse others. So an agent speaks version 2 until all that
//! it hears understand 3, and says in each report of version 2 that it does: as the name of a limit
//! that is gone, which is no name that a limit can have. An older agent passes over it, as over any
//! limit that it does not know.

use crate::flows::Flows;
use crate::shares::Demand;
use compact_str::CompactString;
use serde::{Deserialize, Serialize};

/// The version that all agents understand.
pub const VERSION: u8 = 2;

/// The version in which reports have flows. Later ones are not understood, and say so.
pub const VERSION_WITH_FLOWS: u8 = 3;

/// Among the limits that are gone, in a report of version 2: the sender understands version 3.
const UNDERSTANDS: &str = "version 3";

/// The most bytes of a message.
pub const BYTES_MAX: usize = 60_000;

/// The most bytes of a limit's name.
pub const NAME_MAX: usize = 63;

/// How many facts, loans or returns a message may carry, so that it stays below [`BYTES_MAX`]: a
/// fact has at most 63 bytes of name, 14 numbers of at most 10, one of at most 5, and a flag.
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
    /// The newest version that the sender is known to understand, by this message.
    #[serde(skip)]
    pub understands: u8,
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
    /// The flows there. Version 2 has none.
    #[serde(skip)]
    pub flows: Flows,
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
        "the message has version {0}, and this agent understands {VERSION} and {VERSION_WITH_FLOWS}; run the same release of narrows-fleet on all boxes"
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
    /// Its bytes, in version 2.
    pub fn encode(&self) -> Vec<u8> {
        match &self.body {
            Body::Report(report) if self.understands >= VERSION_WITH_FLOWS => {
                let mut report = report.clone();
                report.gone.push(CompactString::const_new(UNDERSTANDS));
                encoded(VERSION, &Self { body: Body::Report(report), ..self.clone() })
            }
            _ => encoded(VERSION, self),
        }
    }

    /// Its bytes with the flows of each fact, for agents that understand them.
    pub fn encode_with_flows(&self) -> Vec<u8> {
        let Body::Report(report) = &self.body else { return self.encode() };
        let flows = report.facts.iter().map(|fact| fact.said.flows.number());
        let flows: Vec<u32> = flows.collect();
        let bytes = encoded(VERSION_WITH_FLOWS, self);
        postcard::to_extend(&flows, bytes).unwrap_or_default()
    }

    /// The message that these bytes are.
    ///
    /// # Errors
    ///
    /// Says what is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (&version, rest) = bytes.split_first().ok_or(MessageError::Empty)?;
        if !matches!(version, VERSION | VERSION_WITH_FLOWS) {
            return Err(MessageError::Version(version));
        }
        if bytes.len() > BYTES_MAX {
            return Err(MessageError::TooLong(bytes.len()));
        }
        let (mut message, mut left) =
            postcard::take_from_bytes::<Self>(rest).map_err(|_| MessageError::Malformed)?;
        message.understands = version;
        if let Body::Report(report) = &mut message.body {
            if version == VERSION_WITH_FLOWS {
                left = take_flows(&mut report.facts, left)?;
            } else if let Some(at) = report.gone.iter().position(|name| name == UNDERSTANDS) {
                report.gone.remove(at);
                message.understands = VERSION_WITH_FLOWS;
            }
        } else if version != VERSION {
            return Err(MessageError::Malformed);
        }
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

fn encoded(version: u8, message: &Message) -> Vec<u8> {
    // Nothing in a message can fail to be encoded: no maps, no unsized parts.
    postcard::to_extend(message, vec![version]).unwrap_or_default()
}

/// Gives `facts` the flows in `bytes`, one number for each. Returns what is left.
fn take_flows<'a>(facts: &mut [Fact], bytes: &'a [u8]) -> Result<&'a [u8], MessageError> {
    let (flows, left) =
        postcard::take_from_bytes::<Vec<u32>>(bytes).map_err(|_| MessageError::Malformed)?;
    if flows.len() != facts.len() {
        return Err(MessageError::Malformed);
    }
    for (fact, number) in facts.iter_mut().zip(flows) {
        fact.said.flows = Flows::of_number(number);
    }
    Ok(left)
}

/// Refuses a name that no limit has.
fn check_names<'a>(mut names: impl Iterator<Item = &'a CompactString>) -> Result<(), MessageError> {
    match names.find(|name| name.is_empty() || name.len() > NAME_MAX) {
        Some(name) => Err(MessageError::Name(name.len())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::ONE_FLOW;
    use proptest::prelude::*;

    fn said(flows: Flows) -> Said {
        let demand = Demand::of(1, 70);
        Said {
            limit_bps: 100,
            safe_bps: 50,
            claimed_bps: 0,
            rejoins: false,
            in_force_bps: 50,
            sent_bps: 40,
            demand,
            flows,
        }
    }

    fn report(flows: &[Flows], gone: &[&str]) -> Message {
        let fact = |(number, flows): (usize, &Flows)| Fact {
            name: format!("line-{number}").into(),
            said: said(*flows),
        };
        let facts = flows.iter().enumerate().map(fact).collect();
        let gone = gone.iter().map(|&name| name.into()).collect();
        Message {
            incarnation: 7,
            stamp: 9,
            body: Body::Report(Report { number: 1, facts, gone }),
            understands: VERSION_WITH_FLOWS,
        }
    }

    /// As an agent of version 2 decodes it.
    mod second {
        use super::super::{Answer, CompactString, Demand, Deserialize, Loans, Question};

        #[derive(Debug, Deserialize)]
        pub struct Message {
            pub incarnation: u64,
            pub stamp: u64,
            pub body: Body,
        }

        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "only that it is decoded counts")]
        pub enum Body {
            Report(Report),
            Loans(Loans),
            Question(Question),
            Answer(Answer),
        }

        #[derive(Debug, Deserialize)]
        pub struct Report {
            pub number: u64,
            pub facts: Vec<Fact>,
            pub gone: Vec<CompactString>,
        }

        #[derive(Debug, Deserialize)]
        pub struct Fact {
            pub name: CompactString,
            pub said: Said,
        }

        #[derive(Debug, Deserialize)]
        pub struct Said {
            pub limit_bps: u64,
            pub safe_bps: u64,
            pub claimed_bps: u64,
            pub rejoins: bool,
            pub in_force_bps: u64,
            pub sent_bps: u64,
            pub demand: Demand,
        }
    }

    #[test]
    fn an_agent_of_version_2_understands_what_is_sent_until_all_understand_more() {
        let bytes = report(&[Flows::Counted(5 * ONE_FLOW)], &["old"]).encode();
        assert_eq!(bytes[0], 2);
        let (message, left) = postcard::take_from_bytes::<second::Message>(&bytes[1..]).unwrap();
        assert!(left.is_empty());
        assert_eq!((message.incarnation, message.stamp), (7, 9));
        let second::Body::Report(report) = message.body else { panic!("{message:?}") };
        assert_eq!(report.number, 1);
        let second::Fact { name, said } = &report.facts[0];
        assert_eq!((name.as_str(), said.limit_bps, said.safe_bps), ("line-0", 100, 50));
        assert_eq!((said.claimed_bps, said.rejoins, said.in_force_bps), (0, false, 50));
        assert_eq!((said.sent_bps, said.demand), (40, Demand::of(1, 70)));
        // It knows no limit of the last name, and passes over it.
        assert_eq!(report.gone, ["old", "version 3"]);
        assert!(check_names(report.gone.iter()).is_ok());
        assert_eq!(legal_name(UNDERSTANDS), None, "no limit has the name");
    }

    /// `word`, if a limit can have the name: letters, digits, `-`, `_` and `.`.
    fn legal_name(word: &str) -> Option<&str> {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        word.bytes().all(is_legal).then_some(word)
    }

    #[test]
    fn flows_are_in_version_3_only() {
        let all = report(&[Flows::Free, Flows::Unknown, Flows::Counted(40)], &["old"]);
        assert_eq!(Message::decode(&all.encode_with_flows()).as_ref(), Ok(&all));
        let none = report(&[Flows::Unknown; 3], &["old"]);
        assert_eq!(Message::decode(&all.encode()).as_ref(), Ok(&none));
        let from_older = Message { understands: VERSION, ..none };
        assert_eq!(Message::decode(&from_older.encode()).as_ref(), Ok(&from_older));
    }

    #[test]
    fn flows_that_do_not_fit_the_facts_are_malformed() {
        let bytes = report(&[Flows::Free, Flows::Free], &[]).encode_with_flows();
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Message::decode(&bytes[..bytes.len() - 1]), Err(MessageError::Malformed));
        assert_eq!(Message::decode(&longer), Err(MessageError::Malformed));
        let fewer = [&bytes[..bytes.len() - 3], &[1, 1]].concat();
        assert_eq!(Message::decode(&fewer), Err(MessageError::Malformed));
        let question = Body::Question(Question { to: 1, number: 1 });
        let message = Message { body: question, ..report(&[], &[]) };
        let other = [&[VERSION_WITH_FLOWS], &message.encode()[1..]].concat();
        assert_eq!(Message::decode(&other), Err(MessageError::Malformed));
        assert_eq!(Message::decode(&[4, 0, 0]), Err(MessageError::Version(4)));
    }

    proptest! {
        #[test]
        fn bytes_that_are_understood_are_encoded_to_the_same_meaning(
            version in prop_oneof![Just(VERSION), Just(VERSION_WITH_FLOWS), any::<u8>()],
            bytes in prop::collection::vec(prop_oneof![3 => 0..4_u8, 1 => any::<u8>()], 0..80),
        ) {
            let bytes = [&[version], &bytes[..]].concat();
            if let Ok(message) = Message::decode(&bytes) {
                let again = match message.understands {
                    VERSION => message.encode(),
                    _ => message.encode_with_flows(),
                };
                prop_assert_eq!(Message::decode(&again), Ok(message));
            }
        }
    }
}
