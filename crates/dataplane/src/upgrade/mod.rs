//! A new binary takes over from a running one, with all that is queued.
//!
//! The running process, the *giver*, starts the new binary itself, so that it stays in the same
//! service, and passes on what must not be lost: the memory of the frames, the AF_XDP sockets
//! with what stands in their rings, the links by which the XDP programs are attached, the control
//! socket; and in words what only it knows: policy, counters, the packets that are queued, and up
//! to when each limit has been used up. The new one, the *heir*, maps the same memory and rings
//! and goes on where the giver stopped.
//!
//! *Two phases.* First the heir proves itself while the giver goes on forwarding: it speaks the
//! same [format](state::FORMAT), takes the policy, loads its programs, maps frames and rings.
//! Only then the giver's workers stop between two steps, the giver says what is
//! queued, and the heir queues it. Up to here either side may fail, hang or be killed: the giver
//! ends the heir and its workers go on as if nothing had happened. With the message `Go` it is
//! done: the giver never touches a ring again and ends. A heir that ends after that is what
//! the end of the process always was: fail-open.
//!
//! *Nothing bypasses.* Between the two the giver's programs are attached and lead frames into the
//! RX rings, where they wait; the heir then replaces each program in its link at once.
//!
//! *Non-goals.* Upgrades to binaries with another [format](state::FORMAT): these are restarts.
//! What a qdisc remembers beside packets (CoDel's state, what a pacer knows of flows, its figures)
//! begins anew, as when a qdisc is replaced.

mod giver;
mod heir;
mod queued;
pub mod state;
mod status;
mod upgrades;
mod wire;

pub(crate) use heir::Heir;
pub use queued::{Frame, Queued, WorkerQueued};
pub use status::UpgradeStatus;
pub(crate) use upgrades::{Upgrades, VERSION, calm_down, hurry};
