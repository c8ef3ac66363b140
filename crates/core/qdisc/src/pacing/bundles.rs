//! The traffic to one destination: how fast it is in total, and so how far apart its packets must
//! leave.
//!
//! FlowBundler's flow is a pair of hosts: a burst towards one destination meets in one queue there,
//! whichever connections it belongs to. If each connection has a rate of its own, the sum is not
//! configured and is estimated from departures (`bundles/estimate.rs`). 512 buckets are enough: two
//! destinations in one bucket are treated as one, which costs a batch one packet.
//!
//! *Turns.* If packets of several connections have the same times, slots alone do not separate them
//! (`turns.rs`). Turns come as fast as packets leave in total; if a packet would have to wait for
//! many of them, they become twice as fast.
//!
//! *Congestion.* All congested destinations share one bucket, whose rate is the sum of their rates,
//! so that at most two of their packets leave together. Feedback tells which destinations these are
//! (`safeguard.rs`), on any queue of the port; departures from this queue tell how fast they are.
//! So a destination joins here with its first packet after the feedback, and if it is congested
//! again soon after, the rate that was measured counts from the start. Queues that send to one
//! destination each space their own packets: one packet of each queue may leave at the same time.
//!
//! Source: D. Shan et al. (ToN 2025), sections IV.D and IV.E.
//!
//! Cost: one line per packet, at departure.

mod estimate;

use super::safeguard::{LONGEST, Safeguard, bucket};
use super::turns::{Group, Turns};
use crate::{DESTINATIONS, Feedback};
use estimate::Estimate;
use narrows_packet::{Acknowledgement, PacketId, Packets};
use narrows_units::{Bytes, Nanos, Rate};

/// The bucket of all destinations that are congested.
const CONGESTED: usize = DESTINATIONS;
/// If a packet has to wait for more turns than this, turns are too slow.
const LAG: u64 = 8;

/// Rates by destination.
pub struct Bundles {
    buckets: Box<[Estimate]>,
    turns: Turns,
    safeguard: Option<Safeguard>,
    /// By bucket of destinations: until when it is bound to the others that are congested, or was.
    /// None without a safeguard.
    bound_until: Box<[Nanos]>,
    /// The latest of these times.
    any_until: Nanos,
    /// Whether destinations that are not congested have buckets of their own.
    by_host: bool,
    /// The longest frame, in bytes.
    frame: u64,
}

impl Bundles {
    /// For frames of up to `frame` bytes. Without `by_host` only packets to congested destinations
    /// are spaced.
    pub fn new(frame: Bytes, by_host: bool) -> Self {
        let frame = frame.max(Bytes(1));
        Self {
            buckets: vec![Estimate::default(); DESTINATIONS + 1].into_boxed_slice(),
            turns: Turns::new(frame, DESTINATIONS + 1),
            safeguard: None,
            bound_until: Box::default(),
            any_until: Nanos::ZERO,
            by_host,
            frame: frame.0,
        }
    }

    /// These bundles with a safeguard, whose feedback all queues with the same board share.
    #[must_use]
    pub fn with_safeguard(self, feedback: Box<dyn Feedback>) -> Self {
        let bound_until = vec![Nanos::ZERO; DESTINATIONS].into_boxed_slice();
        Self { safeguard: Some(Safeguard::new(feedback)), bound_until, ..self }
    }

    /// These bundles in the place of `before`: no packet overtakes one that it has postponed.
    #[must_use]
    pub(super) fn following(mut self, before: Self) -> Self {
        self.turns.follow(before.turns);
        self
    }

