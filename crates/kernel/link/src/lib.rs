//! Network interfaces: everything that Narrows reads from them and changes on them, except AF_XDP
//! itself.
//!
//! A shaper depends on facts that are easily overlooked: how many queues a port really uses,
//! whether an offload rewrites what XDP sees, whether anything forwards when the process is gone.
//! This crate reads them ([`Link`]), notices changes ([`LinkMonitor`]), makes the few changes that
//! the data plane needs ([`set_up`], [`promiscuous`], [`bridge`], [`stick`], [`Features`]) and
//! judges them ([`doctor`]). For a router it reads what the kernel does besides looking up routes
//! ([`routing`], [`netfilter`]), and has the kernel confirm stale neighbours ([`neighbours`]).
//! Below a port whose packets have departure times it has the kernel hold them ([`fq`]).
//!
//! Principles:
//!
//! * **Everything concerns the network namespace of the calling thread.** All facts come over
//!   netlink and ethtool sockets, which belong to it. `/sys/class/net` belongs to the namespace in
//!   which it was mounted and is never read.
//! * **Synchronous**: one request, its answers, done. No runtime, no permanent threads.
//! * **Facts and judgement are separate**: facts are plain data, and a judgement is a pure function
//!   of them.
//! * A change that fails leaves nothing half-applied and says what to type instead.
//!
//! Non-goals: configuring addresses that the kernel did not choose itself ([`Automatic`]), or
//! routes; changing queues, rings or MTUs, which interrupts traffic and is the operator's decision
//! ([`doctor`] names the command).

mod address;
mod automatic;
pub mod bridge;
mod buffer;
mod changes;
mod channels;
pub mod clsact;
mod device;
pub mod doctor;
mod error;
mod ethtool;
pub mod fq;
pub mod ifb;
mod ipsec;
mod link;
mod monitor;
pub mod namespaces;
pub mod neighbours;
pub mod netfilter;
mod netlink;
mod offload;
pub mod packet_socket;
mod peer;
mod promiscuous;
pub mod routes;
pub mod routing;
mod status;
pub mod stick;
pub mod switch;
pub mod switching;
mod sys;
mod traffic_control;
pub mod vlan;
pub mod ways;

pub use address::{Address, WayIn, is_addressed, is_reached_elsewhere, local_addresses};
pub use automatic::Automatic;
pub use buffer::{Buffer, Receiver};
pub use device::{Device, DeviceLosses};
pub use error::LinkError;
pub use ethtool::{Driver, Offloads, QueueCounts, Rings};
pub use link::{Link, set_up};
pub use monitor::{LinkEvent, LinkMonitor, Snapshot};
pub use offload::{Features, Harm, Offload};
pub use peer::{Peer, PeerInside, veth_end};
pub use promiscuous::{Promiscuous, promiscuous};
pub use status::{BridgeSettings, LinkStatus, OperState, PeerId, Queues, XdpMode, XdpProgram};
