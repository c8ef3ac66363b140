//! Frames as they arrive, byte for byte.
//!
//! By `tcpdump`, because a packet socket alone shows frames without their outermost
//! VLAN tag, which the kernel takes off first; `libpcap` puts it back.

use crate::collect::Collector;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::requirements::{self, TCPDUMP};
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use pcap_parser::{parse_pcap_frame, parse_pcap_header};
use std::process::Stdio;
use std::time::Duration;

/// How long `tcpdump` may take to begin.
const START: Duration = Duration::from_secs(5);

/// A capture of what a device receives, under way.
#[derive(Debug)]
pub struct Capture {
    process: Process,
    file: Collector,
}

impl Capture {
    /// Captures what `device` in `namespace` receives and `filter` (as in
    /// `pcap-filter(7)`; empty for everything) lets through. Returns once it captures.
    pub fn start(namespace: &Namespace, device: &str, filter: &str) -> Result<Self> {
        requirements::check(&[TCPDUMP])?;
        let mut command = namespace.command("tcpdump");
        command
            .args(["-i", device, "-Q", "in", "-n", "-U", "--immediate-mode", "-Z", "root"])
            .args(["-s", "0", "-B", "16384", "-w", "-"])
            .args(filter.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let stdout = process.child().stdout.take().context("tcpdump has no stdout")?;
        let stderr = process.child().stderr.take().context("tcpdump has no stderr")?;
        let said = Collector::over(stderr);
        let begun = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("listening on");
        if !said.wait_until(begun, START) {
            bail!("tcpdump does not capture on {device}: {}", said.text());
        }
        Ok(Self { process, file: Collector::over(stdout) })
    }

    /// The frames so far.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.file.look(parse)
    }

    /// Waits for `count` frames, at most `limit`, and returns what there is then.
    pub fn wait_for(&self, count: usize, limit: Duration) -> Vec<Vec<u8>> {
        self.file.wait_until(|file| parse(file).len() >= count, limit);
        self.frames()
    }

    /// Ends it and returns all frames.
    pub fn stop(mut self) -> Result<Vec<Vec<u8>>> {
        self.process.stop(Signal::SIGINT)?;
        // The process has ended, so its stream does, too.
        self.file.wait_until(|_| false, START);
        Ok(self.frames())
    }
}

/// The whole frames in a capture file, which may still be growing.
fn parse(file: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let Ok((mut rest, _header)) = parse_pcap_header(file) else { return frames };
    while let Ok((after, frame)) = parse_pcap_frame(rest) {
        frames.push(frame.data.to_vec());
        rest = after;
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
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

    #[test]
    fn frames_come_out_whole() {
        assert_eq!(parse(&file()), [b"first".to_vec(), b"second".to_vec()]);
    }

    #[test]
    fn a_frame_that_is_still_being_written_waits() {
        let file = file();
        assert_eq!(parse(&file[..file.len() - 1]), [b"first".to_vec()]);
        assert!(parse(&file[..10]).is_empty());
    }
}
