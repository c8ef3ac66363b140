//! A host's port: Narrows in front of this machine's own stack, in the driver of its first port.

use super::exchange::take_over;
use super::front::FILTERS;
use super::router::with_networks;
use super::{Lab, MTU, SETTLE, SMALL, mode};
use crate::guest::Verdict;
use crate::guest::bed::{End, PORTS, VLAN, ip};
use crate::guest::networks::{Networks, port_ips};
use crate::guest::shaper::{self, Shaper, narrows};
use crate::guest::traffic::{HEADERS, answers, ping, wait_for_ping};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;

/// This machine's address in the VLAN of the ends.
const TAGGED: Ipv4Addr = Ipv4Addr::new(198, 18, 7, 9);
/// How many pings are to be dropped, and what drops them.
const DROPPED: u32 = 5;
const NO_PINGS: &str = "pref 7 protocol ip flower ip_proto icmp action drop";

/// A user's own program that drops long pings, and where guests put it.
const FRONT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/no_long_pings.bpf.o"));
const FRONT_FILE: &str = "/tmp/no_long_pings.o";

/// What passes, what is dropped, and what is left once it has ended.
pub(super) fn filters(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| {
        print!("{}", narrows(&["doctor", PORTS[0], "--port"])?);
        let vlan = format!("{}.{VLAN}", PORTS[0]);
        let id = VLAN.to_string();
        ip(&["link", "add", "link", PORTS[0], "name", &vlan, "type", "vlan", "id", &id])?;
        let checked = in_vlan(&vlan).and_then(|()| filtered(networks));
        ip(&["link", "del", &vlan])?;
        checked
    })
}

fn in_vlan(vlan: &str) -> Result<()> {
    ip(&["addr", "add", &format!("{TAGGED}/24"), "dev", vlan])?;
    ip(&["link", "set", vlan, "up"]).map(drop)
}

fn start(host: &Host, options: &[&str]) -> Result<Shaper> {
    let shaper = Shaper::run(&[&["--port", PORTS[0]], options].concat())?;
    wait_for_ping(host.client, host.ip, SETTLE).with_context(|| shaper.log())?;
    Ok(shaper)
}

/// This machine, as a client sees it.
struct Host<'a> {
    client: &'a End,
    ip: Ipv4Addr,
}

impl Host<'_> {
    fn answers(&self) -> Result<()> {
        ping(self.client, self.ip, SMALL)?;
        ping(self.client, self.ip, MTU - HEADERS)?;
        ping(self.client, TAGGED, SMALL).context("tagged")
    }

    fn is_silent(&self, ip: Ipv4Addr) -> Result<()> {
        let answered = answers(self.client, ip, SMALL, DROPPED)?;
        ensure!(answered == 0, "{answered} pings to {ip} pass that are to be dropped");
        Ok(())
    }
}

fn filtered(networks: &Networks) -> Result<String> {
    let [client, _] = &networks.ends;
    let [own, _] = port_ips(0);
    let host = Host { client, ip: own.parse()? };
    let shaper = start(&host, &[])?;
    let dropped = drops(&host, &shaper).with_context(|| shaper.log())?;
    // Where pings go in an upgrade.
    let ends = [client.clone(), End { ip: host.ip, ..client.clone() }];
    let new_process = take_over(&ends).with_context(|| shaper.log())?;
    let checked = host.answers().and_then(|()| balance(&shaper.show()?));
    // Whatever comes out, so that the next check finds the port free.
    shaper.ended()?;
    shaper::end(new_process)?;
    let after = checked.context("after the upgrade")?;
    ensure!(after >= dropped, "{dropped} were dropped before the upgrade, and {after} in all");
    // Some drivers take their link down for it.
    wait_for_ping(client, host.ip, SETTLE).context("stopped")?;
    host.answers().context("stopped")?;
    let received = on_another_cpu(&host)?;
    let own = own_program(&host)?;
    let shaper = start(&host, &[])?;
    shaper.tc(&format!("qdisc add dev {} clsact", PORTS[0]))?;
    shaper.tc(&format!("filter add dev {} ingress {NO_PINGS}", PORTS[0]))?;
    let mode = mode(&shaper.show()?);
    shaper.kill()?;
    wait_for_ping(client, host.ip, SETTLE).context("fail-open")?;
    host.answers().context("fail-open")?;
    Ok(format!(
        "{mode}; {after} dropped, also after an upgrade without a lost ping; {received} received on \
         another CPU; {own} dropped by a program of the user's"
    ))
}

