//! The load: every flow a little above its rate, and its queue filled beforehand.

use crate::Testbed;
use crate::bed::{CLIENT, SINK_MAC};
use crate::flood::{Flood, Pace, Running};
use crate::frames;
use anyhow::Result;
use narrows_units::{Bytes, Rate};
use std::thread;
use std::time::Duration;

/// Frames, in bytes.
pub(super) const FRAME_BYTES: usize = 1500;
/// The offered rate relative to the flow's rate: enough for queues to stay full when a busy machine
/// keeps the sender from its core for a moment, and as little as possible beyond.
pub(super) const OFFERED: f64 = 1.03;
/// The initial fill of the queues: its duration, and its rate relative to the flow's. It is more
/// than twice their size.
const PRIMING: Duration = Duration::from_millis(200);
const PRIMED: f64 = 1.5;
/// The most that a flow may have queued, as time at its rate.
const QUEUED: Duration = Duration::from_millis(40);
/// A flow may have at least that many packets queued.
const QUEUED_MIN: u32 = 4;
/// How long a load runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(300);
/// How much longer than its measurement a load may last.
const SPARE: Duration = Duration::from_secs(10);

/// Flows at one rate.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) ports: Vec<u16>,
    pub(super) rate: Rate,
    /// How many of its frames a flow has in each turn of the flood.
    pub(super) share: usize,
}

impl Class {
    /// Packets that each flow may have queued.
    pub(super) fn flow_limit(&self) -> u32 {
        let queued = packets_per_second(self.rate) * QUEUED.as_secs_f64();
        (queued as u32).max(QUEUED_MIN)
    }

    /// Packets that all flows together send in a second.
    fn packets_per_second(&self) -> f64 {
        packets_per_second(self.rate) * self.ports.len() as f64
    }
}

/// Frames of `rate` in a second.
pub(super) fn packets_per_second(rate: Rate) -> f64 {
    rate.bytes_per_sec() as f64 / FRAME_BYTES as f64
}

/// A packet's time at `rate`, in nanoseconds.
pub(super) fn packet_nanos(rate: Rate) -> f64 {
    rate.time_for(Bytes(FRAME_BYTES as u64)).0 as f64
}

/// Packets that flows of all `classes` together send in a second.
pub(super) fn total_packets_per_second(classes: &[Class]) -> f64 {
    classes.iter().map(Class::packets_per_second).sum()
}

/// Starts the load of `classes` from a sender on `core`, and returns when it is steady. It lasts
/// for `window` at least.
pub(super) fn start(
    bed: &Testbed,
    classes: &[Class],
    core: Option<usize>,
    window: Duration,
) -> Result<Running> {
    let frames = frames::udp_flows(&turn(classes), SINK_MAC, FRAME_BYTES)?;
    let rate = total_packets_per_second(classes);
    let flood = |parts: f64| Flood {
        frames: frames.clone(),
        pace: Pace::Packets(rate * parts),
        limit: PRIMING + WARM_UP + window + SPARE,
        core,
    };
    let priming = flood(PRIMED).start(bed.client(), CLIENT)?;
    thread::sleep(PRIMING);
    priming.stop()?;
    let running = flood(OFFERED).start(bed.client(), CLIENT)?;
    thread::sleep(WARM_UP);
    Ok(running)
}

/// The source ports of one turn, those of each class spread evenly over it.
fn turn(classes: &[Class]) -> Vec<u16> {
    let passes = classes.iter().map(|class| class.share).max().unwrap_or(0);
    let sends = |class: &&Class, pass: usize| {
        pass * class.share / passes != (pass + 1) * class.share / passes
    };
    (0..passes)
        .flat_map(|pass| classes.iter().filter(move |class| sends(class, pass)))
        .flat_map(|class| class.ports.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(ports: &[u16], bits: u64, share: usize) -> Class {
        Class { ports: ports.to_vec(), rate: Rate::from_bits_per_sec(bits), share }
    }

    #[test]
    fn in_each_turn_a_flow_has_its_share_of_frames_spread_evenly() {
        let classes = [class(&[1, 2], 1, 1), class(&[3], 2, 2), class(&[4], 4, 4)];
        assert_eq!(turn(&classes), [4, 3, 4, 4, 1, 2, 3, 4]);
    }

    #[test]
    fn packets_follow_from_rates() {
        // 12,000 bits each.
        let classes = [class(&[1, 2], 1_200_000, 1), class(&[3], 12_000_000, 10)];
        assert_eq!(total_packets_per_second(&classes), 1200.0);
        assert_eq!(packet_nanos(classes[1].rate), 1e6);
        assert_eq!(classes[0].flow_limit(), 4);
        assert_eq!(classes[1].flow_limit(), 40);
    }

    #[test]
    fn priming_fills_the_queues() {
        let filled = (PRIMED - 1.0) * PRIMING.as_secs_f64();
        assert!(filled > 2.0 * QUEUED.as_secs_f64());
    }
}
