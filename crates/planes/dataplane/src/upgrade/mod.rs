//! A new binary takes over from a running one, with all queued packets.
//!
//! The running process, the *giver*, starts the new binary itself, so that it stays in the same
//! service, and passes on what must not be lost: frame memory, the AF_XDP sockets with the contents
//! of their rings, the links by which the XDP programs are attached (or the arrays of
//! [gates](crate::gates) with the connection to their keeper), the control socket; and, as
//! messages, what only it knows: policy, counters, queued packets, and up to when each limit is
//! used. The new one, the *heir*, maps the same memory and rings and continues where the giver
//! stopped.
//!
//! *Two phases.* First the heir prepares while the giver forwards: it speaks the same
//! [format](state::FORMAT), accepts the policy, loads its programs, maps frames and rings. Only
//! then the giver's workers stop between two steps, the giver describes its queues, and the heir
//! queues the packets. Up to here either side may fail, hang or be killed: the giver ends the heir
//! and its workers continue. The message `Go` is final: the giver never touches a ring again and
//! exits. If the heir ends after that, it fails open like any process.
//!
//! *No packet bypasses.* Between the two the giver's programs stay attached and put frames into the
//! RX rings, where they wait; the heir then replaces each program in its link at once.
//!
//! *Non-goals.* Upgrades to binaries with another [format](state::FORMAT): these need a restart. A
//! qdisc's state beside packets (CoDel, a pacer's flows, statistics) starts over, as when a qdisc
//! is replaced.

mod giver;
mod heir;
mod queued;
pub(crate) mod spent;
mod stage;
pub mod state;
mod upgrades;
mod wire;

pub(crate) use heir::Heir;
pub use queued::{Frame, Queued, WorkerQueued};
pub use spent::SpentClass;
pub(crate) use upgrades::{Upgrades, VERSION};
pub(crate) use wire::{Channel, Kind, Message};
