//! The networks around a router, and its routes: two networks where the ends are, one beside the
//! server's, and two behind them, to which the frames of a run go.
//!
//! ```text
//!   198.18.8.0/24 ─ client 198.18.1.2 ══ port-a │ port-b ══ 198.18.2.2 server ─ 198.18.9.0/24
//!                                               │ port-c ══ 198.18.3.2 server
//! ```
//!
//! What goes forth has one of several next hops, each with a MAC address of its own, in which
//! nothing answers. So a frame shows by which route it was sent. It must be one that was in force
//! when it was routed: at most so much later than it was sent as a frame is on its way, and at most
//! so much earlier as Narrows takes to follow the kernel.
//!
//! Non-goals: routing daemons (`narrows demo router` has them), IPv6, networks that change.

use super::fault::NOISE;
use super::frame::{Path, Way};
use super::sender::now;
use super::traffic::Received;
use crate::bed::{
    CLIENT_MAC, End, OFFLOADS, PORT_A, PORT_B, SERVER_MAC, SINK_MAC, Testbed, batch, written,
};
use crate::counters::{Counters, Counts};
use anyhow::Result;
use narrows_units::Nanos;
use std::net::Ipv4Addr;

/// The third port, and the device of the server behind it.
pub(super) const PORT_C: &str = "port-c";
const ASIDE: &str = "srv1";
/// The MAC addresses of the other next hops.
const MOVED_MAC: [u8; 6] = [0x02, b'n', b'r', b'w', 0, 4];
const ASIDE_MAC: [u8; 6] = [0x02, b'n', b'r', b'w', 0, 5];
/// The addresses between which frames go.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 8, 8), Ipv4Addr::new(198, 18, 9, 9)];
/// How late a frame may be routed after it was sent, and how late Narrows may follow a change: the
/// machine may have no core for it.
const LATE: Nanos = Nanos(NOISE.as_nanos() as u64);

/// Where what goes forth leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// Through port B, as usual.
    Usual,
    /// The same next hop with another MAC address.
    Moved,
    /// Through port C.
    Aside,
    /// Nowhere.
    Blackhole,
}

impl Hop {
    /// The last byte of the MAC address to which frames go there.
    const fn mark(self) -> Option<u8> {
        match self {
            Self::Usual => Some(SINK_MAC[5]),
            Self::Moved => Some(MOVED_MAC[5]),
            Self::Aside => Some(ASIDE_MAC[5]),
            Self::Blackhole => None,
        }
    }

    /// The lines of `ip` that lead there. Neighbours are permanent, so that nothing asks for them.
    fn lines(self) -> String {
        let [usual, moved, aside] = [SINK_MAC, MOVED_MAC, ASIDE_MAC].map(written);
        let neighbour = |mac: &str| {
            format!("neigh replace 198.18.2.2 lladdr {mac} dev {PORT_B} nud permanent\n")
        };
        let through_b = format!("route replace 198.18.9.0/24 via 198.18.2.2 dev {PORT_B}\n");
        match self {
            Self::Usual => neighbour(&usual) + &through_b,
            Self::Moved => neighbour(&moved) + &through_b,
            Self::Aside => format!(
                "neigh replace 198.18.3.2 lladdr {aside} dev {PORT_C} nud permanent\n\
                 route replace 198.18.9.0/24 via 198.18.3.2 dev {PORT_C}\n"
            ),
            Self::Blackhole => "route replace blackhole 198.18.9.0/24\n".to_owned(),
        }
    }
}

/// Since when a next hop is in force: the change began and was over.
#[derive(Clone, Copy, Debug)]
struct Change {
    began: Nanos,
    over: Nanos,
    to: Hop,
}

/// The networks of a router.
pub(super) struct Routes<'a> {
    bed: &'a Testbed,
    paths: [Path; 2],
    aside: [Counters; 2],
    /// The last ones, the present one last.
    changes: Vec<Change>,
}

impl<'a> Routes<'a> {
    /// Makes `bed` one of routed networks, with a third port.
    pub(super) fn up(bed: &'a Testbed) -> Result<Self> {
        let (shaper, server, queues) = (bed.shaper(), bed.server(), bed.queues());
        let queues = format!("numtxqueues {queues} numrxqueues {queues}");
        batch(
            &["-n", shaper.name()],
            &format!(
                "link add {PORT_C} {queues} type veth peer name {ASIDE} netns {} {queues}\n\
                 link set {PORT_C} up\n\
                 addr add 198.18.1.1/24 dev {PORT_A}\n\
                 addr add 198.18.2.1/24 dev {PORT_B}\n\
                 addr add 198.18.3.1/24 dev {PORT_C}\n",
                server.name()
            ),
        )?;
        batch(&["-n", server.name()], &format!("link set {ASIDE} up\n"))?;
        for (namespace, device) in [(shaper, PORT_C), (server, ASIDE)] {
            namespace.run("ethtool", &[&["-K", device], &OFFLOADS[..]].concat())?;
        }
        shaper.set("ipv4/ip_forward", "1")?;
        let port_macs = [shaper.mac_address(PORT_A)?, shaper.mac_address(PORT_B)?];
        let [client, server_ip] = ADDRESSES;
        let paths = [
            Path { macs: [CLIENT_MAC, port_macs[0]], ips: [client, server_ip] },
            Path { macs: [SERVER_MAC, port_macs[1]], ips: [server_ip, client] },
        ];
        let aside = [Counters::of(shaper, PORT_C)?, Counters::of(server, ASIDE)?];
        let mut routes = Self { bed, paths, aside, changes: Vec::new() };
        routes.lead(Hop::Usual)?;
        Ok(routes)
    }

