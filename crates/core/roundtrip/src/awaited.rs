//! The answers awaited at a port, on a board that all of its queues share.
//!
//! A place has three words. The first holds a packet's departure time and connection, the second
//! the contents of the expected answer, the third the class that sent it. A sender takes a place
//! that is free or older than [`PATIENCE`]; the receiver of the answer frees it. A place that is
//! taken by another connection is left alone, and the packet is not timed: this is sampling.
//!
//! *Memory ordering.* A writer takes the place by making the first word `BUSY` (acquire), writes
//! the others, and publishes with the first (release). A reader reads the first word (acquire) and
//! the others, and takes the answer by making the first one 0 (release), which fails if the word
//! has changed. If it has not, no thread has written since: a writer must first take the answer or
//! the place, and either changes the first word. The first word that it writes then has another
//! time, unless the same connection was awaited, answered and awaited again within a microsecond.
//! So the other words belong to the first. All operations are on one place; places are independent
//! of each other.
//!
//! *Cost.* A receiver reads one cache line a packet, which is rewritten twice a round trip. 256 KiB
//! for each port.

use crate::line::{Line, Seen};
use crate::sync::{AtomicU64, Ordering};
use narrows_units::Nanos;
use std::sync::Arc;

/// Places. Only one under the model checker, which follows each word.
const PLACES: usize = if cfg!(loom) { 1 } else { 8192 };

/// An answer that takes longer is given up.
const PATIENCE: Nanos = Nanos::from_secs(4);

/// How far the clock of a queue may be behind that of another.
const CLOCK_SKEW: Nanos = Nanos::from_secs(1);

/// Shift from nanoseconds to units of 1.024 us.
const TICK_BITS: u32 = 10;

/// The first word while the others are being written.
const BUSY: u64 = u64::MAX;

/// The part of a connection's hash in a first word; with the bit above it, so that no such word is
/// 0 or [`BUSY`].
const TAG: u64 = (1 << 30) - 1;
const TAKEN: u64 = 1 << 30;

/// The expected contents of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It acknowledges all data up to a byte.
    Acknowledged {
        /// The number of the byte, without its highest bit.
        end: u32,
        /// The time stamp of the segment that carried it, likewise.
        stamp: Option<u32>,
    },
    /// It carries this spin bit.
    Spin(bool),
    /// It echoes this time stamp, without its highest bit, and carries data.
    Echoed(u32),
}

/// The bits of a number and of a time stamp that are kept: both must fit a word.
pub(crate) const HALF: u32 = (1 << 31) - 1;

impl Answer {
    const STAMPED: u64 = 1 << 62;
    const SPIN: u64 = 2 << 62;
    const ECHOED: u64 = 3 << 62;

    /// The acknowledgement of all data up to `end`, which was sent with `stamp`.
    pub(crate) fn acknowledged(end: u32, stamp: Option<u32>) -> Self {
        Self::Acknowledged { end: end & HALF, stamp: stamp.map(|stamp| stamp & HALF) }
    }

    /// The echo of `stamp`.
    pub(crate) fn echoed(stamp: u32) -> Self {
        Self::Echoed(stamp & HALF)
    }

    fn word(self) -> u64 {
        match self {
            Self::Acknowledged { end, stamp: None } => u64::from(end),
            Self::Acknowledged { end, stamp: Some(stamp) } => {
                Self::STAMPED | u64::from(stamp) << 31 | u64::from(end)
            }
            Self::Spin(is_set) => Self::SPIN | u64::from(is_set),
            Self::Echoed(stamp) => Self::ECHOED | u64::from(stamp),
        }
    }

    fn of(word: u64) -> Self {
        let halves = [word as u32 & HALF, (word >> 31) as u32 & HALF];
        match word & (Self::STAMPED | Self::SPIN) {
            0 => Self::Acknowledged { end: halves[0], stamp: None },
            Self::STAMPED => Self::Acknowledged { end: halves[0], stamp: Some(halves[1]) },
            Self::SPIN => Self::Spin(halves[0] != 0),
            _ => Self::Echoed(halves[0]),
        }
    }
}

