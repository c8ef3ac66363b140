//! What a worker says of itself: its counters, its sockets, and what it holds while it pauses.
//!
//! It is a copy, taken between two steps, so its reader shares nothing with the worker.

use crate::owners::FrameCounts;
use crate::upgrade::WorkerQueued;
use narrows_forwarding::{PerDevice, PerPort};
use narrows_packet::Backlog;
use narrows_qdisc::Stats;
use narrows_shaper::{Arrived, Beyond, Delays, HeaviestReport, PathCounters};
use narrows_units::{Bytes, Nanos};
use narrows_xsk::{KernelDrops, RingSizes};
use std::ops::AddAssign;
use std::os::fd::OwnedFd;

/// The sockets of a worker on each device, with the sizes of their rings.
pub(crate) type WorkerSockets = PerDevice<(OwnedFd, RingSizes)>;

/// The state of a paused worker.
pub(crate) struct Paused {
    /// Its counters and its backlog.
    pub(crate) report: WorkerReport,
    /// Queued packets and free frames.
    pub(crate) queued: WorkerQueued,
}

/// A worker's counters of a port.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortReport {
    /// Of packets that arrived there.
    pub(crate) arrived: Arrived,
    /// Of packets that leave, or were to leave, there.
    pub(crate) path: PathCounters,
    /// Of packets that leave there.
    pub(crate) backlog: Backlog,
    /// Of packets that left there.
    pub(crate) delays: Delays,
    /// Likewise: the recent heaviest hosts and flows.
    pub(crate) heaviest: HeaviestReport,
    /// Round trips beyond it, if measured.
    pub(crate) beyond: Option<Beyond>,
    /// Its qdiscs, depth first.
    pub(crate) qdiscs: Vec<Stats>,
    /// System calls made to send.
    pub(crate) tx_kicks: u64,
    /// Packets that the kernel lost.
    pub(crate) kernel_drops: KernelDrops,
}

/// What the root qdisc of a port has counted: that little of a report which is read many times a
/// second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RootCount {
    pub(crate) sent_bytes: u64,
    pub(crate) sent_packets: u64,
    pub(crate) drops: u64,
    pub(crate) backlog: Bytes,
}

impl RootCount {
    /// That of the first of `stats`, which are those of a port's qdiscs, depth first.
    pub(crate) fn of(stats: &[Stats]) -> Self {
        stats.first().map_or_else(Self::default, |root| Self {
            sent_bytes: root.sent_bytes,
            sent_packets: root.sent_packets,
            drops: root.drops,
            backlog: root.backlog.bytes,
        })
    }
}

impl AddAssign for RootCount {
    fn add_assign(&mut self, other: Self) {
        self.sent_bytes += other.sent_bytes;
        self.sent_packets += other.sent_packets;
        self.drops += other.drops;
        self.backlog += other.backlog;
    }
}

/// A worker's counters, all taken between two steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerReport {
    /// Of each port; of none before the first report.
    pub(crate) ports: PerPort<PortReport>,
    /// Time spent with something to do.
    pub(crate) busy: Nanos,
    /// Time spent asleep or polling without result.
    pub(crate) idle: Nanos,
    /// CPU time used, as far as it can be separated from that of others on the same thread.
    pub(crate) cpu_time: Nanos,
    /// The thread that serves it, by its queue.
    pub(crate) thread: u32,
    /// Where its frames are.
    pub(crate) frames: FrameCounts,
    /// All frames of this worker.
    pub(crate) all_frames: u32,
    /// Frames that the kernel returned but did not own.
    pub(crate) stray_frames: u64,
}
