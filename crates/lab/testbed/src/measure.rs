//! The kernel's counters over time: rates, delays, CPU time, balances.

pub mod accounting;
pub(crate) mod arrivals;
pub mod capture;
pub mod counters;
pub mod cpu;
pub(crate) mod fullest;
pub(crate) mod listen;
pub mod machine;
pub mod spread;
pub mod together;
pub mod trial;
pub(crate) mod trips;
pub mod window;
