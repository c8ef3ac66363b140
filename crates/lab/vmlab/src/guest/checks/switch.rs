//! The switch: Narrows at three ports of a kernel bridge.

use super::exchange::upgrade_or_stop;
use super::{
    DESTINATIONS, FREE, LIMITED, Lab, MTU, OFFERED, SETTLE, SMALL, TBF, WORKERS, XDP_PLANE,
    is_running, mode, outcome,
};
use crate::guest::Verdict::{self, Passed, Skipped};
use crate::guest::bed::{End, PORTS, VLAN};
use crate::guest::segment::{Segment, THREE_PORTS, join};
use crate::guest::shaper::{Shaper, narrows};
use crate::guest::traffic::{HEADERS, answers, flood, ping, wait_for_ping};
use anyhow::{Context, Result, ensure};
use narrows_testbed::capture::Capture;
use narrows_testbed::frames;
use narrows_testbed::raw::RawSocket;
use serde_json::Value;
use std::thread;
use std::time::Duration;

/// Frames of a worker. An upgrade counts them, and here an unoptimised program does so on a slow
/// machine: those of three ports take it longer than the others wait.
const FEW_FRAMES: [&str; 2] = ["--frames", "4096"];
/// An address that no station has, and a priority of 5 in a tag.
const NOBODY: [u8; 6] = [0x52, 0x54, 0, 0, 0, 0x0a];
const PRIORITY: u16 = 0xa000;
/// How long a frame may take through the switch, and as long as one would that must not come.
const PATIENCE: Duration = Duration::from_secs(5);
const A_WHILE: Duration = Duration::from_secs(1);

/// With workers.
pub(super) fn workers(lab: &mut Lab) -> Result<Verdict> {
    with_segment(lab, |_, segment| switched(segment, WORKERS))
}

/// On the XDP plane.
pub(super) fn xdp_plane(lab: &mut Lab) -> Result<Verdict> {
    with_segment(lab, |_, segment| switched(segment, XDP_PLANE))
}

/// With workers: killed, and started again.
pub(super) fn kill(lab: &mut Lab) -> Result<Verdict> {
    with_segment(lab, |_, segment| killed(segment, WORKERS))
}

/// The same on the XDP plane.
pub(super) fn xdp_kill(lab: &mut Lab) -> Result<Verdict> {
    with_segment(lab, |_, segment| killed(segment, XDP_PLANE))
}

/// Checks with the ends behind a bridge, and makes all as it was whatever comes out.
fn with_segment(
    lab: &mut Lab,
    check: impl FnOnce(&Lab, &Segment) -> Result<String>,
) -> Result<Verdict> {
    lab.stopped()?;
    let segment = Segment::up(&lab.bed)?;
    let checked = check(lab, &segment);
    let removed = segment.down();
    let note = checked?;
    removed?;
    Ok(Passed(note))
}

fn start(segment: &Segment, plane: &[&str]) -> Result<Shaper> {
    let frames = if plane == WORKERS { &FEW_FRAMES[..] } else { &[] };
    let shaper = Shaper::run(&[&["--switch", &THREE_PORTS.join(",")], plane, frames].concat())?;
    flows(segment).with_context(|| shaper.log())?;
    Ok(shaper)
}

/// Waits until pings pass between client and server.
fn flows(segment: &Segment) -> Result<Duration> {
    let [client, server] = &segment.ends;
    wait_for_ping(client, server.ip, SETTLE)
}

/// Between all three, also at full size, and with a tag that the bridge does not look at.
fn pings(segment: &Segment) -> Result<()> {
    let Segment { ends: [client, server], third } = segment;
    ping(client, server.ip, SMALL)?;
    ping(client, server.ip, MTU - HEADERS)?;
    ping(client, server.tagged_ip, MTU - HEADERS).context("with a tag")?;
    ping(third, client.ip, MTU - HEADERS).context("from the third port")?;
    ping(server, third.ip, SMALL).context("to the third port")
}

