//! One limit for many boxes: who should have how much of it, and loans that make it so.
//!
//! *The idea.* Of each shared limit every box owns a part, its safe share; the safe shares of all
//! boxes together are at most the limit. A box that needs less than its share lends what it does
//! not need to boxes that need more. What a box enforces is always its safe share, less what it
//! lent, plus what it borrowed. This is escrow (O'Neil, "The Escrow Transactional Method", 1986;
//! Barbará and Garcia-Molina, "The Demarcation Protocol", 1992) with leases (Gray and Cheriton,
//! 1989).
//!
//! *Why the sum never exceeds the limit.* A bit per second is in force at most once:
//! - A lender enforces the lower rate before it sends a loan, and counts a loan as lent until the
//!   borrower says that it enforces less, or until the lease is certainly over.
//! - A borrower enforces less before it says so.
//! - A lease counts from a time stamp of the borrower's clock, which the lender returns. The
//!   borrower's lease therefore began before the lender received the stamp, and ends before the
//!   lender counts it as ended. Only the speed of clocks matters: see [`CLOCK_DRIFT`].
//!
//! Nothing of this needs a leader, a quorum, a message that arrives, or two boxes that agree. A
//! message can be lost, late, doubled or reordered ([`borrower`] and [`lender`] say how).
//!
//! *Who should have how much* is computed by every box from the reports of all ([`shares`],
//! [`matching`]): weighted max–min of the demands, assured rates first, where a box weighs as much
//! as it has [`flows`]. Where boxes compute different shares, because a report is late, some of the
//! limit is unused for a moment.
//!
//! *A box that is off* keeps its share, unless an operator says so: then another box owns it
//! ([`claims`](Agent::forget)).
//!
//! *Layers.* `shares` and `matching` are functions. [`lender`] and [`borrower`] are the two ends of
//! the loans between two boxes. [`demand`] turns counters into demand. [`Agent`] composes them; it
//! does no input or output and reads no clock: its driver passes the time, the data plane's
//! answers and the messages.
//!
//! Non-goals: transport and authentication (the sender's name is taken from the transport), files,
//! enforcement.

mod agent;
pub mod borrower;
mod claims;
pub mod demand;
mod event;
pub mod flows;
pub mod lender;
mod limit;
pub mod matching;
pub mod message;
mod peer;
mod settings;
pub mod shares;
mod view;

pub use agent::{Agent, Outgoing};
pub use claims::{Claim, ForgetError};
pub use event::{Event, NotClaimed};
pub use message::MessageError;
pub use settings::{
    INTERVAL_MIN_NS, INTERVALS_PER_LEASE, LEASE_MAX_NS, Member, Settings, SettingsError,
};
