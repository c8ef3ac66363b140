//! What an instance says about itself, for people and for programs.
//!
//! One set of structures is the origin of both: [`Show`] serialises to the JSON that
//! `narrows show --json` prints and renders the text without it. Counters run on over
//! the instance's whole life, also when a port went away and came back.

use narrows_bpf::Verdicts;
use narrows_link::DeviceLosses;
use narrows_packet::{Backlog, DropCounters};
use narrows_shaper::PathCounters;
use narrows_xsk::KernelDrops;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// An instance at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Show {
    /// `running`, or `waiting` for a port to be usable again.
    pub state: String,
    /// What is waited for, where something is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// How long the instance has run, in seconds.
    pub uptime_s: f64,
    /// Who forwards when this process is gone.
    pub fail: String,
    /// What is wrong with the ports now: what goes past the limit, cannot pass, or is spoilt.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub warnings: Vec<String>,
    /// The two ports.
    pub ports: Vec<PortShow>,
    /// The worker of each queue.
    pub workers: Vec<WorkerShow>,
    /// Where every packet went.
    pub conservation: Conservation,
    /// The latest events, oldest first.
    pub events: Vec<String>,
}

/// A port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PortShow {
    /// The interface's name.
    pub name: String,
    /// XDP mode: `native` or `generic`.
    pub xdp: String,
    /// `zero-copy` or `copy`.
    pub copy: String,
    /// Whether there is no carrier, so that what is sent here is lost in the kernel.
    #[serde(default)]
    pub no_carrier: bool,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Queue pairs served.
    pub queues: u32,
    /// The kind of its root qdisc.
    pub qdisc: String,
    /// The rate set at its root, in bits per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_set_bps: Option<u64>,
    /// What the largest `cake` instance on it takes, in bytes: without packets, and without what
    /// instances share.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instance_bytes: Option<u64>,
    /// What left in the last second, in bits per second of frames.
    pub tx_rate_bps: u64,
    /// What came in in the last second, in bits per second of frames.
    pub rx_rate_bps: u64,
    /// All queues together.
    pub total: QueueShow,
    /// Each queue.
    pub per_queue: Vec<QueueShow>,
    /// Frames for the box itself, given to the kernel.
    pub to_self: u64,
    /// Frames that the kernel got because no worker served their queue.
    pub unserved: u64,
    /// Frames that went past a silent worker: to the kernel, or nowhere where narrows fails closed.
    #[serde(default)]
    pub stalled: u64,
    /// Frames that the kernel lost between driver and worker.
    pub kernel_drops: KernelDropsShow,
    /// Frames that the device itself lost while the ports were joined.
    #[serde(default)]
    pub device_losses: DeviceLossesShow,
}

/// A queue of a port, or all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QueueShow {
    /// Packets that came in here.
    pub rx_packets: u64,
    /// Their frame bytes.
    pub rx_bytes: u64,
    /// Packets handed to the device to leave here. What it lost of them is in
    /// [`PortShow::device_losses`].
    pub tx_packets: u64,
    /// Their frame bytes.
    pub tx_bytes: u64,
    /// System calls made to have them sent: none where a driver needs no waking, more than one a
    /// batch where the kernel took part of it.
    pub tx_kicks: u64,
    /// Packets queued to leave here.
    pub backlog_packets: u64,
    /// Their frame bytes.
    pub backlog_bytes: u64,
    /// Packets that were to leave here and were dropped.
    pub drops: u64,
    /// The same by reason; reasons that did not occur are left out.
    pub drops_by_reason: BTreeMap<String, u64>,
}

/// See [`KernelDrops`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDropsShow {
    /// The RX ring was full.
    pub rx_ring_full: u64,
    /// Other losses on the way in.
    pub rx_dropped: u64,
    /// Times that the fill ring was empty.
    pub fill_ring_empty: u64,
    /// Descriptors refused on the way in.
    pub rx_invalid: u64,
    /// Descriptors refused on the way out.
    pub tx_invalid: u64,
}

