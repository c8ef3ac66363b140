//! A home's router by the host plane: what leaves towards the Internet is divided among the hosts
//! behind the kernel's NAT, whose packets all have the router's address there.

use super::exchange::too_old;
use super::flows::set;
use super::router::with_networks;
use super::{LIMIT, Lab, SETTLE};
use crate::guest::Verdict;
use crate::guest::bed::{End, PORTS};
use crate::guest::networks::Networks;
use crate::guest::shaper::{self, Shaper, narrows};
use crate::guest::traffic::{FLOOD_SPAN, Flow, flood_by, wait_for_ping};
use anyhow::{Context, Result, ensure};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Hides the hosts behind the router's address.
const MASQUERADE: &str = "table ip home {
    chain postrouting {
        type nat hook postrouting priority srcnat;
        oifname port-b masquerade
    }
}";
/// The second host in the client's network.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 3);
/// The flows: many of the first host, one of the other.
const FIRST_PORT: u16 = 9100;
const MANY: u16 = 4;
/// What each of them offers, in Mbit/s: more than half of the limit.
const OFFERED: f64 = 3.0;
/// The other host's part of what arrives: of hosts, and of flows.
const OF_TWO: RangeInclusive<f64> = 0.42..=0.58;
const OF_FIVE: RangeInclusive<f64> = 0.1..=0.3;
/// Of what arrives, in Mbit/s: all of the limit.
const FULL: RangeInclusive<f64> = 4.5..=5.2;

pub(super) fn hosts_share(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| {
        let client = &networks.ends[0];
        let address = format!("{OTHER}/24");
        client.namespace.run("ip", &["addr", "add", &address, "dev", client.device])?;
        let checked = set(MASQUERADE).and_then(|()| share(networks));
        // Whatever comes out, so that the next check finds the networks as they were.
        let removed = set("flush ruleset");
        client.namespace.run("ip", &["addr", "del", &address, "dev", client.device])?;
        let note = checked?;
        removed.map(|()| note)
    })
}

fn share(networks: &Networks) -> Result<String> {
    let [client, server] = &networks.ends;
    let [_, wan] = PORTS;
    let shaper = Shaper::run(&["--plane", "host", "--ports", wan])?;
    let tc = |words: &str| shaper.tc(words).with_context(|| shaper.log());
    tc(&format!("qdisc add dev {wan} root handle 1: htb default 10"))?;
    tc(&format!("class add dev {wan} parent 1: classid 1:10 htb rate {LIMIT}mbit burst 15k"))?;
    let said = tc(&format!("qdisc add dev {wan} parent 1:10 handle 2: fq_codel hosts src nat"))?;
    ensure!(said.is_empty(), "{said}");
    wait_for_ping(client, server.ip, SETTLE).with_context(|| shaper.log())?;
    let inside = part(client, server, &OF_TWO).with_context(|| shaper.log())?;
    tc(&format!("qdisc change dev {wan} parent 1:10 handle 2: fq_codel hosts src"))?;
    let outside = part(client, server, &OF_FIVE).context("without nat")?;
    tc(&format!("qdisc change dev {wan} parent 1:10 handle 2: fq_codel hosts src nat"))?;
    let unaccounted = &shaper.show()?["conservation"]["unaccounted"];
    ensure!(unaccounted == 0, "{unaccounted} unaccounted");
    let upgraded = match narrows(&["upgrade"]) {
        Ok(said) => {
            let new_process = super::new_process(&said).with_context(|| said.clone())?;
            let again = part(client, server, &OF_TWO).context("after an upgrade");
            shaper.ended()?;
            shaper::end(new_process)?;
            again?;
            "also after an upgrade"
        }
        Err(error) => {
            too_old(&error)?;
            shaper.stop()?;
            "no upgrade before Linux 6.4"
        }
    };
    Ok(format!(
        "a host with one flow beside one with {MANY} has {:.0} % with nat, {:.0} % without; {upgraded}",
        100.0 * inside,
        100.0 * outside
    ))
}

/// The other host's part of what arrives.
fn part(client: &End, server: &End, expected: &RangeInclusive<f64>) -> Result<f64> {
    let flow = |number| {
        let source = if number == MANY { OTHER } else { client.ip };
        Flow::new(client, source, server, FIRST_PORT + number)
    };
    let rates = flood_by(&(0..=MANY).map(flow).collect::<Vec<_>>(), OFFERED, FLOOD_SPAN)?;
    let all: f64 = rates.iter().sum();
    let part = rates[usize::from(MANY)] / all;
    ensure!(FULL.contains(&all), "{all:.2} of {LIMIT} Mbit/s arrive: {rates:.2?}");
    ensure!(expected.contains(&part), "one of two hosts has {part:.2}: {rates:.2?}");
    Ok(part)
}
