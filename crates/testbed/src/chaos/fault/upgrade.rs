//! `narrows upgrade` to the same binary: another process takes over with all that is queued. A
//! plane that refuses it goes on.

use super::{Fault, NOISE, Trace};
use crate::chaos::plane::Plane;
use crate::chaos::world::World;
use anyhow::Result;
use std::time::Duration;

/// How long packets may wait while one process hands over to the other.
const STANDSTILL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Upgrade;

impl Fault for Upgrade {
    fn describe(&self) -> String {
        "another process takes over".to_owned()
    }

    fn outage(&self) -> Option<Duration> {
        Some(STANDSTILL + NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        // Counters go on, the limit holds throughout, and nothing is destroyed.
        let upgraded = world.instance()?.upgrade();
        if world.plane == Plane::Xdp {
            let broken = upgraded.is_ok().then(|| "an upgrade was not refused".to_owned());
            return Ok(Trace { broken, ..Trace::default() });
        }
        upgraded?;
        world.wait_until("running", |show| show.is_running())?;
        Ok(Trace::default())
    }
}
