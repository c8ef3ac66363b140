//! A trunk: the two VLANs of a stick, each with an end of its own at the far end of the cable.
//!
//! ```text
//!   nrw-vlan-100: vlan-100 ┐
//!                          ├ client ══ port-a, with port-a.100 and port-a.200
//!   nrw-vlan-200: vlan-200 ┘
//! ```

use super::bed::{End, PORTS, VLAN, ip};
use anyhow::{Context, Result};
use narrows_testbed::{Namespace, process};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

/// The device of the stick.
pub const DEVICE: &str = PORTS[0];
/// Its VLANs.
pub const VLANS: [u16; 2] = [100, 200];
/// The ends' devices.
const DEVICES: [&str; 2] = ["vlan-100", "vlan-200"];
/// Addresses of the ends. VLANs of one device have its address, and a bridge between them could
/// not tell where it is.
const ADDRESSES: [&str; 2] = ["52:54:00:00:01:00", "52:54:00:00:02:00"];
/// What no pair has goes to the kernel, which has these addresses: without a tag, and in a VLAN.
pub const KERNEL: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 9), Ipv4Addr::new(198, 18, 7, 9)];

/// The ends of a stick.
#[derive(Debug)]
pub struct Trunk {
    /// In each VLAN one. Their own VLAN is behind the tag of the trunk's.
    pub ends: [End; 2],
}

impl Trunk {
    /// Makes the ends from VLANs of `client`. A bridge that joins the device with another port is
    /// removed.
    pub fn up(client: &End) -> Result<Self> {
        if let Some(bridge) = master(DEVICE) {
            ip(&["link", "del", &bridge])?;
        }
        let ends = [0, 1].map(|end| {
            let (device, id) = (DEVICES[end], VLANS[end].to_string());
            let namespace = Namespace::create(&format!("nrw-{device}"))?;
            let lower = ["link", "add", "link", client.device, "name", device];
            let vlan = ["address", ADDRESSES[end], "type", "vlan", "id", &id];
            client.namespace.run("ip", &[&lower[..], &vlan].concat())?;
            client.namespace.run("ip", &["link", "set", device, "netns", namespace.name()])?;
            let number = u8::try_from(end + 1)?;
            let ip = Ipv4Addr::new(198, 18, 100, number);
            let tagged_ip = Ipv4Addr::new(198, 18, 107, number);
            let end = End { namespace, ip, tagged_ip, device };
            end.set_up()?;
            anyhow::Ok(end)
        });
        let [one, other] = ends;
        let ends = [one?, other?];
        give_addresses()?;
        Ok(Self { ends })
    }

    /// Removes all of it, and what stands by for the stick.
    pub fn down(self) -> Result<()> {
        self.remove_ends()?;
        // Not its link-local address, which a router needs.
        ip(&["addr", "flush", "dev", DEVICE, "scope", "global"])?;
        Ok(())
    }

    /// The same, but the device keeps its other addresses.
    pub fn down_beside(self) -> Result<()> {
        self.remove_ends()?;
        ip(&["addr", "del", &format!("{}/24", KERNEL[0]), "dev", DEVICE])?;
        Ok(())
    }

    fn remove_ends(&self) -> Result<()> {
        for End { namespace, device, .. } in &self.ends {
            // A namespace removes what is in it only some time later.
            namespace.run("ip", &["link", "del", device])?;
            process::run(Command::new("ip").args(["netns", "del", namespace.name()]))?;
        }
        ip(&["link", "del", &own()])?;
        remove_standby()
    }
}

/// Gives the kernel its addresses at the device.
pub fn give_addresses() -> Result<()> {
    let (own, id) = (own(), VLAN.to_string());
    let [plain, tagged] = KERNEL.map(|ip| format!("{ip}/24"));
    ip(&["addr", "add", &plain, "dev", DEVICE])?;
    ip(&["link", "add", "link", DEVICE, "name", &own, "type", "vlan", "id", &id])?;
    ip(&["addr", "add", &tagged, "dev", &own])?;
    ip(&["link", "set", &own, "up"])?;
    Ok(())
}

/// The names of the stick's ports, which are those of its VLAN devices.
pub fn ports() -> [String; 2] {
    VLANS.map(|vid| format!("{DEVICE}.{vid}"))
}

/// What stands by for the stick: the numbers of its VLAN devices and of the bridges that they are
/// in, which no other devices ever have.
pub fn standby() -> Result<[[String; 2]; 2]> {
    let [one, other] = ports().map(|port| {
        let number = |file: &str| {
            let path = Path::new("/sys/class/net").join(&port).join(file);
            let number = fs::read_to_string(&path);
            number.with_context(|| format!("nothing stands by: no {}", path.display()))
        };
        anyhow::Ok([number("ifindex")?, number("master/ifindex")?])
    });
    Ok([one?, other?])
}

/// Removes what stands by, if anything does.
pub fn remove_standby() -> Result<()> {
    for port in ports() {
        if let Some(bridge) = master(&port) {
            ip(&["link", "del", &bridge])?;
        }
        if Path::new("/sys/class/net").join(&port).exists() {
            ip(&["link", "del", &port])?;
        }
    }
    Ok(())
}

/// The kernel's own VLAN device.
fn own() -> String {
    format!("{DEVICE}.{VLAN}")
}

/// The name of what `device` is a part of.
pub fn master(device: &str) -> Option<String> {
    let link = fs::read_link(format!("/sys/class/net/{device}/master")).ok()?;
    link.file_name()?.to_str().map(str::to_owned)
}
