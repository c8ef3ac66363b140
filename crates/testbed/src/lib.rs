//! Real traffic between real devices, on any Linux machine: three network namespaces
//! in a row, what sends and counts in them, and the two commands built on that.
//!
//! ```text
//!  nrw-cli-TAG              nrw-shp-TAG                  nrw-srv-TAG
//!  cli0 ══════════════ port-a   …   port-b ══════════════ srv0
//!  198.18.0.1   N queues  what is under test  N queues    198.18.0.2
//! ```
//!
//! The shaper's namespace is empty until a test puts a forwarder into it: Narrows
//! ([`narrows::Instance`]) or the kernel's own bridge ([`bridge`]). The client and
//! the server never know which.
//!
//! Principles:
//!
//! - *The kernel counts.* What was sent and what was delivered is read from the
//!   devices' counters at both ends, never from the code under test, and a rate is
//!   always a pair of counters over a pair of clock readings.
//! - *A length is a frame's length*: Ethernet header included, frame check sequence
//!   not, which is what a `veth` counts and what `tbf` charges without `overhead`.
//! - *Nothing outlives its owner.* A guard process removes the namespaces and stops
//!   what runs in them however the owner ends, `kill -9` included ([`guard`]).
//! - *Bounded.* Every generator has a rate and an end; traffic never leaves the
//!   namespaces.
//!
//! Non-goals: other topologies, other machines, performance at line rate. The
//! machine's cores are shared by sender, forwarder and receiver, so a comparison is
//! worth something only between rows of one run.

pub mod accounting;
pub mod accuracy;
pub mod attack;
pub mod background;
pub mod bed;
pub mod bridge;
pub mod capture;
pub mod chaos;
pub mod collect;
pub mod counters;
pub mod cpu;
pub mod demo;
pub mod flood;
pub mod forward;
pub mod frames;
pub mod guard;
pub mod hang;
pub mod interrupt;
pub mod iperf;
pub mod latency;
mod listen;
pub mod machine;
pub mod namespace;
pub mod narrows;
pub mod pace;
pub mod pacing;
pub mod ping;
pub mod policing;
pub mod probe;
pub mod process;
pub mod progress;
pub mod raw;
pub mod requirements;
mod rounds;
pub mod rrul;
pub mod spread;
pub mod stale;
pub mod steering;
pub mod stream;
mod table;
pub mod tcp;
pub mod translation;
pub mod tree;
pub mod trial;
pub mod uneven;
pub mod waking;
pub mod window;

pub use bed::Testbed;
pub use namespace::Namespace;
pub use rounds::Rounds;
