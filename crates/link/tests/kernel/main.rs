//! The crate against the kernel: real veth pairs and bridges in namespaces made for the
//! purpose. Needs root; each test says so and passes where it is not.

mod bed;
mod bridge;
mod doctor;
mod facts;
mod monitor;
mod pass_all;
