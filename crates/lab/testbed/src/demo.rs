//! What Narrows does, seen at the receiver: real traffic without a limit, then under
//! three limits set one after the other on the running instance.
//!
//! Every figure is measured from outside: the rate at the server's device, the offered load at the
//! client's, the round trips by `ping`, the CPU time from the scheduler. Only the split over the
//! queues is Narrows's own.
//!
//! UDP is a [flood](crate::flood) of ready-made frames, which costs a fraction of the CPU time of
//! sockets, on a machine whose cores also shape and receive. If the sender still could not offer
//! the limit, the delivered rate says nothing about the shaper: such a cell is shown and not
//! judged.

pub mod balance;
pub mod fleet;
mod report;
pub mod router;

pub use report::{Report, Row};

use crate::accounting::{self, Books};
use crate::bed::{CLIENT, PORT_B, QUEUES, SINK_MAC};
use crate::counters::Counters;
use crate::flood::{Flood, Pace};
use crate::iperf::Traffic;
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, IPERF3, PING, Refusal, TC};
use crate::trial::{self, Load};
use crate::{Testbed, frames, ping, steering};
use anyhow::{Context, Result};
use narrows_units::{Nanos, Rate};
use std::path::PathBuf;
use std::time::Duration;

/// The limits, in bits per second.
const LIMITS: [u64; 3] = [100_000_000, 500_000_000, 1_000_000_000];
/// Flows of each load.
const FLOWS: u32 = 64;
/// The rate of the UDP flows relative to the limit.
const OVERLOAD: f64 = 1.3;
/// The rate of the UDP flows if there is no limit, the same as under the highest: what two cores
/// can send, forward and receive at once.
const UNLIMITED_UDP: f64 = 1e9 * OVERLOAD;
/// Frames of the UDP flows, in bytes: full ones.
const FRAME_BYTES: usize = 1514;
/// How much longer than its window a flood may last, if nothing ends it.
const SPARE: Duration = Duration::from_secs(20);
/// The bucket holds what the limit passes in this time, so that a worker or a sender that waits for
/// its core for so long loses nothing of the rate.
const BURST: Nanos = Nanos::from_millis(16);
/// The limit of the queue as time at the rate, for any bucket.
const QUEUE: Nanos = Nanos::from_millis(3);
/// The length of an unlimited window, which is not judged, as a fraction of a limited one.
const UNLIMITED_SHARE: u32 = 2;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// How long each limit is measured with each load.
    pub window: Duration,
}

/// Refuses if the demo cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL, IPERF3, PING])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    let bed = Testbed::up(QUEUES)?;
    let flows = steering::flows(&bed, (FLOWS / QUEUES) as usize)?;
    let frames = frames::udp_flows(&flows.concat(), SINK_MAC, FRAME_BYTES)?;
    let mut books = Books::open(&bed)?;
    // The bed is deleted with the demo, so there is nothing to fail open to.
    let instance = Instance::start(&bed, &options.program, &["--fail-closed"])?;

    let limits: Vec<Option<Rate>> = std::iter::once(None)
        .chain(LIMITS.map(|limit| Some(Rate::from_bits_per_sec(limit))))
        .collect();
    let mut progress = Progress::over(limits.len() as u64 * 2);
    let mut rows = Vec::new();
    let mut pings = ping::Stats::none();
    'limits: for limit in limits {
        let tbf = limit.map(tbf);
        if let Some(tbf) = &tbf {
            instance.tc(tbf)?;
        }
        let bits = limit.map_or(UNLIMITED_UDP, |limit| limit.bits_per_sec() as f64 * OVERLOAD);
        let udp = Flood {
            frames: frames.clone(),
            pace: Pace::Bits(bits),
            limit: options.window + SPARE,
            core: None,
        };
        let tcp = Load::Iperf { traffic: Traffic::Tcp, flows: FLOWS };
        for (name, load) in [("UDP", Load::Flood(udp)), ("TCP", tcp)] {
            if !rows.is_empty() && progress.is_over() {
                break 'limits;
            }
            let load = (name, load);
            let (row, ping) = phase(&bed, &instance, limit, load, options.window, &mut progress)?;
            if limit.is_some() {
                pings.merge(&ping);
            }
            rows.push(Row { tbf: tbf.clone(), ..row });
        }
    }
    drop(progress);
    let devices = books.settle()?;
    let directions = accounting::directions(&devices, &instance.show()?)?;
    Ok(Report::new(rows, &pings, directions))
}

