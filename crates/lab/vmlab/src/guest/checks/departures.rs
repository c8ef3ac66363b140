//! Departure times, without an instance: `fq` below the first port, and the program at its egress
//! that gives packets their times.

use super::router::with_networks;
use super::{DELIVERED, LIMIT, Lab, SETTLE, shell};
use crate::guest::Verdict;
use crate::guest::bed::{PORTS, run};
use crate::guest::networks::Networks;
use crate::guest::traffic::{transfer_from_here, wait_for_ping};
use anyhow::{Context, Result, bail, ensure};
use narrows_bpf::tree::layout::{Class, PRIORITIES};
use narrows_bpf::tree::{HostAddresses, Image, Scope, Tree};
use narrows_bpf::{Entry, Hook, XdpMode};
use narrows_link::Link;
use narrows_link::fq::{FqError, Held, Standing};
use std::collections::BTreeMap;
use std::fs;

const MS: u64 = 1_000_000;
/// What the kernel chooses, but for devices without a queue.
const DEFAULT: &str = "/proc/sys/net/core/default_qdisc";

/// What is installed is there, is repaired, and goes; what others have installed stays; packets
/// are held.
pub(super) fn fq(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |lab, networks| {
        let link = Link::by_name(PORTS[0])?;
        let checked = checks(lab, networks, &link);
        // Whatever comes out, the kernel chooses again.
        let _ = tc("qdisc del", "root");
        checked
    })
}

fn checks(lab: &Lab, networks: &Networks, link: &Link) -> Result<String> {
    let device = Device { ifindex: link.status.ifindex };
    let kind = device.installs()?;
    device.replaces_a_default_fq()?;
    device.leaves_others()?;
    let queues = other_queues(lab, &device, link)?;
    wait_for_ping(&networks.ends[0], networks.ends[1].ip, SETTLE)?;
    let shaped = shapes(networks, &device, link)?;
    Ok(format!("{kind}; {queues}; {shaped}"))
}

/// Runs the kernel's `tc` on the port: `qdisc add`, and what follows the device.
pub(super) fn tc(command: &str, words: &str) -> Result<String> {
    let line = format!("tc {command} dev {} {words}", PORTS[0]);
    run(&line.split_whitespace().collect::<Vec<_>>())
}

/// The kernel's qdiscs at the port.
pub(super) fn qdiscs() -> Result<String> {
    tc("qdisc show", "")
}

/// A port.
struct Device {
    ifindex: u32,
}

impl Device {
    fn install(&self) -> Result<Held> {
        Ok(Held::install(self.ifindex)?)
    }

    /// The qdisc of somebody else that is in the way, in words.
    fn refuses(&self) -> Result<String> {
        match Held::install(self.ifindex) {
            Err(FqError::Taken { found, .. }) => Ok(found),
            installed => bail!("the qdisc of somebody else is not refused: {installed:?}"),
        }
    }

    fn stands(&self, held: &Held, expected: Standing) -> Result<()> {
        let standing = held.standing()?;
        let now = || qdiscs().unwrap_or_default();
        ensure!(standing == expected, "{standing:?} instead of {expected:?}: {}", now());
        Ok(())
    }

    /// It is there, is found by the next run, is installed again once it is gone, and goes. Returns
    /// the kind at the root.
    fn installs(&self) -> Result<String> {
        let before = qdiscs()?;
        let held = self.install()?;
        let there = qdiscs()?;
        println!("== fq\n{before}{there}");
        ensure!(there.contains("limit 100000p flow_limit 10000p buckets 32768"), "{there}");
        ensure!(self.install()? == held && qdiscs()? == there, "another run changes it");
        tc("qdisc del", "root")?;
        self.stands(&held, Standing::Gone)?;
        held.repair()?;
        self.stands(&held, Standing::Holds)?;
        held.restore()?;
        ensure!(qdiscs()? == before, "{} is left of {before}", qdiscs()?);
        let root = there.lines().find(|line| line.contains(" root"));
        Ok(root.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("?").to_owned())
    }

    /// An `fq` that the kernel chose has the kernel's limits, and so is replaced until the end.
    fn replaces_a_default_fq(&self) -> Result<()> {
        let before = fs::read_to_string(DEFAULT).context(DEFAULT)?;
        // The kernel chooses when a qdisc of somebody's is removed.
        fs::write(DEFAULT, "fq")?;
        self.install()?.restore()?;
        let chosen = qdiscs()?;
        let held = self.install()?;
        ensure!(qdiscs()?.contains("flow_limit 10000p"), "instead of {chosen}{}", qdiscs()?);
        held.restore()?;
        ensure!(qdiscs()? == chosen, "{} is left of {chosen}", qdiscs()?);
        fs::write(DEFAULT, before.trim())?;
        Ok(self.install()?.restore()?)
    }

