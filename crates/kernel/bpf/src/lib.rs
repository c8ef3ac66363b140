//! The kernel side: small C programs, each with a typed handle.
//!
//! A program is attached through a `bpf_link` that this process holds. When the process
//! ends, however it ends, the kernel closes the link and the program is gone: this is what
//! makes Narrows fail open.
//!
//! Where other XDP programs run on the same interface, in libxdp's dispatcher, a [`Place`] there
//! takes the part of the link; it fails open as well.
//!
//! Non-goals: pinning (a pinned program would outlive its workers and swallow the traffic).

mod attach;
mod balance;
mod chooser;
mod chunks;
mod egress;
mod egress_port;
mod front;
mod gate;
mod headers;
mod heartbeat;
mod load;
mod mapped;
mod maps;
mod named;
mod outcome;
mod own_address;
mod receive_on;
mod router;
mod routes;
mod sets;
mod slow_path;
mod steer;
#[cfg(feature = "stepped")]
pub mod stepped;
mod switch;
mod takers;
pub mod test_run;
mod to_ifb;
mod translation;
pub mod tree;
mod trips;
mod user_front;
#[cfg(test)]
mod verified;
mod vlans;

pub use attach::{AttachError, Entry, Hook, XdpMode, sends_redirected};
pub use balance::{
    BalanceError, BalanceTables, BalancedPort, Balancer, Fate, FateCounters, Fated, NextHop, Way,
};
pub use chooser::Chooser;
pub use egress_port::{EGRESS_PORT_BYTES, ROUTE_TAKEN_BYTES, egress_port, route_taken};
pub use front::{
    AccountKey, Accounts, COUNTERS_MAX, Counted, Does, Endpoint, Front, FrontMaps, FrontPort,
    LOOK_UPS_MAX, LookUp, Policer, SELECTORS_MAX, STEPS_MAX, Step, TERMS_MAX, Term, Then, Word,
};
pub use gate::{CannotOpen, GateError, Libxdp, PLACES, Place, Placed, place, remove};
pub use headers::{Field, Headers, carrier, has};
pub use heartbeat::{Heart, Heartbeats, Pulse};
pub use load::LoadError;
pub use outcome::{Outcome, OutcomeCounters};
pub use own_address::{OWN_IPS_MAX, OwnAddress, OwnIps};
pub use receive_on::ReceiveOnError;
pub use router::{
    AskFib, Asks, FibAnswer, Ingress, Interface, RoutedBy, Router, SourceCheck, VLANS_MAX,
};
pub use routes::{RouteTables, RoutesError};
pub use sets::{SetTables, SetsError};
pub use slow_path::{SlowPath, SlowPathCounters, SlowPathShare};
pub use steer::{Stalled, Steer, SteerError, Verdicts, Watchdog};
pub use switch::{Location, Member, STATIONS_MAX, Station, Switch, VlanMembers};
pub use takers::Takers;
pub use to_ifb::ToIfb;
pub use translation::{TRANSLATION_MAX, translation};
pub use trips::TripsBeyond;
pub use user_front::{Judged, UserFront, UserFrontError, Verdict};
pub use vlans::Vlans;
