//! What to run.

use super::packet::FULL;
use super::topology::Topology;
use super::workload::Traffic;
use narrows_qdisc::pacing::{Bundles, Calendar, Carousel, Mltw};
use narrows_units::{Bytes, Nanos, Rate};
use std::fmt;

/// A run but for the structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The network.
    pub topology: Topology,
    /// The hosts' load.
    pub traffic: Traffic,
    /// When due packets leave.
    pub late: Late,
    /// The seed of everything random.
    pub seed: u64,
}

/// When a packet leaves whose departure time is no later than its arrival at the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// With the next slot, as in the published structures.
    NextSlot,
    /// At once, as in our qdiscs: nothing is late for nothing.
    AtOnce,
}

/// The hosts' calendars.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// One timing wheel of this granularity.
    Carousel(Nanos),
    /// The multi-level timing wheel; a packet's wheel follows from the rate that paces its
    /// connection.
    FlowBundler,
    /// The multi-level timing wheel; a packet's wheel follows from what the host estimates of the
    /// rate to the packet's destination, as in the paper.
    Estimating,
}

/// The horizon of a carousel; packets beyond it are filed again later.
const HORIZON: Nanos = Nanos::from_millis(4);
/// Slots of each wheel of an [`Mltw`].
const SLOTS: u32 = 128;
/// What a host takes for the rate to a destination before it has measured any: the paper's value.
const ASSUMED: Rate = Rate::from_bits_per_sec(20_000_000_000);

impl Structure {
    /// An empty one.
    pub(super) fn calendar(self) -> Box<dyn Calendar> {
        match self {
            Self::Carousel(granularity) => Box::new(Carousel::new(granularity, HORIZON)),
            Self::FlowBundler | Self::Estimating => Box::new(Mltw::new(SLOTS)),
        }
    }

    /// The estimates of one of `hosts` hosts, if its packets' places depend on them.
    pub(super) fn bundles(self, hosts: u32) -> Option<Bundles> {
        if self != Self::Estimating {
            return None;
        }
        let mut bundles = Bundles::new(Bytes(u64::from(FULL)), true);
        for host in 0..hosts {
            bundles.spacing(host, ASSUMED, Nanos::ZERO);
        }
        Some(bundles)
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Carousel(granularity) if granularity.0.is_multiple_of(1000) => {
                write!(f, "carousel {}us", granularity.0 / 1000)
            }
            Self::Carousel(granularity) => write!(f, "carousel {}ns", granularity.0),
            Self::FlowBundler => f.write_str("flowbundler"),
            Self::Estimating => f.write_str("flowbundler estimating"),
        }
    }
}
