//! Whether a destination is congested, from the feedback that comes back.
//!
//! Packets of different flows may leave together because they separate before they reach a
//! bottleneck. If they do not, their receivers' packets show it: by *ECN-Echo*, or by a longer
//! round trip. A packet's time stamp (RFC 7323) comes back in its ACK. So one packet per bucket is
//! remembered with its departure time, and the time until its stamp comes back is a round trip.
//! Many hosts count stamps in milliseconds, alike for all connections from one host to another, so
//! hundreds of packets have the same stamp: only the first one is remembered; otherwise its round
//! trip would seem as short as from the last packet to the answer of the first. A round trip of
//! more than twice the shortest recent one means that the packet was queued.
//!
//! A destination is *congested* for 2 ms after the last sign. If it is congested again soon after,
//! the spacing ended too early, so each time it lasts twice as long.
//!
//! *All queues of a port share the feedback*, since it may arrive on another queue than the one
//! that sent the data. Everything known is where every queue of the port can read and write it
//! ([`Feedback`]), a number and its time in one word:
//!
//! - A stamp is the first of its kind for the queue that replaces the newest one, and so for one
//!   queue only. An echo belongs to the queue that takes the outstanding stamp. So no packet is
//!   timed from another one's departure.
//! - A queue that comes second anywhere else gives up: that costs one probe, or extends a period by
//!   the difference of the two clocks.
//! - Other queues see congestion at their next batch.
//! - Clocks of queues may differ by some microseconds. A slightly earlier time counts as the same
//!   one, and a round trip may be off by as much, which is less than hosts vary ([`JITTER`]).
//!
//! Source: D. Shan et al. (ToN 2025), section IV.E. The paper does not say when a round trip is
//! long.
//!
//! Cost: one line per packet with a time stamp, and one for each that comes back; one more per
//! batch, and for each packet a third as long as anything is congested.
//!
//! Non-goals: the reaction (`bundles.rs`), congestion of traffic without ACKs.

use crate::{DESTINATIONS, Feedback, Word};
use narrows_packet::Acknowledgement;
use narrows_units::Nanos;
use packed::{Congestion, Newest, Probe, RoundTrip};

mod packed;

/// TCP's flag that reports a mark (RFC 3168).
const ECN_ECHO: u16 = 0x40;
/// With SYN it only negotiates ECN.
const SYN: u16 = 0x02;
/// How long the shortest round trip is believed: routes change.
const BELIEVED: Nanos = Nanos::from_secs(10);
/// After this a packet's stamp is not expected back any more.
const TIMEOUT: Nanos = Nanos::from_millis(200);
/// The excess over twice the shortest round trip that is tolerated: hosts add delays, too.
const JITTER: Nanos = Nanos::from_micros(50);
/// How long a destination counts as congested after the last sign, the first time: some round trips
/// of a data center, as many as a sender takes to slow down.
pub(super) const CONGESTION: Nanos = Nanos::from_millis(2);
/// The longest such time, if congestion keeps coming back. A destination that was clear for as long
/// starts anew.
pub(super) const LONGEST: Nanos = Nanos::from_millis(128);

/// The bucket of a destination.
#[inline]
pub(super) const fn bucket(destination: u32) -> usize {
    destination as usize % DESTINATIONS
}

/// One queue's view of all destinations.
pub struct Safeguard {
    feedback: Box<dyn Feedback>,
    /// When the end of all congestion was last read,
    asked: Nanos,
    /// and its value.
    any_until: Nanos,
}

impl Safeguard {
    /// A safeguard that shares `feedback` with all queues that have the same board.
    pub fn new(feedback: Box<dyn Feedback>) -> Self {
        Self { feedback, asked: Nanos::MAX, any_until: Nanos::ZERO }
    }

