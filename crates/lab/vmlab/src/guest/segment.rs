//! A bridge of the operator with three ports, and a station behind each: what the ends of the bed
//! are in while a switch is tried.
//!
//! ```text
//!   client ══ port-a ┐
//!   server ══ port-b ├ bridge: one network, or two VLANs
//!   third  ══ port-c ┘
//! ```

use super::bed::{Bed, End, PORTS, VLAN, ip, run};
use super::trunk::master;
use anyhow::{Context, Result};
use narrows_testbed::{Namespace, process};
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

/// The ports. The last one has no hardware.
pub const THREE_PORTS: [&str; 3] = [PORTS[0], PORTS[1], "port-c"];
/// The bridge.
const BRIDGE: &str = "segment";
/// The third end's device.
const THIRD: &str = "third";
/// Its address is always the same: the other ends remember it from check to check.
const THIRD_MAC: &str = "52:54:00:00:00:05";

/// The ends, each behind a port of the bridge.
#[derive(Debug)]
pub struct Segment {
    /// Client and server.
    pub ends: [End; 2],
    /// The third one. What it sends has no tag, and its `tagged_ip` is reached through a bridge
    /// that takes tags off and puts them on.
    pub third: End,
}

impl Segment {
    /// Lays a third cable, and makes the bridge. One that joins the ports is removed.
    pub fn up(bed: &Bed) -> Result<Self> {
        for port in PORTS {
            if let Some(bridge) = master(port) {
                ip(&["link", "del", &bridge])?;
            }
        }
        let ends = bed.ends.each_ref().map(|End { namespace, ip, tagged_ip, device }| End {
            namespace: namespace.clone(),
            ip: *ip,
            tagged_ip: *tagged_ip,
            device,
        });
        let third = End {
            namespace: Namespace::create(&format!("nrw-{THIRD}"))?,
            ip: Ipv4Addr::new(198, 18, 0, 3),
            tagged_ip: Ipv4Addr::new(198, 18, 7, 3),
            device: THIRD,
        };
        let segment = Self { ends, third };
        segment.cable(&queues(PORTS[0])?)?;
        ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        ip(&["link", "set", BRIDGE, "up"])?;
        THREE_PORTS.into_iter().try_for_each(join)?;
        Ok(segment)
    }

    /// The cable of the third end, with so many `queues` as the other ports have.
    fn cable(&self, queues: &str) -> Result<()> {
        let End { namespace, ip: own, tagged_ip, device } = &self.third;
        let (port, queues) = (THREE_PORTS[2], ["numtxqueues", queues, "numrxqueues", queues]);
        let peer = ["type", "veth", "peer", "name", device, "address", THIRD_MAC];
        let there = ["netns", namespace.name()];
        ip(&[&["link", "add", port][..], &queues, &peer, &there, &queues].concat())?;
        self.third.switch_offloads_off();
        // The port sends what drivers redirect to it only to an end that merges.
        namespace.run("ethtool", &["-K", device, "gro", "on"])?;
        run(&["ethtool", "-K", port, "tx", "off"])?;
        for words in [
            &["link", "set", "lo", "up"][..],
            &["link", "set", device, "up"],
            &["addr", "add", &format!("{own}/24"), "dev", device],
            &["addr", "add", &format!("{tagged_ip}/24"), "dev", device],
        ] {
            namespace.run("ip", words)?;
        }
        ip(&["link", "set", port, "up"])?;
        Ok(())
    }

    /// Lets the bridge look at tags: the first two ports are in VLAN 1 without tags and in the
    /// ends' VLAN with them, the third is in the ends' VLAN alone, without tags.
    pub fn divide(&self) -> Result<()> {
        let vlan = VLAN.to_string();
        ip(&["link", "set", BRIDGE, "type", "bridge", "vlan_filtering", "1"])?;
        let [a, b, c] = THREE_PORTS;
        for words in [
            &["add", "dev", a, "vid", &vlan][..],
            &["add", "dev", b, "vid", &vlan],
            &["del", "dev", c, "vid", "1"],
            &["add", "dev", c, "vid", &vlan, "pvid", "untagged"],
        ] {
            run(&[&["bridge", "vlan"][..], words].concat())?;
        }
        Ok(())
    }

    /// Makes ports and ends as they were.
    pub fn down(self) -> Result<()> {
        ip(&["link", "del", BRIDGE])?;
        ip(&["link", "del", THREE_PORTS[2]])?;
        process::run(Command::new("ip").args(["netns", "del", self.third.namespace.name()]))?;
        Ok(())
    }
}

/// How many queues a port receives from.
fn queues(port: &str) -> Result<String> {
    let folder = format!("/sys/class/net/{port}/queues");
    let entries = fs::read_dir(&folder).with_context(|| folder.clone())?.flatten();
    let receives = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("rx-");
    Ok(entries.filter(receives).count().to_string())
}

/// Puts a port into the bridge, which it leaves with its driver.
pub fn join(port: &str) -> Result<()> {
    ip(&["link", "set", port, "master", BRIDGE]).map(drop)
}
