//! Pacing: every packet gets an earliest departure time (EDT), and a time-indexed queue holds it
//! until then.
//!
//! Stamping and holding are two things. *Stamping* is a matter of flows: each has a rate, and a
//! packet may leave when the one before it has had the time that it takes at this rate. *Holding* is
//! a matter of time alone, and so one queue serves all flows: a [`Calendar`]. Three of them stand behind one
//! trait, so that one benchmark can tell them apart.
//!
//! Source: A. Saeed et al., "Carousel: Scalable Traffic Shaping at End Hosts" (SIGCOMM 2017); A. Saeed
//! et al., "Eiffel: Efficient and Flexible Software Packet Scheduling" (NSDI 2019); D. Shan et al.,
//! "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching" (ToN 2025), which is
//! FlowBundler.
//!
//! Non-goals: which flow goes first where there is no rate (`cake`, `fq`), a limit that several
//! workers keep together (a `tbf` above).

mod bundles;
mod calendar;
mod carousel;
mod config;
mod eiffel;
mod figures;
mod flows;
mod mltw;
mod pacer;
mod safeguard;
mod stamp;
mod ticks;
mod wheel;

pub use bundles::Bundles;
pub use calendar::{Calendar, Slot};
pub use carousel::Carousel;
pub use config::{Beyond, Config, Key, Shape, Structure};
pub use eiffel::Eiffel;
pub use figures::Figures;
pub use mltw::Mltw;
pub use pacer::Pacer;

use crate::Qdisc;

/// The qdisc that `config` describes, empty.
pub(crate) fn build(config: Config) -> Box<dyn Qdisc> {
    let Config { granularity, horizon, slots, .. } = config;
    match config.structure {
        Structure::Carousel => Box::new(Pacer::new(config, Carousel::new(granularity, horizon))),
        Structure::Eiffel => Box::new(Pacer::new(config, Eiffel::new(granularity, horizon))),
        Structure::FlowBundler => Box::new(Pacer::new(config, Mltw::new(slots))),
    }
}