/// See [`DeviceLosses`]: the kernel's counts for the whole device, whoever sent the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLossesShow {
    /// Received and dropped.
    pub rx_dropped: u64,
    /// Received with an error.
    pub rx_errors: u64,
    /// Missed for want of a buffer.
    pub rx_missed: u64,
    /// Not sent: no carrier, no room.
    pub tx_dropped: u64,
    /// Not sent for an error.
    pub tx_errors: u64,
    /// Of these, lost with the carrier.
    pub tx_carrier: u64,
}

impl From<DeviceLosses> for DeviceLossesShow {
    fn from(losses: DeviceLosses) -> Self {
        let DeviceLosses { rx_dropped, rx_errors, rx_missed, tx_dropped, tx_errors, tx_carrier } =
            losses;
        Self { rx_dropped, rx_errors, rx_missed, tx_dropped, tx_errors, tx_carrier }
    }
}

/// A worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkerShow {
    /// The queue that it serves.
    pub queue: u32,
    /// The core that its thread is pinned to.
    pub cpu: usize,
    /// The thread that serves it, by the queue that this thread serves first: one may serve several
    /// while there is little to do.
    #[serde(default)]
    pub thread: u32,
    /// Share of the time since the session began in which it had something to do, 0 to 1.
    pub load: f64,
    /// Time asleep or looking in vain, in seconds.
    pub idle_s: f64,
    /// Processor time used, in seconds.
    pub cpu_s: f64,
    /// All its frames: the sum of the next four.
    pub frames: u32,
    /// Those that are in no ring and in no queue.
    pub free_frames: u32,
    /// Those that the kernel has to receive into.
    #[serde(default)]
    pub receiving_frames: u32,
    /// Those in which packets wait.
    #[serde(default)]
    pub waiting_frames: u32,
    /// Those that the kernel has to send.
    #[serde(default)]
    pub sending_frames: u32,
    /// Times that the kernel gave a frame back that it did not have: 0, or it has a fault.
    #[serde(default)]
    pub stray_frames: u64,
    /// For how long it has been silent, in seconds, where it does not come round. What else is said
    /// of it, and its part of all counters, is as it was then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub silent_s: Option<f64>,
}

/// Packets received = sent + queued + dropped, in both directions together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Conservation {
    /// Packets that the workers received.
    pub received: u64,
    /// Packets that they handed to a device.
    pub sent: u64,
    /// Packets queued.
    pub queued: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets of which no trace is left: 0, or Narrows has a fault.
    pub unaccounted: i64,
    /// Packets that no worker saw, so they are none of the above: their queue had none, or a silent
    /// one.
    #[serde(default)]
    pub bypassed: u64,
}

/// The counters of one queue of one port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueCounters {
    /// What came in here.
    pub(crate) inward: PathCounters,
    /// What was to leave here.
    pub(crate) outward: PathCounters,
    /// System calls made to have it sent.
    pub(crate) tx_kicks: u64,
    pub(crate) backlog: Backlog,
    pub(crate) kernel_drops: KernelDrops,
}

