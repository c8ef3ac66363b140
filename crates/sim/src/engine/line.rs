//! The cache line that all cores update, where a strategy has one.
//!
//! Only one core at a time can update it. Others wait, and that they do is all that there is to
//! contention: a core's updates of one step are served together, behind whatever has been asked
//! for before. So the line as a whole makes no more updates than it can, and while it could
//! make more nobody waits long.

use narrows_units::Nanos;

/// The line; one a run.
#[derive(Debug, Default)]
pub(super) struct ContendedLine {
    free_at: Nanos,
}

impl ContendedLine {
    /// Makes `updates` that take `each_ns` nanoseconds, from `at` on at the earliest: how long
    /// it takes in nanoseconds, waiting included.
    pub(super) fn update(&mut self, at: Nanos, updates: u64, each_ns: f64) -> f64 {
        if updates == 0 {
            return 0.0;
        }
        let wait = self.free_at.since(at);
        let work = updates as f64 * each_ns;
        self.free_at = at + wait + Nanos((work + 0.5) as u64);
        wait.0 as f64 + work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_second_waits_and_who_comes_late_does_not() {
        let mut line = ContendedLine::default();
        assert_eq!(line.update(Nanos(100), 3, 20.0), 60.0);
        assert_eq!(line.update(Nanos(110), 1, 20.0), 70.0);
        assert_eq!(line.update(Nanos(500), 1, 20.0), 20.0);
        assert_eq!(line.update(Nanos(500), 0, 20.0), 0.0);
    }
}
