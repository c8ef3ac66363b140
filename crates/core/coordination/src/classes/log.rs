//! A log of changed classes, so that a queue looks only at those.
//!
//! A queue that is too far behind, or a change of everything, reads that all classes may have
//! changed.

use std::collections::VecDeque;

/// The number of changes that are kept.
const MOST: usize = 4096;

/// The last changes, oldest first.
#[derive(Default)]
pub(super) struct Log {
    classes: VecDeque<u32>,
    /// The number of earlier changes.
    before: u64,
}

impl Log {
    /// How many changes there have been.
    pub(super) fn end(&self) -> u64 {
        self.before + self.classes.len() as u64
    }

    /// These classes have changed.
    pub(super) fn add(&mut self, classes: &[u32]) {
        let (skipped, last) = classes.split_at(classes.len().saturating_sub(MOST));
        let surplus = (self.classes.len() + last.len()).saturating_sub(MOST);
        self.classes.drain(..surplus);
        self.before += (skipped.len() + surplus) as u64;
        self.classes.extend(last);
    }

    /// Any may have changed.
    pub(super) fn forget(&mut self) {
        // A class that no entry can name.
        self.before = self.end() + 1;
        self.classes.clear();
    }

    /// The changes after the first `seen`; `None` if any class may have changed.
    pub(super) fn since(&self, seen: u64) -> Option<Vec<u32>> {
        let skipped = usize::try_from(seen.checked_sub(self.before)?).ok()?;
        Some(self.classes.iter().skip(skipped).copied().collect())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_the_changes_since_its_last_read() {
        let mut log = Log::default();
        log.add(&[1, 2]);
        let seen = log.end();
        log.add(&[3]);
        assert_eq!(log.since(0), Some(vec![1, 2, 3]));
        assert_eq!(log.since(seen), Some(vec![3]));
        assert_eq!(log.since(log.end()), Some(vec![]));
        log.forget();
        assert_eq!((log.since(seen), log.since(log.end())), (None, Some(vec![])));
    }

    #[test]
    fn a_late_reader_hears_that_anything_may_have_changed() {
        let mut log = Log::default();
        log.add(&[7; MOST]);
        assert!(log.since(0).is_some());
        log.add(&[7]);
        assert_eq!(log.since(0), None);
        assert_eq!(log.since(1).map(|all| all.len()), Some(MOST));
        let end = log.end();
        log.add(&[8; 3 * MOST]);
        assert_eq!((log.end(), log.since(end)), (end + 3 * MOST as u64, None));
        assert_eq!(log.classes.len(), MOST);
    }
}
