//! The receiver of a connection: which segments it acknowledges together, and when.
//!
//! *Idea.* Every second segment is acknowledged at once, a single one after [`DELAY`] (RFC 9293,
//! section 3.8.6.3, and Linux's least delay). A segment out of order, or one that fills a gap, is
//! acknowledged at once (RFC 5681, section 4.2), as are the first ones of a connection, in which
//! Linux expects a slow start. So a round trip that somebody on the way measures can be longer
//! than the path, and the more so the slower the connection is.
//!
//! *Non-goals.* Acknowledgements that are lost or thinned out on the way; those of 3 or more
//! segments, as after receive offloads.

use narrows_units::Nanos;
use std::collections::BTreeSet;

/// How long a single segment waits for the next one.
const DELAY: Nanos = Nanos::from_millis(40);
/// So many segments at the beginning are acknowledged at once.
const QUICK: u64 = 16;

/// A segment that has come and is not acknowledged yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// Its number in the connection.
    pub(super) number: u64,
    /// That of its transmission.
    pub(super) transmission: u64,
    /// When it left the limit if its round trip is to be told.
    pub(super) timed: Option<Nanos>,
}

/// The receiver of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    /// The first segment that has not come.
    next: u64,
    /// Those beyond it that have.
    beyond: BTreeSet<u64>,
    waiting: Vec<Segment>,
    /// When what waits is acknowledged.
    deadline: Option<Nanos>,
}

impl Receiver {
    /// A segment has come. Returns those that are acknowledged now.
    pub(super) fn comes(&mut self, segment: Segment, now: Nanos) -> Vec<Segment> {
        let number = segment.number;
        let is_in_order = number == self.next && self.beyond.is_empty();
        if number >= self.next {
            self.beyond.insert(number);
        }
        while self.beyond.remove(&self.next) {
            self.next += 1;
        }
        self.waiting.push(segment);
        if !is_in_order || self.waiting.len() >= 2 || number < QUICK {
            return self.acknowledges();
        }
        self.deadline = Some(now + DELAY);
        Vec::new()
    }

    /// When [`Self::expires`] is to be called, if something waits.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    /// Returns what has waited for too long at `now`.
    pub(super) fn expires(&mut self, now: Nanos) -> Vec<Segment> {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return self.acknowledges();
        }
        Vec::new()
    }

    fn acknowledges(&mut self) -> Vec<Segment> {
        self.deadline = None;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BEGIN: u64 = QUICK;

    /// A receiver that has had the first segments.
    fn settled() -> Receiver {
        let mut receiver = Receiver::default();
        for number in 0..BEGIN {
            assert_eq!(receiver.comes(segment(number), Nanos::ZERO).len(), 1);
        }
        receiver
    }

    fn segment(number: u64) -> Segment {
        Segment { number, transmission: number, timed: None }
    }

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn two_segments_are_acknowledged_together_and_one_after_its_delay() {
        let mut receiver = settled();
        assert!(receiver.comes(segment(BEGIN), ms(1)).is_empty());
        let both = receiver.comes(segment(BEGIN + 1), ms(3));
        assert_eq!(both, [BEGIN, BEGIN + 1].map(segment));
        assert_eq!(receiver.deadline(), None);
        assert!(receiver.comes(segment(BEGIN + 2), ms(5)).is_empty());
        assert_eq!(receiver.deadline(), Some(ms(45)));
        assert!(receiver.expires(ms(44)).is_empty());
        assert_eq!(receiver.expires(ms(45)), [segment(BEGIN + 2)]);
    }

    #[test]
    fn a_gap_and_what_fills_it_are_told_at_once() {
        let mut receiver = settled();
        assert_eq!(receiver.comes(segment(BEGIN + 1), ms(1)).len(), 1);
        assert_eq!(receiver.comes(segment(BEGIN), ms(2)).len(), 1);
        assert!(receiver.comes(segment(BEGIN + 2), ms(3)).is_empty());
    }

    proptest! {
        #[test]
        fn every_segment_is_acknowledged_once_and_none_waits_longer_than_the_delay(
            steps in proptest::collection::vec((0..40_u64, 0..60_u64), 1..200),
        ) {
            let mut receiver = Receiver::default();
            let (mut now, mut came, mut told) = (Nanos::ZERO, Vec::new(), Vec::new());
            for (transmission, (number, wait)) in steps.into_iter().enumerate() {
                now += ms(wait);
                told.extend(receiver.expires(now));
                prop_assert!(receiver.deadline().is_none_or(|at| now < at && at <= now + DELAY));
                let segment = Segment { number, transmission: transmission as u64, timed: None };
                came.push(segment);
                told.extend(receiver.comes(segment, now));
                prop_assert!(receiver.waiting.len() <= 1);
            }
            told.extend(receiver.expires(now + DELAY));
            prop_assert_eq!(came, told);
        }
    }
}
