//! What is measured: each system as it is put between the ports.

use crate::Testbed;
use crate::bed::{PORT_A, PORT_B, tc};
use crate::bridge::Bridge;
use crate::narrows::Instance;
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

/// The drop reason that is no limit's doing.
const RING_FULL: &str = "ring_full";

/// A limit far above what any of the systems carries.
const NON_BINDING: &str = "100gbit";

/// What stands between the ports. In the order in which a round measures them: the sender
/// alone is what all others are compared with, and the binding limit is set by what the
/// unlimited Narrows carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Nothing: the shaper's kernel drops every frame on arrival.
    SenderAlone,
    /// AF_XDP rings and nothing else.
    Bare,
    /// Narrows without a qdisc.
    NarrowsUnlimited,
    /// Narrows with a limit far above the load.
    NarrowsNonBinding,
    /// Narrows with a limit at half of what gets through without.
    NarrowsBinding,
    /// The kernel's bridge.
    Bridge,
    /// The kernel's bridge with HTB at its exit, its limit far above the load.
    BridgeHtb,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::SenderAlone,
        Self::Bare,
        Self::NarrowsUnlimited,
        Self::NarrowsNonBinding,
        Self::NarrowsBinding,
        Self::Bridge,
        Self::BridgeHtb,
    ];

    /// Its name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SenderAlone => "sender-alone",
            Self::Bare => "bare",
            Self::NarrowsUnlimited => "narrows-unlimited",
            Self::NarrowsNonBinding => "narrows-nonbinding",
            Self::NarrowsBinding => "narrows-binding",
            Self::Bridge => "bridge",
            Self::BridgeHtb => "bridge-htb",
        }
    }
}

/// A system in its place; taken out again when dropped.
pub(super) struct Running<'a> {
    system: System,
    instance: Option<Instance>,
    _bridge: Option<Bridge<'a>>,
}

impl<'a> Running<'a> {
    /// Puts `system` between the ports of `bed`.
    pub(super) fn start(bed: &'a Testbed, system: System, program: &Path) -> Result<Self> {
        let (mut instance, mut bridge) = (None, None);
        match system {
            System::SenderAlone => {}
            System::Bare => {
                let ports = format!("{PORT_A},{PORT_B}");
                let arguments = ["bench", "bare-forwarder", "--ports", &ports];
                instance = Some(Instance::start_command(bed, program, &arguments)?);
            }
            System::NarrowsUnlimited | System::NarrowsNonBinding | System::NarrowsBinding => {
                instance = Some(Instance::start(bed, program, &["--fail-closed"])?);
            }
            System::Bridge => bridge = Some(Bridge::over(bed)?),
            System::BridgeHtb => {
                let htb = Bridge::over(bed)?;
                htb.shape("handle 1: htb default 1")?;
                tc(
                    bed.shaper(),
                    &format!(
                        "class replace dev {PORT_B} parent 1: classid 1:1 htb rate {NON_BINDING} \
                         burst 16mb cburst 16mb quantum 60000"
                    ),
                )?;
                bridge = Some(htb);
            }
        }
        Ok(Self { system, instance, _bridge: bridge })
    }

    /// Sets the limit for the next load, of which `capacity` bits per second get through
    /// without one.
    pub(super) fn prepare(&self, capacity: Option<f64>) -> Result<()> {
        let rate = match self.system {
            System::NarrowsNonBinding => NON_BINDING.to_owned(),
            System::NarrowsBinding => {
                let capacity = capacity.context("the unlimited Narrows was not measured")?;
                format!("{}bit", (capacity / 2.0) as u64)
            }
            _ => return Ok(()),
        };
        let instance = self.instance.as_ref().context("Narrows does not run")?;
        let words =
            format!("qdisc replace dev {PORT_B} root tbf rate {rate} burst 1mb latency 5ms");
        instance.tc(&words).map(drop)
    }

    /// Time that its threads have run for; `None` where it has none.
    pub(super) fn cpu(&self) -> Result<Option<Duration>> {
        self.instance.as_ref().map(Instance::cpu).transpose()
    }

    /// Frames that its limit has dropped so far.
    pub(super) fn dropped_by_limit(&self) -> Result<u64> {
        match (self.system, &self.instance) {
            (System::NarrowsNonBinding | System::NarrowsBinding, Some(instance)) => {
                let show = instance.show()?;
                let port = show.port(PORT_B).context("narrows show does not list port B")?;
                let ring_full = port.total.drops_by_reason.get(RING_FULL).copied();
                Ok(port.total.drops - ring_full.unwrap_or_default())
            }
            _ => Ok(0),
        }
    }
}
