//! Which core does what.

use crate::bed::{CLIENT, PORT_A, SERVER, Testbed};
use crate::cpu;
use crate::receiving::{Threaded, go_up_on};
use anyhow::Result;
use serde::Serialize;
use std::fmt;

/// The cores, by their numbers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cores {
    /// Client and server, with all that they receive.
    pub ends: usize,
    /// The shaper's box: reception at the flooded port, and the workers. The flood has the rest.
    pub shaper: usize,
}

impl Cores {
    /// The first and the last of those that this process may use.
    pub(super) fn of_this_machine() -> Result<Self> {
        cpu::outer_cores().map(|[ends, shaper]| Self { ends, shaper })
    }

    /// Has the cores do that in `bed`, whatever forwards in it, until dropped. Whatever forwards
    /// must be there.
    pub(super) fn take(self, bed: &Testbed) -> Result<Threaded<'_>> {
        go_up_on(bed.client(), CLIENT, self.ends)?;
        go_up_on(bed.server(), SERVER, self.ends)?;
        let receives = Threaded::start(bed.shaper(), PORT_A, bed.queues(), &[self.shaper])?;
        receives.put_first()?;
        Ok(receives)
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ends, shaper } = self;
        write!(
            f,
            "core {ends}: client and server; core {shaper}: reception at the flooded port first, then \
             workers, and the flood in the remaining time"
        )
    }
}