impl QueueCounters {
    /// Adds the counts of `other`; backlogs do not add up over time and are taken over.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.inward.merge(&other.inward);
        self.outward.merge(&other.outward);
        self.tx_kicks += other.tx_kicks;
        self.backlog += other.backlog;
        let (mine, theirs) = (&mut self.kernel_drops, &other.kernel_drops);
        mine.rx_dropped += theirs.rx_dropped;
        mine.rx_ring_full += theirs.rx_ring_full;
        mine.fill_ring_empty += theirs.fill_ring_empty;
        mine.rx_invalid += theirs.rx_invalid;
        mine.tx_invalid += theirs.tx_invalid;
    }

    pub(crate) fn show(&self) -> QueueShow {
        QueueShow {
            rx_packets: self.inward.rx_packets,
            rx_bytes: self.inward.rx_bytes,
            tx_packets: self.outward.tx_packets,
            tx_bytes: self.outward.tx_bytes,
            tx_kicks: self.tx_kicks,
            backlog_packets: u64::from(self.backlog.packets),
            backlog_bytes: self.backlog.bytes.0,
            drops: self.outward.drops.total(),
            drops_by_reason: by_reason(&self.outward.drops),
        }
    }

    /// What the kernel lost.
    pub(crate) fn kernel_drops(&self) -> KernelDropsShow {
        KernelDropsShow {
            rx_ring_full: self.kernel_drops.rx_ring_full,
            rx_dropped: self.kernel_drops.rx_dropped,
            fill_ring_empty: self.kernel_drops.fill_ring_empty,
            rx_invalid: self.kernel_drops.rx_invalid,
            tx_invalid: self.kernel_drops.tx_invalid,
        }
    }
}

/// Adds up what the steering programs of two sessions did.
pub(crate) fn add_verdicts(one: Verdicts, two: Verdicts) -> Verdicts {
    Verdicts {
        to_worker: one.to_worker + two.to_worker,
        to_self: one.to_self + two.to_self,
        unserved: one.unserved + two.unserved,
        stalled: one.stalled + two.stalled,
    }
}

/// The reasons that occurred, with their counts.
pub(crate) fn by_reason(drops: &DropCounters) -> BTreeMap<String, u64> {
    drops
        .iter()
        .filter(|(_, packets)| *packets > 0)
        .map(|(reason, packets)| (reason.name().to_owned(), packets))
        .collect()
}

/// A rate as people say it.
fn rate(bps: u64) -> String {
    narrows_units::Rate::from_bits_per_sec(bps).to_string()
}

fn reasons(drops: &BTreeMap<String, u64>) -> String {
    if drops.is_empty() {
        return String::new();
    }
    let list: Vec<String> = drops.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!(" ({})", list.join(", "))
}

impl Show {
    /// The text of `narrows show`.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        write!(out, "narrows {} for {:.0} s, fail-{}", self.state, self.uptime_s, self.fail)?;
        match &self.waiting_for {
            Some(reason) => writeln!(out, ": {reason}")?,
            None => writeln!(out)?,
        }
        for warning in &self.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        for port in &self.ports {
            port.write(out, self.fail == "closed")?;
        }
        for worker in &self.workers {
            write!(out, "worker {}: cpu {}, ", worker.queue, worker.cpu)?;
            if let Some(seconds) = worker.silent_s {
                write!(out, "SILENT for {seconds:.1} s, before that ")?;
            }
            writeln!(
                out,
                "load {:.1} %, idle {:.1} s, {} frames = {} free + {} receiving + {} waiting \
                 + {} sending",
                worker.load * 100.0,
                worker.idle_s,
                worker.frames,
                worker.free_frames,
                worker.receiving_frames,
                worker.waiting_frames,
                worker.sending_frames,
            )?;
            if worker.stray_frames > 0 {
                let times = worker.stray_frames;
                writeln!(out, "  the kernel gave back frames that it did not have: {times}")?;
            }
        }
        let sum = &self.conservation;
        writeln!(
            out,
            "received {} = sent {} + queued {} + dropped {}{}, {} unaccounted",
            sum.received,
            sum.sent,
            sum.queued,
            sum.dropped.values().sum::<u64>(),
            reasons(&sum.dropped),
            sum.unaccounted
        )?;
        if sum.bypassed > 0 {
            writeln!(out, "bypassed {}: no worker saw them", sum.bypassed)?;
        }
        for event in &self.events {
            writeln!(out, "event: {event}")?;
        }
        Ok(())
    }
}

