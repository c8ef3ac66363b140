//! The lock that all cores take, if a strategy has one.
//!
//! Its holder keeps all others out, so its sections follow each other: they are served in the
//! order in which cores ask, a step's together.
//!
//! *What it protects.* The bucket that queues of their own share: a section is an update of it. Or
//! the whole qdisc ([`LockScope::Qdisc`](crate::setup::LockScope)): a section is all the work on a
//! packet.
//!
//! *A lock that moves.* As long as several cores are at it, it changes hands with each section.
//! Then a core has to fetch the lock's line for each of them, and between two sections the lock is
//! on its way to a core that waits, in vain for all. So many cores together take a contended lock
//! less often than one core takes a lock of its own. Only a core that has the lock for itself pays
//! for its sections alone.
//!
//! *Who is at it.* A step takes the lock once a packet, all along. So a core meets those whose
//! steps with sections are not over when its own begins.
//!
//! Source: `narrows bench coordination` has the time of a contended lock and of a contended qdisc
//! by number of threads; a machine's curve has what follows for a hand-over.

use crate::setup::Costs;
use narrows_units::Nanos;

/// What a core does with the lock held, in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sections {
    /// How often it takes the lock.
    pub(super) count: u64,
    /// Nanoseconds for which it has the lock each time.
    pub(super) held_ns: f64,
    /// Nanoseconds until another core that waits has it.
    pub(super) handover_ns: f64,
}

impl Sections {
    /// `count` updates of the bucket that queues share.
    pub(super) fn of_bucket(count: u64, costs: &Costs) -> Self {
        Self { count, held_ns: costs.line_update_ns, handover_ns: costs.lock_handover_ns }
    }

    /// `count` packets that together take `work_ns` in the qdisc.
    pub(super) fn of_qdisc(count: u64, work_ns: f64, costs: &Costs) -> Self {
        let held_ns = work_ns / count.max(1) as f64;
        Self { count, held_ns, handover_ns: costs.qdisc_handover_ns }
    }
}

/// The lock; one a run.
#[derive(Debug)]
pub(super) struct Lock {
    free_at: Nanos,
    /// Which core had it last.
    holder: Option<usize>,
    /// By core, when its last step with sections is over.
    busy_until: Vec<Nanos>,
}

impl Lock {
    pub(super) fn new(cores: usize) -> Self {
        Self { free_at: Nanos::ZERO, holder: None, busy_until: vec![Nanos::ZERO; cores] }
    }

    /// Takes the lock for `sections` in a step of `core` that begins at `at` and has `other_ns`
    /// nanoseconds of other work: how long that takes in nanoseconds, waiting included. A core that
    /// did not have the lock before fetches its line, for `fetch_ns`.
    pub(super) fn take(
        &mut self,
        core: usize,
        at: Nanos,
        sections: Sections,
        other_ns: f64,
        fetch_ns: f64,
    ) -> f64 {
        let Sections { count, held_ns, handover_ns } = sections;
        if count == 0 {
            return 0.0;
        }
        let others = self.busy_until.iter().enumerate().filter(|(other, _)| *other != core);
        let moves = others.map(|(_, until)| *until).max().is_some_and(|until| until > at);
        let is_own = self.holder.replace(core) == Some(core);
        let fetched = if moves { count } else { u64::from(!is_own) };
        let held = count as f64 * held_ns;
        let handed = if moves { count as f64 * handover_ns } else { 0.0 };
        let wait = self.free_at.since(at);
        self.free_at = at + wait + rounded(held + handed);
        let took = (wait.0 as f64 + held + handed).max(held + fetched as f64 * fetch_ns);
        self.busy_until[core] = at + rounded(other_ns + took);
        took
    }
}

fn rounded(ns: f64) -> Nanos {
    Nanos((ns + 0.5) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FETCH_NS: f64 = 200.0;

    fn sections(count: u64) -> Sections {
        Sections { count, held_ns: 20.0, handover_ns: 100.0 }
    }

    #[test]
    fn a_lock_of_one_core_costs_its_sections_alone() {
        let mut lock = Lock::new(2);
        let mut take = |core, at| lock.take(core, Nanos(at), sections(10), 500.0, FETCH_NS);
        assert_eq!(take(0, 0), 400.0, "it fetches the lock once");
        assert_eq!(take(0, 1_000), 200.0);
        assert_eq!(take(1, 10_000), 400.0, "the other core has finished");
        assert_eq!(lock.take(1, Nanos(11_000), sections(0), 500.0, FETCH_NS), 0.0);
    }

    #[test]
    fn a_contended_lock_changes_hands_with_each_section() {
        let mut lock = Lock::new(3);
        let mut take = |core, at| lock.take(core, Nanos(at), sections(10), 500.0, FETCH_NS);
        assert_eq!(take(0, 0), 400.0);
        // 10 sections of 20 ns, each of which begins with 200 ns until the lock is there.
        assert_eq!(take(1, 100), 2_200.0);
        // The lock is taken for 10 times 120 ns, from 200 to 1400, and then 10 times for this.
        assert_eq!(take(2, 150), 2_450.0);
    }
}
