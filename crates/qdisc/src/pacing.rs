//! Pacing: every packet gets an earliest departure time (EDT), and a time-indexed queue holds it
//! until then.
//!
//! Stamping and holding are two things. *Stamping* is a matter of flows: each has a rate, and a
//! packet may leave when the one before it has had the time that it takes at this rate. *Holding*
//! is a matter of time alone, and so one queue serves all flows: a [`Calendar`]. Three of them
//! stand behind one trait, so that one benchmark can tell them apart.
//!
//! *Two orders of the two.* A [`Pacer`] stamps what comes and holds all of it. [`Queues`] keep a
//! queue for each flow and stamp its first packet when it becomes that, so that queue management
//! can decide at release.
//!
//! Source: A. Saeed et al., "Carousel: Scalable Traffic Shaping at End Hosts" (SIGCOMM 2017); A.
//! Saeed et al., "Eiffel: Efficient and Flexible Software Packet Scheduling" (NSDI 2019); D. Shan
//! et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching" (ToN 2025), which
//! is FlowBundler.
//!
//! Non-goals: which flow goes first where there is no rate (`cake`, `fq`), a limit that several
//! workers keep together (a `tbf` above).

mod account;
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

use crate::{Hearsay, Qdisc};

/// The qdisc that `config` describes, empty. It listens with `hearsay`, where it listens.
pub(crate) fn build(config: Config, hearsay: Option<Box<dyn Hearsay>>) -> Box<dyn Qdisc> {
    match config.structure {
        Structure::Carousel => {
            with(config, hearsay, |config| Carousel::new(config.granularity, config.horizon))
        }
        Structure::Eiffel => {
            with(config, hearsay, |config| Eiffel::new(config.granularity, config.horizon))
        }
        Structure::FlowBundler => with(config, hearsay, |config| Mltw::new(config.slots)),
    }
}

/// The same in what `calendar` makes.
fn with<C: Calendar + 'static>(
    config: Config,
    hearsay: Option<Box<dyn Hearsay>>,
    calendar: fn(&Config) -> C,
) -> Box<dyn Qdisc> {
    match config.codel {
        Some(codel) => Box::new(Queues::new(config, codel, calendar)),
        None => Box::new(Pacer::new(config, hearsay, calendar)),
    }
}
