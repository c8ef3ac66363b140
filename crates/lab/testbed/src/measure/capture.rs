//! Captures frames as they arrive, byte for byte.
//!
//! This uses `tcpdump`, because a packet socket alone shows frames without their outermost VLAN
//! tag, which the kernel strips; `libpcap` restores it.
//!
//! Each frame has the time at which the kernel received it, to the nanosecond. If only the time
//! matters, [`Capture::of_times`] takes the first bytes of frames and reads them in blocks, so that
//! a few hundred thousand frames per second do not disturb the measurement.
//!
//! A `tcpdump` that is interrupted leaves unread what the kernel has captured for it: up to a
//! second's frames, and more on a busy machine. It counts them as received by its filter, not as
//! captured or dropped. So a capture ends only after `tcpdump` has read everything that was
//! received before, by its own numbers; whatever is missing then counts as missed.

use crate::collect::Collector;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::requirements::{self, TCPDUMP};
use anyhow::{Context, Result, bail};
use narrows_units::Nanos;
use nix::sys::signal::Signal;
use pcap_parser::{parse_pcap_frame, parse_pcap_header};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// How long `tcpdump` may take to start, to answer, and to read what it has captured.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked whether it has read everything.
const ASK: Duration = Duration::from_millis(50);

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

    /// Captures for [`Capture::arrivals`]: only the frames' first bytes, and seen late.
    pub fn of_times(namespace: &Namespace, device: &str, filter: &str) -> Result<Self> {
        Self::spawn(namespace, device, filter, &HEADERS_IN_BLOCKS)
    }

    fn spawn(namespace: &Namespace, device: &str, filter: &str, way: &[&str]) -> Result<Self> {
        requirements::check(&[TCPDUMP])?;
        // The filter, and with it the numbers, must leave out what the device sends. `inbound`
        // would, but with it libpcap 1.10 discards the first frame, or the first block of frames.
        let link = namespace.run("ip", &["-o", "link", "show", "dev", device])?;
        let own = link.split_ascii_whitespace().skip_while(|word| *word != "link/ether").nth(1);
        let own = own.with_context(|| format!("{device} has no MAC address"))?;
        let mut selected = format!("not ether src {own}");
        if !filter.is_empty() {
            selected = format!("{selected} and ({filter})");
        }
        let mut command = namespace.command("tcpdump");
        command
            .args(["-i", device, "-Q", "in", "-n", "-Z", "root", "-B", "16384", "-w", "-"])
            .arg("--time-stamp-precision=nano")
            .args(way)
            .arg(selected)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let stdout = process.stdout().context("tcpdump has no stdout")?;
        let stderr = process.stderr().context("tcpdump has no stderr")?;
        let said = Collector::over(stderr);
        let begun = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("listening on");
        if !said.wait_until(begun, PATIENCE) {
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

    /// Ends it and returns all frames that came until now.
    pub fn stop(mut self) -> Result<Vec<Vec<u8>>> {
        self.end()?;
        Ok(self.frames())
    }

    /// Ends it and returns all frames that came until now with their times, and how many came that
    /// are not among them.
    pub fn arrivals(mut self) -> Result<(Vec<Arrival>, u64)> {
        let (until_now, in_all) = self.end()?;
        let arrivals = self.file.look(parse);
        // Frames that arrive while it ends do not count.
        let unread = until_now.received.saturating_sub(arrivals.len() as u64);
        let missed = unread.max(in_all.dropped);
        Ok((arrivals, missed))
    }

    /// Waits until it has read what came until now, ends it, and returns its numbers
    /// of now and its last ones.
    fn end(&mut self) -> Result<(Counted, Counted)> {
        let now = self.ask()?;
        let deadline = Instant::now() + PATIENCE;
        while self.ask()?.read_or_dropped() < now.received && Instant::now() < deadline {
            thread::sleep(ASK);
        }
        self.process.stop(Signal::SIGINT)?;
        // The process has ended, so its streams do, too.
        self.file.wait_until(|_| false, PATIENCE);
        self.said.wait_until(|_| false, PATIENCE);
        let said = self.said.text();
        let last = reports(&said).last().copied();
        Ok((now, last.with_context(|| format!("tcpdump says no numbers: {said}"))?))
    }

    /// Its numbers now.
    fn ask(&mut self) -> Result<Counted> {
        let count = |said: &[u8]| reports(&String::from_utf8_lossy(said)).len();
        let before = self.said.look(count);
        self.process.signal(Signal::SIGUSR1)?;
        if !self.said.wait_until(|said| count(said) > before, PATIENCE) {
            bail!("tcpdump does not answer: {}", self.said.text());
        }
        Ok(reports(&self.said.text())[before])
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

/// What `tcpdump` counts of the frames that its filter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    /// Read from the kernel and written.
    captured: u64,
    /// All of them, those that the kernel dropped included.
    received: u64,
    /// Dropped by the kernel, because there was no room.
    dropped: u64,
}

impl Counted {
    fn read_or_dropped(&self) -> u64 {
        self.captured + self.dropped
    }
}

/// The whole reports among what `tcpdump` said: one line when asked, three lines at its end.
fn reports(said: &str) -> Vec<Counted> {
    let mut reports = Vec::new();
    let (mut captured, mut received) = (0, 0);
    for part in said.split([',', '\n']) {
        let part = part.trim().trim_start_matches("tcpdump: ");
        let Some((number, what)) = part.split_once(" packet") else { continue };
        let Ok(number) = number.parse() else { continue };
        match what.trim_start_matches('s') {
            " captured" => captured = number,
            " received by filter" => received = number,
            " dropped by kernel" => reports.push(Counted { captured, received, dropped: number }),
            _ => (),
        }
    }
    reports
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
    fn every_whole_report_is_read() {
        let said = "tcpdump: listening on srv0, link-type EN10MB (Ethernet), snapshot length 96\n\
                    tcpdump: 1 packet captured, 20 packets received by filter, \
                    0 packets dropped by kernel\n\
                    17 packets captured\n20 packets received by filter\n\
                    3 packets dropped by kernel\n";
        let first = Counted { captured: 1, received: 20, dropped: 0 };
        let last = Counted { captured: 17, received: 20, dropped: 3 };
        assert_eq!(reports(said), [first, last]);
        let (begun, _) = said.rsplit_once("kernel").unwrap();
        assert_eq!(reports(begun), [first]);
        assert!(reports("listening on srv0").is_empty());
    }
}
