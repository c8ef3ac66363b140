//! The XDP plane's tree: its program's meter, compiled for the host.
//!
//! The policy becomes a plan, and the plan the contents of the program's maps, by the code of the
//! data plane (`narrows-xdp`). Each application has a CPU instead of a queue, and so by HTB's rules
//! its own credit.
//!
//! *Non-goals.* Filters, headers, ECN: packets that the AQM signals are dropped.

use super::leaves::compiled;
use super::setup::{Keeper, Scheduler};
use narrows_bpf::stepped::{Answer, Stepped};
use narrows_units::{Bytes, Nanos};
use narrows_xdp::Enforcement;

/// A tree, and where applications send.
pub(super) struct Driver {
    tree: Stepped,
    /// By application, the number of its class.
    leaves: Vec<u32>,
}

impl Driver {
    /// The driver of the policy of `scheduler`, for applications of `classes` on so many CPUs.
    pub(super) fn new(scheduler: &Scheduler, classes: &[u32], cpus: usize) -> Result<Self, String> {
        let (image, leaves) = compiled(scheduler, classes, cpus, Enforcement::Policing)?;
        let tree = Stepped::new(cpus.max(1) as u32, &image.classes).labelled(&image.labels);
        Ok(Self { tree, leaves })
    }

    /// Whether a packet of `app` passes that comes on `cpu`, and whether classes were asked for it.
    pub(super) fn passes(
        &mut self,
        app: usize,
        cpu: usize,
        frame: Bytes,
        now: Nanos,
    ) -> (bool, bool) {
        let (answer, asked) = self.tree.meter(now, cpu as u32, self.leaves[app], frame.0);
        (answer == Answer::Send, asked)
    }
}

/// Whether the plane can run the policy of `scheduler`.
pub(super) fn check(scheduler: &Scheduler, cpus: usize) -> Result<(), String> {
    if !scheduler.drops || scheduler.before.contains(&true) {
        return Err("with xdp nothing waits: write drops = true and no before".to_owned());
    }
    debug_assert!(matches!(scheduler.keeper, Keeper::Driver(_)));
    Driver::new(scheduler, &[], cpus).map(|_| ())
}
