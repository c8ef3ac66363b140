//! Closed-loop traffic: TCP flows that always have something to send.
//!
//! Their packets reach the shaper at once, and delivered segments are acknowledged a round trip
//! later: the whole propagation delay is on the return path, which is lossless.
//!
//! Two stacks: a [`model`] over whole segments for many flows, and [`smoltcp`](mod@smoltcp), byte
//! for byte, for a few, as a check of the model.

pub(crate) mod control;
mod cubic;
mod dctcp;
mod model;
mod reno;
mod round_trip;
mod scoreboard;
pub(crate) mod sender;
mod smoltcp;

use crate::setup::{Control, Setup, Stack, Traffic};
use crate::traffic::ClosedLoop;
use crate::traffic::seed::{Purpose, generator};
use crate::traffic::spread::Placing;
use narrows_units::Nanos;
use rand::RngExt;

/// A full segment in an Ethernet frame, in bytes: 1448 of data, with timestamps.
const FULL_FRAME: u32 = 1514;
/// Flows begin at random in as much time after the group's start …
const STAGGER: Nanos = Nanos::from_millis(100);
/// … but in no more than this part of the run.
const STAGGER_PART: u64 = 10;

/// The parameters that all flows of a group share.
struct Group {
    /// Number of the first flow.
    first: u32,
    /// By flow of the group.
    queue_of: Vec<u16>,
    /// By flow of the group: when it begins.
    starts: Vec<Nanos>,
    /// Nothing is sent from here on.
    stop: Nanos,
    /// In bytes.
    frame: u32,
    /// Without any queue.
    rtt: Nanos,
    /// Segments are ECN-capable, with any congestion control.
    ecn: bool,
}

/// The flows of `traffic`, which are numbered from `first` and placed by `placing`.
pub(crate) fn flows(
    setup: &Setup,
    traffic: &Traffic,
    placing: &Placing,
    first: u32,
    (stack, control, rtt): (Stack, Control, Nanos),
) -> Box<dyn ClosedLoop> {
    let mut chance = generator(placing.seed, placing.group, Purpose::Starts, 0);
    let within = STAGGER.min(Nanos(setup.run.end().0 / STAGGER_PART)).max(Nanos(1));
    let mut start = |_| traffic.start + Nanos(chance.random_range(0..within.0));
    let group = Group {
        first,
        queue_of: placing.in_epoch(0).queue_of,
        starts: (0..traffic.flows).map(&mut start).collect(),
        stop: traffic.stop,
        frame: traffic.sizes.first().map_or(FULL_FRAME, |&(len, _)| len),
        rtt,
        ecn: traffic.headers.ecn,
    };
    match stack {
        Stack::Model => Box::new(model::Model::new(group, control)),
        Stack::Smoltcp => Box::new(smoltcp::Smoltcp::new(group, control)),
    }
}

/// A segment's [`Offer::tag`](crate::traffic::Offer::tag): the low halves of its number in the flow
/// and of the number of its transmission.
fn tag(segment: u64, transmission: u64) -> u64 {
    (segment << 32) | (transmission & u64::from(u32::MAX))
}
