//! The host plane at a `netkit`: what this machine sends into a container, through a device without
//! a header of Ethernet.

use super::host_plane::limited;
use super::router::with_networks;
use super::{LIMIT, Lab, SETTLE};
use crate::guest::Verdict::{self, Skipped};
use crate::guest::bed::{End, ip};
use crate::guest::networks::Networks;
use crate::guest::shaper::Shaper;
use crate::guest::traffic::wait_for_ping;
use anyhow::{Context, Result, ensure};
use std::net::Ipv4Addr;

/// The device of this machine, and that of the container.
const DEVICES: [&str; 2] = ["nk-host", "nk-pod"];
const OWN: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
const POD: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);

pub(super) fn limits(lab: &mut Lab) -> Result<Verdict> {
    let [host, pod] = DEVICES;
    // Before Linux 6.7 there is none.
    if let Err(error) = ip(&["link", "add", host, "type", "netkit"]) {
        let why = format!("{error:#}");
        ensure!(why.contains("Unknown device type"), "{why}");
        return Ok(Skipped("kernels before Linux 6.7 have no netkit".to_owned()));
    }
    let checked = with_networks(lab, |_, networks| {
        let peer = ip(&["-oneline", "link", "show", "type", "netkit"])?;
        let peer = peer_of(&peer, host).with_context(|| peer.clone())?.to_owned();
        ip(&["link", "set", &peer, "name", pod])?;
        into(networks)
    });
    ip(&["link", "del", host])?;
    checked
}

fn into(networks: &Networks) -> Result<String> {
    let [host, pod] = DEVICES;
    let client = &networks.ends[0];
    let container = End { ip: POD, device: pod, ..client.clone() };
    ip(&["link", "set", pod, "netns", container.namespace.name()])?;
    ip(&["link", "set", host, "up"])?;
    ip(&["addr", "add", &format!("{OWN}/24"), "dev", host])?;
    for words in [format!("link set {pod} up"), format!("addr add {POD}/24 dev {pod}")] {
        container.namespace.run("ip", &words.split(' ').collect::<Vec<_>>())?;
    }
    let shaper = Shaper::run(&["--plane", "host", "--ports", host])?;
    let limit = format!("tbf rate {LIMIT}mbit burst 30k latency 200ms");
    shaper.tc(&format!("qdisc add dev {host} root handle 1: {limit}"))?;
    wait_for_ping(&container, OWN, SETTLE).with_context(|| shaper.log())?;
    let with_pod = Networks { ends: [container.clone(), networks.ends[1].clone()] };
    let rate = limited(&with_pod, &shaper, "shaped").with_context(|| shaper.log())?;
    shaper.stop()?;
    Ok(format!("{rate:.2} Mbit/s of {LIMIT} into a container"))
}

/// The other device of a pair, of which `said` has both.
fn peer_of<'a>(said: &'a str, device: &str) -> Option<&'a str> {
    let names = said.lines().filter_map(|line| line.split([':', '@']).nth(1).map(str::trim));
    names.into_iter().find(|name| *name != device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_the_one_with_another_name() {
        let said = "7: nk0@nk-host: <NOARP,M-DOWN> mtu 1500\n8: nk-host@nk0: <NOARP> mtu 1500\n";
        assert_eq!(peer_of(said, "nk-host"), Some("nk0"));
        assert_eq!(peer_of("", "nk-host"), None);
    }
}
