//! A fleet in virtual time: the agents' own code over a network that loses, doubles, delays and
//! reorders, with clocks that disagree, and processes that stop, hang and start again.
//!
//! *The idea.* What is to be shown of a fleet (the sum of what is in force never exceeds the limit)
//! is a statement about all boxes at one moment, which no box can see. Here is the one who can. It
//! adds up what is in force whenever something changes, in true time, which no agent knows.
//!
//! *What is real*: [`narrows_lending::Agent`], whole, and what the data plane has in force at a
//! time ([`narrows_shares::Shares`]). *What is modelled*: its counters and traffic, as a fluid
//! ([`data_plane`]); the network, by one delay for each message ([`network`]).
//!
//! Everything comes from a seed: the same settings give the same history to the last bit.
//!
//! Non-goals: packets and TCP (the rest of the simulator has them), the transport's own behaviour.

mod data_plane;
mod network;
mod world;

pub use narrows_lending::{INTERVAL_MIN_NS, INTERVALS_PER_LEASE, LEASE_MAX_NS};
pub use network::Network;
pub use world::{BoxId, Fault, Outcome, Place, Settings, World};
