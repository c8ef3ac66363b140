//! The stick: Narrows between two VLANs of the first port.

use super::exchange::upgrade_or_stop;
use super::{
    DESTINATIONS, FREE, LIMITED, Lab, MTU, OFFERED, SETTLE, SMALL, TBF, WORKERS, XDP_PLANE,
    is_running, mode,
};
use crate::guest::Verdict::{self, Passed, Skipped};
use crate::guest::bed::run;
use crate::guest::shaper::{Shaper, narrows};
use crate::guest::traffic::{HEADERS, flood, ping, wait_for_ping};
use crate::guest::trunk::{
    DEVICE, KERNEL, Trunk, VLANS, give_addresses, ports, remove_standby, standby,
};
use anyhow::{Context, Result, ensure};
use narrows_testbed::capture::Capture;
use narrows_testbed::frames;
use narrows_testbed::raw::RawSocket;
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

/// The pair, as in `--vlans`.
const PAIR: &str = "100:200";
/// A priority of 5, and the eligibility to be dropped.
const PRIORITY: u16 = 0xb000;
/// From and to nobody.
const NOBODY: [u8; 12] = [0x52, 0x54, 0, 0, 0, 0x0a, 0x52, 0x54, 0, 0, 0, 0x0b];
/// How long a frame may take through the stick, and Narrows to see a change.
const PATIENCE: Duration = Duration::from_secs(5);

/// With workers.
pub(super) fn workers(lab: &mut Lab) -> Result<Verdict> {
    with_trunk(lab, |lab, trunk| shaped(lab, trunk, WORKERS))
}

/// On the XDP plane.
pub(super) fn xdp_plane(lab: &mut Lab) -> Result<Verdict> {
    with_trunk(lab, |lab, trunk| shaped(lab, trunk, XDP_PLANE))
}

/// With workers: killed, and started again.
pub(super) fn kill(lab: &mut Lab) -> Result<Verdict> {
    with_trunk(lab, |lab, trunk| {
        let note = killed(lab, trunk, WORKERS)?;
        fails_closed(trunk)?;
        Ok(note)
    })
}

/// The same on the XDP plane.
pub(super) fn xdp_kill(lab: &mut Lab) -> Result<Verdict> {
    with_trunk(lab, |lab, trunk| killed(lab, trunk, XDP_PLANE))
}

/// Checks with the ends of a trunk, and removes them whatever comes out. The device then has the
/// offloads that it had before.
fn with_trunk(
    lab: &mut Lab,
    check: impl FnOnce(&Lab, &Trunk) -> Result<String>,
) -> Result<Verdict> {
    lab.stopped()?;
    // As on a stock machine: an instance that was killed has left it off. Not every driver can.
    let _ = run(&["ethtool", "-K", DEVICE, "rxvlan", "on"]);
    let offload = rxvlan();
    let trunk = Trunk::up(lab.client())?;
    let checked = check(lab, &trunk);
    let removed = trunk.down();
    let note = checked?;
    removed?;
    let now = rxvlan();
    ensure!(now == offload, "rxvlan is {now:?}; it was {offload:?} before");
    Ok(Passed(note))
}

/// Whether the device takes tags out of frames, in the words of `ethtool -k`.
fn rxvlan() -> Option<String> {
    let said = run(&["ethtool", "-k", DEVICE]).ok()?;
    let line = said.lines().find_map(|line| line.strip_prefix("rx-vlan-offload: "))?;
    Some(line.to_owned())
}

fn start(trunk: &Trunk, plane: &[&str]) -> Result<Shaper> {
    let shaper = Shaper::run(&[&["--stick", DEVICE, "--vlans", PAIR], plane].concat())?;
    flows(trunk).with_context(|| shaper.log())?;
    Ok(shaper)
}

/// Waits until pings pass.
fn flows(trunk: &Trunk) -> Result<Duration> {
    let [one, other] = &trunk.ends;
    wait_for_ping(one, other.ip, SETTLE)
}

