//! Real traffic between real devices, on any Linux machine: three network namespaces
//! in a row, what sends and counts in them, and the measurements built on that.
//!
//! ```text
//!  nrw-cli-TAG              nrw-shp-TAG                  nrw-srv-TAG
//!  cli0 ══════════════ port-a   …   port-b ══════════════ srv0
//!  198.18.0.1   N queues  what is under test  N queues    198.18.0.2
//! ```
//!
//! There are three other testbeds. The [`diamond`] has four routers between two hosts, and two
//! paths; a [`web`]site a client, a balancer, and servers; a [`fleet`] agents and their servers.
//!
//! Four rooms hold what measurements share: `network` has the namespaces, `traffic` the senders and
//! receivers in them, `measure` the kernel's counters, and `harness` runs the measurements. Each
//! other module is a measurement, and a command of the program.
//!
//! The shaper's namespace is empty until a test puts a forwarder into it: Narrows
//! ([`narrows::Instance`]) or the kernel's own bridge ([`bridge`]). The client and
//! the server never know which.
//!
//! Principles:
//!
//! - *The kernel counts.* The sent and the delivered load are read from the devices' counters at
//!   both ends, never from the code under test, and a rate is always a pair of counters over a pair
//!   of clock readings.
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

pub mod accuracy;
pub mod attack;
pub mod balancing;
pub mod chaos;
pub mod control;
pub mod demo;
pub mod distance;
pub mod forward;
mod harness;
pub mod latency;
mod measure;
mod network;
pub mod own_traffic;
pub mod pacing;
pub mod policing;
pub mod replay;
pub mod routing;
pub mod rrul;
pub mod sharing;
pub mod streams;
pub mod switching;
mod traffic;
pub mod tree;
pub mod uneven;
pub mod verdicts;
pub mod waking;

pub use harness::rounds::Rounds;
pub use harness::{background, collect, hang, interrupt, narrows, process, progress};
pub use measure::{accounting, capture, counters, cpu, machine, spread, together, trial, window};
pub use network::bed::Testbed;
pub use network::namespace::Namespace;
pub use network::{
    bed, bird, bridge, diamond, fleet, guard, namespace, nginx, receiving, requirements, stale,
    steering, translation, web, wires,
};
pub use traffic::{
    flood, frames, iperf, pace, ping, probe, raw, replayed, serve, stream, tcp, unpack, wrk,
};

use harness::{delays_plot, hogs, plot, table};
use measure::{arrivals, listen, trips};
use network::folder;
