//! What becomes of a frame that a router or a switch gets, and how many of each there were.
//!
//! Non-goals: why ([`Router`](crate::Router), [`Switch`](crate::Switch)).

use crate::maps::sums_in;
use crate::named::named;
use libbpf_rs::MapHandle;
use std::ops::{AddAssign, Index};

// In the order of `enum outcome` of `programs/outcomes.h`.
named! {
    /// What became of a frame. All but [`Routed`](Self::Routed), [`ByFlow`](Self::ByFlow),
    /// [`Switched`](Self::Switched) and [`Blackhole`](Self::Blackhole) went to the kernel as they
    /// arrived.
    Outcome {
        /// It leaves through a port, where a route says.
        Routed "routed",
        /// To another MAC address: another's, multicast, broadcast.
        NotForUs "not_for_us",
        /// ARP, with several VLAN tags, and all else.
        NotIp "not_ip",
        /// Shorter than its headers say.
        Short "short",
        /// With options of IPv4, or with options for each hop of IPv6.
        Options "options",
        /// Its TTL or hop limit is used up.
        Ttl "ttl",
        /// With an address that no router forwards.
        Martian "martian",
        /// From an address of this box.
        OwnSource "own_source",
        /// Its source is not where it came from.
        BadSource "bad_source",
        /// For this box, or without a route.
        NotForwarded "not_forwarded",
        /// Its device does not forward.
        Disabled "disabled",
        /// Too long for its route, or for the port where it would leave.
        TooLong "too_long",
        /// The next hop's MAC address is not known.
        NoNeighbour "no_neighbour",
        /// It leaves through a device that is no port.
        OtherPort "other_port",
        /// A route says unreachable, or prohibited.
        Unreachable "unreachable",
        /// The route encapsulates, or the look-up has another answer.
        Unsupported "unsupported",
        /// Dropped: a route says so.
        Blackhole "blackhole",
        /// There is no room for metadata, or for a tag, in front of it.
        NoRoom "no_room",
        /// Nothing takes what leaves through that port.
        Nobody "nobody",
        /// It leaves through the port where its destination is.
        Switched "switched",
        /// To many: broadcast, multicast, protocols between bridges.
        Group "group",
        /// To an address of the bridge or of one of its ports.
        ForBox "for_box",
        /// Nobody knows where its destination is.
        Unknown "unknown",
        /// The bridge does not know its source yet.
        UnknownSource "unknown_source",
        /// Its source was at another port.
        Moved "moved",
        /// Its destination is where it came from.
        SamePort "same_port",
        /// One of the ports does not forward now: spanning tree, or no carrier.
        NotForwarding "not_forwarding",
        /// One of the ports is not in its VLAN.
        NotInVlan "not_in_vlan",
        /// Of a VLAN that is no interface of the router, of another protocol than the bridge's, or
        /// of VLAN 0.
        OtherTag "other_tag",
        /// Between ports that are isolated from each other.
        Isolated "isolated",
        /// One of the ports does more than to forward.
        Special "special",
        /// It leaves through a port, as a flow of the flowtable.
        ByFlow "by_flow",
        /// In no flow of the flowtable: a first packet, a fragment, neither TCP nor UDP.
        NoFlow "no_flow",
        /// SYN, FIN or RST of TCP: the kernel follows connections by it.
        Handshake "handshake",
        /// Its route is not its flow's.
        OtherWay "other_way",
    }
}

pub(crate) const OUTCOMES: usize = Outcome::ALL.len();

/// The frames of each outcome, on all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutcomeCounters(pub(crate) [u64; OUTCOMES]);

impl Default for OutcomeCounters {
    fn default() -> Self {
        Self([0; OUTCOMES])
    }
}

impl OutcomeCounters {
    /// From the frames of each outcome, in the order of [`Outcome::ALL`]. Missing ones are 0.
    pub fn of(words: &[u64]) -> Self {
        Self(std::array::from_fn(|outcome| words.get(outcome).copied().unwrap_or(0)))
    }

    /// The inverse of [`of`](Self::of).
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// Each outcome, and its frames.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> {
        Outcome::ALL.iter().copied().zip(self.0)
    }

    /// The frames that left through a port.
    pub fn left(&self) -> u64 {
        self[Outcome::Routed] + self[Outcome::ByFlow] + self[Outcome::Switched]
    }

    /// The frames that went to the kernel.
    pub fn passed(&self) -> u64 {
        let all: u64 = self.0.iter().sum();
        all - self.left() - self[Outcome::Blackhole]
    }

    /// Those in a program's `map`.
    pub(crate) fn read(map: &MapHandle) -> libbpf_rs::Result<Self> {
        let mut counters = Self::default();
        for (outcome, sum) in (0_u32..).zip(&mut counters.0) {
            [*sum] = sums_in(map, outcome)?;
        }
        Ok(counters)
    }

    /// The bytes of frames that left, in a program's `map`: they are behind the outcomes.
    pub(crate) fn read_bytes(map: &MapHandle) -> libbpf_rs::Result<u64> {
        let [bytes] = sums_in(map, OUTCOMES as u32)?;
        Ok(bytes)
    }
}

impl Index<Outcome> for OutcomeCounters {
    type Output = u64;

    fn index(&self, outcome: Outcome) -> &u64 {
        &self.0[outcome as usize]
    }
}

impl AddAssign for OutcomeCounters {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}
