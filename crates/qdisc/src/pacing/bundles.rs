//! What goes to one destination: how fast it goes in all, and so how far apart it has to leave.
//!
//! FlowBundler's flow is a pair of hosts: whatever the connections between them, a burst towards one
//! destination meets in one queue there. Where each connection has a rate of its own, nobody has stated the sum,
//! and it is estimated from what leaves. 512 buckets are enough: two destinations in one bucket are
//! treated as one, which costs a batch one packet.
//!
//! *A window* begins and ends with a slot. It is over when five full packets have left and another slot has
//! begun; what has left divided by the time between the two slots' beginnings is a sample. The estimate is the mean of the first
//! four and then follows each by a quarter: of the time that a byte takes, and not of the rate as in the paper. Windows are alike in bytes and not in time, so that
//! rates that are averaged over them come out too high (by 6 % with ten connections, `narrows sim
//! flowbundler-estimator`); times do not. A packet that came too late to be held says how fast its sender is and not
//! how fast it may be, so with such a packet the window begins anew.
//!
//! *What is known counts.* An estimate is never below the rate of a flow that is at hand, and where nothing at all is
//! known, or only assumed, the first sample is the estimate. A sample below a quarter of it is taken for what it is: from 20 Gbit/s to
//! 10 kbit/s it is one window, where a quarter at a time it were minutes. However high a sample is, the
//! estimate becomes a third higher at most: packets of many connections that happen to leave together are no rate.
//!
//! *Turns.* Where the packets of several connections have the same times, slots alone would not keep them apart (`turns.rs`).
//! How fast turns are taken follows from the estimate, or from what left in the last 64 packets, whichever is faster: connections
//! that send together make windows in which little leaves, and slots that are too long do no harm, but turns that are too
//! slow would cost rate. Where a packet waits for many of them nevertheless, they become twice as fast.
//!
//! *Congestion.* Destinations of which is known that what goes to them meets before it gets there are bound
//! together: one bucket for all of them, which is as fast as they are in all, so that no more than two of their
//! packets leave together. Which they are is heard (`safeguard.rs`), on whichever queue of the port; how fast
//! they are is what leaves here. So a destination is bound here by its first packet that comes after it was heard of, and
//! where it is again soon after, the rate that was seen counts from the start. Queues that
//! send to one destination each keep their own packets apart: of each queue one may leave at the same time.
//!
//! Source: D. Shan et al. (ToN 2025), Alg. 3 and section IV.E. The paper takes the least and the greatest departure
//! time within a window; slots leave in order, so here they are the first and the last one.
//!
//! Cost: one line a packet, at departure; a division every five packets.

use super::safeguard::{LONGEST, Safeguard, bucket};
use super::turns::{Group, Turns};
use crate::{DESTINATIONS, Hearsay};
use narrows_packet::{Acknowledgement, PacketId, Packets};
use narrows_units::{Bytes, Nanos, Rate};

/// The bucket of all destinations that are congested.
const CONGESTED: usize = DESTINATIONS;
/// A window has more than so many full packets.
const WINDOW_PACKETS: u64 = 5;
/// The same where it must not be less than the rate.
const LONG_PACKETS: u64 = 64;
/// The estimate follows a sample by one part of so many, once it is made of as many.
const FOLLOW: u8 = 4;
/// A sample below one part of so many of the estimate replaces it.
const SURPRISE: u64 = 4;
/// An estimate where nothing is known.
const UNKNOWN: u64 = 0;

/// If a packet has to wait for longer than so many slots, these are too long.
const LAG: u64 = 8;

/// What has left since when; nothing where no window has begun.
#[derive(Clone, Copy, Default)]
struct Window {
    began: Nanos,
    sent: u64,
}

