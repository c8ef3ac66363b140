//! The measured systems, each as it is put between the ports.

use super::Options;
use crate::Testbed;
use crate::bed::{PORT_A, PORT_B, tc};
use crate::bridge::Bridge;
use crate::narrows::Instance;
use anyhow::Result;
use narrows_units::{Bytes, Nanos, Rate};

/// The burst of a bucket, as time at the limit, and its least size.
const BURST: Nanos = Nanos::from_millis(8);
const BURST_MIN: u64 = 100_000;

/// The system between the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// The XDP plane in the drivers.
    Narrows,
    /// The XDP plane at tcx, behind a port that merges what it receives (GRO).
    NarrowsTcx,
    /// The XDP plane at tcx without its AQM: it drops what exceeds the bucket and the virtual
    /// queue, as FlowValve does.
    PlainDrop,
    /// A bridge with the kernel's `police`.
    KernelPolice,
}

impl System {
    /// Its name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Narrows => "narrows-xdp",
            Self::NarrowsTcx => "narrows-tcx",
            Self::PlainDrop => "plain drop",
            Self::KernelPolice => "kernel police",
        }
    }
}

/// A system in its place; taken out again when dropped.
pub(super) enum Running<'a> {
    Kernel(#[expect(dead_code, reason = "it is there")] Police<'a>),
    Narrows(#[expect(dead_code, reason = "it runs")] Box<Instance>),
}

impl<'a> Running<'a> {
    /// Puts `system` between the ports of `bed`, with `limit` towards the server.
    pub(super) fn start(
        bed: &'a Testbed,
        system: System,
        limit: Rate,
        options: &Options,
    ) -> Result<Self> {
        let rate = format!("{}bit", limit.bits_per_sec());
        let burst = limit.bytes_in(BURST).0.max(BURST_MIN);
        let queue = limit.bytes_in(Nanos::from_millis(options.queue.as_millis() as u64)).0;
        if system == System::KernelPolice {
            return Ok(Self::Kernel(Police::over(bed, &rate, Bytes(burst + queue))?));
        }
        let is_at_tcx = system == System::NarrowsTcx;
        let (hook, gro) = if is_at_tcx { ("tcx", "on") } else { ("native", "off") };
        // Where it polls, a veth counts packets of the stack without their Ethernet headers.
        bed.take_redirected(!is_at_tcx)?;
        bed.shaper().run("ethtool", &["-K", PORT_A, "gro", gro])?;
        let arguments = ["--plane", "xdp", "--xdp", hook, "--fail-closed"];
        let instance = Instance::start(bed, &options.program, &arguments)?;
        let tbf = format!("tbf rate {rate} burst {burst} limit {queue}");
        instance.tc(&format!("qdisc add dev {PORT_B} root handle 1: {tbf}"))?;
        if system == System::PlainDrop {
            // A target that no delay reaches.
            let codel = "codel limit 1000000 target 100s interval 100s";
            instance.tc(&format!("qdisc add dev {PORT_B} parent 1:1 handle 2: {codel}"))?;
        }
        Ok(Self::Narrows(Box::new(instance)))
    }
}

/// A bridge with `police` at its ingress.
pub(super) struct Police<'a> {
    bed: &'a Testbed,
    _bridge: Bridge<'a>,
}

impl<'a> Police<'a> {
    fn over(bed: &'a Testbed, rate: &str, burst: Bytes) -> Result<Self> {
        let police = Self { bed, _bridge: Bridge::over(bed)? };
        tc(bed.shaper(), &format!("qdisc add dev {PORT_A} handle ffff: ingress"))?;
        let all = "protocol all prio 1 u32 match u32 0 0";
        let police_words = format!("police rate {rate} burst {} drop flowid :1", burst.0);
        tc(bed.shaper(), &format!("filter add dev {PORT_A} parent ffff: {all} {police_words}"))?;
        Ok(police)
    }
}

impl Drop for Police<'_> {
    fn drop(&mut self) {
        // There may be none; and the namespace, if nothing else, takes all with it.
        let _ = tc(self.bed.shaper(), &format!("qdisc del dev {PORT_A} ingress"));
    }
}

/// The error says in tc's words why the kernel has none.
pub(super) fn kernel_police_works(bed: &Testbed) -> Result<(), String> {
    match Police::over(bed, "10mbit", Bytes(100_000)) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string().lines().collect::<Vec<_>>().join("; ")),
    }
}
