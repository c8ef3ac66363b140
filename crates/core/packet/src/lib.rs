//! Packets as the shaper sees them: small handles, with their metadata in a table.
//!
//! A packet is a [`PacketId`], an index into the worker's own [`Packets`] table. In the data plane,
//! the id is the index of the frame in the worker's part of the UMEM, so a packet costs no
//! allocation and its payload is never touched. The simulator and the tests choose ids freely.
//! Queues are intrusive ([`Fifo`]): a packet is in at most one of them, linked through its own
//! metadata. So no queue owns memory, and thousands of them cost nothing while empty.
//!
//! *Conservation starts here.* A packet is dropped with [`Packets::discard`] and a [`DropReason`];
//! the owner of the table collects the frames with [`Packets::reclaim`] and reads the counters.
//! There is no other way to lose a packet.
//!
//! Non-goals: payload, frame memory, fragments of jumbo frames (the data plane keeps those),
//! sharing between threads: a table belongs to one worker.

mod batch;
mod copies;
pub mod dissect;
mod drop_reason;
mod fifo;
mod headers;
mod paces;
mod packets;
mod route_taken;
mod sizes;
mod stack;

pub use batch::Batch;
pub use copies::SPARES_MAX;
pub use drop_reason::{DropCounters, DropReason};
pub use fifo::{Backlog, Fifo};
pub use headers::{Acknowledgement, Ecn, Headers, Reading, Rewrite};
pub use paces::{Pace, PaceId, Paces};
pub use packets::{Bytes32, INNER_LEVELS, Meta, PacketId, Packets};
pub use route_taken::RouteTaken;
pub use sizes::Turnover;
pub use stack::Stack;