    /// What somebody else has installed is refused or used, and stays.
    fn leaves_others(&self) -> Result<()> {
        let held = self.install()?;
        tc("qdisc replace", "root handle 7: htb")?;
        self.stands(&held, Standing::Replaced("htb 7:".to_owned()))?;
        ensure!(held.repair().is_err() && held.restore().is_err(), "htb is replaced");
        ensure!(self.refuses()? == "htb 7:" && qdiscs()?.contains("htb 7: root"), "{}", qdiscs()?);
        tc("qdisc del", "root")?;

        tc("qdisc add", "root handle 8: fq")?;
        let found = self.refuses()?;
        ensure!(found.contains("flow_limit 100 orphan_mask 1023 horizon 10000ms"), "{found}");
        tc("qdisc change", "root handle 8: fq limit 100000 flow_limit 10000 orphan_mask 32767")?;
        let held = self.install()?;
        self.stands(&held, Standing::Holds)?;
        held.restore()?;
        ensure!(qdiscs()?.contains("fq 8: root"), "an fq of somebody else is removed");
        tc("qdisc del", "root")?;

        // Only some of the kernel's own choices take filters.
        if qdiscs()?.contains("qdisc fq_codel 0: root") {
            tc("filter add", "pref 1 protocol ip u32 match u32 0 0 flowid :1")?;
            ensure!(self.refuses()? == "with filters at its root", "{}", self.refuses()?);
            tc("filter del", "pref 1")?;
        }
        Ok(())
    }
}

/// A queue that comes later gets an `fq`, too.
fn other_queues(lab: &Lab, device: &Device, link: &Link) -> Result<String> {
    if lab.bed.most_queues().unwrap_or(1) < 2 {
        return Ok("one queue".to_owned());
    }
    let change = |count: u32| match shell(&lab.bed.queues_command(count)) {
        Err(refused) if format!("{refused:#}").contains("not supported") => Ok(false),
        result => result.map(|()| true),
    };
    if !change(1)? {
        return Ok("queues cannot be changed".to_owned());
    }
    let held = device.install()?;
    change(2)?;
    device.stands(&held, Standing::Bare(1))?;
    held.repair()?;
    device.stands(&held, Standing::Holds)?;
    change(1)?;
    device.stands(&held, Standing::Holds)?;
    held.restore()?;
    change(link.queues.now.tx)?;
    Ok("1, 2, 1 queues".to_owned())
}

/// A class holds what this machine sends to its rate: `fq` does, and nothing is policed.
fn shapes(networks: &Networks, device: &Device, link: &Link) -> Result<String> {
    let held = device.install()?;
    let mode = Hook::Xdp(XdpMode::Native);
    // It is not attached: what is at egress works on its maps.
    let mut tree = Tree::load(link.status.mac, false, Entry::Own, mode)?;
    tree.install(one_class(), &[1])?;
    tree.slow_path().context("the program that polices")?;
    let mut stamp = tree.departures(&[], HostAddresses::InHeaders)?.program;
    stamp.attach(device.ifindex)?;
    let way = if tc("filter show", "egress")?.contains("narrows") { "by clsact" } else { "by tcx" };
    let rate = transfer_from_here(&networks.ends[0]);
    let seen = tc("-s qdisc show", "")?;
    println!("== {way}\n{seen}{:?}", tree.slow_path_totals());
    stamp.detach();
    ensure!(!tc("qdisc show", "")?.contains("clsact"), "clsact is left");
    held.restore()?;
    let rate = rate?;
    ensure!(DELIVERED.contains(&rate), "{rate:.2} Mbit/s under a limit of {LIMIT}: {seen}");
    ensure!(throttled(&seen) > 0, "fq holds nothing: {seen}");
    Ok(format!("{way}, {rate:.2} Mbit/s of {LIMIT}"))
}

/// A tree whose only class has the limit.
fn one_class() -> Image {
    let rate = u64::from(LIMIT) * 125_000;
    let class = Class {
        rate,
        ceil: rate,
        burst: 10 * MS,
        limit: 200 * MS,
        target: 20 * MS,
        interval: 100 * MS,
        batch: 2_000_000,
        quantum: 1500,
        ..Class::default()
    };
    let outermost = Scope { otherwise: [1; PRIORITIES], ..Scope::default() };
    Image { outermost, classes: BTreeMap::from([(1, class)]), ..Image::default() }
}

/// How often `fq` held packets of a flow, from `tc -s`.
fn throttled(said: &str) -> u64 {
    let after = said.split("throttled ").skip(1);
    after.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fq_held_is_summed_over_queues() {
        let said = "qdisc fq 8001: parent 4e57:1 limit 100000p\n  flows 3 (inactive 1 throttled 2)\n  \
                    gc 0 highprio 5 throttled 40 latency 8.25us\n  throttled 1\n";
        assert_eq!(throttled(said), 41);
        assert_eq!(throttled("qdisc mq 4e57: root\n"), 0);
    }
}