impl Window {
    /// `len` bytes more left with the slot `slot`, which is the one before it where `is_same`. A sample, in bytes per
    /// second, where that begins another window: with more than `full` bytes one is over.
    #[inline]
    fn count(&mut self, slot: Nanos, is_same: bool, len: u64, full: u64) -> Option<u64> {
        if self.sent > 0 && (is_same || self.sent <= full) {
            // Slots come in order, except behind what came late.
            self.began = self.began.min(slot);
            self.sent += len;
            return None;
        }
        let before = std::mem::replace(self, Self { began: slot, sent: len });
        let span = slot.since(before.began).max(Nanos(1));
        (before.sent > 0).then(|| Rate::of(Bytes(before.sent), span).bytes_per_sec())
    }
}

/// What is known of one bucket.
#[derive(Clone, Copy)]
struct Bucket {
    /// The estimate.
    bytes_per_sec: u64,
    /// The slot of the packet that left last.
    slot: Nanos,
    window: Window,
    long: Window,
    /// How far apart full packets leave at the estimate: a power of two of nanoseconds.
    spacing: u8,
    /// The same at the rate over the long window before.
    long_spacing: u8,
    /// How many samples the estimate is made of, up to one less than [`FOLLOW`].
    samples: u8,
}

impl Default for Bucket {
    fn default() -> Self {
        Self {
            bytes_per_sec: UNKNOWN,
            slot: Nanos::ZERO,
            window: Window::default(),
            long: Window::default(),
            spacing: 0,
            long_spacing: u8::MAX,
            samples: 0,
        }
    }
}

impl Bucket {
    fn set(&mut self, bytes_per_sec: u64, frame: u64) {
        self.bytes_per_sec = bytes_per_sec;
        if bytes_per_sec == UNKNOWN {
            return;
        }
        self.spacing = spacing(frame, self.bytes_per_sec) as u8;
    }

    /// Begins windows anew.
    fn begin(&mut self) {
        (self.window, self.long) = Default::default();
    }

    /// How far apart packets have to leave, if anything is known: an estimate that fell for a moment makes nobody wait.
    fn apart(&self) -> Option<u8> {
        (self.bytes_per_sec != UNKNOWN).then(|| self.spacing.min(self.long_spacing))
    }
}

/// Rates by destination.
pub struct Bundles {
    buckets: Box<[Bucket]>,
    turns: Turns,
    safeguard: Option<Safeguard>,
    /// By bucket of destinations: until when it is bound to the others that are congested, or was. None without
    /// a safeguard.
    bound_until: Box<[Nanos]>,
    /// Until when any is, or was.
    any_until: Nanos,
    /// Whether those are told apart that are not congested.
    by_host: bool,
    /// The longest frame, in bytes.
    frame: u64,
}

impl Bundles {
    /// For frames of up to `frame` bytes. Without `by_host` only what is congested is kept apart.
    pub fn new(frame: Bytes, by_host: bool) -> Self {
        Self {
            buckets: vec![Bucket::default(); DESTINATIONS + 1].into_boxed_slice(),
            turns: Turns::new(Bytes(frame.0.max(1)), DESTINATIONS + 1),
            safeguard: None,
            bound_until: Box::default(),
            any_until: Nanos::ZERO,
            by_host,
            frame: frame.0.max(1),
        }
    }

    /// The same with a safeguard that hears what all hear that have a view of the same.
    #[must_use]
    pub fn with_safeguard(self, hearsay: Box<dyn Hearsay>) -> Self {
        let bound_until = vec![Nanos::ZERO; DESTINATIONS].into_boxed_slice();
        Self { safeguard: Some(Safeguard::new(hearsay)), bound_until, ..self }
    }

    /// The same, but nobody overtakes whom `before` has postponed.
    #[must_use]
    pub(super) fn following(mut self, before: Self) -> Self {
        self.turns.follow(before.turns);
        self
    }

    /// Lets the safeguard, where there is one, hear what others hear from now on.
    pub(super) fn listen_with(&mut self, hearsay: Box<dyn Hearsay>) {
        if let Some(safeguard) = &mut self.safeguard {
            *safeguard = Safeguard::new(hearsay);
        }
    }

