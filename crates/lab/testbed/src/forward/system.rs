//! The measured systems, each as it is put between the ports.

use crate::Testbed;
use crate::bed::{PORT_A, PORT_B, tc};
use crate::bridge::Bridge;
use crate::narrows::Instance;
use anyhow::{Context, Result};
use narrows_units::{Nanos, Rate};
use std::path::Path;
use std::time::Duration;

/// The drop reason that no limit causes.
const RING_FULL: &str = "ring_full";

/// The burst of a binding limit, and how long a packet may wait under it.
const BURST: &str = "1mb";
const QUEUE: Nanos = Nanos::from_millis(5);

/// A limit far above what any of the systems carries.
const NON_BINDING: &str = "100gbit";

/// The systems between the ports, in the order in which a round measures them: the sender alone is
/// the reference for all others, and the binding limit is derived from the rate of the unlimited
/// Narrows or of the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Nothing: the shaper's kernel drops every frame on arrival.
    SenderAlone,
    /// AF_XDP rings and nothing else.
    Bare,
    /// The kernel's bridge.
    Bridge,
    /// Narrows without a qdisc.
    NarrowsUnlimited,
    /// Narrows with a limit far above the load.
    NarrowsNonBinding,
    /// Narrows with a limit at half of what passes without: through the unlimited Narrows, or
    /// through the bridge where the unlimited Narrows is not measured.
    NarrowsBinding,
    /// The XDP plane in the drivers, without a qdisc.
    XdpUnlimited,
    /// The XDP plane in the drivers, with the limit of [`System::NarrowsBinding`].
    XdpBinding,
    /// The XDP plane at tcx, its default for these ports, without a qdisc.
    TcxUnlimited,
    /// The XDP plane at tcx with the limit of [`System::NarrowsBinding`].
    TcxBinding,
    /// The kernel's bridge with HTB at its exit, its limit far above the load.
    BridgeHtb,
    /// The kernel's bridge with HTB at its exit, with the limit of [`System::NarrowsBinding`].
    BridgeHtbBinding,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::SenderAlone,
        Self::Bare,
        Self::Bridge,
        Self::NarrowsUnlimited,
        Self::NarrowsNonBinding,
        Self::NarrowsBinding,
        Self::XdpUnlimited,
        Self::XdpBinding,
        Self::TcxUnlimited,
        Self::TcxBinding,
        Self::BridgeHtb,
        Self::BridgeHtbBinding,
    ];

    /// Whether it forwards in threads of its own, and not where the kernel receives.
    pub const fn has_threads(self) -> bool {
        matches!(
            self,
            Self::Bare | Self::NarrowsUnlimited | Self::NarrowsNonBinding | Self::NarrowsBinding
        )
    }

    /// Its name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SenderAlone => "sender-alone",
            Self::Bare => "bare",
            Self::NarrowsUnlimited => "narrows-unlimited",
            Self::NarrowsNonBinding => "narrows-nonbinding",
            Self::NarrowsBinding => "narrows-binding",
            Self::XdpUnlimited => "narrows-xdp-unlimited",
            Self::XdpBinding => "narrows-xdp-binding",
            Self::TcxUnlimited => "narrows-tcx-unlimited",
            Self::TcxBinding => "narrows-tcx-binding",
            Self::Bridge => "bridge",
            Self::BridgeHtb => "bridge-htb",
            Self::BridgeHtbBinding => "bridge-htb-binding",
        }
    }
}