    /// The addresses of frames that go `way`.
    pub(super) fn path(&self, way: Way) -> Path {
        self.paths[way.index()]
    }

    /// The end behind the third port.
    pub(super) fn aside(&self) -> End<'a> {
        End { namespace: self.bed.server(), device: ASIDE, ip: ADDRESSES[1] }
    }

    /// What the third port and the device behind it have counted.
    pub(super) fn counts_aside(&mut self) -> Result<[Counts; 2]> {
        let [port, end] = &mut self.aside;
        Ok([port.read()?, end.read()?])
    }

    /// Leads what goes forth to `hop` from now on.
    pub(super) fn lead(&mut self, hop: Hop) -> Result<()> {
        let began = now()?;
        self.write(hop)?;
        self.changes.push(Change { began, over: now()?, to: hop });
        Ok(())
    }

    /// Makes routes and neighbours what they were: the kernel removes those of a port that goes
    /// down.
    pub(super) fn restore(&self) -> Result<()> {
        self.write(self.changes.last().map_or(Hop::Usual, |change| change.to))
    }

    fn write(&self, hop: Hop) -> Result<()> {
        let back = format!(
            "neigh replace 198.18.1.2 lladdr {} dev {PORT_A} nud permanent\n\
             route replace 198.18.8.0/24 via 198.18.1.2 dev {PORT_A}\n",
            written(SINK_MAC)
        );
        batch(&["-n", self.bed.shaper().name()], &(back + &hop.lines()))
    }

    /// Begins an epoch: only the present next hop counts.
    pub(super) fn forget(&mut self) {
        self.changes.drain(..self.changes.len().saturating_sub(1));
    }

    /// How many of the frames that went forth went to a next hop that was not in force.
    pub(super) fn misled(&self, received: &[Received]) -> u64 {
        misled(&self.changes, received)
    }
}

fn misled(changes: &[Change], received: &[Received]) -> u64 {
    let in_force = |frame: &Received| {
        let ends = changes.iter().skip(1).map(|next| next.over + LATE).chain([Nanos::MAX]);
        changes.iter().zip(ends).any(|(change, end)| {
            let is_there = change.to.mark() == Some(frame.hop);
            is_there && change.began <= frame.sent.at + LATE && frame.sent.at <= end
        })
    };
    received.iter().filter(|frame| !in_force(frame)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::sender::Sent;

    fn change(began: u64, to: Hop) -> Change {
        let began = Nanos::from_millis(began);
        Change { began, over: began + Nanos::from_millis(10), to }
    }

    /// One frame sent at each of these milliseconds, and where it arrived.
    fn misled_of(frames: &[(u64, Hop)]) -> u64 {
        let changes = [change(0, Hop::Usual), change(1000, Hop::Aside), change(2000, Hop::Moved)];
        let received = frames.iter().map(|&(at, hop)| {
            let at = Nanos::from_millis(at);
            let sent = Sent { at, flow: 0, bytes: 100 };
            Received { at, stream: 0, sent, hop: hop.mark().unwrap_or(0) }
        });
        misled(&changes, &received.collect::<Vec<_>>())
    }

    #[test]
    fn a_frame_goes_where_the_route_leads_when_it_is_routed() {
        assert_eq!(misled_of(&[(500, Hop::Usual), (1500, Hop::Aside), (2500, Hop::Moved)]), 0);
        assert_eq!(misled_of(&[(500, Hop::Aside), (1500, Hop::Usual), (2500, Hop::Aside)]), 3);
    }

    #[test]
    fn around_a_change_either_is_right_but_not_for_what_is_sent_long_after_it() {
        assert_eq!(misled_of(&[(900, Hop::Aside), (900, Hop::Usual), (1305, Hop::Usual)]), 0);
        assert_eq!(misled_of(&[(1311, Hop::Usual), (600, Hop::Aside)]), 2);
    }

    #[test]
    fn nothing_arrives_out_of_a_black_hole() {
        assert_eq!(misled_of(&[(500, Hop::Blackhole)]), 1);
    }
}
