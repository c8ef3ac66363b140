//! The router: Narrows between two networks, with the kernel's routes.

use super::exchange::upgrade_or_stop;
use super::{
    DESTINATIONS, FREE, LIMITED, Lab, MTU, OFFERED, SETTLE, SMALL, TBF, WORKERS, XDP_PLANE,
    is_running, mode, outcome,
};
use crate::guest::Verdict::{self, Passed, Skipped};
use crate::guest::bed::{End, PORTS, ip, run};
use crate::guest::networks::{Networks, end_ip6};
use crate::guest::shaper::{Shaper, narrows};
use crate::guest::traffic::{HEADERS, HEADERS6, flood, ping, ping_with_hops, wait_for_ping};
use anyhow::{Context, Result, ensure};
use narrows_testbed::capture::Capture;
use narrows_testbed::frames;
use narrows_testbed::namespace::mac_address;
use narrows_testbed::raw::RawSocket;
use serde_json::Value;
use std::time::Duration;

/// How long a frame may take through the router.
const PATIENCE: Duration = Duration::from_secs(5);

/// With workers.
pub(super) fn workers(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| routed(networks, WORKERS))
}

/// On the XDP plane.
pub(super) fn xdp_plane(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| routed(networks, XDP_PLANE))
}

/// With workers: killed, and started again.
pub(super) fn kill(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| killed(networks, WORKERS))
}

/// The same on the XDP plane.
pub(super) fn xdp_kill(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| killed(networks, XDP_PLANE))
}

/// Checks with the ends in two networks, and makes all as it was whatever comes out.
pub(super) fn with_networks(
    lab: &mut Lab,
    check: impl FnOnce(&Lab, &Networks) -> Result<String>,
) -> Result<Verdict> {
    lab.stopped()?;
    let networks = Networks::up(&lab.bed)?;
    let checked = check(lab, &networks);
    let removed = networks.down();
    let note = checked?;
    removed?;
    Ok(Passed(note))
}

pub(super) fn start(networks: &Networks, plane: &[&str]) -> Result<Shaper> {
    let shaper = Shaper::run(&[&["--router", &PORTS.join(",")], plane].concat())?;
    flows(networks).with_context(|| shaper.log())?;
    Ok(shaper)
}

/// Waits until pings of both families pass.
fn flows(networks: &Networks) -> Result<Duration> {
    let [client, server] = &networks.ends;
    let pause = wait_for_ping(client, server.ip, SETTLE)?;
    Ok(pause + wait_for_ping(client, end_ip6(1), SETTLE).with_context(ipv6)?)
}

/// Both families, both directions, also at full size.
fn pings(networks: &Networks) -> Result<()> {
    let [client, server] = &networks.ends;
    ping(client, server.ip, SMALL)?;
    ping(client, server.ip, MTU - HEADERS)?;
    ping(server, client.ip, MTU - HEADERS)?;
    ping(client, end_ip6(1), SMALL).with_context(ipv6)?;
    ping(server, end_ip6(0), MTU - HEADERS6).with_context(ipv6)
}

/// What the router knows of IPv6, for a failed check.
fn ipv6() -> String {
    let said = |words: &[&str]| ip(words).unwrap_or_default();
    format!("IPv6: {}{}", said(&["-6", "neigh"]), said(&["-6", "-br", "addr"]))
}

fn routed(networks: &Networks, plane: &[&str]) -> Result<String> {
    print!("{}", narrows(&[&["doctor", PORTS[0], PORTS[1], "--router"], plane].concat())?);
    let shaper = start(networks, plane)?;
    let rates = routes(networks, &shaper).with_context(|| shaper.log())?;
    let show = shaper.show()?;
    let sum = &show["conservation"];
    ensure!(sum["unaccounted"] == 0, "{sum}");
    let own = &show["ports"][0]["slow_path"]["sent_packets"];
    ensure!(own.as_u64() > Some(0), "what the kernel sends itself is not counted: {own}");
    let upgraded = upgrade_or_stop(&networks.ends, shaper, PORTS[1], || pings(networks))?;
    leaves_nothing()?;
    flows(networks).context("fail-open")?;
    pings(networks).context("fail-open")?;
    Ok(format!("{}; {rates}; {upgraded}", mode(&show)))
}

/// What the router sends on, what it limits, and what it leaves to the kernel.
fn routes(networks: &Networks, shaper: &Shaper) -> Result<String> {
    in_the_driver(networks, shaper)?;
    hop_by_hop(networks)?;
    kernels_own(networks, shaper)?;
    let [client, server] = &networks.ends;
    shaper.tc(&format!("qdisc add dev {} root tbf {TBF}", PORTS[1]))?;
    let there: f64 = flood(client, server, DESTINATIONS, OFFERED)?.iter().sum();
    let back: f64 = flood(server, client, DESTINATIONS, OFFERED)?.iter().sum();
    let rates = format!("{there:.2} of {:.0} Mbit/s there, {back:.2} back", 2.0 * OFFERED);
    ensure!(LIMITED.contains(&there) && back > FREE, "{rates}, with a limit of 5 only there");
    let dropped = shaper.show()?["ports"][1]["total"]["drops"].as_u64().unwrap_or(0);
    ensure!(dropped > 0, "the limit has dropped nothing");
    Ok(rates)
}

