//! `wrk`: a client that sends requests of HTTP as fast as they are answered.

use crate::collect::Collector;
use crate::namespace::Namespace;
use crate::process::Process;
use anyhow::{Context, Result, ensure};
use std::net::SocketAddrV4;
use std::process::Stdio;
use std::time::Duration;

/// After which a request without an answer has failed: a stall of a busy machine is none.
const TIMEOUT_S: u64 = 10;

/// What became of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Requests {
    /// All of them.
    pub sent: u64,
    /// Those without an answer, because the connection could not be made, read or written, or took
    /// too long; and those whose answer says that something is wrong.
    pub failed: u64,
}

/// It at work. Ended when dropped.
#[derive(Debug)]
pub struct Wrk {
    process: Process,
    output: Collector,
    patience: Duration,
}

impl Wrk {
    /// Sends requests over so many connections, for `time` in whole seconds.
    pub fn start(
        namespace: &Namespace,
        service: SocketAddrV4,
        connections: u32,
        time: Duration,
    ) -> Result<Self> {
        let mut command = namespace.command("wrk");
        command
            .args(["-t", "1", "-c", &connections.to_string()])
            .args(["-d", &format!("{}s", time.as_secs())])
            .args(["--timeout", &format!("{TIMEOUT_S}s"), &format!("http://{service}/")])
            .stdin(Stdio::null());
        let output = Collector::over_both(&mut command)?;
        let process = Process::start(&mut command)?;
        Ok(Self { process, output, patience: time + Duration::from_secs(TIMEOUT_S) })
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Result<Requests> {
        let ended = self.process.wait(self.patience)?;
        let text = self.output.finish();
        ensure!(ended.is_some_and(|status| status.success()), "wrk failed:\n{text}");
        requests(&text).with_context(|| format!("wrk says:\n{text}"))
    }
}

/// What its report says.
fn requests(text: &str) -> Result<Requests> {
    let number = |word: &str| word.trim_end_matches(',').parse::<u64>().context("a number");
    let (mut answered, mut unanswered, mut refused) = (None, 0, 0);
    for line in text.lines().map(str::trim) {
        if let Some((count, _)) = line.split_once(" requests in ") {
            answered = Some(number(count)?);
        } else if let Some(errors) = line.strip_prefix("Socket errors: ") {
            let words = errors.split_whitespace().skip(1).step_by(2);
            unanswered += words.map(number).sum::<Result<u64>>()?;
        } else if let Some(count) = line.strip_prefix("Non-2xx or 3xx responses: ") {
            refused += number(count)?;
        }
    }
    let sent = answered.context("no count of requests")? + unanswered;
    Ok(Requests { sent, failed: unanswered + refused })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_answers_and_all_kinds_of_failures() {
        let text = "Running 2s test @ http://10.7.0.100:80/\n  1 threads and 32 connections\n\
                    \x20 Thread Stats   Avg      Stdev     Max   +/- Stdev\n\
                    \x20 24006 requests in 2.00s, 4.12MB read\n";
        assert_eq!(requests(text).unwrap(), Requests { sent: 24_006, failed: 0 });
        let wrong = "  Socket errors: connect 1, read 20, write 300, timeout 4000\n\
                     \x20 Non-2xx or 3xx responses: 50000\n";
        let requests = requests(&format!("{text}{wrong}")).unwrap();
        assert_eq!(requests, Requests { sent: 24_006 + 4321, failed: 54_321 });
    }

    #[test]
    fn a_report_without_a_count_is_none() {
        assert!(requests("unable to connect to 10.7.0.100:80").is_err());
    }
}
