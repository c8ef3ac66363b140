//! The kernel's own forwarder in the shaper's place: a bridge over the two ports.

use crate::bed::{PORT_A, PORT_B, Testbed, tc};
use crate::process;
use anyhow::Result;
use std::process::Command;

/// The bridge's device.
const BRIDGE: &str = "bridge0";

/// A bridge between the ports; taken away when dropped.
#[derive(Debug)]
pub struct Bridge<'a> {
    bed: &'a Testbed,
}

impl<'a> Bridge<'a> {
    /// Joins the ports of `bed`. It learns no addresses and says nothing itself.
    pub fn over(bed: &'a Testbed) -> Result<Self> {
        ip(bed, &format!("link add name {BRIDGE} type bridge stp_state 0 mcast_snooping 0"))?;
        let bridge = Self { bed };
        ip(bed, &format!("link set {BRIDGE} up"))?;
        for port in [PORT_A, PORT_B] {
            ip(bed, &format!("link set {port} master {BRIDGE}"))?;
        }
        Ok(bridge)
    }

    /// Puts the kernel's own qdisc at the root of port B, in `tc`'s words.
    pub fn shape(&self, qdisc: &str) -> Result<()> {
        tc(self.bed.shaper(), &format!("qdisc replace dev {PORT_B} root {qdisc}")).map(drop)
    }
}

impl Drop for Bridge<'_> {
    fn drop(&mut self) {
        // There may be no qdisc; and the namespace, if nothing else, takes all with it.
        let _ = tc(self.bed.shaper(), &format!("qdisc del dev {PORT_B} root"));
        let _ = ip(self.bed, &format!("link del {BRIDGE}"));
    }
}

fn ip(bed: &Testbed, words: &str) -> Result<()> {
    let words: Vec<&str> = words.split_whitespace().collect();
    process::run(Command::new("ip").args(["-n", bed.shaper().name()]).args(words)).map(drop)
}
