//! What a worker says of itself: its counters, its sockets, and what it holds while it pauses.
//!
//! It is a copy, taken between two steps, so whoever reads it shares nothing with the worker.

use crate::owners::FrameCounts;
use crate::upgrade::WorkerQueued;
use narrows_forwarding::{PerDevice, PerPort};
use narrows_packet::Backlog;
use narrows_qdisc::Stats;
use narrows_shaper::{Arrived, Beyond, Delays, HeaviestReport, PathCounters};
use narrows_units::Nanos;
use narrows_xsk::{KernelDrops, RingSizes};
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
