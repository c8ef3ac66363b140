//! A policy on the queues of a port: the specifications for workers, what carries on, and how their
//! figures come back.

mod bands;
mod cake;
mod carry_on;
mod census;
mod follow;
mod htb;
mod netem;
mod pacing;
mod policies;
mod safeguard;
mod tree;