/// Both directions, at full size, and with a tag behind that of the trunk.
fn pings(trunk: &Trunk) -> Result<()> {
    let [one, other] = &trunk.ends;
    ping(one, other.ip, SMALL)?;
    ping(one, other.ip, MTU - HEADERS)?;
    ping(other, one.ip, MTU - HEADERS)?;
    ping(one, other.tagged_ip, SMALL).context("with two tags")
}

fn shaped(lab: &Lab, trunk: &Trunk, plane: &[&str]) -> Result<String> {
    print!("{}", narrows(&[&["doctor", DEVICE, "--vlans", PAIR], plane].concat())?);
    let shaper = start(trunk, plane)?;
    let rates = forwards(lab, trunk, &shaper).with_context(|| shaper.log())?;
    let show = shaper.show()?;
    let sum = &show["conservation"];
    ensure!(sum["unaccounted"] == 0, "{sum}");
    let upgraded = upgrade_or_stop(&trunk.ends, shaper, &ports()[1], || pings(trunk))?;
    flows(trunk).context("fail-open")?;
    pings(trunk).context("fail-open")?;
    Ok(format!("{}; {rates}; {upgraded}", mode(&show)))
}

/// What passes and what goes to the kernel does so again after the driver has left and come back.
pub(super) fn unbind(lab: &mut Lab) -> Result<Verdict> {
    if !lab.bed.has_hardware() {
        return Ok(Skipped("the other end goes with this device".to_owned()));
    }
    with_trunk(lab, |lab, trunk| {
        let shaper = start(trunk, WORKERS)?;
        let wait = || shaper.wait_until("waiting", |show| show["state"] == "waiting");
        lab.bed.lose_port(wait)?;
        give_addresses()?;
        let pause = flows(trunk).with_context(|| shaper.log())?;
        shaper.wait_until("running", is_running)?;
        pings(trunk).with_context(|| shaper.log())?;
        priority_stays(lab).with_context(|| shaper.log())?;
        kernels_own(lab).with_context(|| shaper.log())?;
        standby()?;
        shaper.kill()?;
        flows(trunk).context("fail-open")?;
        pings(trunk).context("fail-open")?;
        start(trunk, WORKERS)?.stop()?;
        Ok(format!("flowed again after {:.1} s", pause.as_secs_f64()))
    })
}

/// What passes the stick, what it limits, and what it leaves to the kernel.
fn forwards(lab: &Lab, trunk: &Trunk, shaper: &Shaper) -> Result<String> {
    pings(trunk)?;
    priority_stays(lab)?;
    kernels_own(lab)?;
    offload_stays_off(lab, trunk).context("after rxvlan on")?;
    let others = shaper.show()?["ports"][0]["others"].as_u64().unwrap_or(0);
    ensure!(others > 0, "show counts no frames that went to the kernel");
    let [one, other] = &trunk.ends;
    shaper.tc(&format!("qdisc add dev {} root tbf {TBF}", ports()[1]))?;
    let there = rate(flood(one, other, DESTINATIONS, OFFERED)?);
    let back = rate(flood(other, one, DESTINATIONS, OFFERED)?);
    let rates = format!("{there:.2} of {:.0} Mbit/s there, {back:.2} back", 2.0 * OFFERED);
    ensure!(LIMITED.contains(&there) && back > FREE, "{rates}, with a limit of 5 only there");
    let counted = sent(&shaper.show()?, &ports()[1])?;
    ensure!(counted.1 > 0, "the limit has dropped nothing: {counted:?}");
    Ok(rates)
}

