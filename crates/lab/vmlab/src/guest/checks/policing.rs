//! The XDP plane: programs in the drivers instead of queues and workers.

use super::exchange::take_over;
use super::{Lab, MTU, mode};
use crate::guest::Verdict::{self, Passed};
use crate::guest::bed::PORTS;
use crate::guest::shaper::{self, Shaper, narrows};
use crate::guest::traffic::{HEADERS, flood, ping};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A tree of two classes, and the filters that tell them apart: by the class, and again in the
/// qdisc in it.
const POLICY: [&str; 7] = [
    "qdisc add dev DEV root handle 1: htb default 20",
    "class add dev DEV parent 1: classid 1:1 htb rate 20mbit burst 16k",
    "class add dev DEV parent 1:1 classid 1:10 htb rate 3mbit burst 16k",
    "class add dev DEV parent 1:1 classid 1:20 htb rate 2mbit burst 16k",
    "filter add dev DEV parent 1: protocol ip pref 1 flower ip_proto udp dst_port 5010 classid 1:10",
    "qdisc add dev DEV parent 1:10 handle 2: prio",
    "filter add dev DEV parent 2: protocol ip pref 1 flower ip_proto udp dst_port 5010 classid 2:3",
];
/// The offered rate and the limit of each class, in Mbit/s.
const OFFERED: f64 = 5.0;
const LIMITS: [f64; 2] = [3.0, 2.0];
/// The allowed deviation of a rate over some seconds, as a fraction.
const OFF: f64 = 0.03;
/// Payload of a tagged ping, in bytes.
const TAGGED: u32 = 56;
/// Where each class's packets go.
const DESTINATIONS: [u16; 2] = [5010, 5020];

/// Two classes get their rates, also after another process took over; all frames are accounted for,
/// and it stops on request.
pub(super) fn rates(lab: &mut Lab) -> Result<Verdict> {
    lab.stopped()?;
    print!("{}", narrows(&["doctor", PORTS[0], PORTS[1], "--plane", "xdp"])?);
    let shaper = start(lab)?;
    for line in POLICY {
        shaper.tc(&line.replace("DEV", PORTS[1]))?;
    }
    flood_limited(lab).with_context(|| shaper.log())?;
    let new_process = take_over(&lab.bed.ends).with_context(|| shaper.log())?;
    let checked = flood_limited(lab).and_then(|rates| pings(lab).map(|()| rates));
    let show = shaper.show();
    // Whatever comes out, so that the next check finds the ports free.
    shaper.ended()?;
    shaper::end(new_process)?;
    let (rates, show) = (checked.context("after the upgrade")?, show?);
    lab.flows().context("fail-open")?;
    balanced(&show["conservation"])?;
    let [one, other] = rates;
    let way = mode(&show);
    let way = way.split(',').next().unwrap_or_default();
    let rates = format!("{one:.2} of {} and {other:.2} of {} Mbit/s", LIMITS[0], LIMITS[1]);
    Ok(Passed(format!("{way}; {rates}, also after an upgrade without a lost ping")))
}

/// What each class gets of a flood: its limit.
fn flood_limited(lab: &Lab) -> Result<[f64; 2]> {
    let rates = flood(lab.client(), lab.server(), DESTINATIONS, OFFERED)?;
    for (rate, limit) in rates.iter().zip(LIMITS) {
        ensure!((rate / limit - 1.0).abs() < OFF, "{rate:?} instead of {limit} Mbit/s");
    }
    Ok(rates)
}

/// However it ends, it leaves the bridge.
pub(super) fn kill(lab: &mut Lab) -> Result<Verdict> {
    lab.stopped()?;
    start(lab)?.kill()?;
    let pause = lab.flows().context("fail-open")?;
    ping(lab.client(), lab.server().ip, MTU - HEADERS).context("fail-open")?;
    Ok(Passed(format!("flowed again after {:.1} s", pause.as_secs_f64())))
}

fn start(lab: &Lab) -> Result<Shaper> {
    let shaper = Shaper::start_with(&["--plane", "xdp"])?;
    lab.flows().with_context(|| shaper.log())?;
    Ok(shaper)
}

fn pings(lab: &Lab) -> Result<()> {
    let [client, server] = [lab.client(), lab.server()];
    ping(client, server.ip, MTU - HEADERS)?;
    ping(server, client.ip, MTU - HEADERS)?;
    // Not full size: the VLAN's MTU stays smaller after the check that reduced the ports'.
    ping(client, server.tagged_ip, TAGGED).context("tagged")
}

/// Every frame is in one counter, and some were dropped.
fn balanced(sum: &Value) -> Result<()> {
    let count = |value: &Value| value.as_i64().with_context(|| format!("show lacks sums: {sum}"));
    let dropped = &sum["dropped"];
    let policed = dropped["limit"].as_i64().unwrap_or(0) + dropped["aqm"].as_i64().unwrap_or(0);
    ensure!(
        count(&sum["received"])? > 0 && count(&sum["unaccounted"])? == 0 && policed > 0,
        "{sum}"
    );
    Ok(())
}
