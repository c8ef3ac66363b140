//! A new binary takes over from a running one, with all queued packets.
//!
//! The running process, the *old process*, starts the new binary itself, so that it stays in the
//! same service, and passes on what must not be lost: frame memory, the AF_XDP sockets with the
//! contents of their rings, the links by which the XDP programs are attached (or the arrays of
//! [gates](crate::gates) with the connection to their keeper), the control socket; and, as
//! messages, what only it knows: policy, counters, queued packets, and up to when each limit is
//! used. The *new process* maps the same memory and rings and continues where the old process
//! stopped.
//!
//! *Two phases.* First the new process prepares while the old process forwards: it speaks the same
//! [format](state::FORMAT), accepts the policy, loads its programs, maps frames and rings. Only
//! then the old process's workers stop between two steps, the old process describes its queues, and
//! the new process queues the packets. Up to here either side may fail, hang or be killed: the old
//! process ends the new process and its workers continue. The message `Go` is final: the old
//! process never touches a ring again and exits. If the new process ends after that, it fails open
//! like any process.
//!
//! *No packet bypasses.* Between the two the old process's programs stay attached and put frames
//! into the RX rings, where they wait; the new process then replaces each program in its link at
//! once.
//!
//! *Non-goals.* Upgrades to binaries with another [format](state::FORMAT): these need a restart. A
//! qdisc's state beside packets (CoDel, a pacer's flows, statistics) starts over, as when a qdisc
//! is replaced.

mod binary;
mod new_process;
mod old_process;
mod queued;
pub(crate) mod spent;
mod stage;
pub mod state;
mod wire;

pub(crate) use new_process::NewProcess;
pub(crate) use old_process::{Origin, Outcome, Upgrade};
pub use queued::{Frame, Queued, WorkerQueued};
pub use spent::SpentClass;
pub(crate) use wire::{Channel, Kind, Message};
