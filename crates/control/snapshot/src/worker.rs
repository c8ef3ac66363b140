//! A worker's load, and where its frames are.

use serde::{Deserialize, Serialize};

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// The queue that it serves.
    pub queue: u32,
    /// The core that its thread is pinned to.
    pub cpu: usize,
    /// The thread that serves the queue, named by the first queue that this thread serves. While
    /// there is little load, one thread may serve several queues.
    pub thread: u32,
    /// The share of the time since the session began in which it had work, 0 to 1.
    pub load: f64,
    /// Time asleep or polling without result, in seconds.
    pub idle_s: f64,
    /// CPU time used, in seconds.
    pub cpu_s: f64,
    /// All its frames: the sum of the next four.
    pub frames: u32,
    /// Frames in no ring and no queue.
    pub free_frames: u32,
    /// Frames in the fill ring, for the kernel to receive into.
    pub receiving_frames: u32,
    /// Frames that hold queued packets.
    pub waiting_frames: u32,
    /// Frames that the kernel has yet to send.
    pub sending_frames: u32,
    /// How often the kernel returned a frame that it did not own: 0, or the kernel has a bug.
    pub stray_frames: u64,
    /// How long it has been silent, in seconds, if it is. All other fields, and its part of all
    /// counters, are frozen at the time when it fell silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_s: Option<f64>,
}