/// What passes is received on another CPU. Returns how many frames were.
fn on_another_cpu(host: &Host) -> Result<u64> {
    let shaper = start(host, &["--rps", "1"])?;
    let checked = || {
        host.answers()?;
        let show = shaper.show()?;
        balance(&show)?;
        show["conservation"]["to_box"].as_u64().context("nothing was received")
    };
    let received = checked().with_context(|| shaper.log()).context("on another CPU")?;
    shaper.stop()?;
    wait_for_ping(host.client, host.ip, SETTLE).context("stopped on another CPU")?;
    Ok(received)
}

/// A user's own program drops what it should, before filters. Returns how many frames.
fn own_program(host: &Host) -> Result<u64> {
    fs::create_dir_all("/tmp")?;
    fs::write(FRONT_FILE, FRONT)?;
    let shaper = start(host, &["--front", FRONT_FILE])?;
    let checked = || {
        ping(host.client, host.ip, SMALL)?;
        ping(host.client, TAGGED, SMALL).context("tagged")?;
        let answered = answers(host.client, host.ip, MTU - HEADERS, DROPPED)?;
        ensure!(answered == 0, "{answered} pings pass that are to be dropped");
        let show = shaper.show()?;
        let (sum, verdicts) = (&show["conservation"], &show["ports"][0]["front"]);
        let count = |value: &Value| value.as_u64().with_context(|| format!("{sum} {verdicts}"));
        let [received, kept] = [count(&sum["received"])?, count(&sum["to_box"])?];
        let [passed, dropped] = [count(&verdicts["pass"])?, count(&verdicts["drop"])?];
        ensure!(
            received == kept + dropped && passed == kept && sum["dropped"]["front"] == dropped,
            "{sum} {verdicts}"
        );
        ensure!(dropped >= u64::from(DROPPED), "{dropped} were dropped");
        Ok(dropped)
    };
    let dropped = checked().with_context(|| shaper.log()).context("a user's own program")?;
    shaper.stop()?;
    wait_for_ping(host.client, host.ip, SETTLE).context("stopped behind a user's program")?;
    host.answers().context("without the user's program")?;
    Ok(dropped)
}

/// Filters of each kind drop what they should, and nothing else. Returns how many.
fn drops(host: &Host, shaper: &Shaper) -> Result<u64> {
    let port = PORTS[0];
    let filter = |words: &str| shaper.tc(&format!("filter add dev {port} ingress {words}"));
    host.answers()?;
    narrows(&["set", "create", "nobody", "hash:net"])?;
    narrows(&["set", "add", "nobody", "203.0.113.0/24"])?;
    shaper.tc(&format!("qdisc add dev {port} clsact"))?;
    for words in FILTERS {
        filter(words)?;
    }
    host.answers().context("beside filters")?;
    filter(&format!("pref 7 protocol 802.1Q flower vlan_id {VLAN} action drop"))?;
    host.is_silent(TAGGED)?;
    ping(host.client, host.ip, SMALL).context("without a tag")?;
    shaper.tc(&format!("filter del dev {port} ingress pref 7"))?;
    filter(NO_PINGS)?;
    host.is_silent(host.ip)?;
    let dropped = balance(&shaper.show()?)?;
    ensure!(dropped >= 2 * u64::from(DROPPED), "{dropped} were dropped");
    shaper.tc(&format!("qdisc del dev {port} clsact"))?;
    narrows(&["set", "destroy", "nobody"])?;
    host.answers().context("after filters")?;
    Ok(dropped)
}

/// Every frame went up the stack or was dropped. Returns how many were.
fn balance(show: &Value) -> Result<u64> {
    let sum = &show["conservation"];
    let count = |value: &Value| value.as_u64().with_context(|| format!("show lacks sums: {sum}"));
    let dropped = sum["dropped"]["filter"].as_u64().unwrap_or(0);
    let [received, kept] = [count(&sum["received"])?, count(&sum["to_box"])?];
    ensure!(received == kept + dropped && sum["unaccounted"] == 0 && sum["sent"] == 0, "{sum}");
    Ok(dropped)
}
