//! Where every frame went, from one end of the bed to the other.
//!
//! For each direction, the frames that the sender's stack passed to its device equal the sum of
//! those that the receiver's device got, that devices dropped on the way, that Narrows dropped by
//! its own count, that it still holds, and that it passed to its own kernel. Missing frames are
//! unaccounted for; excess frames were sent twice. This only balances while the bed is at rest:
//! [`Books::settle`] waits for that.

use crate::bed::{CLIENT, PORT_A, PORT_B, SERVER, Testbed};
use crate::counters::{Counters, Counts};
use anyhow::{Context, Result, bail};
use narrows_snapshot::{Port, Snapshot};
use serde::Serialize;
use std::thread;
use std::time::{Duration, Instant};

/// Counters that do not change for this long are at rest. Longer than Narrows holds a packet under
/// any limit used here, and than TCP's retransmission time-out.
const QUIET: Duration = Duration::from_millis(400);
/// Traffic that has ended comes to rest within this time; otherwise something is still sending.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The counts of the four devices since the books were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// The client's.
    pub client: Counts,
    /// The shaper's that faces the client.
    pub port_a: Counts,
    /// The shaper's that faces the server.
    pub port_b: Counts,
    /// The server's.
    pub server: Counts,
}

/// The frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Direction {
    /// Passed to the sender's device.
    pub handed_over: u64,
    /// Received by the receiver's device.
    pub received: u64,
    /// Dropped by a device because its ring or its backlog was full.
    pub dropped_by_devices: u64,
    /// Dropped by Narrows, for any reason; also by its program in the driver, if a worker was
    /// silent and there is no standby bridge.
    pub dropped_by_narrows: u64,
    /// Held by Narrows.
    pub queued: u64,
    /// Passed to the kernel of the box.
    pub to_kernel: u64,
}

impl Direction {
    /// Missing frames; negative if there are more than were sent.
    pub fn unaccounted(&self) -> i64 {
        let seen = self.received
            + self.dropped_by_devices
            + self.dropped_by_narrows
            + self.queued
            + self.to_kernel;
        i64::try_from(i128::from(self.handed_over) - i128::from(seen)).unwrap_or(i64::MAX)
    }
}

/// Both directions of `devices` with Narrows between them: client to server, and back.
pub fn directions(devices: &Devices, show: &Snapshot) -> Result<[Direction; 2]> {
    let a = show.port(PORT_A).context("narrows show does not list port A")?;
    let b = show.port(PORT_B).context("narrows show does not list port B")?;
    let one_way = |from: &Counts, into: &Counts, out: &Counts, to: &Counts| Direction {
        handed_over: from.tx_packets + from.tx_dropped,
        received: to.rx_packets,
        dropped_by_devices: from.tx_dropped + into.rx_dropped + out.tx_dropped,
        ..Direction::default()
    };
    // With a standby bridge, they took the bridge.
    let stalled = |into: &Port| if show.standby().is_none() { into.stalled } else { 0 };
    let Devices { client, port_a, port_b, server } = devices;
    let forth = Direction {
        dropped_by_narrows: b.total.drops + stalled(a),
        queued: b.total.backlog_packets,
        to_kernel: a.to_self + a.unserved,
        ..one_way(client, port_a, port_b, server)
    };
    let back = Direction {
        dropped_by_narrows: a.total.drops + stalled(b),
        queued: a.total.backlog_packets,
        to_kernel: b.to_self + b.unserved,
        ..one_way(server, port_b, port_a, client)
    };
    Ok([forth, back])
}

/// The counters of all four devices, since they were opened.
#[derive(Debug)]
pub struct Books {
    counters: [Counters; 4],
    opened: [Counts; 4],
}

