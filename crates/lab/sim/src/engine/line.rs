//! The cache line that all cores update, if a strategy has one.
//!
//! Only one core at a time can update it. The others wait, and that is the whole model of
//! contention: a core's updates of one step are served together, behind all earlier requests. So
//! the line as a whole makes no more updates than it can, and below that rate no core waits long. A
//! core that finds that another one had the line has to fetch it first, which takes as long as
//! reading it.

use narrows_units::Nanos;

/// The line; one a run.
#[derive(Debug, Default)]
pub(super) struct ContendedLine {
    free_at: Nanos,
    /// Which core had it last.
    holder: Option<usize>,
}

impl ContendedLine {
    /// Makes `updates` by `core` that take `each_ns` nanoseconds, from `at` on at the earliest, and
    /// `fetch_ns` more if another core had the line: how long it takes in nanoseconds, waiting
    /// included.
    pub(super) fn update(
        &mut self,
        core: usize,
        at: Nanos,
        updates: u64,
        each_ns: f64,
        fetch_ns: f64,
    ) -> f64 {
        if updates == 0 {
            return 0.0;
        }
        let fetch = if self.holder.replace(core) == Some(core) { 0.0 } else { fetch_ns };
        let wait = self.free_at.since(at);
        let work = updates as f64 * each_ns;
        self.free_at = at + wait + Nanos((work + 0.5) as u64);
        wait.0 as f64 + fetch + work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_waits_and_a_late_comer_does_not() {
        let mut line = ContendedLine::default();
        let mut update = |at, updates| line.update(0, Nanos(at), updates, 20.0, 0.0);
        assert_eq!(update(100, 3), 60.0);
        assert_eq!(update(110, 1), 70.0);
        assert_eq!(update(500, 1), 20.0);
        assert_eq!(update(500, 0), 0.0);
    }

    #[test]
    fn a_line_that_another_core_had_has_to_be_fetched() {
        let mut line = ContendedLine::default();
        let mut update = |core, at| line.update(core, Nanos(at), 1, 20.0, 100.0);
        assert_eq!([update(0, 0), update(0, 500), update(1, 1_000)], [120.0, 20.0, 120.0]);
    }
}
