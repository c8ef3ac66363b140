//! Round trips, by `ping`.

use crate::bed::{SERVER_IP, Testbed};
use crate::collect::Collector;
use crate::process::Process;
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use nix::sys::signal::Signal;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time between requests.
const INTERVAL: Duration = Duration::from_millis(10);

/// The results of a ping.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Requests sent.
    pub sent: u64,
    /// Answers received.
    pub received: u64,
    /// Requests without an answer that were sent before one that has one; those after it may
    /// still have been under way.
    pub lost: u64,
    /// The longest time without an answer, in whole intervals between requests, from
    /// the first answer to the last.
    pub longest_gap: Duration,
    micros: Histogram<u64>,
}

impl Stats {
    /// Of no ping at all.
    pub fn none() -> Self {
        Self { sent: 0, received: 0, lost: 0, longest_gap: Duration::ZERO, micros: histogram() }
    }

    /// Adds what `other` saw.
    pub fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.micros += &other.micros;
    }

    /// The median round trip; `None` if nothing answered.
    pub fn median(&self) -> Option<Duration> {
        self.percentile(50.0)
    }

    /// The 99th percentile.
    pub fn p99(&self) -> Option<Duration> {
        self.percentile(99.0)
    }

    /// The percentile `percent`.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        (!self.micros.is_empty())
            .then(|| Duration::from_micros(self.micros.value_at_percentile(percent)))
    }
}

/// A `ping` from the client to the server under way.
#[derive(Debug)]
pub struct Ping {
    process: Process,
    output: Collector,
}

impl Ping {
    /// Starts it; it ends by itself after `limit`.
    pub fn start(bed: &Testbed, limit: Duration) -> Result<Self> {
        Self::start_with(bed.client().command("ping"), SERVER_IP, limit)
    }

    /// Starts it to another of the server's addresses, on one core; it ends by itself after
    /// `limit`.
    pub fn start_on(bed: &Testbed, core: usize, to: Ipv4Addr, limit: Duration) -> Result<Self> {
        let mut command = bed.client().command("taskset");
        command.args(["-c", &core.to_string(), "ping"]);
        Self::start_with(command, to, limit)
    }

    /// Starts it as a process that goes before all ordinary ones, so that what is late is not the
    /// ping.
    pub fn start_first(bed: &Testbed, limit: Duration) -> Result<Self> {
        let mut command = bed.client().command("chrt");
        command.args(["-f", "1", "ping"]);
        Self::start_with(command, SERVER_IP, limit)
    }

    fn start_with(mut command: Command, address: Ipv4Addr, limit: Duration) -> Result<Self> {
        let seconds = limit.as_secs().max(1).to_string();
        let interval = INTERVAL.as_secs_f64().to_string();
        command
            .args(["-n", "-i", &interval, "-w", &seconds, &address.to_string()])
            .stdin(Stdio::null())
            // Numbers in the text are read below.
            .env("LC_ALL", "C");
        let output = Collector::over_both(&mut command)?;
        Ok(Self { process: Process::start(&mut command)?, output })
    }

    /// Waits until there is an answer, which on a busy machine takes as long as a process takes to
    /// start. Whether there is one within `time`.
    pub fn wait_for_an_answer(&self, time: Duration) -> bool {
        let answers = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("icmp_seq=");
        self.output.wait_until(answers, time)
    }

    /// Ends it and says how it went.
    pub fn stop(mut self) -> Result<Stats> {
        // ping prints its summary when it is interrupted.
        self.process.stop(Signal::SIGINT)?;
        let text = self.output.finish();
        parse(&text).with_context(|| format!("ping did not end with its summary: {text}"))
    }
}

/// A histogram of whole microseconds with three significant digits. It grows as needed.
fn histogram() -> Histogram<u64> {
    Histogram::new(3).unwrap_or_else(|error| unreachable!("three digits are allowed: {error}"))
}

fn parse(text: &str) -> Option<Stats> {
    let mut micros = histogram();
    let (mut previous, mut last): (Option<u64>, u64) = (None, 0);
    let mut longest = 1;
    for line in text.lines() {
        let Some(sequence) = number_after(line, "icmp_seq=") else { continue };
        let Some(millis) = number_after::<f64>(line, "time=") else { continue };
        micros.record((millis * 1000.0).round() as u64).ok()?;
        if let Some(previous) = previous {
            longest = longest.max(u64::saturating_sub(sequence, previous));
        }
        previous = Some(sequence);
        last = last.max(sequence);
    }
    let summary = text.lines().find(|line| line.contains("packets transmitted"))?;
    Some(Stats {
        sent: summary.split(' ').next()?.parse().ok()?,
        received: micros.len(),
        lost: last.saturating_sub(micros.len()),
        longest_gap: INTERVAL * u32::try_from(longest - 1).ok()?,
        micros,
    })
}

fn number_after<T: std::str::FromStr>(line: &str, word: &str) -> Option<T> {
    line.split_once(word)?.1.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
PING 198.18.0.2 (198.18.0.2) 56(84) bytes of data.
64 bytes from 198.18.0.2: icmp_seq=1 ttl=64 time=0.412 ms
64 bytes from 198.18.0.2: icmp_seq=2 ttl=64 time=0.061 ms
64 bytes from 198.18.0.2: icmp_seq=3 ttl=64 time=0.059 ms
From 198.18.0.1 icmp_seq=4 Destination Host Unreachable
64 bytes from 198.18.0.2: icmp_seq=7 ttl=64 time=12.0 ms

--- 198.18.0.2 ping statistics ---
8 packets transmitted, 4 received, 50% packet loss, time 70ms
rtt min/avg/max/mdev = 0.059/3.133/12.000/5.122 ms
";

    #[test]
    fn answers_are_counted_and_ranked() {
        let stats = parse(TEXT).unwrap();
        assert_eq!((stats.sent, stats.received, stats.lost), (8, 4, 3));
        assert_eq!(stats.median(), Some(Duration::from_micros(61)));
        assert_eq!(stats.p99().unwrap().as_millis(), 12);
    }

    #[test]
    fn runs_add_up() {
        let mut stats = Stats::none();
        stats.merge(&parse(TEXT).unwrap());
        stats.merge(&parse(TEXT).unwrap());
        assert_eq!((stats.sent, stats.received), (16, 8));
        assert_eq!(stats.median(), Some(Duration::from_micros(61)));
    }

    #[test]
    fn missing_answers_in_a_row_are_a_gap() {
        assert_eq!(parse(TEXT).unwrap().longest_gap, Duration::from_millis(30));
    }

    #[test]
    fn nothing_answered_is_no_round_trip() {
        let stats = parse("5 packets transmitted, 0 received, 100% packet loss").unwrap();
        assert_eq!((stats.sent, stats.received, stats.median()), (5, 0, None));
    }

    #[test]
    fn text_without_a_summary_is_refused() {
        assert!(parse("ping: unknown host").is_none());
    }
}
