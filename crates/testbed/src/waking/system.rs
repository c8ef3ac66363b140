//! The measured systems, as they are put between the ports.

use crate::Testbed;
use crate::bed::{PORT_A, PORT_B};
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

/// The system between the ports, with the limit in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum System {
    BridgeTbf,
    BridgeHtb,
    NarrowsTbf,
    NarrowsCake,
}

impl System {
    /// All of them.
    pub(super) const ALL: [Self; 4] =
        [Self::BridgeTbf, Self::BridgeHtb, Self::NarrowsTbf, Self::NarrowsCake];

    /// Its name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::BridgeTbf => "bridge-tbf",
            Self::BridgeHtb => "bridge-htb",
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
        let tbf = format!("tbf rate {rate} burst {burst} limit {}", queue.0);
        let cake = format!("cake bandwidth {rate} besteffort");
        match system {
            System::BridgeTbf | System::BridgeHtb => {
                let bridge = Bridge::over(bed)?;
                for port in [PORT_A, PORT_B] {
                    if system == System::BridgeTbf {
                        bridge.shape(port, &tbf)?;
                    } else {
                        bridge.shape_by_htb(port)?;
                        bridge.limit_htb(port, &rate, &burst, Some(queue))?;
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
