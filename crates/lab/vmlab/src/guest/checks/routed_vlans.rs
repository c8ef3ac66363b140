//! A router's VLANs: networks in two VLANs of one port, beside one without a tag there, and one
//! behind the other port.
//!
//! ```text
//!   nrw-vlan-100: 10.100.0.2 ┐
//!   nrw-vlan-200: 10.200.0.2 ├ client: 10.1.0.2 ══ port-a │ port-b ══ nrw-server: 10.2.0.2
//! ```

use super::exchange::upgrade_or_stop;
use super::router::with_networks;
use super::{
    DESTINATIONS, LIMITED, Lab, MTU, OFFERED, SETTLE, SMALL, TBF, WORKERS, XDP_PLANE, mode, outcome,
};
use crate::guest::Verdict;
use crate::guest::bed::{End, PORTS, ip};
use crate::guest::networks::{Networks, end_ip6};
use crate::guest::shaper::{Shaper, narrows};
use crate::guest::traffic::{HEADERS, HEADERS6, flood, ping, wait_for_ping};
use crate::guest::trunk::{DEVICE, Trunk, VLANS, ports};
use anyhow::{Context, Result, ensure};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// With workers.
pub(super) fn workers(lab: &mut Lab) -> Result<Verdict> {
    with_vlans(lab, WORKERS)
}

/// On the XDP plane.
pub(super) fn xdp_plane(lab: &mut Lab) -> Result<Verdict> {
    with_vlans(lab, XDP_PLANE)
}

fn with_vlans(lab: &mut Lab, plane: &[&str]) -> Result<Verdict> {
    with_networks(lab, |lab, networks| {
        let trunk = Trunk::up(lab.client())?;
        let checked = Vlans::up(&trunk).and_then(|vlans| vlans.routed(networks, plane));
        let removed = trunk.down_beside();
        let note = checked?;
        removed?;
        Ok(note)
    })
}

/// An end in each VLAN.
struct Vlans([(End, Ipv6Addr); 2]);

impl Vlans {
    /// Gives the VLANs and their ends addresses and routes.
    fn up(trunk: &Trunk) -> Result<Self> {
        let networks = VLANS.map(|vid| u8::try_from(vid).unwrap_or_default());
        for ((end, network), (port, vid)) in
            trunk.ends.iter().zip(networks).zip(ports().iter().zip(VLANS))
        {
            let id = vid.to_string();
            ip(&["link", "add", "link", DEVICE, "name", port, "type", "vlan", "id", &id])?;
            ip(&["link", "set", port, "up"])?;
            ip(&["addr", "add", &format!("10.{network}.0.1/24"), "dev", port])?;
            ip(&["-6", "addr", "add", &format!("fd{network:02x}::1/64"), "dev", port, "nodad"])?;
            for words in [
                format!("addr add 10.{network}.0.2/24 dev {}", end.device),
                format!("-6 addr add fd{network:02x}::2/64 dev {} nodad", end.device),
                format!("route add default via 10.{network}.0.1"),
                format!("-6 route add default via fd{network:02x}::1"),
            ] {
                end.namespace.run("ip", &words.split(' ').collect::<Vec<_>>())?;
            }
        }
        let end = |number: usize| {
            let (End { namespace, tagged_ip, device, .. }, network) =
                (&trunk.ends[number], networks[number]);
            let ip = Ipv4Addr::new(10, network, 0, 2);
            let ip6 = Ipv6Addr::new(0xfd00 + u16::from(network), 0, 0, 0, 0, 0, 0, 2);
            (End { namespace: namespace.clone(), ip, tagged_ip: *tagged_ip, device }, ip6)
        };
        Ok(Self([end(0), end(1)]))
    }