/// A system in its place; taken out again when dropped.
pub(super) struct Running<'a> {
    bed: &'a Testbed,
    system: System,
    instance: Option<Instance>,
    bridge: Option<Bridge<'a>>,
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
            System::XdpUnlimited | System::XdpBinding => {
                bed.take_redirected(true)?;
                let arguments = ["--plane", "xdp", "--xdp", "native", "--fail-closed"];
                instance = Some(Instance::start(bed, program, &arguments)?);
            }
            System::TcxUnlimited | System::TcxBinding => {
                let arguments = ["--plane", "xdp", "--fail-closed"];
                instance = Some(Instance::start(bed, program, &arguments)?);
            }
            System::Bridge => bridge = Some(Bridge::over(bed)?),
            System::BridgeHtb | System::BridgeHtbBinding => {
                let htb = Bridge::over(bed)?;
                htb.shape_by_htb(PORT_B)?;
                htb.limit_htb(PORT_B, NON_BINDING, "16mb", None)?;
                bridge = Some(htb);
            }
        }
        Ok(Self { bed, system, instance, bridge })
    }

    /// Sets the limit for the next load, of which `capacity` bits per second get through
    /// without one.
    pub(super) fn prepare(&self, capacity: Option<f64>) -> Result<()> {
        let rate = match self.system {
            System::NarrowsNonBinding => NON_BINDING.to_owned(),
            System::NarrowsBinding | System::XdpBinding | System::TcxBinding => {
                format!("{}bit", half(capacity)?)
            }
            System::BridgeHtbBinding => {
                let half = half(capacity)?;
                let queue = Rate::from_bits_per_sec(half).bytes_in(QUEUE);
                let bridge = self.bridge.as_ref().context("there is no bridge")?;
                return bridge.limit_htb(PORT_B, &format!("{half}bit"), BURST, Some(queue));
            }
            _ => return Ok(()),
        };
        let instance = self.instance.as_ref().context("Narrows does not run")?;
        let words =
            format!("qdisc replace dev {PORT_B} root tbf rate {rate} burst {BURST} latency 5ms");
        instance.tc(&words).map(drop)
    }

    /// The run time of its threads; `None` if it has none that forward.
    pub(super) fn cpu(&self) -> Result<Option<Duration>> {
        let instance = self.instance.as_ref().filter(|_| self.system.has_threads());
        instance.map(Instance::cpu).transpose()
    }

    /// Frames that its limit has dropped so far.
    pub(super) fn dropped_by_limit(&self) -> Result<u64> {
        match (self.system, &self.instance) {
            (
                System::NarrowsNonBinding
                | System::NarrowsBinding
                | System::XdpBinding
                | System::TcxBinding,
                Some(instance),
            ) => {
                let show = instance.show()?;
                let port = show.port(PORT_B).context("narrows show does not list port B")?;
                let ring_full = port.total.drops_by_reason.get(RING_FULL).copied();
                Ok(port.total.drops - ring_full.unwrap_or_default())
            }
            (System::BridgeHtb | System::BridgeHtbBinding, _) => {
                let json = tc(self.bed.shaper(), &format!("-s -j qdisc show dev {PORT_B}"))?;
                parse_drops(&json).with_context(|| format!("tc does not list htb: {json}"))
            }
            _ => Ok(0),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if matches!(self.system, System::XdpUnlimited | System::XdpBinding) {
            // As for all other systems.
            self.instance = None;
            let _ = self.bed.take_redirected(false);
        }
    }
}

/// Half of `capacity`, in bits per second.
fn half(capacity: Option<f64>) -> Result<u64> {
    let capacity = capacity.context("the rate without a limit was not measured")?;
    Ok((capacity / 2.0) as u64)
}

/// The drops of the HTB at the root, from the JSON of `tc -s qdisc show`.
fn parse_drops(json: &str) -> Option<u64> {
    let qdiscs: Vec<serde_json::Value> = serde_json::from_str(json).ok()?;
    qdiscs.iter().find(|qdisc| qdisc["kind"] == "htb")?["drops"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn htbs_drops_are_its_leafs_too() {
        let json = r#"[{"kind":"htb","handle":"1:","root":true,"drops":42},
            {"kind":"bfifo","handle":"2:","parent":"1:1","drops":42}]"#;
        assert_eq!(parse_drops(json), Some(42));
        assert_eq!(parse_drops("[]"), None);
    }

    #[test]
    fn the_binding_limit_is_half_of_the_unlimited_rate() {
        assert_eq!(half(Some(3e9)).unwrap(), 1_500_000_000);
        assert!(half(None).is_err());
    }
}
