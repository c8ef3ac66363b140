//! The switches that are compared.

use crate::Testbed;
use crate::bed::{PORT_A, PORT_B};
use crate::narrows::Instance;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::Duration;

/// What the driver leaves to the bridge that it should know.
const UNKNOWN: [&str; 3] = ["unknown", "unknown_source", "moved"];

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    /// The kernel's bridge.
    Bridge,
    /// The kernel's bridge, which looks at VLAN tags.
    BridgeVlan,
    /// Narrows on the XDP plane, in the drivers, with [`Self::Bridge`].
    NarrowsXdp,
    /// The same with [`Self::BridgeVlan`].
    NarrowsXdpVlan,
    /// Narrows with a worker, on the core of the thread that receives, with [`Self::Bridge`].
    NarrowsXsk,
    /// The same with [`Self::BridgeVlan`].
    NarrowsXskVlan,
}

impl System {
    pub(super) const ALL: [Self; 6] = [
        Self::Bridge,
        Self::BridgeVlan,
        Self::NarrowsXdp,
        Self::NarrowsXdpVlan,
        Self::NarrowsXsk,
        Self::NarrowsXskVlan,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::BridgeVlan => "bridge-vlan",
            Self::NarrowsXdp => "narrows-xdp",
            Self::NarrowsXdpVlan => "narrows-xdp-vlan",
            Self::NarrowsXsk => "narrows-xsk",
            Self::NarrowsXskVlan => "narrows-xsk-vlan",
        }
    }

    /// The kernel's bridge with the same settings.
    pub(super) const fn peer(self) -> Self {
        match self {
            Self::Bridge | Self::NarrowsXdp | Self::NarrowsXsk => Self::Bridge,
            Self::BridgeVlan | Self::NarrowsXdpVlan | Self::NarrowsXskVlan => Self::BridgeVlan,
        }
    }

    /// The settings of the bridge. One that does not look at tags has no VLAN, in which it would
    /// list each station once more.
    pub(super) fn settings(self) -> &'static str {
        if self.peer() == Self::Bridge { "vlan_default_pvid 0" } else { "vlan_filtering 1" }
    }

    /// The VLAN in which stations are, in the words of `bridge`.
    pub(super) fn vlan(self) -> &'static str {
        if self.peer() == Self::Bridge { "" } else { "vlan 1" }
    }

    /// What it needs besides the thread that receives.
    pub(super) const fn needs(self) -> Option<&'static str> {
        match self {
            Self::Bridge | Self::BridgeVlan => None,
            Self::NarrowsXdp | Self::NarrowsXdpVlan => {
                Some("drivers that send what is redirected to them")
            }
            Self::NarrowsXsk | Self::NarrowsXskVlan => {
                Some("a worker on the core that switches, beside what receives")
            }
        }
    }

    /// Starts it in the middle of `bed`, whose ports are in the bridge, on `core`.
    pub(super) fn start(self, bed: &Testbed, program: &Path, core: usize) -> Result<Running> {
        let (ports, core) = (format!("{PORT_A},{PORT_B}"), core.to_string());
        let plane: &[&str] = match self {
            Self::Bridge | Self::BridgeVlan => return Ok(Running(None)),
            Self::NarrowsXdp | Self::NarrowsXdpVlan => &["--plane", "xdp", "--xdp", "native"],
            Self::NarrowsXsk | Self::NarrowsXskVlan => &["--cores", &core],
        };
        let words = [&["run", "--switch", &ports], plane].concat();
        Ok(Running(Some(Instance::start_command(bed, program, &words)?)))
    }
}

/// What switches beside the bridge; ends when dropped.
pub(super) struct Running(Option<Instance>);

impl Running {
    /// The run time of its own threads.
    pub(super) fn cpu(&self) -> Result<Duration> {
        self.0.as_ref().map_or(Ok(Duration::ZERO), Instance::cpu)
    }

    /// Checks that the bridge got none of the frames: they are not what is measured.
    pub(super) fn has_switched_all(&self) -> Result<()> {
        let Some(instance) = &self.0 else { return Ok(()) };
        let show = instance.show()?;
        let outcomes = &show.port(PORT_A).context("narrows show does not list port A")?.routes;
        let left = UNKNOWN.iter().any(|outcome| outcomes.get(*outcome).is_some_and(|it| *it > 0));
        let switched = outcomes.get("switched").copied().unwrap_or(0);
        ensure!(!left && switched > 0, "frames went to the bridge: {outcomes:?}");
        Ok(())
    }
}
