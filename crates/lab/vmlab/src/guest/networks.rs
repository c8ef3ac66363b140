//! Two networks of both families with a router between them: what the ends of the bed are in while
//! a router is tried.
//!
//! ```text
//!   nrw-client: 10.1.0.2, fd01::2 ══ port-a │ 10.2.0.2, fd02::2: nrw-server ══ port-b
//! ```

use super::bed::{Bed, End, PORTS, ip};
use super::trunk::master;
use anyhow::{Context, Result};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The kernel's settings that make it a router.
const FORWARDING: [&str; 2] =
    ["/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"];

/// The ends in networks of their own.
#[derive(Debug)]
pub struct Networks {
    /// Client and server.
    pub ends: [End; 2],
}

impl Networks {
    /// Gives ports and ends their addresses and routes, and lets the kernel forward. A bridge that
    /// joins the ports is removed.
    pub fn up(bed: &Bed) -> Result<Self> {
        for port in PORTS {
            if let Some(bridge) = master(port) {
                ip(&["link", "del", &bridge])?;
            }
        }
        let ends = [0, 1].map(|number| {
            let End { namespace, device, tagged_ip, .. } = &bed.ends[number];
            let ip = end_ip(number);
            End { namespace: namespace.clone(), ip, tagged_ip: *tagged_ip, device }
        });
        let networks = Self { ends };
        for setting in FORWARDING {
            fs::write(setting, "1").with_context(|| setting.to_owned())?;
        }
        for number in [0, 1] {
            networks.give_addresses(number)?;
            let End { namespace, ip, device, .. } = &networks.ends[number];
            let (ip6, [via, via6]) = (end_ip6(number), port_ips(number));
            for words in [
                format!("addr add {ip}/24 dev {device}"),
                format!("-6 addr add {ip6}/64 dev {device} nodad"),
                format!("route add default via {via}"),
                format!("-6 route add default via {via6}"),
            ] {
                namespace.run("ip", &words.split(' ').collect::<Vec<_>>())?;
            }
        }
        Ok(networks)
    }

    /// Gives a port its addresses, which it loses with its driver.
    pub fn give_addresses(&self, number: usize) -> Result<()> {
        let [ip4, ip6] = port_ips(number);
        ip(&["addr", "add", &format!("{ip4}/24"), "dev", PORTS[number]])?;
        ip(&["-6", "addr", "add", &format!("{ip6}/64"), "dev", PORTS[number], "nodad"])?;
        Ok(())
    }

    /// Makes ports, ends and kernel as they were.
    pub fn down(self) -> Result<()> {
        for (number, End { namespace, ip: own, device, .. }) in self.ends.iter().enumerate() {
            // Not its link-local address: without one the kernel asks for no neighbour of IPv6.
            let [port_ip, port_ip6] = port_ips(number);
            ip(&["addr", "del", &format!("{port_ip}/24"), "dev", PORTS[number]])?;
            ip(&["-6", "addr", "del", &format!("{port_ip6}/64"), "dev", PORTS[number]])?;
            let ip6 = end_ip6(number);
            for words in [
                "route del default".to_owned(),
                "-6 route del default".to_owned(),
                format!("addr del {own}/24 dev {device}"),
                format!("-6 addr del {ip6}/64 dev {device}"),
            ] {
                namespace.run("ip", &words.split(' ').collect::<Vec<_>>())?;
            }
        }
        FORWARDING.into_iter().try_for_each(|setting| Ok(fs::write(setting, "0")?))
    }
}

fn network(number: usize) -> u8 {
    if number == 0 { 1 } else { 2 }
}

fn end_ip(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, network(number), 0, 2)
}

/// An end's address of the other family.
pub fn end_ip6(number: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00 + u16::from(network(number)), 0, 0, 0, 0, 0, 0, 2)
}

/// A port's addresses of both families.
pub fn port_ips(number: usize) -> [String; 2] {
    let network = network(number);
    [format!("10.{network}.0.1"), format!("fd0{network}::1")]
}