    /// Whether there is a safeguard.
    pub(super) const fn listens(&self) -> bool {
        self.safeguard.is_some()
    }

    /// A packet that carries `packet` leaves to `destination`.
    #[inline]
    pub(super) fn tell(
        &self,
        destination: u32,
        packet: impl FnOnce() -> Acknowledgement,
        now: Nanos,
    ) {
        if let Some(safeguard) = &self.safeguard {
            safeguard.leaves(destination, &packet(), now);
        }
    }

    /// What comes from `source` carries `packet`. Whether it says that what goes there meets on the way.
    pub(super) fn hear(&mut self, source: u32, packet: &Acknowledgement, now: Nanos) -> bool {
        let safeguard = self.safeguard.as_mut();
        safeguard.is_some_and(|safeguard| safeguard.comes(source, packet, now))
    }

    /// The bucket that what goes to `destination` counts for, if for any.
    #[inline]
    fn counts_for(&self, destination: u32, now: Nanos) -> Option<usize> {
        let own = bucket(destination);
        if self.is_bound(own, now) { Some(CONGESTED) } else { self.by_host.then_some(own) }
    }

    #[inline]
    fn bucket(&mut self, destination: u32, now: Nanos) -> Option<&mut Bucket> {
        let at = self.counts_for(destination, now)?;
        self.buckets.get_mut(at)
    }

    #[inline]
    fn is_bound(&self, own: usize, now: Nanos) -> bool {
        now < self.any_until && now < self.bound_until[own]
    }

    /// Binds `destination` where it is congested.
    #[inline]
    fn look(&mut self, destination: u32, known: Rate, now: Nanos) {
        let Some(safeguard) = &mut self.safeguard else { return };
        let Some(until) = safeguard.congested_until(destination, now) else { return };
        let own = bucket(destination);
        if !self.is_bound(own, now) {
            self.bind(own, known, now);
        }
        self.bound_until[own] = until;
        self.any_until = self.any_until.max(until);
    }

    /// Begins to count what goes to `own` for all that is congested.
    #[cold]
    fn bind(&mut self, own: usize, known: Rate, now: Nanos) {
        if self.any_until <= now {
            let all = &mut self.buckets[CONGESTED];
            // Nobody has been in there for a while, which is no window.
            all.begin();
            if now.since(self.any_until) >= LONGEST {
                *all = Bucket::default();
            }
        }
        // Nor will anybody be in its own.
        self.buckets[own].begin();
        let before = self.bound_until[own];
        if before == Nanos::ZERO || now.since(before) >= LONGEST {
            // What it adds at least is known; that others left will be seen.
            let added = self.buckets[own].bytes_per_sec.max(known.bytes_per_sec());
            let all = &mut self.buckets[CONGESTED];
            all.set(all.bytes_per_sec.saturating_add(added), self.frame);
        }
    }

    /// How far apart what goes to `destination` is to leave, as a power of two of nanoseconds, where
    /// that matters. `known` is the rate of the flow that a packet at hand belongs to; the destination's is no lower.
    #[inline]
    pub fn spacing(&mut self, destination: u32, known: Rate, now: Nanos) -> Option<u32> {
        self.look(destination, known, now);
        let frame = self.frame;
        let bucket = self.bucket(destination, now)?;
        if bucket.bytes_per_sec < known.bytes_per_sec() {
            bucket.set(known.bytes_per_sec(), frame);
        }
        Some(u32::from(bucket.spacing))
    }

    /// A packet to `destination` came when its departure time was over, after [`Self::spacing`].
    #[inline]
    pub fn came_late(&mut self, destination: u32, now: Nanos) {
        if let Some(bucket) = self.bucket(destination, now) {
            bucket.begin();
        }
    }

