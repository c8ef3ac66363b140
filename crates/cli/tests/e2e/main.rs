//! Narrows from end to end: real packets between network namespaces, through the program
//! as anyone would run it.
//!
//! Needs root and a few tools; without them each test prints `SKIPPED` with the reason. The
//! tests take turns, because they share the machine's cores, and a test of one would
//! disturb the measurements of another.
//!
//! What the bounds allow for: machines on which a thread may have to wait a tenth of a
//! second for its core. Where a number has to be exact (the books), it is; where it is a
//! rate or a time, the bound says what would be broken, not what is good. Exact rates are
//! `narrows demo`'s and the benchmarks' business.

mod bands;
mod cake;
mod changing;
mod chaos;
mod confinement;
mod failing;
mod forwarding;
mod frames;
mod front;
mod hanging;
mod htb;
mod idle;
mod instances;
mod limits;
mod nat;
mod netem;
mod offloads;
mod overlimits;
mod pacing;
mod planes;
mod policing;
mod ports;
mod reconfigure;
mod round_trips;
mod safeguard;
mod sets;
mod setup;
mod standby;
mod starting;
mod supervision;
mod upgrading;
mod views;
