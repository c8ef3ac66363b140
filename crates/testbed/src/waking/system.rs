//! What is measured: each system as it is put between the ports.

use crate::Testbed;
use crate::bed::{PORT_A, PORT_B, tc};
use crate::bridge::Bridge;
use crate::narrows::Instance;
use anyhow::Result;
use narrows_units::{Nanos, Rate};
use std::path::Path;

/// What a bucket passes at once, as time at the limit: a tick of most kernels. And as much at
/// least, in bytes.
const BURST: Nanos = Nanos::from_millis(4);
const BURST_MIN: u64 = 32_000;
/// How long a packet may wait in a queue that drops at its end.
const QUEUE: Nanos = Nanos::from_millis(50);

/// What stands between the ports, with the limit in both directions.
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

    /// The commands of `tc`, the kernel's or ours, that limit what goes out of `port`.
    fn words(self, port: &str, limit: Rate) -> Vec<String> {
        let bits = limit.bits_per_sec();
        let burst = limit.bytes_in(BURST).0.max(BURST_MIN);
        let queue = limit.bytes_in(QUEUE).0;
        match self {
            Self::BridgeTbf | Self::NarrowsTbf => vec![format!(
                "qdisc replace dev {port} root tbf rate {bits}bit burst {burst} limit {queue}"
            )],
            Self::BridgeHtb => vec![
                format!("qdisc replace dev {port} root handle 1: htb default 1"),
                format!(
                    "class replace dev {port} parent 1: classid 1:1 htb rate {bits}bit \
                     burst {burst} cburst {burst} quantum 60000"
                ),
                format!("qdisc replace dev {port} parent 1:1 handle 2: bfifo limit {queue}"),
            ],
            Self::NarrowsCake => {
                vec![format!("qdisc replace dev {port} root cake bandwidth {bits}bit besteffort")]
            }
        }
    }
}

/// A system in its place; taken out again when dropped.
pub(super) enum Running<'a> {
    Kernel { bed: &'a Testbed, _bridge: Bridge<'a> },
    Narrows(Box<Instance>),
}

impl<'a> Running<'a> {
    /// Puts `system` between the ports of `bed`, with `limit` both ways.
    pub(super) fn start(
        bed: &'a Testbed,
        system: System,
        limit: Rate,
        program: &Path,
    ) -> Result<Self> {
        let running = match system {
            System::BridgeTbf | System::BridgeHtb => {
                Self::Kernel { bed, _bridge: Bridge::over(bed)? }
            }
            System::NarrowsTbf | System::NarrowsCake => {
                Self::Narrows(Box::new(Instance::start(bed, program, &["--fail-closed"])?))
            }
        };
        for words in [PORT_A, PORT_B].iter().flat_map(|port| system.words(port, limit)) {
            match &running {
                Self::Kernel { bed, .. } => tc(bed.shaper(), &words)?,
                Self::Narrows(instance) => instance.tc(&words)?,
            };
        }
        Ok(running)
    }

    /// Takes it out, and complains where it cannot.
    pub(super) fn stop(self) -> Result<()> {
        if let Self::Kernel { bed, .. } = &self {
            for port in [PORT_A, PORT_B] {
                tc(bed.shaper(), &format!("qdisc del dev {port} root"))?;
            }
        }
        Ok(())
    }
}