    /// The time of the packet `id` has come. When it leaves, if it would be too much at once for where it goes.
    ///
    /// Estimates follow from the times that packets have by their flows' rates, not from when they leave here.
    #[inline]
    pub(super) fn postpone(
        &mut self,
        packets: &mut Packets,
        id: PacketId,
        now: Nanos,
    ) -> Option<Nanos> {
        let destination = packets.headers(id).destination;
        let meta = packets.meta_mut(id);
        if std::mem::take(&mut meta.is_postponed) {
            return None;
        }
        let (slot, len) = (meta.edt, Bytes::from(meta.len));
        self.left(destination, slot, len, now);
        let group = self.counts_for(destination, now).and_then(|bucket| {
            let spacing = self.buckets[bucket].apart()?;
            Some(Group { bucket, spacing })
        });
        let leaves = self.turns.postpone(bucket(destination), group, slot, len, now)?;
        if let Some(Group { bucket, spacing }) = group
            && leaves.since(slot).0 >> spacing > LAG
        {
            self.buckets[bucket].long_spacing = spacing.saturating_sub(1);
        }
        packets.meta_mut(id).is_postponed = true;
        Some(leaves)
    }

    /// The packet `id` is taken back, not sent. When another one is postponed that it may not overtake, if there is any.
    pub(super) fn take_back(&self, packets: &mut Packets, id: PacketId) -> Option<Nanos> {
        let destination = packets.headers(id).destination;
        let meta = packets.meta_mut(id);
        if std::mem::take(&mut meta.is_postponed) {
            return None;
        }
        let behind = self.turns.behind(bucket(destination), meta.edt)?;
        meta.is_postponed = true;
        Some(behind)
    }

    /// A packet of `len` bytes to `destination` left with the slot `slot`.
    #[inline]
    pub fn left(&mut self, destination: u32, slot: Nanos, len: Bytes, now: Nanos) {
        let frame = self.frame;
        let Some(bucket) = self.bucket(destination, now) else { return };
        let is_same = std::mem::replace(&mut bucket.slot, slot) == slot;
        if let Some(sample) = bucket.window.count(slot, is_same, len.0, WINDOW_PACKETS * frame) {
            bucket.follow(sample, frame);
        }
        if let Some(sample) = bucket.long.count(slot, is_same, len.0, LONG_PACKETS * frame) {
            bucket.long_spacing = spacing(frame, sample) as u8;
        }
    }

    /// How fast what goes to `destination` is in all, as far as is known; zero where nothing is.
    pub fn estimate(&self, destination: u32, now: Nanos) -> Rate {
        let own = bucket(destination);
        let counts = if self.is_bound(own, now) { CONGESTED } else { own };
        Rate::from_bytes_per_sec(self.buckets[counts].bytes_per_sec)
    }
}

impl Bucket {
    fn follow(&mut self, sample: u64, frame: u64) {
        let estimate = self.bytes_per_sec;
        if estimate == UNKNOWN || sample < estimate / SURPRISE {
            self.samples = 0;
        }
        // Of time: 1 / next = (1 - 1/4) / estimate + (1/4) / sample, or a half, or a third.
        let before = u128::from(self.samples);
        self.samples = (self.samples + 1).min(FOLLOW - 1);
        let times = u128::from(estimate) * u128::from(sample) * (before + 1);
        let sum = u128::from(estimate) + u128::from(sample) * before;
        let next = match before {
            0 => sample,
            _ => u64::try_from(times / sum.max(1)).unwrap_or(u64::MAX).max(1),
        };
        self.set(next, frame);
    }
}

