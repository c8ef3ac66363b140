//! Captures frames as they arrive, byte for byte.
//!
//! This uses `tcpdump`, because a packet socket alone shows frames without their outermost VLAN
//! tag, which the kernel strips; `libpcap` restores it.
//!
//! Each frame has the time at which the kernel received it, to the nanosecond. If only the time
//! matters, [`Capture::of_times`] takes the first bytes of frames and reads them in blocks, so that
//! a few hundred thousand frames per second do not disturb the measurement.

use crate::collect::Collector;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::requirements::{self, TCPDUMP};
use anyhow::{Context, Result, bail};
use narrows_units::Nanos;
use nix::sys::signal::Signal;
use pcap_parser::{parse_pcap_frame, parse_pcap_header};
use std::process::Stdio;
use std::time::Duration;

/// How long `tcpdump` may take to start.
const START: Duration = Duration::from_secs(5);

/// A frame with the time at which it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When: nanoseconds of the kernel's clock since 1970.
    pub at: Nanos,
    /// The captured bytes of it.
    pub bytes: Vec<u8>,
}

/// A capture of what a device receives, under way.
#[derive(Debug)]
pub struct Capture {
    process: Process,
    file: Collector,
    said: Collector,
}

/// `tcpdump`'s buffering mode.
const WHOLE_AND_AT_ONCE: [&str; 4] = ["-U", "--immediate-mode", "-s", "0"];
/// Ethernet and IP headers and ports, IPv6 and a tag included.
const HEADERS_IN_BLOCKS: [&str; 2] = ["-s", "96"];

impl Capture {
    /// Captures what `device` in `namespace` receives and `filter` accepts (as in `pcap-filter(7)`;
    /// empty for everything). Returns once it captures.
    pub fn start(namespace: &Namespace, device: &str, filter: &str) -> Result<Self> {
        Self::spawn(namespace, device, filter, &WHOLE_AND_AT_ONCE)
    }

    /// The same for [`Capture::arrivals`]: only the frames' first bytes, and seen late.
    pub fn of_times(namespace: &Namespace, device: &str, filter: &str) -> Result<Self> {
        Self::spawn(namespace, device, filter, &HEADERS_IN_BLOCKS)
    }

    fn spawn(namespace: &Namespace, device: &str, filter: &str, way: &[&str]) -> Result<Self> {
        requirements::check(&[TCPDUMP])?;
        let mut command = namespace.command("tcpdump");
        command
            .args(["-i", device, "-Q", "in", "-n", "-Z", "root", "-B", "16384", "-w", "-"])
            .arg("--time-stamp-precision=nano")
            .args(way)
            .args(filter.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let stdout = process.stdout().context("tcpdump has no stdout")?;
        let stderr = process.stderr().context("tcpdump has no stderr")?;
        let said = Collector::over(stderr);
        let begun = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("listening on");
        if !said.wait_until(begun, START) {
            bail!("tcpdump does not capture on {device}: {}", said.text());
        }
        Ok(Self { process, file: Collector::over(stdout), said })
    }

    /// The frames so far.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.file.look(|file| parse(file).into_iter().map(|arrival| arrival.bytes).collect())
    }

    /// Waits for `count` frames, at most `limit`, and returns what there is then.
    pub fn wait_for(&self, count: usize, limit: Duration) -> Vec<Vec<u8>> {
        self.file.wait_until(|file| parse(file).len() >= count, limit);
        self.frames()
    }

    /// Ends it and returns all frames.
    pub fn stop(mut self) -> Result<Vec<Vec<u8>>> {
        self.end()?;
        Ok(self.frames())
    }

    /// Ends it and returns all frames with their times, and how many came that it has missed.
    pub fn arrivals(mut self) -> Result<(Vec<Arrival>, u64)> {
        self.end()?;
        let said = self.said.text();
        let missed = parse_missed(&said)
            .with_context(|| format!("tcpdump does not report misses: {said}"))?;
        Ok((self.file.look(parse), missed))
    }

    fn end(&mut self) -> Result<()> {
        self.process.stop(Signal::SIGINT)?;
        // The process has ended, so its streams do, too.
        self.file.wait_until(|_| false, START);
        self.said.wait_until(|_| false, START);
        Ok(())
    }
}

/// The whole frames in a capture file, which may still be growing.
fn parse(file: &[u8]) -> Vec<Arrival> {
    let mut frames = Vec::new();
    let Ok((mut rest, header)) = parse_pcap_header(file) else { return frames };
    let unit = if header.is_nanosecond_precision() { Nanos(1) } else { Nanos::from_micros(1) };
    while let Ok((after, frame)) = parse_pcap_frame(rest) {
        let seconds = Nanos::from_secs(frame.ts_sec.into());
        let at = seconds + Nanos(u64::from(frame.ts_usec) * unit.0);
        frames.push(Arrival { at, bytes: frame.data.to_vec() });
        rest = after;
    }
    frames
}

/// `tcpdump`'s last line: `N packets dropped by kernel`.
fn parse_missed(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("dropped by kernel"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(magic: u32) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [magic, 0x0004_0002, 0, 0, 65_535, 1] {
            file.extend(word.to_le_bytes());
        }
        for frame in [&b"first"[..], b"second"] {
            for word in [1_u32, 2, frame.len() as u32, frame.len() as u32] {
                file.extend(word.to_le_bytes());
            }
            file.extend(frame);
        }
        file
    }

    const MICROS: u32 = 0xa1b2_c3d4;
    const NANOS: u32 = 0xa1b2_3c4d;

    fn bytes(file: &[u8]) -> Vec<Vec<u8>> {
        parse(file).into_iter().map(|arrival| arrival.bytes).collect()
    }

    #[test]
    fn frames_arrive_whole() {
        assert_eq!(bytes(&file(MICROS)), [b"first".to_vec(), b"second".to_vec()]);
    }

    #[test]
    fn a_frame_that_is_still_being_written_waits() {
        let file = file(MICROS);
        assert_eq!(bytes(&file[..file.len() - 1]), [b"first".to_vec()]);
        assert!(parse(&file[..10]).is_empty());
    }

    #[test]
    fn times_have_the_unit_of_the_file() {
        assert_eq!(parse(&file(MICROS))[0].at, Nanos(1_000_002_000));
        assert_eq!(parse(&file(NANOS))[0].at, Nanos(1_000_000_002));
    }

    #[test]
    fn misses_are_read_from_the_final_report() {
        let said =
            "12 packets captured\n20 packets received by filter\n8 packets dropped by kernel\n";
        assert_eq!(parse_missed(said), Some(8));
        assert_eq!(parse_missed("listening on srv0"), None);
    }
}
