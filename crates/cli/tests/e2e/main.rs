//! Narrows from end to end: real packets between network namespaces, through the program as users
//! run it.
//!
//! Needs root and a few tools; without them each test prints `SKIPPED` with the reason. The tests
//! take turns, because they share the machine's cores: a few at once, and those that measure apart
//! from those that count.
//!
//! The bounds allow for machines on which a thread may wait a tenth of a second for its core. A
//! number that must be exact (packet conservation) is checked exactly. For a rate or a time, the
//! bound detects defects; it is not a target. `narrows demo` and the benchmarks measure exact
//! rates.

mod autorate;
mod balance;
mod balance_local;
mod balance_mtu;
mod balance_ports;
mod balance_quic;
mod balance_rates;
mod balance_takeover;
mod balance_web;
mod bands;
mod bird;
mod by_route;
mod cake;
mod changing;
mod chaos;
mod cni;
mod confinement;
mod control;
mod crowding;
mod descriptors;
mod directory_api;
mod escaping;
mod failing;
mod fleet;
mod fleet_agents;
mod fleet_boxes;
mod fleet_distance;
mod fleet_forget;
mod fleet_tcp;
mod flowvalve;
mod forwarding;
mod frames;
mod front;
mod hanging;
mod health;
mod hfsc;
mod host_ifb;
mod host_patterns;
mod host_plane;
mod host_port;
mod htb;
mod idle;
mod importing;
mod instances;
mod limits;
mod member_rates;
mod merged;
mod nat;
mod netem;
mod offloads;
mod openwrt;
mod overlimits;
mod pacing;
mod planes;
mod policing;
mod ports;
mod reachability;
mod reconfigure;
mod redirects;
mod round_trips;
mod router;
mod safeguard;
mod sessions;
mod sets;
mod setting_up;
mod setup;
mod slow_path;
mod stalls;
mod standby;
mod starting;
mod stick;
mod subscribers;
mod supervision;
mod switch;
mod tools;
mod upgrading;
mod user_front;
mod views;
