//! What sends and receives: floods, TCP, pings, probes.

pub mod flood;
pub mod frames;
pub mod iperf;
pub mod pace;
pub mod ping;
pub mod probe;
pub mod raw;
pub mod replayed;
pub mod serve;
pub mod stream;
pub mod tcp;
pub mod unpack;
pub mod wrk;
