//! Departures in virtual time.

mod bounds;
mod host;
mod hosts;
mod one_limit;
mod oversold;
mod tree;
