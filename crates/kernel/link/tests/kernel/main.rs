//! The crate against the kernel: real veth pairs and bridges in namespaces of their own. Needs
//! root; without it each test says so and passes.

mod bed;
mod bridge;
mod doctor;
mod facts;
mod fq;
mod ifb;
mod monitor;
mod neighbours;
mod netfilter;
mod packet_socket;
mod pass_all;
mod routing;
mod stick;
mod switch;
