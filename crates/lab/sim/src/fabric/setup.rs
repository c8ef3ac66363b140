//! What to run.

use super::topology::Topology;
use super::workload::Traffic;
use narrows_qdisc::pacing::{Calendar, Carousel, Mltw};
use narrows_units::Nanos;
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
    /// The multi-level timing wheel.
    FlowBundler,
}

/// The horizon of a carousel; packets beyond it are filed again later.
const HORIZON: Nanos = Nanos::from_millis(4);
/// Slots of each wheel of an [`Mltw`].
const SLOTS: u32 = 128;

impl Structure {
    /// An empty one.
    pub(super) fn calendar(self) -> Box<dyn Calendar> {
        match self {
            Self::Carousel(granularity) => Box::new(Carousel::new(granularity, HORIZON)),
            Self::FlowBundler => Box::new(Mltw::new(SLOTS)),
        }
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
        }
    }
}
