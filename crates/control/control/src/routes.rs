//! What an instance that routes tells of the kernel's routes.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteRequest {
    /// The way of a packet.
    Get {
        /// Its destination.
        to: IpAddr,
        /// Its source, and the port where it arrives; none for a packet of this host.
        from: Option<(IpAddr, String)>,
    },
    /// How the table of routes is.
    Stats,
}

/// The way of a packet, as three say it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RouteFound {
    /// The table that programs look into first.
    pub table: RouteWay,
    /// The kernel's look-up for programs, which they ask where the table says nothing.
    pub helper: RouteWay,
    /// The kernel itself: `ip route get`.
    pub kernel: RouteWay,
    /// Whether none of them contradicts another one.
    pub agree: bool,
}

/// A way.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RouteWay {
    /// The interface through which a packet leaves; none if it does not, or another has to be
    /// asked.
    pub dev: Option<String>,
    /// The gateway; the destination itself on a link. None if it is not told.
    pub via: Option<IpAddr>,
    /// The MAC address to which it goes; none if it is not told.
    pub lladdr: Option<String>,
    /// If it does not leave: what becomes of it, or who is asked, and why.
    pub says: Option<String>,
}

/// How the table of routes is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RouteStats {
    /// The families: `inet`, `inet6`.
    pub families: Vec<FamilyStats>,
    /// The next hops, each once.
    pub next_hops: usize,
}

/// How the table of one family is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FamilyStats {
    /// `inet` or `inet6`.
    pub family: String,
    /// How many prefixes it has, with hosts on links.
    pub prefixes: usize,
    /// The memory that programs look into, in bytes.
    pub bytes: usize,
    /// Whether programs look into it. If not, they ask the kernel.
    pub in_use: bool,
}