/// Whether the number `one` comes after `other`, both without their highest bit: numbers wrap.
pub(crate) fn is_after(one: u32, other: u32) -> bool {
    ((one.wrapping_sub(other) << 1) as i32) > 0
}

/// The effect of a packet on the awaited answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// None yet.
    No,
    /// It is the answer.
    Answer,
    /// The answer was lost.
    Past,
}

/// The board of one port.
pub struct Awaited {
    places: Box<[Place]>,
    line: Line,
}

/// Aligned so that none is on two cache lines.
#[derive(Default)]
#[repr(align(32))]
struct Place {
    first: AtomicU64,
    second: AtomicU64,
    class: AtomicU64,
}

impl Awaited {
    /// An empty board.
    pub fn new() -> Arc<Self> {
        let places = (0..PLACES).map(|_| Place::default()).collect();
        Arc::new(Self { places, line: Line::new() })
    }

    /// Whether somebody takes single trips from now on ([`Awaited::take`]).
    pub fn watch(&self, is_watched: bool) {
        self.line.watch(is_watched);
    }

    /// The single trips and losses since the last call, while it is watched. For one caller.
    pub fn take(&self) -> Seen {
        self.line.take()
    }

    /// Where single trips go.
    #[inline]
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    #[inline]
    fn place(&self, connection: u64) -> &Place {
        &self.places[connection as usize % PLACES]
    }

    /// Awaits `answer` of `connection` to a packet of `class` from `now` on, if its place is free.
    pub(crate) fn expect(&self, connection: u64, answer: Answer, class: u32, now: Nanos) {
        let place = self.place(connection);
        let old = place.first.load(Ordering::Relaxed);
        if old != 0 && (old == BUSY || waited(old, now) < PATIENCE) {
            return;
        }
        let taken = place.first.compare_exchange(old, BUSY, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            place.second.store(answer.word(), Ordering::Relaxed);
            place.class.store(class.into(), Ordering::Relaxed);
            place.first.store(first_word(connection, now), Ordering::Release);
        }
    }

