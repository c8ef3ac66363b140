//! Who is online: RADIUS sessions and DHCP leases as subscribers of a directory.
//!
//! *Idea.* A NAS reports each session to an accounting server, and a DHCP server keeps each lease
//! in a file. Both say who has which address, and RADIUS also says how fast it is.
//! [`radius::Sessions`] and [`leases::Leases`] keep what was said, and tell which subscribers
//! changed.
//!
//! *Principles.* No socket, no clock: datagrams, lines and `now` are arguments, and what changed is
//! taken when the caller has time for it. So thousands of changes become one. Everything that a
//! stranger chooses is bounded: lengths, counts, rates, prefixes.
//!
//! *Non-goals.* Authentication (Access-Request), accounting of bytes for bills, a DHCP server.

mod config_file;
mod duration;
mod hardware;
pub mod leases;
mod prefix;
pub mod radius;
