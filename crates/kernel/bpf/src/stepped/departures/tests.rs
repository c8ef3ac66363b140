//! Departures in virtual time.

mod bounds;
mod host;
mod one_limit;
mod tree;
