//! Why a foreign bridge is not a usable standby.

use crate::LinkStatus;
use narrows_escape::shell;
use std::fmt;

/// Why a bridge is no wire between two ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It runs spanning tree, which may block a port through which Narrows forwards.
    SpanningTree,
    /// It has another port.
    ThirdPort(String),
    /// It filters by VLAN.
    VlanFiltering,
}

impl Unfit {
    /// The problem with `bridge`, which joins `ports`, among all interfaces.
    pub(super) fn find(
        bridge: &LinkStatus,
        ports: &[Option<u32>; 2],
        all: &[LinkStatus],
    ) -> Option<Self> {
        let settings = bridge.bridge.unwrap_or_default();
        if settings.stp {
            return Some(Self::SpanningTree);
        }
        if settings.vlan_filtering {
            return Some(Self::VlanFiltering);
        }
        let is_third = |link: &&LinkStatus| {
            link.master == Some(bridge.ifindex) && !ports.contains(&Some(link.ifindex))
        };
        all.iter().find(is_third).map(|third| Self::ThirdPort(third.name.clone()))
    }

    /// The command to type.
    pub(super) fn remedy(&self, bridge: &str) -> String {
        let bridge = shell(bridge);
        let change = match self {
            Self::SpanningTree => format!("ip link set dev {bridge} type bridge stp_state 0"),
            Self::VlanFiltering => format!("ip link set dev {bridge} type bridge vlan_filtering 0"),
            Self::ThirdPort(port) => format!("ip link set dev {} nomaster", shell(port)),
        };
        format!("{change} (or take the two off it: `ip link set dev PORT nomaster`)")
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SpanningTree => f.write_str(
                "runs spanning tree: Narrows forwards also where that blocks a port, which makes a \
                 loop",
            ),
            Self::VlanFiltering => {
                f.write_str("filters VLANs, which Narrows does not while it forwards")
            }
            Self::ThirdPort(port) => write!(
                f,
                "has {port} as a port, too, which frames would not reach while Narrows forwards \
                 between the two"
            ),
        }
    }
}