/// The words of `narrows tc` that set `limit`.
fn tbf(limit: Rate) -> String {
    let (rate, burst) = (limit.bits_per_sec(), limit.bytes_in(BURST));
    let rate = if rate % 1_000_000_000 == 0 {
        format!("{}gbit", rate / 1_000_000_000)
    } else {
        format!("{}mbit", rate / 1_000_000)
    };
    let queue = limit.bytes_in(QUEUE);
    format!("qdisc replace dev {PORT_B} root tbf rate {rate} burst {} limit {}", burst.0, queue.0)
}

fn phase(
    bed: &Testbed,
    instance: &Instance,
    limit: Option<Rate>,
    (name, load): (&'static str, Load),
    window: Duration,
    progress: &mut Progress,
) -> Result<(Row, ping::Stats)> {
    let shown_limit = limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    let title = format!("{shown_limit}, {FLOWS} {name} flows");
    progress.begin(&title);

    let window = if limit.is_some() { window } else { window / UNLIMITED_SHARE };
    let mut client = Counters::of(bed.client(), CLIENT)?;
    let look = || Ok((instance.cpu()?, instance.show()?, client.read()?));
    let outcome = trial::run(bed, load, window, look, |rate| {
        progress.say(&format!("{title}: {} at the receiver", report::rate(rate)));
    })
    .with_context(|| format!("{title}; narrows says:\n{}", instance.log()))?;

    let [(cpu_before, before, sent_before), (cpu_after, after, sent_after)] = &outcome.edges;
    let sent = *sent_after - *sent_before;
    let queues = |show: &narrows_snapshot::Snapshot| -> Result<Vec<u64>> {
        let port = show.port(PORT_B).context("narrows show does not list port B")?;
        Ok(port.per_queue.iter().map(|queue| queue.tx_bytes).collect())
    };
    let span = Duration::from_nanos(outcome.delivered.span.0);
    let offered = report::offered(&sent, outcome.delivered.span);
    let judged = limit.filter(|limit| offered >= *limit);
    let row = Row {
        limit_bps: limit.map(Rate::bits_per_sec),
        traffic: name,
        tbf: None,
        dropped_percent: report::missing(
            sent.tx_packets + sent.tx_dropped,
            outcome.delivered.packets,
        ),
        delivered_bps: outcome.delivered.rate().bits_per_sec(),
        offered_bps: offered.bits_per_sec(),
        deviation_percent: judged.map(|limit| outcome.delivered.deviation_percent(limit)),
        queue_shares: report::shares(&queues(before)?, &queues(after)?),
        ping_median_us: outcome.ping.median().map(|ping| ping.as_micros()),
        ping_p99_us: outcome.ping.p99().map(|ping| ping.as_micros()),
        ping_sent: outcome.ping.sent,
        ping_received: outcome.ping.received,
        cpu_percent: cpu_after.saturating_sub(*cpu_before).as_secs_f64() / span.as_secs_f64()
            * 100.0,
        retransmits: outcome.report.retransmits,
    };
    progress.end(&format!("{title}: {}", row.outcome()));
    Ok((row, outcome.ping))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_in_tcs_words() {
        assert_eq!(
            tbf(Rate::from_bits_per_sec(100_000_000)),
            "qdisc replace dev port-b root tbf rate 100mbit burst 200000 limit 37500"
        );
        assert!(tbf(Rate::from_bits_per_sec(1_000_000_000)).contains("rate 1gbit burst 2000000 "));
    }
}
