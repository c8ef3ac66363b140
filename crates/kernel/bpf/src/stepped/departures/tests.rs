//! Departures in virtual time.

mod bounds;
mod host;
mod one_limit;
mod oversold;
mod tree;
