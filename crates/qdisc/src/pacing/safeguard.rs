//! Whether what goes to a destination meets on the way: heard from what comes back.
//!
//! Packets of different flows may leave together because they part before they get to where it is tight.
//! Where they do not, their receivers say so, to whoever listens: by *ECN-Echo*, or by
//! taking longer to answer. A packet's time stamp (RFC 7323) comes back in the acknowledgement of it, so
//! one packet at a time and bucket is remembered with when it left, and what passes until its stamp comes back is a
//! round trip. Stamps are counted in milliseconds by many hosts, and by all connections from one to another alike, so
//! hundreds of packets have the same: only the first one that has it is remembered, or its round trip would seem
//! to be as short as from the last packet to the answer of the first. One of more than twice the shortest that was seen lately has stood somewhere.
//!
//! Source: D. Shan et al. (ToN 2025), section IV.E. The paper does not say what makes a round trip long.
//!
//! Cost: one line a packet with a time stamp, and one for each that comes back.
//!
//! Non-goals: what is done about it (`bundles.rs`), congestion of what sends no acknowledgements.

use super::bundles::BUCKETS;
use narrows_packet::Acknowledgement;
use narrows_units::Nanos;

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

/// What is known of one bucket.
#[derive(Clone, Copy, Default)]
struct Probe {
    /// The stamp that is expected, and when it left.
    under_way: Option<(u32, Nanos)>,
    /// The greatest stamp that has left, and when one that great did last.
    newest: Option<(u32, Nanos)>,
    /// The shortest round trip, and when it was seen.
    shortest: Option<(Nanos, Nanos)>,
}

/// What was heard of all destinations.
pub(super) struct Safeguard {
    probes: Box<[Probe]>,
}

impl Safeguard {
    pub(super) fn new() -> Self {
        Self { probes: vec![Probe::default(); BUCKETS].into_boxed_slice() }
    }

    /// A packet to `destination` leaves.
    #[inline]
    pub(super) fn leaves(&mut self, destination: u32, packet: &Acknowledgement, now: Nanos) {
        // What carries no data is not acknowledged.
        let Some((value, _)) = packet.time_stamp.filter(|_| !packet.is_empty) else { return };
        let probe = &mut self.probes[destination as usize % BUCKETS];
        // Connections that count from elsewhere have smaller ones; they are left alone as long as there are others.
        let is_new = match probe.newest {
            Some((newest, seen)) if now.since(seen) <= PATIENCE => {
                let ahead = value.wrapping_sub(newest);
                if ahead > u32::MAX / 2 {
                    return;
                }
                ahead > 0
            }
            Some((newest, _)) => value != newest,
            None => true,
        };
        probe.newest = Some((value, now));
        if is_new && probe.under_way.is_none_or(|(_, left)| now.since(left) > PATIENCE) {
            probe.under_way = Some((value, now));
        }
    }

