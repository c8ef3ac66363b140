//! Congestion feedback from destinations, on a board that all queues of a port share.
//!
//! There are four words for each of 512 buckets of destinations, and one word that says until when
//! any bucket matters. No queue has a slot of its own: queues that receive feedback write, queues
//! that send read.
//!
//! *Memory ordering:* relaxed throughout. Each word holds a number and its time, needs no other
//! word, and guards no other memory. All changes of one word have one order, and
//! [`Feedback::replace`] is one compare-and-swap, so if two queues replace the same word one of
//! them learns that it came second. What one queue writes to *different* words, others may see in
//! any order: that some bucket is congested, and not yet which one, or the other way round. A queue
//! that sees this sends as before, and looks again at the next packet or batch. A write is visible
//! everywhere within the time that a line takes from one core to another, some hundred nanoseconds,
//! which is less than the difference of their clocks.
//!
//! *Cost.* While nothing is congested a queue reads one line per batch, which is rewritten at most
//! every 65 us. A packet with a time stamp reads the line of its bucket, which changes about once a
//! millisecond per destination, and so does a packet that comes back. 16 KiB per port, and no later
//! allocation. Two buckets share a line of 64 bytes: at this write rate that is cheaper than four
//! times the memory.
//!
//! *Non-goals.* The meaning of the words: `narrows_qdisc::pacing`.

use crate::line::Line;
use crate::sync::{AtomicU64, Ordering};
use narrows_qdisc::{DESTINATIONS, Feedback, Word};
use std::array;
use std::sync::Arc;

/// Few under the model checker, which follows each word.
const BUCKETS: usize = if cfg!(loom) { 2 } else { DESTINATIONS };

/// The board of one port.
pub struct Destinations {
    /// On a line of its own: every queue reads it once per batch.
    greatest: Line<AtomicU64>,
    buckets: Line<[Bucket; BUCKETS]>,
}

/// The words of one bucket, all on one line.
#[repr(align(32))]
struct Bucket([AtomicU64; Word::COUNT]);

impl Destinations {
    /// A bucket without feedback.
    pub fn new() -> Arc<Self> {
        let bucket = |_| Bucket(array::from_fn(|_| AtomicU64::new(0)));
        let buckets = Line(array::from_fn(bucket));
        Arc::new(Self { greatest: Line(AtomicU64::new(0)), buckets })
    }

    /// One more queue's view of it.
    pub fn feedback(self: &Arc<Self>) -> Box<dyn Feedback> {
        Box::new(View(Arc::clone(self)))
    }
}

struct View(Arc<Destinations>);

impl View {
    #[inline]
    fn word(&self, bucket: usize, word: Word) -> &AtomicU64 {
        &self.0.buckets[bucket % BUCKETS].0[word as usize]
    }
}

// Relaxed throughout: each word is complete in itself, see above.
impl Feedback for View {
    fn read(&self, bucket: usize, word: Word) -> u64 {
        self.word(bucket, word).load(Ordering::Relaxed)
    }

    fn replace(&self, bucket: usize, word: Word, old: u64, new: u64) -> bool {
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        self.word(bucket, word).compare_exchange(old, new, success, failure).is_ok()
    }

    fn greatest(&self) -> u64 {
        self.0.greatest.load(Ordering::Relaxed)
    }

    fn raise(&self, number: u64) {
        // Read first, so that a line that every queue reads is written only if it changes.
        if self.greatest() < number {
            self.0.greatest.fetch_max(number, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use narrows_packet::Acknowledgement;
    use narrows_qdisc::pacing::Safeguard;
    use narrows_units::Nanos;

    const HOST: u32 = 1;
    const NOW: Nanos = Nanos::from_secs(1);

    fn safeguard(shared: &Arc<Destinations>) -> Safeguard {
        Safeguard::new(shared.feedback())
    }

    fn data(value: u32) -> Acknowledgement {
        Acknowledgement { time_stamp: Some((value, 0)), ..Acknowledgement::default() }
    }

    fn answer(echo: u32) -> Acknowledgement {
        let time_stamp = Some((9, echo));
        Acknowledgement { is_empty: true, time_stamp, ..Acknowledgement::default() }
    }

    fn marked() -> Acknowledgement {
        Acknowledgement { flags: 0x50, ..Acknowledgement::default() }
    }

    fn millis(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    /// Two queues receive it at once, with clocks that differ, while a third one sends.
    #[test]
    fn loom_feedback_that_two_queues_receive_counts_once() {
        loom::model(|| {
            let shared = Destinations::new();
            let mut other = safeguard(&shared);
            let worker = thread::spawn(move || {
                assert!(other.comes(HOST, &marked(), NOW + Nanos(500)));
                assert!(other.congested_until(HOST, NOW + Nanos(500)).is_some(), "it knows itself");
            });
            let mut sender = safeguard(&shared);
            let looks = thread::spawn(move || {
                let seen = sender.congested_until(HOST, NOW);
                assert!(
                    seen.is_none_or(|until| until <= NOW + millis(2) && until > NOW + millis(1))
                );
            });
            let mut one = safeguard(&shared);
            assert!(one.comes(HOST, &marked(), NOW));
            worker.join().unwrap();
            looks.join().unwrap();
            // The first period, not doubled, for every later reader.
            let mut late = safeguard(&shared);
            let until = late.congested_until(HOST, NOW).unwrap();
            assert!(until <= NOW + millis(2) && until > NOW + millis(1), "{until:?}");
            assert!(late.comes(HOST, &marked(), until));
            let again = late.congested_until(HOST, until).unwrap() - until;
            assert!(again <= millis(4) && again > millis(3), "{again:?}");
        });
    }

    /// Two queues send packets with the same new stamp; the echo times the first of them only.
    #[test]
    fn loom_one_packet_of_a_stamp_is_timed() {
        loom::model(|| {
            let shared = Destinations::new();
            let other = safeguard(&shared);
            let worker = thread::spawn(move || other.leaves(HOST, &data(7), NOW + millis(1)));
            let one = safeguard(&shared);
            one.leaves(HOST, &data(7), NOW);
            // Both stamps have been seen; a third packet is not the first of either.
            worker.join().unwrap();
            one.leaves(HOST, &data(7), NOW + millis(5));
            let probe = one_probe(&shared);
            assert!([NOW.0 >> 10, (NOW + millis(1)).0 >> 10].contains(&probe), "{probe}");
        });
    }

    /// The departure time of the outstanding packet, in the stored unit.
    fn one_probe(shared: &Arc<Destinations>) -> u64 {
        let word = shared.feedback().read(HOST as usize, Word::UnderWay);
        assert_eq!(word >> 32, 7);
        word & u64::from(u32::MAX)
    }

    /// Two queues receive the same echo: one of them takes it, so one round trip is counted.
    #[test]
    fn loom_an_echo_is_taken_once() {
        loom::model(|| {
            let shared = Destinations::new();
            let mut one = safeguard(&shared);
            // There is a recent short round trip.
            one.leaves(HOST, &data(1), NOW);
            assert!(!one.comes(HOST, &answer(1), NOW + millis(1)));
            one.leaves(HOST, &data(2), NOW);
            let mut other = safeguard(&shared);
            let long = NOW + millis(9);
            let worker = thread::spawn(move || other.comes(HOST, &answer(2), long));
            let here = one.comes(HOST, &answer(2), long);
            let there = worker.join().unwrap();
            assert!(here != there, "{here} and {there}");
            assert!(one.congested_until(HOST, long + millis(1)).is_some());
        });
    }
}
