//! The host plane: Narrows at the egress of this machine's own first port, over the kernel's `fq`.

use super::departures::{qdiscs, tc};
use super::exchange::{take_over, too_old};
use super::router::with_networks;
use super::{DELIVERED, FREE, LIMIT, Lab, SETTLE};
use crate::guest::Verdict;
use crate::guest::bed::{End, PORTS, ip, run};
use crate::guest::networks::{Networks, port_ips};
use crate::guest::shaper::{self, Shaper, narrows};
use crate::guest::traffic::{transfer_from_here, transfer_to_here, wait_for_ping};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::net::Ipv4Addr;

/// The limit holds, also after an upgrade; what is below the port is repaired, put back, and found
/// again after a kill; and what somebody else has installed polices.
pub(super) fn shapes(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| {
        print!("{}", narrows(&["doctor", PORTS[0], "--plane", "host"])?);
        let checked = checks(networks);
        // Whatever comes out, so that the next check finds the port as it was.
        let _ = tc("qdisc del", "root");
        checked
    })
}

/// What arrives is held to the limit of its ifb, also after an upgrade. A killed instance lets all
/// arrive, and the next one uses what it has left and removes it.
pub(super) fn shapes_what_arrives(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| {
        let [client, _] = &networks.ends;
        let shaper = match start_with_ifb(networks) {
            // Before Linux 6.6, where the driver has no XDP, and on a veth.
            Err(error) if format!("{error:#}").contains("generic XDP: shape what leaves") => {
                ensure!(!links()?.contains("ifb4"), "{}", links()?);
                return Ok("refused, since its program would run at generic XDP".to_owned());
            }
            started => started?,
        };
        let rate = arriving(client).with_context(|| shaper.log())?;
        let upgraded = match take_over(&[client.clone(), End { ip: own()?, ..client.clone() }]) {
            Ok(new_process) => {
                let again = arriving(client).context("after an upgrade");
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
        let ifb = format!("ifb4{}", PORTS[0]);
        let is_there = || links().map(|links| links.contains(&ifb));
        ensure!(!is_there()?, "{ifb} is left: {}", links()?);
        start_with_ifb(networks)?.kill()?;
        let free = transfer_to_here(client, own()?).context("fail-open")?;
        ensure!(free > FREE, "{free:.2} Mbit/s arrive after a kill");
        let left = [links()?, all_filters()?].concat();
        ensure!(left.contains(&ifb), "no {ifb} after a kill: {left}");
        let shaper = start_with_ifb(networks).context("again")?;
        arriving(client).context("again").with_context(|| shaper.log())?;
        shaper.stop()?;
        let left = [links()?, all_filters()?].concat();
        ensure!(!left.contains(&ifb) && !left.contains("narrows"), "left behind: {left}");
        Ok(format!("{rate:.2} Mbit/s of {LIMIT}; {upgraded}"))
    })
}

pub(super) fn start_with_ifb(networks: &Networks) -> Result<Shaper> {
    start_limiting(networks, &format!("ifb4{}", PORTS[0]), &["--ifb", PORTS[0]])
}

/// The rate at which what `from` sends arrives, which is that of the limit.
fn arriving(from: &End) -> Result<f64> {
    let rate = transfer_to_here(from, own()?)?;
    ensure!(DELIVERED.contains(&rate), "{rate:.2} Mbit/s arrive under a limit of {LIMIT}");
    let show: Value = serde_json::from_str(&narrows(&["show", "--json"])?)?;
    ensure!(show["conservation"]["unaccounted"] == 0, "{}", show["conservation"]);
    let how = &show["ports"][1]["own_traffic"];
    ensure!(how == "shaped", "what arrives is {how}");
    Ok(rate)
}

fn links() -> Result<String> {
    ip(&["-brief", "link"])
}

/// What is at both ends of the first port.
fn all_filters() -> Result<String> {
    let filters = |list: &str| run(&["tc", "filter", "show", "dev", PORTS[0], list]);
    Ok([filters("ingress")?, filters("egress")?].concat())
}

fn checks(networks: &Networks) -> Result<String> {
    let before = qdiscs()?;
    let shaper = start(networks)?;
    let rate = limited(networks, &shaper, "shaped").with_context(|| shaper.log())?;
    tc("qdisc del", "root")?;
    shaper.wait_until("fq is there again", is_there_again)?;
    ensure!(qdiscs()?.contains("qdisc fq "), "{}", qdiscs()?);
    let upgraded = upgrade(networks, shaper)?;
    ensure!(qdiscs()? == before, "{} is left of {before}", qdiscs()?);

    let shaper = start(networks)?;
    shaper.kill()?;
    let left = qdiscs()?;
    ensure!(left.contains("qdisc fq "), "{left}");
    start(networks)?.stop()?;
    ensure!(qdiscs()? == before, "{} is left of {before} after a kill", qdiscs()?);

    tc("qdisc add", "root handle 7: htb")?;
    let shaper = start(networks)?;
    limited(networks, &shaper, "policed").with_context(|| shaper.log())?;
    tc("qdisc del", "root")?;
    shaper.wait_until("fq holds packets", |show| own_traffic(show) == "shaped")?;
    shaper.stop()?;
    ensure!(qdiscs()? == before, "{} is left of {before}", qdiscs()?);
    Ok(format!("{rate:.2} Mbit/s of {LIMIT}; {upgraded}; policed above htb"))
}

fn start(networks: &Networks) -> Result<Shaper> {
    start_limiting(networks, PORTS[0], &[])
}

/// Starts it with a limit at `dev` and `more` options.
fn start_limiting(networks: &Networks, dev: &str, more: &[&str]) -> Result<Shaper> {
    let shaper = Shaper::run(&[&["--plane", "host", "--ports", PORTS[0]], more].concat())?;
    let limit = format!("tbf rate {LIMIT}mbit burst 30k latency 200ms");
    shaper.tc(&format!("qdisc add dev {dev} root handle 1: {limit}"))?;
    wait_for_ping(&networks.ends[0], own()?, SETTLE).with_context(|| shaper.log())?;
    Ok(shaper)
}

/// This machine's address at the port.
pub(super) fn own() -> Result<Ipv4Addr> {
    let [own, _] = port_ips(0);
    Ok(own.parse()?)
}

fn own_traffic(show: &Value) -> &str {
    show["ports"][0]["own_traffic"].as_str().unwrap_or_default()
}

fn is_there_again(show: &Value) -> bool {
    let events = show["events"].as_array().into_iter().flatten();
    events.filter_map(Value::as_str).any(|event| event.contains("it is there again"))
}

/// What this machine sends is held to the limit in this way, and each packet is accounted for.
/// Returns the rate at the receiver.
pub(super) fn limited(networks: &Networks, shaper: &Shaper, how: &str) -> Result<f64> {
    let rate = transfer_from_here(&networks.ends[0])?;
    let show = shaper.show()?;
    ensure!(own_traffic(&show) == how, "{}, not {how}", own_traffic(&show));
    ensure!(show["conservation"]["unaccounted"] == 0, "{}", show["conservation"]);
    if how == "shaped" {
        ensure!(DELIVERED.contains(&rate), "{rate:.2} Mbit/s under a limit of {LIMIT}");
    } else {
        // What is dropped costs TCP goodput.
        ensure!(rate < *DELIVERED.end(), "{rate:.2} Mbit/s under a limit of {LIMIT}");
    }
    Ok(rate)
}

/// Lets the same program take over, where it can, and stops it.
fn upgrade(networks: &Networks, shaper: Shaper) -> Result<&'static str> {
    let [client, _] = &networks.ends;
    let ends = [client.clone(), End { ip: own()?, ..client.clone() }];
    let new_process = take_over(&ends).with_context(|| shaper.log())?;
    let rate = transfer_from_here(client);
    let show: Result<Value> =
        narrows(&["show", "--json"]).and_then(|said| Ok(serde_json::from_str(&said)?));
    shaper.ended()?;
    shaper::end(new_process)?;
    let (rate, show) = (rate?, show?);
    ensure!(DELIVERED.contains(&rate), "{rate:.2} Mbit/s after an upgrade");
    ensure!(own_traffic(&show) == "shaped", "{} after an upgrade", own_traffic(&show));
    Ok("also after an upgrade")
}
