//! A limit that follows a line, on the planes without queues: the programs time what passes.
//!
//! The kernel's `netem` at an end plays a line that is slower than the limit. Without round trips
//! nobody would know of its queue, and the limit would stay as it is. (In front of a `tbf` there
//! TCP itself keeps the queue short.)

use super::host_plane::{own, start_with_ifb};
use super::router::with_networks;
use super::{LIMIT, Lab};
use crate::guest::Verdict::{self, Passed};
use crate::guest::bed::{End, PORTS};
use crate::guest::shaper::Shaper;
use crate::guest::traffic::{transfer, transfer_to_here};
use anyhow::{Context, Result, ensure};

/// What the line carries, in Mbit/s: below the limit.
const LINE: u32 = 3;
/// A limit that found that out, in Mbit/s.
const FOLLOWED: std::ops::Range<f64> = 1.0..4.5;
const AUTORATE: &str = "autorate 2mbit 40mbit";

/// In the driver, a download.
pub(super) fn in_driver(lab: &mut Lab) -> Result<Verdict> {
    lab.stopped()?;
    let shaper = Shaper::start_with(&["--plane", "xdp"])?;
    lab.flows().with_context(|| shaper.log())?;
    let [port, line] = PORTS;
    let limit = format!("tbf rate {LIMIT}mbit burst 16k latency 20ms {AUTORATE} line {line}");
    shaper.tc(&format!("qdisc add dev {port} root {limit}"))?;
    let downloads = || transfer(lab.server(), lab.client());
    let followed = through_a_line(lab.server(), || follow(&shaper, 0, downloads));
    let followed = followed.with_context(|| shaper.log());
    shaper.stop()?;
    followed.map(Passed)
}

/// At the egress of a host's port and at its ifb, what arrives.
pub(super) fn at_host(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| {
        let [client, _] = &networks.ends;
        let shaper = match start_with_ifb(networks) {
            // Before Linux 6.6, where the driver has no XDP, and on a veth.
            Err(error) if format!("{error:#}").contains("generic XDP: shape what leaves") => {
                return Ok("refused, since its program would run at generic XDP".to_owned());
            }
            started => started?,
        };
        let limit = format!("tbf rate {LIMIT}mbit burst 30k latency 50ms {AUTORATE}");
        shaper.tc(&format!("qdisc replace dev ifb4{} root handle 1: {limit}", PORTS[0]))?;
        let to = own()?;
        let arrives = || transfer_to_here(client, to);
        let followed = through_a_line(client, || follow(&shaper, 1, arrives));
        let followed = followed.with_context(|| shaper.log());
        shaper.stop()?;
        followed
    })
}

/// Calls `check` while what `from` sends goes through the line.
fn through_a_line<T>(from: &End, check: impl FnOnce() -> Result<T>) -> Result<T> {
    let End { namespace, device, .. } = from;
    let rate = format!("{LINE}mbit");
    let netem = ["netem", "rate", &rate, "limit", "100"];
    namespace.run("tc", &[&["qdisc", "add", "dev", device, "root"], &netem[..]].concat())?;
    let checked = check();
    namespace.run("tc", &["qdisc", "del", "dev", device, "root"])?;
    checked
}

/// Transfers, and returns in words the rate of the limit at the port with this number afterwards.
fn follow(shaper: &Shaper, port: usize, transfer: impl Fn() -> Result<f64>) -> Result<String> {
    let delivered = transfer()?;
    let show = shaper.show()?;
    let rate = show["ports"][port]["rate_set_bps"].as_f64().context("a limit has a rate")? / 1e6;
    ensure!(
        FOLLOWED.contains(&rate),
        "{rate:.2} Mbit/s in front of a line of {LINE}, of which {delivered:.2} arrive: {}",
        show["events"]
    );
    Ok(format!("{LIMIT} became {rate:.2} Mbit/s in front of a line of {LINE}"))
}