    /// Stops awaiting an answer of `connection`.
    pub(crate) fn forget(&self, connection: u64) {
        let place = self.place(connection);
        let word = place.first.load(Ordering::Relaxed);
        if is_of(word, connection) {
            // If this fails, the answer has arrived.
            let _ = place.first.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Whether an answer of `connection` may be awaited.
    #[inline]
    pub(crate) fn awaits(&self, connection: u64) -> bool {
        is_of(self.place(connection).first.load(Ordering::Relaxed), connection)
    }

    /// Processes a packet of `connection` that arrived at `now` with this `meaning`. Returns the
    /// round trip and class of the packet that it answers, unless another receiver took the answer.
    pub(crate) fn comes(
        &self,
        connection: u64,
        now: Nanos,
        meaning: impl FnOnce(Answer) -> Meaning,
    ) -> Option<(Nanos, u32)> {
        let place = self.place(connection);
        let word = place.first.load(Ordering::Acquire);
        if !is_of(word, connection) {
            return None;
        }
        let meaning = meaning(Answer::of(place.second.load(Ordering::Relaxed)));
        if meaning == Meaning::No {
            return None;
        }
        let class = place.class.load(Ordering::Relaxed) as u32;
        let taken = place.first.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed);
        let trip = waited(word, now);
        (taken.is_ok() && meaning == Meaning::Answer && trip < PATIENCE).then_some((trip, class))
    }
}

#[inline]
fn first_word(connection: u64, now: Nanos) -> u64 {
    (connection >> 32 & TAG | TAKEN) << 32 | (now.0 >> TICK_BITS) & u64::from(u32::MAX)
}

#[inline]
fn is_of(word: u64, connection: u64) -> bool {
    word >> 32 == connection >> 32 & TAG | TAKEN
}

/// The time since the packet left, of which 73 minutes are told apart. Clocks of queues may differ:
/// if this one is behind by up to [`CLOCK_SKEW`], the time is 0.
#[inline]
fn waited(word: u64, now: Nanos) -> Nanos {
    const AHEAD: u32 = u32::MAX - (CLOCK_SKEW.0 >> TICK_BITS) as u32;
    let ticks = ((now.0 >> TICK_BITS) as u32).wrapping_sub(word as u32);
    Nanos(if ticks >= AHEAD { 0 } else { u64::from(ticks) << TICK_BITS })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const SEVEN: Answer = Answer::Acknowledged { end: 7, stamp: Some(70) };
    const ONE: u64 = 5 << 40 | 3;
    const NOW: Nanos = Nanos::from_secs(100);

    fn millis(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    fn yes(_: Answer) -> Meaning {
        Meaning::Answer
    }

    #[test]
    fn an_answer_is_taken_once_and_tells_the_time_and_the_class() {
        let board = Awaited::new();
        board.expect(ONE, SEVEN, 3, NOW);
        assert!(board.awaits(ONE));
        let later = NOW + millis(20);
        assert_eq!(board.comes(ONE, later, |_| Meaning::No), None);
        let mut said = None;
        let trip = board.comes(ONE, later, |answer| {
            said = Some(answer);
            Meaning::Answer
        });
        let (trip, class) = trip.unwrap();
        assert_eq!((said, class), (Some(SEVEN), 3));
        assert!(trip.0.abs_diff(millis(20).0) <= 2048, "{trip:?}");
        assert_eq!(board.comes(ONE, later, yes), None);
    }

    #[test]
    fn the_first_keeps_the_place_until_patience_ends() {
        let board = Awaited::new();
        board.expect(ONE, SEVEN, 3, NOW);
        let other = ONE + (1 << 50);
        board.expect(other, Answer::Spin(false), 4, NOW + millis(10));
        assert!(board.awaits(ONE) && !board.awaits(other));
        board.expect(other, Answer::Spin(false), 4, NOW + PATIENCE + millis(1));
        assert!(board.awaits(other) && !board.awaits(ONE));
    }

    #[test]
    fn a_place_that_nobody_answers_is_free_after_any_time() {
        // Also where 31 and 32 bits of ticks wrap: after 36 and 73 minutes.
        let wraps = [31, 32].map(|bits| (1u64 << bits << TICK_BITS) / 1_000_000_000);
        for seconds in (5..10_000).step_by(3).chain(wraps).chain(wraps.map(|wrap| wrap + 5)) {
            let board = Awaited::new();
            board.expect(ONE, SEVEN, 3, NOW);
            let other = ONE + (1 << 50);
            let mut now = NOW + Nanos::from_secs(seconds);
            board.expect(other, Answer::Spin(false), 4, now);
            // Shortly after a wrap it looks as young as it was then.
            now += PATIENCE + CLOCK_SKEW + millis(1);
            board.expect(other, Answer::Spin(false), 4, now);
            assert!(board.awaits(other), "{seconds} s later");
        }
    }

    #[test]
    fn a_receiver_whose_clock_is_behind_sees_no_time_at_all() {
        let board = Awaited::new();
        board.expect(ONE, SEVEN, 3, NOW);
        assert_eq!(board.comes(ONE, NOW - millis(5), yes), Some((Nanos::ZERO, 3)));
    }

    #[test]
    fn an_answer_after_too_long_is_none() {
        let board = Awaited::new();
        board.expect(ONE, Answer::Spin(true), 4, NOW);
        assert_eq!(board.comes(ONE, NOW + PATIENCE + millis(1), yes), None);
        assert!(!board.awaits(ONE));
    }

    #[test]
    fn an_answer_that_is_lost_or_forgotten_is_no_longer_awaited() {
        let board = Awaited::new();
        board.expect(ONE, SEVEN, 3, NOW);
        assert_eq!(board.comes(ONE, NOW + millis(1), |_| Meaning::Past), None);
        assert!(!board.awaits(ONE));
        board.expect(ONE, SEVEN, 3, NOW);
        board.forget(ONE + (1 << 50));
        assert!(board.awaits(ONE), "of another connection");
        board.forget(ONE);
        assert!(!board.awaits(ONE));
    }

    #[test]
    fn an_answer_is_stored_whole() {
        let stamps = [None, Some(0), Some(HALF), Some(u32::MAX)];
        let ends = [0, 1, HALF, u32::MAX];
        for answer in
            stamps.iter().flat_map(|stamp| ends.map(|end| Answer::acknowledged(end, *stamp)))
        {
            assert_eq!(Answer::of(answer.word()), answer);
        }
        for answer in [true, false].map(Answer::Spin) {
            assert_eq!(Answer::of(answer.word()), answer);
        }
        assert!(is_after(1, HALF) && !is_after(HALF, 1) && !is_after(5, 5));
    }

    #[test]
    fn a_clock_that_is_behind_sees_no_time() {
        let board = Awaited::new();
        board.expect(ONE, SEVEN, 3, NOW);
        assert_eq!(board.comes(ONE, NOW - Nanos(500_000), yes), Some((Nanos::ZERO, 3)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    const SEVEN: Answer = Answer::Acknowledged { end: 7, stamp: None };
    const NINE: Answer = Answer::Acknowledged { end: 9, stamp: Some(90) };
    const NOW: Nanos = Nanos::from_secs(100);

    /// The answer, time and class of a connection, derived from its number.
    fn take(board: &Awaited, connection: u64, now: Nanos) -> Option<(Answer, (Nanos, u32))> {
        let mut said = None;
        let trip = board.comes(connection, now, |answer| {
            said = Some(answer);
            Meaning::Answer
        });
        said.zip(trip)
    }

    /// Two threads receive the answer at once; one of them takes it.
    #[test]
    fn loom_an_answer_is_taken_once() {
        loom::model(|| {
            let board = Awaited::new();
            board.expect(1 << 32, SEVEN, 7, NOW);
            let other = Arc::clone(&board);
            let there = thread::spawn(move || take(&other, 1 << 32, NOW));
            let here = take(&board, 1 << 32, NOW);
            assert!(here.is_some() != there.join().unwrap().is_some());
        });
    }

    /// One connection is answered and another takes the place: a concurrent reader never combines
    /// the answer of one with the time of the other.
    #[test]
    fn loom_times_and_answers_belong_together() {
        loom::model(|| {
            let board = Awaited::new();
            let (one, later) = (1 << 32, NOW + Nanos::from_millis(8));
            board.expect(one, SEVEN, 7, NOW);
            let sender = Arc::clone(&board);
            let sends = thread::spawn(move || {
                let first = take(&sender, one, later);
                sender.expect(one, NINE, 9, later);
                first
            });
            let here = take(&board, one, later);
            let there = sends.join().unwrap();
            for (answer, (trip, class)) in here.into_iter().chain(there) {
                match answer {
                    SEVEN => assert!(trip > Nanos::from_millis(7) && class == 7, "{trip:?}"),
                    NINE => assert_eq!((trip, class), (Nanos::ZERO, 9)),
                    other => panic!("{other:?} was never awaited"),
                }
            }
        });
    }

    /// Two threads take the place at once: one of them gets all of it.
    #[test]
    fn loom_a_place_has_one_owner() {
        loom::model(|| {
            let board = Awaited::new();
            let other = Arc::clone(&board);
            let there = thread::spawn(move || other.expect(2 << 32, NINE, 9, NOW));
            board.expect(1 << 32, SEVEN, 7, NOW);
            there.join().unwrap();
            let taken = [1_u32, 2].map(|id| take(&board, u64::from(id) << 32, NOW));
            assert_eq!(taken.iter().flatten().count(), 1);
            for (id, taken) in (1..3).zip(taken) {
                let own = if id == 1 { (SEVEN, 7) } else { (NINE, 9) };
                assert!(taken.is_none_or(|(answer, (_, class))| (answer, class) == own));
            }
        });
    }
}