    /// Narrows routes between them and the other networks; at last the kernel does.
    fn routed(&self, networks: &Networks, plane: &[&str]) -> Result<String> {
        let Self([(one, _), (other, _)]) = self;
        let doctor = narrows(&[&["doctor", PORTS[0], PORTS[1], "--router"], plane].concat())?;
        print!("{doctor}");
        ensure!(doctor.contains("its VLANs are routed with it"), "{doctor}");
        let shaper = Shaper::run(&[&["--router", &PORTS.join(",")], plane].concat())?;
        self.flows(networks).with_context(|| shaper.log())?;
        let checked = self.in_the_driver(networks, &shaper);
        checked.with_context(|| shaper.log())?;
        self.comes_and_goes(networks, &shaper).with_context(|| shaper.log())?;
        shaper.tc(&format!("qdisc add dev {DEVICE} root tbf {TBF}"))?;
        let rate: f64 = flood(one, other, DESTINATIONS, OFFERED)?.iter().sum();
        ensure!(LIMITED.contains(&rate), "{rate:.2} Mbit/s from VLAN to VLAN, with a limit of 5");
        let show = shaper.show()?;
        ensure!(show["conservation"]["unaccounted"] == 0, "{}", show["conservation"]);
        let ends = [one.clone(), networks.ends[1].clone()];
        let upgraded = upgrade_or_stop(&ends, shaper, DEVICE, || self.pings(networks))?;
        self.flows(networks).context("fail-open")?;
        self.pings(networks).context("fail-open")?;
        Ok(format!("{}; {rate:.2} of {:.0} Mbit/s; {upgraded}", mode(&show), 2.0 * OFFERED))
    }

    /// Waits until pings of both families pass.
    fn flows(&self, networks: &Networks) -> Result<Duration> {
        let Self([(one, _), (other, other6)]) = self;
        let [client, server] = &networks.ends;
        let mut pause = Duration::ZERO;
        for (from, to) in [(one, other.ip), (one, server.ip), (client, other.ip)] {
            pause += wait_for_ping(from, to, SETTLE)?;
        }
        for (from, to) in [(one, *other6), (one, end_ip6(1)), (client, *other6)] {
            pause += wait_for_ping(from, to, SETTLE)?;
        }
        Ok(pause)
    }

    /// Between VLANs, from a VLAN to a network without a tag on both ports, and back.
    fn pings(&self, networks: &Networks) -> Result<()> {
        let Self([(one, one6), (other, other6)]) = self;
        let [client, server] = &networks.ends;
        ping(one, other.ip, MTU - HEADERS).context("between VLANs")?;
        ping(other, *one6, MTU - HEADERS6).context("between VLANs, IPv6")?;
        ping(one, server.ip, MTU - HEADERS).context("from a VLAN to the other port")?;
        ping(server, *other6, SMALL).context("to a VLAN from the other port, IPv6")?;
        ping(client, other.ip, SMALL).context("to a VLAN of the same port")?;
        ping(other, client.ip, MTU - HEADERS).context("from a VLAN of the same port")
    }

    /// Pings pass, and none needs the kernel once it has the neighbours.
    fn in_the_driver(&self, networks: &Networks, shaper: &Shaper) -> Result<()> {
        let counted = || -> Result<[u64; 2]> {
            let show = shaper.show()?;
            Ok([0, 1].map(|port| outcome(&show, port, "routed")))
        };
        let before = counted()?;
        self.pings(networks)?;
        let after = counted()?;
        let routes = &shaper.show()?["ports"][0]["routes"];
        // Of six rows of ten, four stay at this port, and two cross.
        for ((port, least), (before, after)) in
            [100, 20].into_iter().enumerate().zip(before.into_iter().zip(after))
        {
            let routed = after - before;
            ensure!(routed >= least, "{routed} of {least} were routed at port {port}: {routes}");
        }
        Ok(())
    }

    /// A VLAN that goes down is the kernel's, and one that comes back is routed again.
    fn comes_and_goes(&self, networks: &Networks, shaper: &Shaper) -> Result<()> {
        let [vlan, _] = &ports();
        let other_tags = || Ok::<_, anyhow::Error>(outcome(&shaper.show()?, 0, "other_tag"));
        ip(&["link", "set", vlan, "down"])?;
        let before = other_tags()?;
        let Self([(one, _), _]) = self;
        let lost = ping(one, networks.ends[1].ip, SMALL);
        ensure!(lost.is_err() && other_tags()? > before, "a VLAN that is down is routed: {lost:?}");
        ip(&["link", "set", vlan, "up"])?;
        let address = format!("fd{:02x}::1/64", VLANS[0]);
        ip(&["-6", "addr", "replace", &address, "dev", vlan, "nodad"])?;
        self.flows(networks)?;
        self.in_the_driver(networks, shaper)
    }
}