    /// Makes the safeguard, if there is one, use `feedback` from now on.
    pub(super) fn listen_with(&mut self, feedback: Box<dyn Feedback>) {
        if let Some(safeguard) = &mut self.safeguard {
            *safeguard = Safeguard::new(feedback);
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

    /// Processes the acknowledgement `packet` from `source`. Returns whether it reports congestion
    /// towards `source`.
    pub(super) fn hear(&mut self, source: u32, packet: &Acknowledgement, now: Nanos) -> bool {
        let safeguard = self.safeguard.as_mut();
        safeguard.is_some_and(|safeguard| safeguard.comes(source, packet, now))
    }

    /// The bucket of packets to `destination`, if any.
    #[inline]
    fn counts_for(&self, destination: u32, now: Nanos) -> Option<usize> {
        let own = bucket(destination);
        if self.is_bound(own, now) { Some(CONGESTED) } else { self.by_host.then_some(own) }
    }

    #[inline]
    fn bucket(&mut self, destination: u32, now: Nanos) -> Option<&mut Estimate> {
        let at = self.counts_for(destination, now)?;
        self.buckets.get_mut(at)
    }

    #[inline]
    fn is_bound(&self, own: usize, now: Nanos) -> bool {
        now < self.any_until && now < self.bound_until[own]
    }

    /// Binds `destination` if it is congested.
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

    /// Starts counting packets to `own` as congested.
    #[cold]
    fn bind(&mut self, own: usize, known: Rate, now: Nanos) {
        if self.any_until <= now {
            let all = &mut self.buckets[CONGESTED];
            // It was empty for a while, and that is no window.
            all.begin();
            if now.since(self.any_until) >= LONGEST {
                *all = Estimate::default();
            }
        }
        // Nor will its own bucket be used.
        self.buckets[own].begin();
        let before = self.bound_until[own];
        if before == Nanos::ZERO || now.since(before) >= LONGEST {
            // The least that it adds is known; departures of others show later.
            let added = self.buckets[own].rate().max(known);
            let all = &mut self.buckets[CONGESTED];
            let sum = all.rate().bytes_per_sec().saturating_add(added.bytes_per_sec());
            all.raise_to(Rate::from_bytes_per_sec(sum), self.frame);
        }
    }

    /// The spacing of packets to `destination`, as a power of two of nanoseconds, if it matters.
    /// `known` is the rate of a present packet's flow; the destination's is no lower.
    #[inline]
    pub fn spacing(&mut self, destination: u32, known: Rate, now: Nanos) -> Option<u32> {
        self.look(destination, known, now);
        let frame = self.frame;
        let bucket = self.bucket(destination, now)?;
        bucket.raise_to(known, frame);
        Some(u32::from(bucket.spacing()))
    }

    /// A packet to `destination` arrived after its departure time. Called after [`Self::spacing`].
    #[inline]
    pub fn came_late(&mut self, destination: u32, now: Nanos) {
        if let Some(bucket) = self.bucket(destination, now) {
            bucket.begin();
        }
    }

    /// The packet `id` is due. Returns when it leaves, if it would be too much at once for its
    /// destination.
    ///
    /// Estimates are based on packets' times by their flows' rates, not on actual departures.
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
        let group = self.counts_for(destination, now).and_then(|bucket| {
            let estimate = &mut self.buckets[bucket];
            estimate.count(slot, len, self.frame);
            Some(Group { bucket, spacing: estimate.turns()? })
        });
        let leaves = self.turns.postpone(bucket(destination), group, slot, len, now)?;
        if let Some(Group { bucket, spacing }) = group
            && leaves.since(slot).0 >> spacing > LAG
        {
            self.buckets[bucket].limit_turns(spacing.saturating_sub(1));
        }
        packets.meta_mut(id).is_postponed = true;
        Some(leaves)
    }

    /// The packet `id` is taken back, not sent. Returns when a postponed packet that it must not
    /// overtake leaves, if there is one.
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

    /// All packets were taken back, so none waits for its turn; and flows have another rate than
    /// the measured one.
    pub(super) fn begin_anew(&mut self) {
        self.buckets.fill(Estimate::default());
        self.turns = Turns::new(Bytes(self.frame), DESTINATIONS + 1);
    }

    /// A packet of `len` bytes to `destination` left with the slot `slot`.
    #[inline]
    pub fn left(&mut self, destination: u32, slot: Nanos, len: Bytes, now: Nanos) {
        let frame = self.frame;
        if let Some(bucket) = self.bucket(destination, now) {
            bucket.count(slot, len, frame);
        }
    }

    /// The known total rate of packets to `destination`; zero if unknown.
    pub fn estimate(&self, destination: u32, now: Nanos) -> Rate {
        let counts_for = self.counts_for(destination, now).unwrap_or(bucket(destination));
        self.buckets[counts_for].rate()
    }
}

#[cfg(test)]
mod tests;
