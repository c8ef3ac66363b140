//! Whether what goes to a destination meets on the way: heard from what comes back.
//!
//! Packets of different flows may leave together because they part before they get to where it is
//! tight. Where they do not, their receivers say so, to whoever listens: by *ECN-Echo*, or by
//! taking longer to answer. A packet's time stamp (RFC 7323) comes back in the acknowledgement of
//! it, so one packet at a time and bucket is remembered with when it left, and what passes until
//! its stamp comes back is a round trip. Stamps are counted in milliseconds by many hosts, and by
//! all connections from one to another alike, so hundreds of packets have the same: only the first
//! one that has it is remembered, or its round trip would seem to be as short as from the last
//! packet to the answer of the first. One of more than twice the shortest that was seen lately has
//! stood somewhere.
//!
//! *Congested* is a destination for 2 ms after it was last heard to be. Where it is so again soon
//! after, it was because of what was done about it: so each time it lasts twice as long.
//!
//! *All queues of a port hear together.* What comes back may come in on another queue than the one
//! that the data left by. So all that is known stands where every queue of the port can read and
//! write it ([`Hearsay`]), a number and its time in one word:
//!
//! - A stamp is the first of its kind for whoever replaces the newest one, and so for one queue; and one queue's is
//!   the echo that takes the stamp that is under way. So no packet is timed from another one's departure.
//! - Whoever comes second anywhere else gives up: that is one probe, or one extension by what the two were apart.
//! - What is congested is heard of at the next batch elsewhere.
//! - Clocks of queues may be some microseconds apart. A time before another one is as good as the same one, and a round trip may be off by
//!   as much, which is less than hosts are ([`JITTER`]).
//!
//! Source: D. Shan et al. (ToN 2025), section IV.E. The paper does not say what makes a round trip
//! long.
//!
//! Cost: one line a packet with a time stamp, and one for each that comes back; one more a batch,
//! and for each packet a third as long as anything is congested.
//!
//! Non-goals: what is done about it (`bundles.rs`), congestion of what sends no acknowledgements.

use crate::{DESTINATIONS, Hearsay, Word};
use narrows_packet::Acknowledgement;
use narrows_units::Nanos;
use packed::{Congestion, Newest, Probe, RoundTrip};

mod packed;

/// TCP's flag that says that a mark was seen (RFC 3168).
const ECN_ECHO: u16 = 0x40;
/// With SYN it is only about being able to.
const SYN: u16 = 0x02;
/// How long the shortest round trip is believed: routes change.
const BELIEVED: Nanos = Nanos::from_secs(10);
/// After this a packet's stamp is not expected back any more.
const PATIENCE: Nanos = Nanos::from_millis(200);
/// What a round trip may be longer by than twice the shortest: hosts take their time, too.
const JITTER: Nanos = Nanos::from_micros(50);
/// How long a destination is congested after it was last heard to be, the first time: some round
/// trips of a data center, as many as a sender takes to slow down.
pub(super) const CONGESTION: Nanos = Nanos::from_millis(2);
/// The same if it has always come back; and whoever has been spared for so long begins anew.
pub(super) const LONGEST: Nanos = Nanos::from_millis(128);

/// The bucket of a destination.
#[inline]
pub(super) const fn bucket(destination: u32) -> usize {
    destination as usize % DESTINATIONS
}

/// What one queue says and knows of all destinations.
pub struct Safeguard {
    hearsay: Box<dyn Hearsay>,
    /// When it was last asked until when anything is congested,
    asked: Nanos,
    /// and what it said.
    any_until: Nanos,
}

impl Safeguard {
    /// One that hears what all hear that have a view of the same.
    pub fn new(hearsay: Box<dyn Hearsay>) -> Self {
        Self { hearsay, asked: Nanos::MAX, any_until: Nanos::ZERO }
    }

