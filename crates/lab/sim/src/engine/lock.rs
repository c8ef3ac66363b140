//! The lock that all cores take, if a strategy has one.
//!
//! Whoever holds it keeps all others out, so its sections follow each other: they are served in the
//! order in which cores ask, a step's together.
//!
//! *A lock that moves.* As long as several cores are at it, it changes hands with each section.
//! Then a core has to fetch the lock's line for each of them, and between two sections the lock is
//! on its way to a core that waits, in vain for all. So many cores together take a contended lock
//! less often than one core takes a lock of its own, and one more core makes no difference. Only a
//! core that has the lock for itself pays for its sections alone.
//!
//! *Who is at it.* A step takes the lock once a packet, all along. So a core meets those whose
//! steps with sections are not over when its own begins.
//!
//! Source: `narrows bench coordination` has the contended lock's time with two threads. How that
//! grows with more waiters is not measured, and left out.

use crate::setup::Costs;
use narrows_units::Nanos;

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

    /// Takes the lock `sections` times in a step of `core` that begins at `at` and has `other_ns`
    /// nanoseconds of other work: how long that takes in nanoseconds, waiting included.
    pub(super) fn take(
        &mut self,
        core: usize,
        at: Nanos,
        sections: u64,
        other_ns: f64,
        costs: &Costs,
    ) -> f64 {
        if sections == 0 {
            return 0.0;
        }
        let Costs { line_read_ns, line_update_ns, lock_handover_ns, .. } = *costs;
        let others = self.busy_until.iter().enumerate().filter(|(other, _)| *other != core);
        let moves = others.map(|(_, until)| *until).max().is_some_and(|until| until > at);
        let is_own = self.holder.replace(core) == Some(core);
        let fetched = if moves { sections } else { u64::from(!is_own) };
        let held = sections as f64 * line_update_ns;
        let handed = if moves { sections as f64 * lock_handover_ns } else { 0.0 };
        let wait = self.free_at.since(at);
        self.free_at = at + wait + rounded(held + handed);
        let took = (wait.0 as f64 + held + handed).max(held + fetched as f64 * line_read_ns);
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

    const COSTS: Costs = Costs {
        step_ns: 0.0,
        packet_ns: 0.0,
        drop_ns: 0.0,
        line_read_ns: 200.0,
        line_update_ns: 20.0,
        lock_handover_ns: 100.0,
    };

    #[test]
    fn a_lock_of_one_core_costs_its_sections_alone() {
        let mut lock = Lock::new(2);
        let mut take = |core, at| lock.take(core, Nanos(at), 10, 500.0, &COSTS);
        assert_eq!(take(0, 0), 400.0, "it fetches the lock once");
        assert_eq!(take(0, 1_000), 200.0);
        assert_eq!(take(1, 10_000), 400.0, "the other core has finished");
        assert_eq!(lock.take(1, Nanos(11_000), 0, 500.0, &COSTS), 0.0);
    }

    #[test]
    fn a_contended_lock_changes_hands_with_each_section() {
        let mut lock = Lock::new(3);
        let mut take = |core, at| lock.take(core, Nanos(at), 10, 500.0, &COSTS);
        assert_eq!(take(0, 0), 400.0);
        // 10 sections of 20 ns, each of which begins with 200 ns until the lock is there.
        assert_eq!(take(1, 100), 2_200.0);
        // The lock is taken for 10 times 120 ns, from 200 to 1400, and then 10 times for this.
        assert_eq!(take(2, 150), 2_450.0);
    }
}
