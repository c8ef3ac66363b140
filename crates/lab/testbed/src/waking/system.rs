//! The measured systems, as they are put between the ports.

use crate::Testbed;
use crate::bed::{PORT_A, PORT_B, tc};
use crate::bridge::Bridge;
use crate::narrows::Instance;
use anyhow::Result;
use narrows_units::{Nanos, Rate};
use std::path::Path;

/// The burst of a bucket, as time at the limit: a tick of most kernels. And its least size in
/// bytes.
const BURST: Nanos = Nanos::from_millis(4);
const BURST_MIN: u64 = 32_000;
/// How long a packet may wait in a queue that drops at its end.
const QUEUE: Nanos = Nanos::from_millis(50);
/// How long a packet may wait in a queue that is as short as CAKE wants it: TCP wakes up more often
/// behind it.
const SHORT_QUEUE: Nanos = Nanos::from_millis(5);

/// The system between the ports, with the limit in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum System {
    BridgeTbf,
    BridgeHtb,
    /// With a short queue.
    BridgeHtbShort,
    /// Only where the kernel has it.
    BridgeCake,
    NarrowsTbf,
    NarrowsCake,
}

impl System {
    const ALL: [Self; 6] = [
        Self::BridgeTbf,
        Self::BridgeHtb,
        Self::BridgeHtbShort,
        Self::BridgeCake,
        Self::NarrowsTbf,
        Self::NarrowsCake,
    ];

    /// All that this kernel has, tried out on `bed`.
    pub(super) fn all_here(bed: &Testbed) -> Vec<Self> {
        let kernel = |words: &str| tc(bed.shaper(), &format!("qdisc {words}"));
        let has_cake = kernel(&format!("replace dev {PORT_A} root cake")).is_ok()
            && kernel(&format!("del dev {PORT_A} root")).is_ok();
        Self::ALL.into_iter().filter(|system| has_cake || *system != Self::BridgeCake).collect()
    }

    /// Its name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::BridgeTbf => "bridge-tbf",
            Self::BridgeHtb => "bridge-htb",
            Self::BridgeHtbShort => "bridge-htb-5ms",
            Self::BridgeCake => "bridge-cake",
            Self::NarrowsTbf => "narrows-tbf",
            Self::NarrowsCake => "narrows-cake",
        }
    }
}

/// A system in its place; taken out again when dropped.
pub(super) enum Running<'a> {
    Kernel(#[expect(dead_code, reason = "it is there")] Bridge<'a>),
    Narrows(#[expect(dead_code, reason = "it runs")] Box<Instance>),
}

impl<'a> Running<'a> {
    /// Puts `system` between the ports of `bed`, with `limit` both ways.
    pub(super) fn start(
        bed: &'a Testbed,
        system: System,
        limit: Rate,
        program: &Path,
    ) -> Result<Self> {
        let rate = format!("{}bit", limit.bits_per_sec());
        let burst = limit.bytes_in(BURST).0.max(BURST_MIN).to_string();
        let queue = limit.bytes_in(QUEUE);
        let short = limit.bytes_in(SHORT_QUEUE);
        let tbf = format!("tbf rate {rate} burst {burst} limit {}", queue.0);
        let cake = format!("cake bandwidth {rate} besteffort");
        let by_htb = |bridge: &Bridge<'_>, port, queue| {
            bridge.shape_by_htb(port)?;
            bridge.limit_htb(port, &rate, &burst, Some(queue))
        };
        match system {
            System::BridgeTbf | System::BridgeHtb | System::BridgeHtbShort | System::BridgeCake => {
                let bridge = Bridge::over(bed)?;
                for port in [PORT_A, PORT_B] {
                    match system {
                        System::BridgeTbf => bridge.shape(port, &tbf)?,
                        System::BridgeCake => bridge.shape(port, &cake)?,
                        System::BridgeHtbShort => by_htb(&bridge, port, short)?,
                        _ => by_htb(&bridge, port, queue)?,
                    }
                }
                Ok(Self::Kernel(bridge))
            }
            System::NarrowsTbf | System::NarrowsCake => {
                let qdisc = if system == System::NarrowsTbf { tbf } else { cake };
                let instance = Instance::start(bed, program, &["--fail-closed"])?;
                for port in [PORT_A, PORT_B] {
                    instance.tc(&format!("qdisc replace dev {port} root {qdisc}"))?;
                }
                Ok(Self::Narrows(Box::new(instance)))
            }
        }
    }
}
