//! What a worker does, and where its frames are.

use serde::{Deserialize, Serialize};

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// The queue that it serves.
    pub queue: u32,
    /// The core that its thread is pinned to.
    pub cpu: usize,
    /// The thread that serves it, by the queue that this thread serves first: one may serve several
    /// while there is little to do.
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
    pub receiving_frames: u32,
    /// Those in which packets wait.
    pub waiting_frames: u32,
    /// Those that the kernel has to send.
    pub sending_frames: u32,
    /// Times that the kernel gave a frame back that it did not have: 0, or it has a fault.
    pub stray_frames: u64,
    /// For how long it has been silent, in seconds, where it does not come round. What else is said
    /// of it, and its part of all counters, is as it was then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_s: Option<f64>,
}