impl PortShow {
    fn write(&self, out: &mut String, is_closed: bool) -> std::fmt::Result {
        write!(
            out,
            "{}: {} {}, mtu {}, {} queues, qdisc {}",
            self.name, self.xdp, self.copy, self.mtu, self.queues, self.qdisc
        )?;
        if let Some(set) = self.rate_set_bps {
            write!(out, ", rate {}", rate(set))?;
        }
        if let Some(bytes) = self.instance_bytes {
            write!(out, ", up to {bytes} B an instance")?;
        }
        writeln!(
            out,
            "; sending {}, receiving {}",
            rate(self.tx_rate_bps),
            rate(self.rx_rate_bps)
        )?;
        if self.no_carrier {
            writeln!(out, "  no carrier: what is sent here is lost in the kernel")?;
        }
        self.total.write(out, "  total  ")?;
        for (queue, counters) in self.per_queue.iter().enumerate() {
            counters.write(out, &format!("  queue {queue}"))?;
        }
        if self.to_self + self.unserved > 0 {
            writeln!(
                out,
                "  to the kernel: {} for this box, {} on queues without a worker",
                self.to_self, self.unserved
            )?;
        }
        if self.stalled > 0 {
            let fate = if is_closed { "dropped" } else { "to the kernel" };
            writeln!(out, "  {fate} while their worker was silent: {}", self.stalled)?;
        }
        if self.kernel_drops != KernelDropsShow::default() {
            let lost = &self.kernel_drops;
            writeln!(
                out,
                "  lost in the kernel: {} RX ring full, {} other; {} times no frame, \
                 {} + {} descriptors refused",
                lost.rx_ring_full,
                lost.rx_dropped,
                lost.fill_ring_empty,
                lost.rx_invalid,
                lost.tx_invalid
            )?;
        }
        if self.device_losses != DeviceLossesShow::default() {
            let lost = &self.device_losses;
            writeln!(
                out,
                "  lost by the device: sending {} dropped, {} errors, {} of them carrier; \
                 receiving {} dropped, {} errors, {} missed",
                lost.tx_dropped,
                lost.tx_errors,
                lost.tx_carrier,
                lost.rx_dropped,
                lost.rx_errors,
                lost.rx_missed
            )?;
        }
        Ok(())
    }
}