/// Pings pass, and none needs the kernel once it has the neighbours.
fn in_the_driver(networks: &Networks, shaper: &Shaper) -> Result<()> {
    let counted = |show: &Value| [0, 1].map(|port| outcome(show, port, "routed"));
    let before = counted(&shaper.show()?);
    pings(networks)?;
    let show = shaper.show()?;
    let (after, routes) = (counted(&show), [0, 1].map(|port| &show["ports"][port]["routes"]));
    // Five rows of ten, each an echo request one way and its answer the other.
    for (before, after) in before.into_iter().zip(after) {
        ensure!(
            after >= before + 50,
            "of 50 packets {} were routed in the driver: {routes:?}",
            after - before
        );
    }
    Ok(())
}

/// Frames arrive with new addresses and one hop less, and are else the same.
fn hop_by_hop(networks: &Networks) -> Result<()> {
    let [client, server] = &networks.ends;
    let mac = |end: &End| end.namespace.mac_address(end.device);
    let into = [mac(client)?, mac_address(PORTS[0])?];
    let out = [mac_address(PORTS[1])?, mac(server)?];
    let sent = [
        frames::udp4(frames::port(0), into, [client.ip, server.ip], 300)?,
        frames::udp6(frames::port(0), into, [end_ip6(0), end_ip6(1)], 300)?,
    ];
    let capture = Capture::start(&server.namespace, server.device, "udp")?;
    let socket = RawSocket::open(&client.namespace, client.device)?;
    ensure!(socket.send(&sent)? == sent.len(), "cannot send frames");
    let mut came = capture.wait_for(sent.len(), PATIENCE);
    let expected = sent.iter().map(|frame| frames::routed(frame, out));
    let mut expected = expected.collect::<Result<Vec<_>>>()?;
    // They are of two flows, so perhaps in two queues.
    came.sort();
    expected.sort();
    let head = |frames: &[Vec<u8>]| -> Vec<Vec<u8>> {
        frames.iter().map(|frame| frame.iter().copied().take(62).collect()).collect()
    };
    ensure!(came == expected, "{:02x?} came, not {:02x?}", head(&came), head(&expected));
    Ok(())
}

/// The kernel answers for itself, and where the hops end.
fn kernels_own(networks: &Networks, shaper: &Shaper) -> Result<()> {
    let [client, _] = &networks.ends;
    for own in ["10.1.0.1", "10.2.0.1"] {
        let own: std::net::IpAddr = own.parse()?;
        ping(client, own, SMALL).with_context(|| format!("{own}, the kernel's own"))?;
    }
    let before = outcome(&shaper.show()?, 0, "ttl");
    let said = ping_with_hops(client, networks.ends[1].ip, 1)?;
    ensure!(said.contains("Time to live exceeded"), "{said}");
    let said = ping_with_hops(client, end_ip6(1), 1)?;
    ensure!(said.contains("Time exceeded: Hop limit"), "{said}");
    let counted = outcome(&shaper.show()?, 0, "ttl") - before;
    ensure!(counted == 2, "{counted} packets counted of 2 whose hops ended");
    Ok(())
}

/// Packets are routed again after the driver has left and come back.
pub(super) fn unbind(lab: &mut Lab) -> Result<Verdict> {
    if !lab.bed.has_hardware() {
        return Ok(Skipped("the other end goes with this device".to_owned()));
    }
    with_networks(lab, |lab, networks| {
        let shaper = start(networks, WORKERS)?;
        let wait = || shaper.wait_until("waiting", |show| show["state"] == "waiting");
        lab.bed.lose_port(wait)?;
        networks.give_addresses(0)?;
        let pause = flows(networks).with_context(|| shaper.log())?;
        shaper.wait_until("running", is_running)?;
        // Its link went down and up once more when Narrows joined, and neighbours were forgotten.
        flows(networks).with_context(|| shaper.log())?;
        in_the_driver(networks, &shaper).with_context(|| shaper.log())?;
        hop_by_hop(networks).with_context(|| shaper.log())?;
        shaper.stop()?;
        Ok(format!("flowed again after {:.1} s", pause.as_secs_f64()))
    })
}

/// However it ends, the kernel routes, and the next instance does again. A route that changes then
/// is followed.
fn killed(networks: &Networks, plane: &[&str]) -> Result<String> {
    start(networks, plane)?.kill()?;
    let pause = flows(networks).context("fail-open")?;
    pings(networks).context("fail-open")?;
    let shaper = start(networks, plane).context("again")?;
    in_the_driver(networks, &shaper).context("again").with_context(|| shaper.log())?;
    follows(networks, &shaper).with_context(|| shaper.log())?;
    shaper.stop()?;
    leaves_nothing()?;
    Ok(format!("flowed again after {:.1} s", pause.as_secs_f64()))
}

/// Nothing is at the egress of the ports any more, by whatever way it was there.
fn leaves_nothing() -> Result<()> {
    for port in PORTS {
        let left = run(&["tc", "qdisc", "show", "dev", port])?;
        ensure!(!left.contains("clsact"), "{port} is left with {left}");
    }
    Ok(())
}

/// A route that comes holds for the next packet, and so does one that goes.
fn follows(networks: &Networks, shaper: &Shaper) -> Result<()> {
    let [client, server] = &networks.ends;
    let before = outcome(&shaper.show()?, 0, "blackhole");
    let route = format!("{}/32", server.ip);
    ip(&["route", "add", "blackhole", &route])?;
    let lost = ping_with_hops(client, server.ip, 64)?;
    ip(&["route", "del", "blackhole", &route])?;
    ensure!(lost.contains(" 100% packet loss"), "a route was not followed: {lost}");
    let counted = outcome(&shaper.show()?, 0, "blackhole") - before;
    ensure!(counted == 1, "{counted} packets counted of 1 in the black hole");
    ping(client, server.ip, SMALL).context("after the black hole")
}
