//! What gives the verdicts.

use crate::bed::{CLIENT, PORT_A, PORT_B, SERVER};
use crate::bridge::Bridge;
use crate::narrows::Instance;
use crate::receiving::go_up_on;
use crate::{Rounds, Testbed};
use anyhow::{Result, ensure};

/// The pair of VLANs of the stick, which sends back.
const VLANS: [&str; 2] = ["100", "200"];

/// A verdict of the paper's section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// The frame is dropped.
    Drop,
    /// It leaves where it came from.
    Tx,
    /// It leaves through another port.
    Redirect,
    /// The stack has it, on another CPU.
    Cpumap,
    /// The stack has it. It is to another MAC address, and is dropped there at once.
    Pass,
}

impl Verdict {
    pub(super) const ALL: [Self; 5] =
        [Self::Drop, Self::Tx, Self::Redirect, Self::Cpumap, Self::Pass];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Tx => "tx",
            Self::Redirect => "redirect",
            Self::Cpumap => "cpumap",
            Self::Pass => "pass",
        }
    }
}

/// What gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    /// A program of a few instructions.
    Bare,
    /// Narrows on the XDP plane, in the driver.
    Narrows,
    /// The kernel, without XDP.
    Kernel,
}

impl System {
    pub(super) const ALL: [Self; 3] = [Self::Bare, Self::Narrows, Self::Kernel];

    /// Whether it has that verdict. Linux sends nothing back where it has neither VLANs nor
    /// `mirred`.
    pub(super) fn gives(self, verdict: Verdict) -> bool {
        match (self, verdict) {
            (Self::Kernel, Verdict::Tx) => false,
            (Self::Bare | Self::Narrows | Self::Kernel, _) => true,
        }
    }

    /// Its name with that verdict.
    pub(super) const fn name(self, verdict: Verdict) -> &'static str {
        match (self, verdict) {
            (Self::Bare, _) => "bare",
            (Self::Narrows, Verdict::Drop) => "narrows --port, a filter",
            (Self::Narrows, Verdict::Tx) => "narrows --stick",
            (Self::Narrows, Verdict::Redirect) => "narrows --ports",
            (Self::Narrows, Verdict::Cpumap) => "narrows --port --rps",
            (Self::Narrows, Verdict::Pass) => "narrows --port",
            (Self::Kernel, Verdict::Drop) => "nftables, netdev hook",
            (Self::Kernel, Verdict::Redirect) => "bridge",
            (Self::Kernel, Verdict::Cpumap) => "RPS",
            (Self::Kernel, Verdict::Tx | Verdict::Pass) => "no program",
        }
    }

    /// Starts it in `bed`; another CPU is `other`.
    pub(super) fn start<'a>(
        self,
        bed: &'a Testbed,
        verdict: Verdict,
        options: &Rounds,
        other: usize,
    ) -> Result<Running<'a>> {
        let program = &options.program;
        let mut running = Running::default();
        match verdict {
            Verdict::Tx => {
                running.ends =
                    Some(Instance::start_in(bed.client(), program, &["bench", "drain", CLIENT])?);
            }
            Verdict::Redirect => {
                running.ends =
                    Some(Instance::start_in(bed.server(), program, &["bench", "drain", SERVER])?);
            }
            Verdict::Drop | Verdict::Cpumap | Verdict::Pass => {}
        }
        let other_word = other.to_string();
        match (self, verdict) {
            (Self::Bare, _) => {
                let to: &[&str] = match verdict {
                    Verdict::Redirect => &["--to", PORT_B],
                    Verdict::Cpumap => &["--cpu", &other_word],
                    Verdict::Drop | Verdict::Tx | Verdict::Pass => &[],
                };
                let words = [&["bench", "verdict", PORT_A, verdict.name()], to].concat();
                running.gives = Some(Instance::start_command(bed, program, &words)?);
            }
            (Self::Narrows, _) => {
                let pair = VLANS.join(":");
                let wire = format!("{PORT_A},{PORT_B}");
                let words: &[&str] = match verdict {
                    Verdict::Tx => &["--stick", PORT_A, "--vlans", &pair, "--fail-closed"],
                    Verdict::Redirect => &["--ports", &wire],
                    Verdict::Cpumap => &["--port", PORT_A, "--rps", &other_word],
                    Verdict::Drop | Verdict::Pass => &["--port", PORT_A],
                };
                let words = [&["run", "--plane", "xdp", "--xdp", "native"], words].concat();
                let instance = Instance::start_command(bed, program, &words)?;
                if verdict == Verdict::Drop {
                    instance.tc(&format!("qdisc add dev {PORT_A} clsact"))?;
                    let filter = "protocol ip flower ip_proto udp action drop";
                    instance.tc(&format!("filter add dev {PORT_A} ingress {filter}"))?;
                }
                running.gives = Some(instance);
                running.is_narrows = true;
            }
            (Self::Kernel, Verdict::Drop) => {
                let nft = |words: &str| bed.shaper().run("nft", &[words]);
                nft("add table netdev nrw")?;
                let hook = format!("type filter hook ingress device {PORT_A} priority 0;");
                nft(&format!("add chain netdev nrw ingress {{ {hook} }}"))?;
                nft("add rule netdev nrw ingress ip protocol udp drop")?;
            }
            (Self::Kernel, Verdict::Redirect) => running.bridge = Some(Bridge::over(bed)?),
            (Self::Kernel, Verdict::Cpumap) => go_up_on(bed.shaper(), PORT_A, other)?,
            (Self::Kernel, Verdict::Tx | Verdict::Pass) => {}
        }
        Ok(running)
    }
}

/// What runs; it ends when dropped.
#[derive(Default)]
pub(super) struct Running<'a> {
    gives: Option<Instance>,
    is_narrows: bool,
    /// What drops frames where they arrive.
    ends: Option<Instance>,
    bridge: Option<Bridge<'a>>,
}

impl Running<'_> {
    /// Checks that Narrows has given that verdict to most frames.
    pub(super) fn has_done_it(&self, verdict: Verdict) -> Result<()> {
        let Some(instance) = self.gives.as_ref().filter(|_| self.is_narrows) else { return Ok(()) };
        let sum = instance.show()?.conservation;
        let given = match verdict {
            Verdict::Drop => sum.dropped.get("filter").copied().unwrap_or(0),
            Verdict::Tx | Verdict::Redirect => sum.sent,
            // What the other CPU had no time for was handed to it, too.
            Verdict::Cpumap => sum.to_box + sum.dropped.get("cpu_busy").copied().unwrap_or(0),
            Verdict::Pass => sum.to_box,
        };
        ensure!(given * 10 > sum.received * 9 && given > 0, "{sum:?}");
        Ok(())
    }
}

/// Sends frames on `core` from the client's device, until what it returns is dropped.
pub(super) fn sender(
    bed: &Testbed,
    verdict: Verdict,
    options: &Rounds,
    bytes: usize,
    core: usize,
) -> Result<Instance> {
    let [bytes, core] = [bytes, core].map(|number| number.to_string());
    let vlan: &[&str] = if verdict == Verdict::Tx { &["--vlan", VLANS[0]] } else { &[] };
    let words = [&["bench", "live-frames", CLIENT, &bytes, &core], vlan].concat();
    Instance::start_in(bed.client(), &options.program, &words)
}