/// What Narrows has switched off, it switches off again.
fn offload_stays_off(lab: &Lab, trunk: &Trunk) -> Result<()> {
    // Where it is off for good, or never in the way, there is nothing to see.
    let off = || rxvlan().as_deref() == Some("off");
    if !off() {
        return Ok(());
    }
    run(&["ethtool", "-K", DEVICE, "rxvlan", "on"])?;
    let begin = Instant::now();
    while !off() {
        ensure!(begin.elapsed() < PATIENCE, "it is still on after {} s", PATIENCE.as_secs());
        thread::sleep(Duration::from_millis(100));
    }
    flows(trunk)?;
    priority_stays(lab)
}

/// The kernel answers for itself.
fn kernels_own(lab: &Lab) -> Result<()> {
    KERNEL.into_iter().try_for_each(|ip| {
        ping(lab.client(), ip, SMALL).with_context(|| format!("{ip}, the kernel's own"))
    })
}

fn rate(flows: [f64; 2]) -> f64 {
    flows.iter().sum()
}

/// What left at a port, and what was dropped there.
fn sent(show: &Value, name: &str) -> Result<(u64, u64)> {
    let ports = show["ports"].as_array().context("show has no ports")?;
    let port = ports.iter().find(|port| port["name"] == name);
    let total = &port.with_context(|| format!("show has no {name}"))?["total"];
    let count = |name: &str| total[name].as_u64().with_context(|| format!("no {name}: {total}"));
    Ok((count("tx_packets")?, count("drops")?))
}

/// Frames with a priority come back in the other VLAN with the same, and otherwise as they were.
/// The kernel's bridge forgets a part of it, so this also shows who forwards.
fn priority_stays(lab: &Lab) -> Result<()> {
    let client = lab.client();
    let capture = Capture::start(&client.namespace, client.device, "udp")?;
    let socket = RawSocket::open(&client.namespace, client.device)?;
    let [one, other] = VLANS;
    let sent = [tagged(one)?, tagged(other)?];
    ensure!(socket.send(&sent)? == sent.len(), "cannot send tagged frames");
    let mut came = capture.wait_for(sent.len(), PATIENCE);
    let mut expected = [tagged(other)?, tagged(one)?];
    // The port and the payload are the same in both.
    came.sort();
    expected.sort();
    let tags: Vec<&[u8]> = came.iter().filter_map(|frame| frame.get(12..16)).collect();
    ensure!(came == expected, "came back, perhaps changed behind the tag: {tags:02x?}");
    Ok(())
}

/// A frame in a VLAN, with the priority.
fn tagged(vid: u16) -> Result<Vec<u8>> {
    let mut frame = frames::udp(frames::port(0), [0; 6], 100)?;
    frame[..12].copy_from_slice(&NOBODY);
    frames::tag(&mut frame, PRIORITY | vid);
    Ok(frame)
}

/// However it ends, the kernel goes on, and the next instance takes over what is there.
fn killed(lab: &Lab, trunk: &Trunk, plane: &[&str]) -> Result<String> {
    let shaper = start(trunk, plane)?;
    let before = standby()?;
    shaper.kill()?;
    let pause = flows(trunk).context("fail-open")?;
    pings(trunk).context("fail-open")?;
    let shaper = start(trunk, plane).context("again")?;
    pings(trunk)
        .and_then(|()| priority_stays(lab))
        .context("again")
        .with_context(|| shaper.log())?;
    let now = standby()?;
    ensure!(now == before, "{before:?} stood by; now {now:?} does");
    shaper.stop()?;
    Ok(format!("flowed again after {:.1} s", pause.as_secs_f64()))
}

/// Where nothing is to stand by, there are no VLAN devices. A card has to receive frames of VLANs
/// that it does not know, and leave their tags.
fn fails_closed(trunk: &Trunk) -> Result<()> {
    remove_standby()?;
    let shaper = start(trunk, &["--fail-closed"]).context("fail-closed")?;
    pings(trunk).context("fail-closed").with_context(|| shaper.log())?;
    shaper.stop()?;
    ensure!(standby().is_err(), "something stands by for what fails closed");
    Ok(())
}
