//! The parameters of `fq`, as an operator states them: `tc-fq(8)`.

use super::bands::{BANDS, PRIORITIES};
use narrows_units::{Nanos, Rate};

/// The most buckets that a table may have, as in Linux.
pub const BUCKETS_MAX: u32 = 256 << 10;
/// The largest quantum, as in Linux.
pub const QUANTUM_MAX: u32 = 1 << 20;
/// The least weight of a band, as in Linux: some full frames.
pub const WEIGHT_MIN: u32 = 16 << 10;

/// The treatment of a packet whose departure time is beyond the horizon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Beyond {
    /// Its time becomes the horizon (`horizon_cap`).
    Cap,
    /// It is dropped (`horizon_drop`).
    #[default]
    Drop,
}

/// The parameters of an instance. Plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// How many packets of a band may be queued (`limit`).
    pub limit: u32,
    /// How many packets of a flow may be queued (`flow_limit`).
    pub flow_limit: u32,
    /// Bytes that a flow may send in its turn, at least 1 (`quantum`).
    pub quantum: u32,
    /// Bytes that a flow may send when it is new (`initial_quantum`).
    pub initial_quantum: u32,
    /// The rate that no flow exceeds; `None` is unlimited (`maxrate`).
    pub max_rate: Option<Rate>,
    /// Up to this rate packets are paced one by one, not by quantum (`low_rate_threshold`).
    pub low_rate_threshold: Rate,
    /// Whether flows are held to their rate at all (`pacing`, `nopacing`).
    pub pacing: bool,
    /// How long a flow has to be silent to get a full quantum again (`refill_delay`).
    pub refill_delay: Nanos,
    /// How many lists flows are looked up in, a power of two (`buckets`).
    pub buckets: u32,
    /// The bits of the hash that identify flows (`orphan_mask`).
    pub orphan_mask: u32,
    /// How late a packet may leave before it is marked; `None` marks nothing (`ce_threshold`).
    pub ce_threshold: Option<Nanos>,
    /// How much a flow may be delayed so that others leave with it (`timer_slack`).
    pub timer_slack: Nanos,
    /// How far away the departure time of a packet may be (`horizon`),
    pub horizon: Nanos,
    /// and the treatment of later ones.
    pub beyond: Beyond,
    /// The band of each priority (`priomap`).
    pub priomap: [u8; PRIORITIES],
    /// Bytes that a band may send in its turn, at least 1 (`weights`).
    pub weights: [u32; BANDS],
}

/// A frame is this, and quanta are some of them.
const FRAME: u32 = 1514;

impl Config {
    /// `fq` without any word, for frames of up to `frame` bytes.
    pub fn for_frames_of(frame: u32) -> Self {
        Self {
            limit: 10_000,
            flow_limit: 100,
            quantum: frame.saturating_mul(2).clamp(1, QUANTUM_MAX),
            initial_quantum: frame.saturating_mul(10).min(i32::MAX as u32),
            max_rate: None,
            low_rate_threshold: Rate::from_bits_per_sec(550_000),
            pacing: true,
            refill_delay: Nanos::from_millis(40),
            buckets: 1024,
            orphan_mask: 1023,
            ce_threshold: None,
            timer_slack: Nanos::from_micros(10),
            horizon: Nanos::from_secs(10),
            beyond: Beyond::Drop,
            priomap: [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
            weights: [589_824, 196_608, 65_536],
        }
    }

    /// The part of a configuration that assigns packets to queues and counters. If it changes, the
    /// instance cannot keep its queues: another must adopt the packets.
    pub fn sorting(&self) -> (u32, [u8; PRIORITIES]) {
        (self.orphan_mask, self.priomap)
    }
}

impl Default for Config {
    /// `fq` without any word, on Ethernet.
    fn default() -> Self {
        Self::for_frames_of(FRAME)
    }
}