impl Books {
    /// Opens them on `bed`, which is at rest.
    pub fn open(bed: &Testbed) -> Result<Self> {
        let counters = [
            Counters::of(bed.client(), CLIENT)?,
            Counters::of(bed.shaper(), PORT_A)?,
            Counters::of(bed.shaper(), PORT_B)?,
            Counters::of(bed.server(), SERVER)?,
        ];
        let mut books = Self { counters, opened: [Counts::default(); 4] };
        let Devices { client, port_a, port_b, server } = books.read()?;
        books.opened = [client, port_a, port_b, server];
        Ok(books)
    }

    /// The counts since then.
    pub fn read(&mut self) -> Result<Devices> {
        let mut counts = [Counts::default(); 4];
        for (index, counters) in self.counters.iter_mut().enumerate() {
            counts[index] = counters.read()? - self.opened[index];
        }
        let [client, port_a, port_b, server] = counts;
        Ok(Devices { client, port_a, port_b, server })
    }

    /// Waits until nothing moves, and returns the counts since the books were opened.
    pub fn settle(&mut self) -> Result<Devices> {
        let deadline = Instant::now() + TIMEOUT;
        let mut last = self.read()?;
        let mut since = Instant::now();
        while since.elapsed() < QUIET {
            if Instant::now() >= deadline {
                bail!("the counters do not come to rest after the traffic has ended");
            }
            thread::sleep(QUIET / 10);
            let now = self.read()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(tx_packets: u64, tx_dropped: u64) -> Counts {
        Counts { tx_packets, tx_dropped, ..Counts::default() }
    }

    fn devices() -> Devices {
        Devices {
            client: Counts { rx_packets: 40, ..sent(1000, 10) },
            port_a: Counts { rx_dropped: 5, ..sent(40, 0) },
            port_b: sent(800, 2),
            server: Counts { rx_packets: 798, ..sent(41, 0) },
        }
    }

    fn show() -> Snapshot {
        serde_json::from_str(
            r#"{"state":"running","ports":[
                {"name":"port-a","to_self":3,"unserved":0,"per_queue":[],
                 "total":{"tx_packets":40,"tx_bytes":1,"backlog_packets":1,"drops":0}},
                {"name":"port-b","to_self":0,"unserved":0,"per_queue":[],
                 "total":{"tx_packets":800,"tx_bytes":1,"backlog_packets":12,"drops":180,
                          "drops_by_reason":{"limit":180}}}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn a_frame_is_received_dropped_queued_or_kept_by_the_box() {
        let [forth, back] = directions(&devices(), &show()).unwrap();
        assert_eq!(forth.handed_over, 1010);
        assert_eq!(forth.dropped_by_devices, 17);
        assert_eq!(forth.unaccounted(), 1010 - 798 - 17 - 180 - 12 - 3);
        assert_eq!(forth.unaccounted(), 0);
        assert_eq!(back.unaccounted(), 0);
    }

    #[test]
    fn frames_for_a_silent_worker_are_dropped_without_a_standby_bridge() {
        let dropped = |fail: &str| {
            let text = format!(
                r#"{{"state":"running","fail":"{fail}","ports":[
                    {{"name":"port-a","to_self":0,"unserved":0,"stalled":9,"per_queue":[],
                     "total":{{"tx_packets":0,"tx_bytes":0,"backlog_packets":0,"drops":0}}}},
                    {{"name":"port-b","to_self":0,"unserved":0,"per_queue":[],
                     "total":{{"tx_packets":0,"tx_bytes":0,"backlog_packets":0,"drops":5}}}}]}}"#
            );
            let show: Snapshot = serde_json::from_str(&text).unwrap();
            directions(&Devices::default(), &show).unwrap().map(|way| way.dropped_by_narrows)
        };
        assert_eq!(dropped("closed"), [14, 0]);
        assert_eq!(dropped("open (bridge nrwbr2)"), [5, 0]);
    }

    #[test]
    fn lost_and_duplicated_frames_are_noticed() {
        let mut devices = devices();
        devices.server.rx_packets -= 1;
        devices.client.rx_packets += 2;
        let [forth, back] = directions(&devices, &show()).unwrap();
        assert_eq!((forth.unaccounted(), back.unaccounted()), (1, -2));
    }
}