/// The time that `frame` bytes take, rounded down to a power of two of nanoseconds.
fn spacing(frame: u64, bytes_per_sec: u64) -> u32 {
    Rate::from_bytes_per_sec(bytes_per_sec).time_for(Bytes(frame)).0.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alone;
    use crate::pacing::safeguard::CONGESTION;

    const FRAME: Bytes = Bytes(1500);

    fn listening(by_host: bool) -> Bundles {
        Bundles::new(FRAME, by_host).with_safeguard(Box::new(Alone::default()))
    }

    /// `destination` says that it has seen a mark.
    fn hear(bundles: &mut Bundles, destination: u32, now: Nanos) {
        let marked = Acknowledgement { flags: 0x50, ..Acknowledgement::default() };
        assert!(bundles.hear(destination, &marked, now));
    }

    fn gbit(rate: f64) -> Rate {
        Rate::from_bits_per_sec((rate * 1e9) as u64)
    }

    /// What left until when, and the estimate then.
    type Course = Vec<(Nanos, f64)>;

    /// Full packets of connections with `rates` to one destination, for `span`, each held as the
    /// estimate says. Their first packets leave at different times.
    fn connections(bundles: &mut Bundles, rates: &[f64], begin: Nanos, span: Nanos) -> Course {
        let mut packets: Vec<u64> = rates
            .iter()
            .zip(0..)
            .flat_map(|(rate, connection)| {
                let gap = gbit(*rate).time_for(FRAME).0;
                (begin.0 + connection * 137..(begin + span).0).step_by(gap as usize)
            })
            .collect();
        packets.sort_unstable();
        let mut course = vec![];
        for at in packets {
            let slot =
                Nanos(at.next_multiple_of(1 << bundles.spacing(7, gbit(rates[0]), begin).unwrap()));
            bundles.left(7, slot, FRAME, slot);
            course.push((slot, bundles.estimate(7, slot).bits_per_sec() as f64 / 1e9));
        }
        course
    }

    #[test]
    fn ten_connections_are_known_for_their_sum_within_200_us() {
        let mut bundles = Bundles::new(FRAME, true);
        bundles.spacing(7, gbit(2.0), Nanos::ZERO);
        let rates: Vec<f64> = (1..=10).map(|tenth| f64::from(tenth) / 10.0).collect();
        let span = Nanos::from_millis(2);
        let course = connections(&mut bundles, &rates, Nanos::from_secs(1), span);
        let settled = Nanos::from_secs(1) + Nanos::from_micros(200);
        let late: Vec<f64> =
            course.iter().filter(|(at, _)| *at > settled).map(|(_, rate)| *rate).collect();
        assert!(late.len() > 500);
        assert!(late.iter().all(|rate| (4.1..8.2).contains(rate)), "{late:?}");
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        assert!((mean / 5.5 - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn an_estimate_that_is_far_off_is_corrected_at_once() {
        let mut bundles = Bundles::new(FRAME, true);
        bundles.spacing(7, gbit(20.0), Nanos::ZERO);
        let course = connections(&mut bundles, &[0.000_01], Nanos::ZERO, Nanos::from_secs(20));
        let (_, rate) = course[9];
        assert!((rate / 0.000_01 - 1.0).abs() < 0.2, "{rate} Gbit/s after nine packets");
    }

    #[test]
    fn where_nothing_is_known_the_first_window_is_believed() {
        let mut bundles = listening(true);
        assert_eq!(bundles.spacing(7, Rate::default(), Nanos(1)), Some(0));
        for packet in 1..10 {
            let at = Nanos(packet * 1_200);
            bundles.left(7, at, FRAME, at);
        }
        let rate = bundles.estimate(7, Nanos(10_000)).bits_per_sec() as f64 / 1e9;
        assert!((rate / 10.0 - 1.0).abs() < 0.01, "{rate}");
        hear(&mut bundles, 8, Nanos(10_000));
        assert_eq!(bundles.spacing(8, Rate::default(), Nanos(10_000)), Some(0));
    }

    #[test]
    fn a_rate_that_changes_is_followed_and_does_not_swing() {
        let mut bundles = Bundles::new(FRAME, true);
        let mut at = Nanos::from_secs(1);
        for rate in [1.0, 6.0, 1.0] {
            let course = connections(&mut bundles, &[rate], at, Nanos::from_millis(100));
            at += Nanos::from_millis(100);
            let late = course.iter().skip(100).map(|(_, estimate)| *estimate);
            let (least, most) = late.fold((f64::MAX, 0.0_f64), |(least, most), estimate| {
                (least.min(estimate), most.max(estimate))
            });
            assert!(least > rate * 0.9 && most < rate * 1.1, "{least} to {most}, not {rate}");
        }
    }

    #[test]
    fn a_sender_that_pauses_is_not_taken_for_a_slow_one() {
        let mut bundles = Bundles::new(FRAME, true);
        let mut at = Nanos::from_secs(1);
        for _ in 0..100 {
            bundles.spacing(7, gbit(1.0), at);
            bundles.came_late(7, at);
            connections(&mut bundles, &[1.0], at, Nanos::from_micros(50));
            at += Nanos::from_millis(1);
        }
        let rate = bundles.estimate(7, at).bits_per_sec() as f64 / 1e9;
        assert!((0.8..1.2).contains(&rate), "{rate}");
    }

    #[test]
    fn destinations_that_are_congested_are_as_fast_as_all_of_them_together() {
        let mut bundles = listening(true);
        let now = Nanos::from_secs(1);
        for destination in 0..4 {
            assert_eq!(bundles.spacing(destination, gbit(1.0), now), Some(13));
        }
        for destination in 0..4 {
            hear(&mut bundles, destination, now);
            assert!(bundles.spacing(destination, gbit(0.0), now).is_some());
        }
        assert_eq!(bundles.spacing(0, gbit(1.0), now), Some(11));
        assert_eq!(bundles.estimate(3, now), gbit(4.0));
        // Until nothing was heard of it for a while.
        assert_eq!(bundles.spacing(0, gbit(1.0), now + CONGESTION), Some(13));
        let later = now + CONGESTION + LONGEST;
        hear(&mut bundles, 0, later);
        bundles.spacing(0, gbit(1.0), later);
        assert_eq!(bundles.estimate(0, later), gbit(1.0));
    }

    #[test]
    fn what_is_congested_again_is_known_for_its_rate_and_keeps_its_own() {
        let mut bundles = listening(true);
        let mut now = Nanos::from_secs(1);
        let at_10_gbit = |bundles: &mut Bundles, now: &mut Nanos| {
            for _ in 0..400 {
                *now += Nanos(1_200);
                bundles.left(0, *now, FRAME, *now);
            }
            let rate = bundles.estimate(0, *now).bits_per_sec() as f64 / 1e9;
            assert!((9.0..11.0).contains(&rate), "{rate} Gbit/s");
        };
        bundles.spacing(0, gbit(1.0), now);
        at_10_gbit(&mut bundles, &mut now);
        for _ in 0..3 {
            hear(&mut bundles, 0, now);
            bundles.came_late(0, now);
            at_10_gbit(&mut bundles, &mut now);
            now += LONGEST - Nanos(1);
            // The time in between is no window of the one or of the other.
            at_10_gbit(&mut bundles, &mut now);
        }
    }

    #[test]
    fn where_hosts_are_not_told_apart_only_the_congested_ones_are_kept_apart() {
        let mut bundles = listening(false);
        let now = Nanos::from_secs(1);
        assert_eq!(bundles.spacing(0, gbit(1.0), now), None);
        hear(&mut bundles, 0, now);
        assert_eq!(bundles.spacing(0, gbit(1.0), now), Some(13));
        assert_eq!(bundles.spacing(1, gbit(1.0), now), None);
        // Ten connections at a gigabit each go there: it shows.
        for packet in 0..400 {
            bundles.left(0, now + Nanos(packet * 1_200), FRAME, now);
        }
        assert_eq!(bundles.spacing(0, gbit(1.0), now), Some(10));
    }
}
