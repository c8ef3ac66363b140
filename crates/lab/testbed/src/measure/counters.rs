//! A device's counters, read from the kernel.
//!
//! `/proc/net/dev` shows the devices of the namespace in which it was opened. So a file opened once
//! inside can be read from anywhere, at the cost of one system call.
//!
//! How a `veth` counts: a frame that the peer received is in `tx` here and in `rx` there. A frame
//! for which the peer's ring had no room is in `tx_dropped` here and nowhere there. A frame that
//! the peer's XDP program or its socket refused is in `tx` here and in `rx_dropped` there. Bytes
//! are of whole frames, with one exception: frames sent to a peer that runs an XDP program in its
//! driver are counted without Ethernet headers. So rates are taken where there is no such program,
//! at the receiver, and everything else is counted in frames.

use crate::namespace::Namespace;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{Read, Seek};
use std::ops::Sub;

/// Frames and bytes of one device since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames that arrived and were dropped at once.
    pub rx_dropped: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames for which the peer had no room.
    pub tx_dropped: u64,
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            rx_packets: self.rx_packets.saturating_sub(earlier.rx_packets),
            rx_bytes: self.rx_bytes.saturating_sub(earlier.rx_bytes),
            rx_dropped: self.rx_dropped.saturating_sub(earlier.rx_dropped),
            tx_packets: self.tx_packets.saturating_sub(earlier.tx_packets),
            tx_bytes: self.tx_bytes.saturating_sub(earlier.tx_bytes),
            tx_dropped: self.tx_dropped.saturating_sub(earlier.tx_dropped),
        }
    }
}

/// Reads the counters of one device.
#[derive(Debug)]
pub struct Counters {
    table: File,
    device: &'static str,
}

impl Counters {
    /// Of `device` in `namespace`.
    pub fn of(namespace: &Namespace, device: &'static str) -> Result<Self> {
        let table = namespace.enter(|| {
            File::open("/proc/thread-self/net/dev").context("cannot open /proc/thread-self/net/dev")
        })?;
        Ok(Self { table, device })
    }

    /// The counts now.
    pub fn read(&mut self) -> Result<Counts> {
        let mut text = String::new();
        self.table.rewind()?;
        self.table.read_to_string(&mut text)?;
        parse(&text, self.device).with_context(|| format!("{} has no counters", self.device))
    }
}

/// The line of `device` in the text of `/proc/net/dev`.
fn parse(text: &str, device: &str) -> Option<Counts> {
    let line =
        text.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    let mut columns = [0; 12];
    let mut values = line.split_ascii_whitespace();
    for column in &mut columns {
        *column = values.next()?.parse().ok()?;
    }
    let [rx_bytes, rx_packets, _, rx_dropped, _, _, _, _, tx_bytes, tx_packets, _, tx_dropped] =
        columns;
    Some(Counts { rx_packets, rx_bytes, rx_dropped, tx_packets, tx_bytes, tx_dropped })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
port-a:15140000   10000    0    3    0     0          0         0     1820      26    0   17    0     0       0          0
port-b: 9    8    7    6    5     4          3         2     1      0    11    12    13     14       15          16
";

    #[test]
    fn the_line_of_the_device_is_read() {
        let counts = parse(TABLE, "port-a").unwrap();
        assert_eq!(
            counts,
            Counts {
                rx_packets: 10_000,
                rx_bytes: 15_140_000,
                rx_dropped: 3,
                tx_packets: 26,
                tx_bytes: 1820,
                tx_dropped: 17
            }
        );
    }

    #[test]
    fn a_device_that_is_not_there_or_only_begins_so_has_none() {
        assert_eq!(parse(TABLE, "port"), None);
        assert_eq!(parse(TABLE, "port-c"), None);
        assert_eq!(parse("port-a: 1 2 3", "port-a"), None);
    }
}