/// In two VLANs: one without tags at both ends, one with, and one with a tag at one end alone.
fn pings_in_vlans(segment: &Segment) -> Result<()> {
    let Segment { ends: [client, server], third } = segment;
    ping(client, server.ip, MTU - HEADERS).context("without a tag")?;
    ping(client, server.tagged_ip, MTU - HEADERS).context("with a tag")?;
    ping(client, third.tagged_ip, MTU - HEADERS).context("whose tag is taken off")?;
    ping(third, server.tagged_ip, MTU - HEADERS).context("that gets a tag")?;
    let strays = answers(third, client.ip, SMALL, 2)?;
    ensure!(strays == 0, "{strays} pings passed from one VLAN to the other");
    Ok(())
}

fn switched(segment: &Segment, plane: &[&str]) -> Result<String> {
    let [a, b, c] = THREE_PORTS;
    print!("{}", narrows(&[&["doctor", a, b, c, "--switch"], plane].concat())?);
    let shaper = start(segment, plane)?;
    let rates = switches(segment, &shaper).with_context(|| shaper.log())?;
    let show = shaper.show()?;
    let sum = &show["conservation"];
    ensure!(sum["unaccounted"] == 0, "{sum}");
    let again = || pings_in_vlans(segment);
    let upgraded = upgrade_or_stop(&segment.ends, shaper, PORTS[1], again)?;
    flows(segment).context("fail-open")?;
    pings_in_vlans(segment).context("fail-open")?;
    Ok(format!("{}; {rates}; {upgraded}", mode(&show)))
}

/// What is switched in the driver, what is limited, and what is left to the bridge; with VLANs at
/// last.
fn switches(segment: &Segment, shaper: &Shaper) -> Result<String> {
    // Each has to be heard once.
    pings(segment).with_context(|| outcomes(shaper))?;
    in_the_driver(shaper, 5, || pings(segment))?;
    floods(segment, shaper)?;
    let [client, server] = &segment.ends;
    shaper.tc(&format!("qdisc add dev {} root tbf {TBF}", PORTS[1]))?;
    let there: f64 = flood(client, server, DESTINATIONS, OFFERED)?.iter().sum();
    let back: f64 = flood(server, client, DESTINATIONS, OFFERED)?.iter().sum();
    let rates = format!("{there:.2} of {:.0} Mbit/s there, {back:.2} back", 2.0 * OFFERED);
    ensure!(LIMITED.contains(&there) && back > FREE, "{rates}, with a limit of 5 only there");
    let dropped = shaper.show()?["ports"][1]["total"]["drops"].as_u64().unwrap_or(0);
    ensure!(dropped > 0, "the limit has dropped nothing");
    segment.divide()?;
    pings_in_vlans(segment).with_context(|| outcomes(shaper)).context("in VLANs")?;
    in_the_driver(shaper, 4, || pings_in_vlans(segment)).context("in VLANs")?;
    tags_come_and_go(segment).context("in VLANs")?;
    Ok(rates)
}

/// Of so many `rows` of ten `pings` none needs the bridge once it knows all stations.
fn in_the_driver(shaper: &Shaper, rows: u64, pings: impl Fn() -> Result<()>) -> Result<()> {
    let counted =
        |show: &Value| -> u64 { (0..3).map(|port| outcome(show, port, "switched")).sum() };
    let before = counted(&shaper.show()?);
    pings()?;
    let (there, due) = (counted(&shaper.show()?) - before, rows * 20);
    ensure!(there >= due, "of {due} frames {there} were switched there: {}", outcomes(shaper));
    Ok(())
}

/// What became of the frames of each port, for a failed check.
fn outcomes(shaper: &Shaper) -> String {
    let show = shaper.show().unwrap_or_default();
    [0, 1, 2].map(|port| show["ports"][port]["routes"].to_string()).join(" ")
}