    /// A packet to `destination` leaves.
    #[inline]
    pub fn leaves(&self, destination: u32, packet: &Acknowledgement, now: Nanos) {
        // What carries no data is not acknowledged.
        let Some((value, _)) = packet.time_stamp.filter(|_| !packet.is_empty) else { return };
        let bucket = bucket(destination);
        if !self.is_newest(bucket, value, now) {
            return;
        }
        let word = self.hearsay.read(bucket, Word::UnderWay);
        let under_way = Probe::from_word(word);
        if under_way.is_none() || under_way.age(now) > PATIENCE {
            let probe = Probe::new(value, now);
            self.hearsay.replace(bucket, Word::UnderWay, word, probe.word());
        }
    }

    /// Whether `value` is the first of its kind, on any queue.
    #[inline]
    fn is_newest(&self, bucket: usize, value: u32, now: Nanos) -> bool {
        // Each turn but the last is one in which another queue came first.
        loop {
            let word = self.hearsay.read(bucket, Word::Newest);
            let newest = Newest::from_word(word);
            let is_new = if newest.is_none() {
                true
            } else if newest.age(now) > PATIENCE {
                value != newest.number()
            } else {
                // Connections that count from elsewhere have smaller ones; they are left alone as
                // long as there are others.
                let ahead = value.wrapping_sub(newest.number());
                if ahead > u32::MAX / 2 {
                    return false;
                }
                ahead > 0
            };
            let said = Newest::new(value, now).word();
            if said == word || self.hearsay.replace(bucket, Word::Newest, word, said) {
                return is_new;
            }
        }
    }

    /// A packet comes from `source`. Whether it says that what goes there meets on the way; then
    /// all know.
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

    /// What has passed since the packet left whose stamp is `echo`, for one queue.
    #[inline]
    fn round_trip(&self, bucket: usize, echo: u32, now: Nanos) -> Option<Nanos> {
        let word = self.hearsay.read(bucket, Word::UnderWay);
        let probe = Probe::from_word(word);
        if probe.is_none() || probe.number() != echo {
            return None;
        }
        let is_first = self.hearsay.replace(bucket, Word::UnderWay, word, Probe::NONE.word());
        is_first.then(|| probe.age(now))
    }

    /// Whether a round trip that took `took` has stood somewhere.
    fn is_long(&self, bucket: usize, took: Nanos, now: Nanos) -> bool {
        let word = self.hearsay.read(bucket, Word::Shortest);
        let seen = RoundTrip::from_word(word);
        let shortest = Nanos(seen.number().into());
        if !seen.is_none() && shortest <= took && seen.age(now) < BELIEVED {
            return took > shortest + shortest + JITTER;
        }
        // More than four seconds are as good as four.
        let shortest = RoundTrip::new(u32::try_from(took.0).unwrap_or(u32::MAX), now);
        self.hearsay.replace(bucket, Word::Shortest, word, shortest.word());
        false
    }

    /// What goes to `bucket` meets on the way.
    fn set_congested(&mut self, bucket: usize, now: Nanos) {
        let word = self.hearsay.read(bucket, Word::Congestion);
        let next = Congestion::from_word(word).heard(now);
        if next.word() != word {
            // Where another queue was first, it has said the same just now.
            self.hearsay.replace(bucket, Word::Congestion, word, next.word());
        }
        self.hearsay.raise(next.until().0);
        self.asked = now;
        self.any_until = self.any_until.max(next.until());
    }

    /// Until when `destination` is congested, where it is.
    #[inline]
    pub fn congested_until(&mut self, destination: u32, now: Nanos) -> Option<Nanos> {
        // Once a batch: all of it has one time.
        if self.asked != now {
            self.asked = now;
            self.any_until = Nanos(self.hearsay.greatest());
        }
        if now >= self.any_until {
            return None;
        }
        let word = self.hearsay.read(bucket(destination), Word::Congestion);
        let until = Congestion::from_word(word).until();
        (now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests;