impl QueueShow {
    fn write(&self, out: &mut String, name: &str) -> std::fmt::Result {
        writeln!(
            out,
            "{name}: rx {} pkt {} B, tx {} pkt {} B, backlog {} pkt {} B, dropped {}{}",
            self.rx_packets,
            self.rx_bytes,
            self.tx_packets,
            self.tx_bytes,
            self.backlog_packets,
            self.backlog_bytes,
            self.drops,
            reasons(&self.drops_by_reason)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_packet::DropReason;

    fn show() -> Show {
        let queue = |tx_packets, reasons: &[(&str, u64)]| QueueShow {
            rx_packets: 1,
            rx_bytes: 60,
            tx_packets,
            tx_bytes: tx_packets * 100,
            tx_kicks: 3,
            backlog_packets: 2,
            backlog_bytes: 200,
            drops: reasons.iter().map(|(_, count)| count).sum(),
            drops_by_reason: reasons.iter().map(|&(name, n)| (name.to_owned(), n)).collect(),
        };
        Show {
            state: "running".into(),
            waiting_for: None,
            uptime_s: 61.4,
            fail: "open (bridge nrwbr7)".into(),
            warnings: Vec::new(),
            ports: vec![PortShow {
                name: "eth2".into(),
                xdp: "native".into(),
                copy: "copy".into(),
                no_carrier: true,
                mtu: 1500,
                queues: 1,
                qdisc: "cake".into(),
                rate_set_bps: Some(100_000_000),
                instance_bytes: Some(61_440),
                tx_rate_bps: 99_000_000,
                rx_rate_bps: 0,
                total: queue(5, &[("limit", 3), ("too_long", 1)]),
                per_queue: vec![queue(5, &[("limit", 3), ("too_long", 1)])],
                to_self: 9,
                unserved: 0,
                stalled: 0,
                kernel_drops: KernelDropsShow { rx_ring_full: 4, ..Default::default() },
                device_losses: DeviceLossesShow { tx_dropped: 6, ..Default::default() },
            }],
            workers: vec![WorkerShow {
                load: 0.25,
                idle_s: 3.0,
                frames: 10,
                free_frames: 1,
                receiving_frames: 4,
                waiting_frames: 2,
                sending_frames: 3,
                ..Default::default()
            }],
            conservation: Conservation { received: 11, sent: 5, queued: 2, ..Default::default() },
            events: vec!["joined eth1 and eth2".into()],
        }
    }

    #[test]
    fn the_text_says_everything_in_the_words_of_the_field() {
        let expected = "\
narrows running for 61 s, fail-open (bridge nrwbr7)
eth2: native copy, mtu 1500, 1 queues, qdisc cake, rate 100 Mbit/s, up to 61440 B an instance; sending 99 Mbit/s, receiving 0 bit/s
  no carrier: what is sent here is lost in the kernel
  total  : rx 1 pkt 60 B, tx 5 pkt 500 B, backlog 2 pkt 200 B, dropped 4 (limit 3, too_long 1)
  queue 0: rx 1 pkt 60 B, tx 5 pkt 500 B, backlog 2 pkt 200 B, dropped 4 (limit 3, too_long 1)
  to the kernel: 9 for this box, 0 on queues without a worker
  lost in the kernel: 4 RX ring full, 0 other; 0 times no frame, 0 + 0 descriptors refused
  lost by the device: sending 6 dropped, 0 errors, 0 of them carrier; receiving 0 dropped, 0 errors, 0 missed
worker 0: cpu 0, load 25.0 %, idle 3.0 s, 10 frames = 1 free + 4 receiving + 2 waiting + 3 sending
received 11 = sent 5 + queued 2 + dropped 0, 0 unaccounted
event: joined eth1 and eth2
";
        assert_eq!(show().render(), expected);
    }

    #[test]
    fn a_silent_worker_is_named_and_so_is_what_went_past_it() {
        let mut show = show();
        show.workers[0].silent_s = Some(3.21);
        show.ports[0].stalled = 7;
        show.conservation.bypassed = 7;
        let text = show.render();
        for line in [
            "worker 0: cpu 0, SILENT for 3.2 s, before that load 25.0 %, idle 3.0 s, 10 frames = 1 free + 4 receiving + 2 waiting + 3 sending",
            "  to the kernel while their worker was silent: 7",
            "bypassed 7: no worker saw them",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\nis not in\n{text}");
        }
        show.fail = "closed".into();
        assert!(show.render().contains("  dropped while their worker was silent: 7"));
    }

    #[test]
    fn what_is_waited_for_is_said_first() {
        let waiting = "eth2 is down: `ip link set dev eth2 up`".to_owned();
        let show = Show { state: "waiting".into(), waiting_for: Some(waiting), ..show() };
        let text = show.render();
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("narrows waiting for 61 s"), "{first}");
        assert!(first.ends_with(": eth2 is down: `ip link set dev eth2 up`"), "{first}");
    }

    #[test]
    fn json_leaves_out_what_is_not_and_comes_back_as_it_was() {
        let mut show = show();
        show.ports[0].rate_set_bps = None;
        show.ports[0].instance_bytes = None;
        let text = serde_json::to_string(&show).unwrap();
        for absent in ["rate_set_bps", "instance_bytes", "waiting_for"] {
            assert!(!text.contains(absent), "{text}");
        }
        let back: Show = serde_json::from_str(&text).unwrap();
        assert_eq!(back.render(), show.render());
    }

    #[test]
    fn reasons_that_did_not_occur_are_left_out() {
        let mut drops = DropCounters::default();
        drops.add(DropReason::Horizon, 2);
        assert_eq!(by_reason(&drops), BTreeMap::from([("horizon".to_owned(), 2)]));
    }
}
