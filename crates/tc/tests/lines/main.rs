//! The library from outside, without a kernel: what lines do, print and refuse.

mod cake;
mod cake_samples;
mod commands;
mod fq;
mod host;
mod htb;
mod listing;
mod offline;
mod pacing;
mod properties;
mod route;
mod save;
