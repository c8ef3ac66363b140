//! The kernel's forwarder in place of the shaper: a bridge between the two ports.

use crate::bed::{PORT_A, PORT_B, Testbed, ip, tc};
use crate::process;
use anyhow::Result;
use narrows_units::Bytes;
use std::process::Command;

/// The bridge's device.
const BRIDGE: &str = "bridge0";

/// A bridge between the ports; taken away when dropped.
#[derive(Debug)]
pub struct Bridge<'a> {
    bed: &'a Testbed,
}

impl<'a> Bridge<'a> {
    /// Joins the ports of `bed`. It sends nothing itself, and no frame passes the firewall of IP,
    /// which would slow it down where the kernel has `br_netfilter`.
    pub fn over(bed: &'a Testbed) -> Result<Self> {
        Self::with(bed, "")
    }

    /// The same with more `settings`, in the words of `ip link add … type bridge`.
    pub fn with(bed: &'a Testbed, settings: &str) -> Result<Self> {
        for protocol in ["iptables", "ip6tables", "arptables"] {
            // A kernel without it has no such setting.
            let _ = bed.shaper().set(&format!("bridge.bridge-nf-call-{protocol}"), "0");
        }
        let quiet = "stp_state 0 mcast_snooping 0";
        ip(bed.shaper(), &format!("link add name {BRIDGE} type bridge {quiet} {settings}"))?;
        let bridge = Self { bed };
        ip(bed.shaper(), &format!("link set {BRIDGE} up"))?;
        for port in [PORT_A, PORT_B] {
            ip(bed.shaper(), &format!("link set {port} master {BRIDGE}"))?;
        }
        Ok(bridge)
    }

    /// Tells it where stations are, as if it had just learned that: a line for each, in the words
    /// of `bridge`.
    pub fn know(&self, lines: &str) -> Result<()> {
        let mut bridge = Command::new("bridge");
        process::run_with(bridge.args(["-n", self.bed.shaper().name(), "-batch", "-"]), lines)
            .map(drop)
    }

    /// Puts the kernel's own qdisc at the root of `port`, in `tc`'s words.
    pub fn shape(&self, port: &str, qdisc: &str) -> Result<()> {
        tc(self.bed.shaper(), &format!("qdisc replace dev {port} root {qdisc}")).map(drop)
    }

    /// Puts HTB at the root of `port`, with one class that is [limited](Bridge::limit_htb) later.
    pub fn shape_by_htb(&self, port: &str) -> Result<()> {
        self.shape(port, "handle 1: htb default 1")
    }

    /// Sets `rate` and `burst`, in `tc`'s words, of the only class of the HTB at `port`, and the
    /// limit of its queue, if that is not to be HTB's own 1000 packets.
    pub fn limit_htb(
        &self,
        port: &str,
        rate: &str,
        burst: &str,
        queue: Option<Bytes>,
    ) -> Result<()> {
        let class = format!(
            "class replace dev {port} parent 1: classid 1:1 htb rate {rate} burst {burst} \
             cburst {burst} quantum 60000"
        );
        tc(self.bed.shaper(), &class)?;
        if let Some(Bytes(queue)) = queue {
            let leaf = format!("qdisc replace dev {port} parent 1:1 handle 2: bfifo limit {queue}");
            tc(self.bed.shaper(), &leaf)?;
        }
        Ok(())
    }
}

impl Drop for Bridge<'_> {
    fn drop(&mut self) {
        // There may be no qdisc; and the namespace, if nothing else, takes all with it.
        for port in [PORT_A, PORT_B] {
            let _ = tc(self.bed.shaper(), &format!("qdisc del dev {port} root"));
        }
        let _ = ip(self.bed.shaper(), &format!("link del {BRIDGE}"));
    }
}
