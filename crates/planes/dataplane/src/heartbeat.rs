//! When a worker beats, and from when on it counts as silent.
//!
//! The steering programs bypass a silent worker on their own ([`narrows_bpf::Heartbeats`]). When
//! the worker resumes it applies the same bound to the same heartbeat, so both always agree on
//! whether its frames bypassed it.

use narrows_bpf::{Heart, Pulse};
use narrows_units::Nanos;
use std::fmt;

/// The longest sleep of an idle worker, and so the longest time between its beats.
pub(crate) const BEAT_EVERY: Nanos = Nanos::from_millis(100);

/// A busy worker beats no more often than this. Each beat takes a cache line away from the cores
/// that steer its frames.
const BEAT_SPACING: Nanos = Nanos::from_millis(1);

/// A worker whose last beat is older than this is bypassed. Well below the second within which
/// traffic must flow again, and well above the time for which a worker may wait for its core.
pub(crate) const SILENT_AFTER: Nanos = Nanos::from_millis(500);

/// How long the worker was silent, if it last beat at `last`, resumes at `now` and was bypassed
/// meanwhile.
pub(crate) fn silence(last: Nanos, now: Nanos) -> Option<Nanos> {
    let silence = now - last;
    (silence > SILENT_AFTER).then_some(silence)
}

/// Whether a worker that is running at `now` should beat.
#[inline]
pub(crate) fn is_due(heart: &Heart, now: Nanos) -> bool {
    now - heart.last() >= BEAT_SPACING
}

/// A silent worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SilentWorker {
    /// The queue that it serves.
    pub queue: u32,
    /// How long it has been silent.
    pub silence: Nanos,
}

impl SilentWorker {
    /// The worker of `queue`, as of `now`, if it is silent.
    pub(crate) fn seen(queue: u32, pulse: &Pulse, now: Nanos) -> Option<Self> {
        silence(pulse.beat, now).map(|silence| Self { queue, silence })
    }
}

impl fmt::Display for SilentWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} has been silent for {:.1} s", self.queue, self.silence.as_secs_f64())
    }
}
