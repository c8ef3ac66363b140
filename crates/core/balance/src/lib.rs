//! Load balancing of layer 4, with `ipvsadm`'s words.
//!
//! A *service* is an address, a port and a protocol to which clients connect. Its *servers* answer.
//! [`Services`] holds both, executes the commands of `ipvsadm(8)`, one at a time or a whole
//! `ipvsadm-save` text, and makes a [`Ring`] for each service: the program in the driver looks up
//! in it which server a connection goes to.
//!
//! *Consistent hashing.* A ring is Maglev's look-up table. If a server comes or goes, few slots
//! change beside its own. A slot that changes remembers the server before, to which connections
//! from earlier times still go. So a connection is recorded only if its slot has changed, and
//! nothing is lost if packets arrive at another CPU, or at another balancer with equal services.
//!
//! *Principles.* No I/O and no clock. A command, and a text to restore, is executed whole or
//! changes nothing, and says what to type instead. The same servers make the same ring on any
//! machine.
//! *Non-goals.* Packets, next hops and counters: they are the program's. What a balancer cannot
//! know that does not see replies (`lc`, `wlc`, masquerading, the sync daemon): refused with the
//! reason.
//!
//! Source: `ipvsadm(8)` 1.31; D. Eisenbud et al., "Maglev" (NSDI 2016); J. Shirokov, "Katran"
//! (2018).

mod address;
mod command;
mod listing;
mod maglev;
mod quic;
mod ring;
mod service;
mod services;
mod text;
mod turns;

pub use listing::{ListedForward, ListedServer, ListedService, ListedTunnel};
pub use quic::QuicFormat;
pub use ring::{Ring, SLOTS, Slot};
pub use service::{
    Forward, Health, Protocol, Scheduler, Server, ServerId, Service, ServiceId, Tunnel,
};
pub use services::{
    Counts, Figures, Numbered, Reply, SERVERS_MAX, SERVICES_MAX, Seen, Services, ServicesState,
};
