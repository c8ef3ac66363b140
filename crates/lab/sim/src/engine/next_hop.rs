//! The next hop: a FIFO with a rate and a size.
//!
//! A packet's departure is known on arrival, so the next hop needs no events of its own. Its
//! backlog is what has not been sent yet, to the bit. The papers measure this queue to show what an
//! overshoot does to others.

use super::drain::Drain;
use crate::setup;
use narrows_units::{Bytes, Nanos};

/// The fate of an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Passage {
    /// The backlog before it.
    pub(crate) found: Bytes,
    /// How long it has to wait for that.
    pub(crate) wait: Nanos,
    /// When its last bit is out and whether it is marked; `None` if there was no room.
    pub(crate) out: Option<(Nanos, bool)>,
}

/// The hop behind the shaper.
pub(super) struct NextHop {
    queue: Drain,
    buffer: Bytes,
    mark_above: Option<Bytes>,
}

impl NextHop {
    /// An empty one.
    pub(super) fn new(setup: &setup::NextHop) -> Self {
        let setup::NextHop { rate, buffer, mark_above } = *setup;
        Self { queue: Drain::new(rate), buffer, mark_above }
    }

    /// Takes in a packet of `len` at `at`, which is never earlier than the last one's.
    pub(super) fn arrive(&mut self, at: Nanos, len: Bytes, ect: bool) -> Passage {
        self.queue.until(at);
        let found = self.queue.bytes();
        let wait = self.queue.time();
        if found + len > self.buffer {
            return Passage { found, wait, out: None };
        }
        self.queue.add(len);
        let marked = ect && self.mark_above.is_some_and(|threshold| found > threshold);
        Passage { found, wait, out: Some((at + self.queue.time(), marked)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::Rate;

    /// One byte a nanosecond.
    fn hop(buffer: u64, mark_above: Option<u64>) -> NextHop {
        let rate = Rate::from_bits_per_sec(8_000_000_000);
        let mark_above = mark_above.map(Bytes);
        NextHop::new(&setup::NextHop { rate, buffer: Bytes(buffer), mark_above })
    }

    #[test]
    fn packets_leave_one_after_the_other() {
        let mut hop = hop(10_000, None);
        let out = |at, marked| Some((Nanos(at), marked));
        let first = Passage { found: Bytes(0), wait: Nanos(0), out: out(1100, false) };
        assert_eq!(hop.arrive(Nanos(100), Bytes(1000), true), first);
        let second = Passage { found: Bytes(400), wait: Nanos(400), out: out(1600, false) };
        assert_eq!(hop.arrive(Nanos(700), Bytes(500), true), second);
        assert_eq!(hop.arrive(Nanos(5000), Bytes(1), true).out, out(5001, false));
    }

    #[test]
    fn packets_that_do_not_fit_are_lost_and_take_no_room() {
        let mut hop = hop(1500, None);
        assert!(hop.arrive(Nanos(0), Bytes(1000), false).out.is_some());
        assert!(hop.arrive(Nanos(0), Bytes(501), false).out.is_none());
        assert!(hop.arrive(Nanos(0), Bytes(500), false).out.is_some());
    }

    #[test]
    fn only_packets_that_can_be_are_marked_and_only_above_the_threshold() {
        let mut hop = hop(10_000, Some(1000));
        let marked = |passage: Passage| passage.out.map(|(_, marked)| marked);
        assert_eq!(marked(hop.arrive(Nanos(0), Bytes(1000), true)), Some(false));
        assert_eq!(marked(hop.arrive(Nanos(0), Bytes(1), true)), Some(false));
        assert_eq!(marked(hop.arrive(Nanos(0), Bytes(1), true)), Some(true));
        assert_eq!(marked(hop.arrive(Nanos(0), Bytes(1), false)), Some(false));
    }
}