    /// A packet comes from `source`. Whether it says that what goes there meets on the way.
    #[inline]
    pub(super) fn comes(&mut self, source: u32, packet: &Acknowledgement, now: Nanos) -> bool {
        let is_marked = packet.flags & (ECN_ECHO | SYN) == ECN_ECHO;
        let probe = &mut self.probes[source as usize % BUCKETS];
        let round_trip = match (packet.time_stamp, probe.under_way) {
            (Some((_, echo)), Some((value, left))) if echo == value => {
                probe.under_way = None;
                now.since(left)
            }
            _ => return is_marked,
        };
        let shortest = match probe.shortest {
            Some((shortest, seen)) if shortest <= round_trip && now.since(seen) < BELIEVED => {
                shortest
            }
            _ => {
                probe.shortest = Some((round_trip, now));
                round_trip
            }
        };
        is_marked || round_trip > shortest + shortest + JITTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(value: u32) -> Acknowledgement {
        Acknowledgement { connection: 1, time_stamp: Some((value, 0)), ..Default::default() }
    }

    fn answer(echo: u32) -> Acknowledgement {
        let time_stamp = Some((9, echo));
        Acknowledgement { connection: 2, is_empty: true, time_stamp, ..Default::default() }
    }

    /// Whether the answer that comes `micros` after the packet with the stamp `value` says so.
    fn round_trip(safeguard: &mut Safeguard, value: u32, micros: u64) -> bool {
        let left = Nanos::from_millis(u64::from(value));
        safeguard.leaves(3, &data(value), left);
        safeguard.comes(3, &answer(value), left + Nanos::from_micros(micros))
    }

    #[test]
    fn a_mark_that_was_seen_says_so() {
        let mut safeguard = Safeguard::new();
        let echo = |flags| Acknowledgement { flags, ..answer(1) };
        assert!(safeguard.comes(3, &echo(0x50), Nanos(1)));
        assert!(!safeguard.comes(3, &echo(0x10), Nanos(1)));
        // It is ready to say it, once there is something to say.
        assert!(!safeguard.comes(3, &echo(0x52), Nanos(1)));
    }

    #[test]
    fn a_round_trip_of_more_than_twice_the_shortest_says_so() {
        let mut safeguard = Safeguard::new();
        let long: Vec<bool> = (1..)
            .zip([300, 200, 440, 460, 210, 900, 200])
            .map(|(value, micros)| round_trip(&mut safeguard, value, micros))
            .collect();
        assert_eq!(long, [false, false, false, true, false, true, false]);
    }

    #[test]
    fn the_shortest_round_trip_is_not_believed_for_ever() {
        let mut safeguard = Safeguard::new();
        assert!(!round_trip(&mut safeguard, 1, 100));
        assert!(round_trip(&mut safeguard, 5_000, 1_000));
        assert!(!round_trip(&mut safeguard, 10_002, 1_000));
        assert!(!round_trip(&mut safeguard, 10_003, 1_900));
    }

    #[test]
    fn a_stamp_that_never_comes_back_is_given_up() {
        let mut safeguard = Safeguard::new();
        safeguard.leaves(3, &data(1), Nanos::from_millis(1));
        safeguard.leaves(3, &data(2), Nanos::from_millis(2));
        assert!(!safeguard.comes(3, &answer(2), Nanos::from_millis(3)));
        assert!(!round_trip(&mut safeguard, 300, 100));
        assert!(round_trip(&mut safeguard, 301, 1_000));
    }

    #[test]
    fn of_packets_with_the_same_stamp_the_first_one_is_timed() {
        let mut safeguard = Safeguard::new();
        let micros = Nanos::from_micros;
        // Stamps change while packets of the one before are under way still.
        for (left, value) in [(100, 1), (130, 1), (160, 1), (190, 2), (220, 2), (250, 2)] {
            safeguard.leaves(3, &data(value), micros(left));
            if left >= 190 {
                assert!(!safeguard.comes(
                    3,
                    &answer(if left == 190 { 1 } else { 2 }),
                    micros(left + 20)
                ));
            }
        }
        // 110 us were the first round trip: what takes 200 is not more than twice as long.
        assert!(!round_trip(&mut safeguard, 3, 200));
        assert!(round_trip(&mut safeguard, 4, 400));
    }

    #[test]
    fn a_connection_that_counts_from_elsewhere_is_timed_once_it_is_alone() {
        let mut safeguard = Safeguard::new();
        assert!(!round_trip(&mut safeguard, 1_000, 100));
        safeguard.leaves(3, &data(5), Nanos::from_millis(1_001));
        assert!(!safeguard.comes(3, &answer(5), Nanos::from_millis(1_003)), "it was not timed");
        safeguard.leaves(3, &data(305), Nanos::from_millis(1_301));
        assert!(safeguard.comes(3, &answer(305), Nanos::from_millis(1_303)));
    }

    #[test]
    fn other_destinations_are_not_meant() {
        let mut safeguard = Safeguard::new();
        assert!(!round_trip(&mut safeguard, 1, 100));
        safeguard.leaves(3, &data(2), Nanos::from_millis(2));
        assert!(!safeguard.comes(4, &answer(2), Nanos::from_millis(3)));
    }
}
