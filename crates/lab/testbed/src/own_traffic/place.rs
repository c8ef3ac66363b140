//! Where the limit is: at what the box itself sends, or at what arrives at it.
//!
//! What arrives is shaped at an ifb, by the kernel's systems and by Narrows. There the box is a
//! home router between two networks: the server sends, the box routes, and the client's device
//! counts what a wire would carry.
//!
//! ```text
//!   client 10.1.0.2 ══ port-a │ box, routes │ port-b, ifb ══ 10.2.0.2 server
//! ```

use crate::bed::{End, PORT_A, PORT_B, Testbed, ip, tc};
use anyhow::Result;
use serde::Serialize;
use std::net::Ipv4Addr;

/// The kernel's systems' ifb.
const IFB: &str = "ifb9";
/// The addresses of the two networks: the box's, and behind it that of the client or the server.
const NETWORKS: [[Ipv4Addr; 2]; 2] = [
    [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 1, 0, 2)],
    [Ipv4Addr::new(10, 2, 0, 1), Ipv4Addr::new(10, 2, 0, 2)],
];

/// The place of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// What the box itself sends.
    Leaves,
    /// What arrives at it, and is routed on.
    Arrives,
}

impl Place {
    /// Prepares the bed for it. Returns who sends, and who receives.
    pub(super) fn prepare(self, bed: &Testbed) -> Result<[End<'_>; 2]> {
        let [client, server] = bed.ends();
        if self == Self::Leaves {
            return Ok([bed.send_from_the_port()?, server]);
        }
        let ends = [(client, PORT_A), (server, PORT_B)].into_iter().zip(NETWORKS);
        for ((end, port), [gateway, own]) in ends {
            ip(bed.shaper(), &format!("addr add {gateway}/24 dev {port}"))?;
            ip(end.namespace, &format!("addr add {own}/24 dev {}", end.device))?;
            ip(end.namespace, &format!("route add default via {gateway}"))?;
        }
        bed.shaper().set("ipv4/ip_forward", "1")?;
        // The stack merges what arrives, as it does for most cards, and cuts it where it leaves.
        bed.shaper().run("ethtool", &["-K", PORT_B, "gro", "on"])?;
        let [[_, client_ip], [_, server_ip]] = NETWORKS;
        Ok([End { ip: server_ip, ..server }, End { ip: client_ip, ..client }])
    }

    /// Whose flows are limited, in words.
    pub(super) const fn flows_of(self) -> &'static str {
        match self {
            Self::Leaves => "of the box with the limit",
            Self::Arrives => "that arrive at the box with the limit",
        }
    }

    /// The device that a system of the kernel is at.
    pub(super) const fn device(self) -> &'static str {
        match self {
            Self::Leaves => PORT_B,
            Self::Arrives => IFB,
        }
    }

    /// That of Narrows, and what it is started with.
    pub(super) fn of_narrows(self) -> (&'static str, Vec<&'static str>) {
        let run = vec!["run", "--plane", "host", "--ports", PORT_B];
        match self {
            Self::Leaves => (PORT_B, run),
            Self::Arrives => ("ifb4port-b", [run, vec!["--ifb", PORT_B]].concat()),
        }
    }

    /// Makes room for a system of the kernel.
    pub(super) fn redirect(self, bed: &Testbed) -> Result<()> {
        if self == Self::Arrives {
            ip(bed.shaper(), &format!("link add {IFB} type ifb"))?;
            ip(bed.shaper(), &format!("link set {IFB} up"))?;
            tc(bed.shaper(), &format!("qdisc add dev {PORT_B} clsact"))?;
            let all = format!("filter add dev {PORT_B} ingress protocol all u32 match u32 0 0");
            tc(bed.shaper(), &format!("{all} action mirred egress redirect dev {IFB}"))?;
        }
        Ok(())
    }

    /// Takes it away again, with the system. What is not there is not missed.
    pub(super) fn clear(self, bed: &Testbed) {
        let qdisc = if self == Self::Leaves { "root" } else { "clsact" };
        let _ = tc(bed.shaper(), &format!("qdisc del dev {PORT_B} {qdisc}"));
        if self == Self::Arrives {
            let _ = ip(bed.shaper(), &format!("link del {IFB}"));
        }
    }
}
