//! The instance's side of the control socket: [`narrows_control`] has the protocol.
//!
//! *A batch runs whole or not at all.* It begins when all of it has arrived. From then on it does
//! not depend on its client or on any other.
//!
//! `place` decides which instance owns a socket; `server` serves clients; `outbox` is what one of
//! them has not read.
//!
//! Non-goals: what a request does to the instance ([`crate::work`]).

mod outbox;
mod place;
mod server;

pub use place::PlaceError;
pub(crate) use place::{ADDRESSES, OFFLOADS, record};
pub(crate) use server::{CLIENTS_MAX, ControlServer, Step, Task, line};

#[cfg(test)]
mod tests;
