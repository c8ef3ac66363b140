//! A connection beside floods under one limit of the host plane, over the kernel's `fq`.

use super::router::with_networks;
use super::{Lab, SETTLE};
use crate::guest::Verdict;
use crate::guest::bed::PORTS;
use crate::guest::networks::Networks;
use crate::guest::shaper::Shaper;
use crate::guest::traffic::{Flow, flood_by, transfer, wait_for_ping};
use anyhow::{Context, Result, ensure};
use std::thread;
use std::time::Duration;

/// The limit, in Mbit/s: as much as an emulated machine forwards.
const LIMIT: u32 = 40;
/// The floods' ports, and what each of them offers, in Mbit/s: more than its share.
const FLOODS: [u16; 3] = [9200, 9201, 9202];
const OFFERED: f64 = 20.0;
/// What the AQM takes to find out a flood.
const HEAD_START: Duration = Duration::from_secs(3);
/// How long they flood: longer than the connection is measured.
const SPAN: Duration = Duration::from_secs(12);
/// The least of its fair share that the connection has.
const SHARE: f64 = 0.6;

pub(super) fn share(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| checked(networks))
}

fn checked(networks: &Networks) -> Result<String> {
    let [client, server] = &networks.ends;
    let [_, wan] = PORTS;
    let shaper = Shaper::run(&["--plane", "host", "--ports", wan])?;
    let limit = format!("tbf rate {LIMIT}mbit burst 30k latency 100ms");
    shaper.tc(&format!("qdisc add dev {wan} root {limit}"))?;
    wait_for_ping(client, server.ip, SETTLE).with_context(|| shaper.log())?;
    let flows = FLOODS.map(|port| Flow::new(client, client.ip, server, port));
    let (floods, connection) = thread::scope(|scope| {
        let floods = scope.spawn(|| flood_by(&flows, OFFERED, SPAN));
        thread::sleep(HEAD_START);
        let connection = transfer(client, server);
        (floods.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), connection)
    });
    let (floods, connection) = (floods?, connection?);
    let unaccounted = &shaper.show()?["conservation"]["unaccounted"];
    ensure!(unaccounted == 0, "{unaccounted} unaccounted");
    shaper.stop()?;
    // Of what its frames carry.
    let fair = f64::from(LIMIT) / (FLOODS.len() as f64 + 1.0) * 1448.0 / 1514.0;
    let share = connection / fair;
    ensure!(share >= SHARE, "{connection:.2} Mbit/s are {share:.2} of its share: {floods:.2?}");
    Ok(format!("{connection:.2} Mbit/s of {fair:.2}, beside floods of {floods:.1?}"))
}
