//! Traffic of real sockets, by `iperf3`: many flows at once, TCP or UDP.
//!
//! The delivered rate is taken from the devices' counters, not from `iperf3`, which only knows what
//! reached its sockets, without headers.

use crate::bed::{SERVER_IP, Testbed};
use crate::collect::Collector;
use crate::process::Process;
use anyhow::{Context, Result, bail};
use narrows_units::Rate;
use nix::sys::signal::Signal;
use serde::Deserialize;
use std::process::Stdio;
use std::time::Duration;

/// How long the server may take to listen.
const START: Duration = Duration::from_secs(5);
/// How long the two ends may take to agree and, later, to exchange their results: among many flows
/// in a queue that drops, these packets are lost several times.
const EXCHANGE: Duration = Duration::from_secs(60);
/// Payload of a UDP datagram that fills a frame of 1514 bytes.
const DATAGRAM: &str = "1472";

/// The kind of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// UDP, all flows together at a rate of payload that nothing slows down.
    Udp(Rate),
    /// TCP, each flow as fast as it may.
    Tcp,
}

/// The most flows of one client.
const FLOWS_MAX: u32 = 128;
/// The port of the first server.
const PORT: u16 = 5201;

/// Clients and their servers under way: one of each for every 128 flows.
#[derive(Debug)]
pub struct Iperf {
    pairs: Vec<Pair>,
}

#[derive(Debug)]
struct Pair {
    client: Process,
    output: Collector,
    _server: Process,
    limit: Duration,
}

/// The clients' report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// TCP segments sent again; zero for UDP.
    pub retransmits: u64,
    /// By TCP flow, the bytes that its receiver has read; empty for UDP.
    pub received: Vec<u64>,
}

impl Iperf {
    /// Starts `flows` flows from the client to the server for `span`, rounded up to
    /// whole seconds. Returns once the clients have started.
    pub fn start(bed: &Testbed, traffic: Traffic, flows: u32, span: Duration) -> Result<Self> {
        let clients = flows.div_ceil(FLOWS_MAX);
        let pairs = (0..clients).zip(PORT..).map(|(number, port)| {
            let some = FLOWS_MAX.min(flows - number * FLOWS_MAX);
            let each = match traffic {
                Traffic::Udp(rate) => Some(rate.bits_per_sec() / u64::from(flows.max(1))),
                Traffic::Tcp => None,
            };
            Pair::start(bed, port, each, some, span)
        });
        Ok(Self { pairs: pairs.collect::<Result<_>>()? })
    }

    /// Waits for their end. The error is that of `iperf3` if a test failed.
    pub fn finish(self) -> Result<Report> {
        let mut sum = Report::default();
        for pair in self.pairs {
            let Report { retransmits, received } = pair.finish()?;
            sum.retransmits += retransmits;
            sum.received.extend(received);
        }
        Ok(sum)
    }
}

impl Pair {
    /// TCP, or UDP flows of `each` bits of payload per second.
    fn start(
        bed: &Testbed,
        port: u16,
        each: Option<u64>,
        flows: u32,
        span: Duration,
    ) -> Result<Self> {
        let port = port.to_string();
        // One test, then it ends by itself.
        let mut server = bed.server().command("iperf3");
        let server_args = ["--server", "--one-off", "--forceflush", "--port", &port];
        server.args(server_args).stdin(Stdio::null());
        let said = Collector::over_both(&mut server)?;
        let server = Process::start(&mut server)?;
        let listens = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("listening");
        if !said.wait_until(listens, START) {
            bail!("the iperf3 server does not listen: {}", said.text());
        }
        let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
        let mut client = bed.client().command("iperf3");
        client
            .args(["--client", &SERVER_IP.to_string(), "--json", "--port", &port])
            .args(["--time", &seconds.to_string(), "--parallel", &flows.to_string()])
            .stdin(Stdio::null());
        if let Some(each) = each {
            client.args(["--udp", "--bitrate", &each.to_string(), "--length", DATAGRAM]);
        }
        // On the other stream are warnings; errors are in the JSON.
        client.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = Process::start(&mut client)?;
        let stdout = client.stdout().context("iperf3 has no stdout")?;
        let output = Collector::over(stdout);
        let limit = Duration::from_secs(seconds) + EXCHANGE;
        Ok(Self { client, output, _server: server, limit })
    }

    fn finish(mut self) -> Result<Report> {
        if self.client.wait(self.limit)?.is_none() {
            self.client.stop(Signal::SIGTERM)?;
            bail!("iperf3 did not end within {} s", self.limit.as_secs());
        }
        parse(&self.output.finish())
    }
}

#[derive(Deserialize)]
struct Output {
    error: Option<String>,
    #[serde(default)]
    end: End,
}

#[derive(Default, Deserialize)]
struct End {
    sum_sent: Option<Sum>,
    #[serde(default)]
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    /// Of TCP.
    receiver: Option<Received>,
}

#[derive(Deserialize)]
struct Received {
    bytes: u64,
}

#[derive(Deserialize)]
struct Sum {
    #[serde(default)]
    retransmits: u64,
}

fn parse(json: &str) -> Result<Report> {
    let output: Output =
        serde_json::from_str(json).with_context(|| format!("iperf3 printed no JSON: {json}"))?;
    if let Some(error) = output.error {
        bail!("iperf3: {error}");
    }
    let End { sum_sent, streams } = output.end;
    let received = streams.into_iter().filter_map(|stream| stream.receiver);
    Ok(Report {
        retransmits: sum_sent.map_or(0, |sum| sum.retransmits),
        received: received.map(|received| received.bytes).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmits_are_summed_over_the_flows_and_bytes_are_not() {
        let json = r#"{"start":{},"intervals":[],"end":{"streams":[
            {"sender":{"bytes":9},"receiver":{"bytes":7}},{"sender":{"bytes":3},"receiver":{"bytes":3}}],
            "sum_sent":{"bytes":1,"retransmits":42,"sender":true},"sum_received":{"bytes":1}}}"#;
        assert_eq!(parse(json).unwrap(), Report { retransmits: 42, received: vec![7, 3] });
    }

    #[test]
    fn udp_has_none() {
        let json =
            r#"{"end":{"streams":[{"udp":{"bytes":1}}],"sum":{"bytes":1,"lost_packets":3}}}"#;
        assert_eq!(parse(json).unwrap(), Report::default());
    }

    #[test]
    fn its_error_is_ours() {
        let error = parse(r#"{"start":{},"end":{},"error":"unable to connect"}"#).unwrap_err();
        assert_eq!(error.to_string(), "iperf3: unable to connect");
        assert!(parse("iperf3: not JSON").unwrap_err().to_string().contains("not JSON"));
    }
}
