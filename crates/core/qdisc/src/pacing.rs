//! Pacing: every packet gets an earliest departure time (EDT), and a time-indexed queue holds it
//! until then.
//!
//! Stamping and holding are separate. *Stamping* is per flow: each has a rate, and a packet may
//! leave once the previous packet of its flow has had the time that it takes at this rate.
//! *Holding* depends on time alone, so one queue serves all flows: a [`Calendar`]. Three of them
//! implement one trait, so that one benchmark can compare them.
//!
//! *Two ways to combine them.* A [`Pacer`] stamps arrivals and holds all of them. [`Queues`] keep a
//! queue for each flow and stamp its first packet when it becomes first, so that queue management
//! can decide at release.
//!
//! Source: A. Saeed et al., "Carousel: Scalable Traffic Shaping at End Hosts" (SIGCOMM 2017); A.
//! Saeed et al., "Eiffel: Efficient and Flexible Software Packet Scheduling" (NSDI 2019); D. Shan
//! et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching" (ToN 2025), which
//! is FlowBundler.
//!
//! Non-goals: which flow goes first without a rate (`cake`, `fq`), a limit that several workers
//! share (a `tbf` above).

mod account;
mod beside;
mod bundles;
mod calendar;
mod carousel;
mod chain;
mod config;
mod eiffel;
mod figures;
mod flows;
mod mltw;
mod pacer;
mod queues;
mod safeguard;
mod stamp;
mod ticks;
mod turns;
mod wheel;

pub use bundles::Bundles;
pub use calendar::{Calendar, Slot};
pub use carousel::Carousel;
pub use config::{Beyond, Codel, Config, Key, Shape, Structure};
pub use eiffel::Eiffel;
pub use figures::{Figures, Signals};
pub use mltw::Mltw;
pub use pacer::Pacer;
pub use queues::Queues;
pub use safeguard::Safeguard;

use crate::{Feedback, Qdisc};

/// The qdisc that `config` describes, empty. Where it takes congestion feedback,
/// it shares it through `feedback`.
pub(crate) fn build(config: Config, feedback: Option<Box<dyn Feedback>>) -> Box<dyn Qdisc> {
    match config.structure {
        Structure::Carousel => {
            with(config, feedback, |config| Carousel::new(config.granularity, config.horizon))
        }
        Structure::Eiffel => {
            with(config, feedback, |config| Eiffel::new(config.granularity, config.horizon))
        }
        Structure::FlowBundler => with(config, feedback, |config| Mltw::new(config.slots)),
    }
}

/// The qdisc that `config` describes, with a calendar made by `calendar`.
fn with<C: Calendar + 'static>(
    config: Config,
    feedback: Option<Box<dyn Feedback>>,
    calendar: fn(&Config) -> C,
) -> Box<dyn Qdisc> {
    match config.codel {
        Some(codel) => Box::new(Queues::new(config, codel, calendar)),
        None => Box::new(Pacer::new(config, feedback, calendar)),
    }
}
