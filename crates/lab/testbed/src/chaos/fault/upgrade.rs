//! `narrows upgrade` to the same binary: another process takes over with all that is queued.

use super::{Fault, NOISE, Trace};
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
        world.instance()?.upgrade()?;
        world.wait_until("running", |show| show.is_running())?;
        Ok(Trace::default())
    }
}