    /// A packet to `destination` leaves.
    #[inline]
    pub fn leaves(&self, destination: u32, packet: &Acknowledgement, now: Nanos) {
        // Packets without data are not acknowledged.
        let Some((value, _)) = packet.time_stamp.filter(|_| !packet.is_empty) else { return };
        let bucket = bucket(destination);
        if !self.is_newest(bucket, value, now) {
            return;
        }
        let word = self.feedback.read(bucket, Word::UnderWay);
        let under_way = Probe::from_word(word);
        if under_way.is_none() || under_way.age(now) > TIMEOUT {
            let probe = Probe::new(value, now);
            self.feedback.replace(bucket, Word::UnderWay, word, probe.word());
        }
    }

    /// Whether `value` is the first of its kind, on any queue.
    #[inline]
    fn is_newest(&self, bucket: usize, value: u32, now: Nanos) -> bool {
        // In each iteration but the last another queue was first.
        loop {
            let word = self.feedback.read(bucket, Word::Newest);
            let newest = Newest::from_word(word);
            let is_new = if newest.is_none() {
                true
            } else if newest.age(now) > TIMEOUT {
                value != newest.number()
            } else {
                // Connections with other origins may have smaller stamps; they are ignored as long
                // as there are larger ones.
                let ahead = value.wrapping_sub(newest.number());
                if ahead > u32::MAX / 2 {
                    return false;
                }
                ahead > 0
            };
            let said = Newest::new(value, now).word();
            if said == word || self.feedback.replace(bucket, Word::Newest, word, said) {
                return is_new;
            }
        }
    }

    /// Processes a packet from `source`. Returns whether it reports congestion towards `source`,
    /// and publishes it.
    #[inline]
    pub fn comes(&mut self, source: u32, packet: &Acknowledgement, now: Nanos) -> bool {
        let bucket = bucket(source);
        let is_marked = packet.flags & (ECN_ECHO | SYN) == ECN_ECHO;
        let took = packet.time_stamp.and_then(|(_, echo)| self.round_trip(bucket, echo, now));
        let is_long = took.is_some_and(|took| self.is_long(bucket, took, now));
        if is_marked || is_long {
            self.set_congested(bucket, now);
        }
        is_marked || is_long
    }

    /// The time since the packet with the stamp `echo` left, for one queue only.
    #[inline]
    fn round_trip(&self, bucket: usize, echo: u32, now: Nanos) -> Option<Nanos> {
        let word = self.feedback.read(bucket, Word::UnderWay);
        let probe = Probe::from_word(word);
        if probe.is_none() || probe.number() != echo {
            return None;
        }
        let is_first = self.feedback.replace(bucket, Word::UnderWay, word, Probe::NONE.word());
        is_first.then(|| probe.age(now))
    }

    /// Whether a round trip of `took` includes a standing queue.
    fn is_long(&self, bucket: usize, took: Nanos, now: Nanos) -> bool {
        let word = self.feedback.read(bucket, Word::Shortest);
        let seen = RoundTrip::from_word(word);
        let shortest = Nanos(seen.number().into());
        if !seen.is_none() && shortest <= took && seen.age(now) < BELIEVED {
            return took > shortest + shortest + JITTER;
        }
        // More than four seconds are as good as four.
        let shortest = RoundTrip::new(u32::try_from(took.0).unwrap_or(u32::MAX), now);
        self.feedback.replace(bucket, Word::Shortest, word, shortest.word());
        false
    }

    /// Packets to `bucket` meet congestion.
    fn set_congested(&mut self, bucket: usize, now: Nanos) {
        let word = self.feedback.read(bucket, Word::Congestion);
        let next = Congestion::from_word(word).heard(now);
        if next.word() != word {
            // If another queue was first, it has just published the same.
            self.feedback.replace(bucket, Word::Congestion, word, next.word());
        }
        self.feedback.raise(next.until().0);
        self.asked = now;
        self.any_until = self.any_until.max(next.until());
    }

    /// The time until which `destination` is congested, if it is.
    #[inline]
    pub fn congested_until(&mut self, destination: u32, now: Nanos) -> Option<Nanos> {
        // Once per batch, which has one time.
        if self.asked != now {
            self.asked = now;
            self.any_until = Nanos(self.feedback.greatest());
        }
        if now >= self.any_until {
            return None;
        }
        let word = self.feedback.read(bucket(destination), Word::Congestion);
        let until = Congestion::from_word(word).until();
        (now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests;