/// A frame to a station arrives there alone, one to nobody at each other port. Both are unchanged.
fn floods(segment: &Segment, shaper: &Shaper) -> Result<()> {
    let Segment { ends: [client, server], third } = segment;
    let mac = |end: &End| end.namespace.mac_address(end.device);
    let sent = [frame(mac(client)?, mac(server)?)?, frame(mac(client)?, NOBODY)?];
    let before = outcome(&shaper.show()?, 0, "unknown");
    let at = |end: &End| Capture::start(&end.namespace, end.device, "udp");
    let (at_server, at_third) = (at(server)?, at(third)?);
    send(client, &sent)?;
    let mut came = at_server.wait_for(2, PATIENCE);
    thread::sleep(A_WHILE);
    // They took different ways.
    came.sort();
    let mut expected = sent.to_vec();
    expected.sort();
    ensure!(came == expected, "{came:02x?} came to the server, not {expected:02x?}");
    let came = at_third.frames();
    ensure!(came == sent[1..], "{came:02x?} came to the third, not {:02x?}", &sent[1..]);
    let counted = outcome(&shaper.show()?, 0, "unknown") - before;
    ensure!(counted == 1, "{counted} frames counted of 1 to an unknown station");
    Ok(())
}

/// A tag is taken off for a port that has none in its VLAN, and put on for one that has.
fn tags_come_and_go(segment: &Segment) -> Result<()> {
    let Segment { ends: [client, _], third } = segment;
    let mac = |end: &End| end.namespace.mac_address(end.device);
    let [one, other] = [mac(client)?, mac(third)?];
    for (from, to, sent, due) in [
        (client, third, tagged(one, other, PRIORITY | VLAN)?, frame(one, other)?),
        (third, client, frame(other, one)?, tagged(other, one, VLAN)?),
    ] {
        let capture = Capture::start(&to.namespace, to.device, "udp or (vlan and udp)")?;
        send(from, std::slice::from_ref(&sent))?;
        let came = capture.wait_for(1, PATIENCE);
        ensure!(came == [due.clone()], "{came:02x?} came, not {due:02x?}");
    }
    Ok(())
}

fn send(from: &End, sent: &[Vec<u8>]) -> Result<()> {
    let socket = RawSocket::open(&from.namespace, from.device)?;
    ensure!(socket.send(sent)? == sent.len(), "cannot send frames");
    Ok(())
}

/// A frame between stations.
fn frame(from: [u8; 6], to: [u8; 6]) -> Result<Vec<u8>> {
    let mut frame = frames::udp(frames::port(0), to, 100)?;
    frame[6..12].copy_from_slice(&from);
    Ok(frame)
}

/// The same with a tag.
fn tagged(from: [u8; 6], to: [u8; 6], tci: u16) -> Result<Vec<u8>> {
    let mut frame = frame(from, to)?;
    frames::tag(&mut frame, tci);
    Ok(frame)
}

/// Frames are switched again after the driver has left and come back, and the port is in the
/// bridge.
pub(super) fn unbind(lab: &mut Lab) -> Result<Verdict> {
    if !lab.bed.has_hardware() {
        return Ok(Skipped("the other end goes with this device".to_owned()));
    }
    with_segment(lab, |lab, segment| {
        let shaper = start(segment, WORKERS)?;
        let wait = || shaper.wait_until("waiting", |show| show["state"] == "waiting");
        lab.bed.lose_port(wait)?;
        join(PORTS[0])?;
        let pause = flows(segment).with_context(|| shaper.log())?;
        shaper.wait_until("running", is_running)?;
        // Its link went down and up once more when Narrows joined, and stations were forgotten.
        flows(segment).with_context(|| shaper.log())?;
        pings(segment).with_context(|| shaper.log())?;
        in_the_driver(&shaper, 5, || pings(segment)).with_context(|| shaper.log())?;
        shaper.stop()?;
        Ok(format!("flowed again after {:.1} s", pause.as_secs_f64()))
    })
}

/// However it ends, the bridge goes on, and the next instance switches again.
fn killed(segment: &Segment, plane: &[&str]) -> Result<String> {
    let shaper = start(segment, plane)?;
    pings(segment).with_context(|| shaper.log())?;
    shaper.kill()?;
    let pause = flows(segment).context("fail-open")?;
    pings(segment).context("fail-open")?;
    let shaper = start(segment, plane).context("again")?;
    let again = pings(segment).and_then(|()| in_the_driver(&shaper, 5, || pings(segment)));
    again.context("again").with_context(|| shaper.log())?;
    shaper.stop()?;
    Ok(format!("flowed again after {:.1} s", pause.as_secs_f64()))
}
