//! One queue of a class: its part of what the class may send.

use super::claim::{Claim, Right};
use super::node::Node;
use super::race::{LEAD, Race, bytes, laps};
use narrows_qdisc::{RANKS, Weight};
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;

/// See the module's documentation.
pub(super) struct QueueHandle {
    pub(super) node: Arc<Node>,
    /// Bought so far, in bytes.
    pub(super) total: u64,
    /// Its virtual time in the race of the class's queues.
    place: u64,
    /// Its virtual times in races of other ranks. Made with the first other rank.
    places: Option<Box<[u64; RANKS]>>,
    /// Its weight there; 0 while nothing is queued.
    weight: u64,
    /// The queue's weight among the queues of the class.
    part: Weight,
    /// The rank of its next packet: there is a race for each rank.
    rank: u8,
    /// Whether it runs in the race of the class's queues. A queue that alone sends for the class
    /// does not.
    runs: bool,
    /// The time that it announced there when it was refused.
    wanted: Option<Nanos>,
}

impl QueueHandle {
    pub(super) fn new(node: Arc<Node>) -> Self {
        node.sit_down();
        Self {
            node,
            total: 0,
            place: 0,
            places: None,
            weight: 0,
            part: Weight::ONE,
            rank: 0,
            runs: false,
            wanted: None,
        }
    }

    fn weight_among_queues(&self) -> u64 {
        let quantum = u64::from(self.node.quantum());
        (quantum * u64::from(self.part.0) / u64::from(Weight::ONE.0)).max(1)
    }

    /// Runs in the race of the class's queues from now on, if others send for it, too.
    #[inline]
    pub(super) fn join(&mut self) {
        if !self.runs && self.node.is_shared() {
            self.runs = true;
            self.enter_race();
        }
    }

    /// Whether others send for the class, too, as far as this queue knows.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.runs
    }

    /// Starts in the race of its rank.
    fn enter_race(&mut self) {
        self.queues().join(self.weight);
        self.place = self.queues().start(self.place, self.weight);
    }

    /// The race of the queues of the class that are of its rank.
    #[inline]
    fn queues(&self) -> &Race {
        self.node.queues(self.rank.into())
    }

    /// The queue's claim within its class.
    #[inline]
    pub(super) fn claim(&self, now: Nanos) -> Claim {
        if self.runs { self.claim_among_queues(now) } else { Claim::ASSURED }
    }

    fn claim_among_queues(&self, now: Nanos) -> Claim {
        let queues = self.queues();
        let outranked = if self.rank == 0 { Nanos::ZERO } else { self.outranked_until() };
        let is_outranked = outranked > now;
        let Some((of_last, until)) = queues.ahead_of_last(self.place, self.weight, now) else {
            if is_outranked {
                let right = Right::without(false, true);
                return Claim { right, later: Right::Assured, at: outranked };
            }
            // No other queue waits: the others have what they want.
            return Claim::ASSURED;
        };
        // Before then the other queues of the class have not bought their shares.
        let ahead = queues.ahead(self.place, self.weight).unwrap_or_default();
        let others = queues.bytes(ahead).max(bytes(of_last, self.weight).min(LEAD));
        let others = self.node.terms.ceil().pace.span(0, others);
        let at = until.max(now + others).max(outranked);
        Claim { right: Right::without(true, is_outranked), later: Right::Assured, at }
    }

    /// The time until which a queue of the class with a better rank waits.
    #[inline(never)]
    fn outranked_until(&self) -> Nanos {
        let better = 0..usize::from(self.rank);
        let better = better.map(|rank| self.node.queues(rank).wanted_until());
        better.max().unwrap_or_default()
    }

    /// Announces to the other queues that it waits until `until`.
    #[inline]
    pub(super) fn announce(&mut self, until: Nanos, now: Nanos) {
        if self.runs {
            self.wanted = Some(self.queues().want(self.place, until, now));
        }
    }

    /// Tells queues of worse ranks that it comes at `due` or before.
    #[inline]
    pub(super) fn comes(&mut self, due: Nanos) {
        if self.runs && self.node.has_ranks() {
            self.wanted = Some(self.queues().comes(due));
        }
    }

    /// It has bought `bytes`.
    #[inline]
    pub(super) fn bought(&mut self, bytes: Bytes, now: Nanos) {
        self.total = self.total.wrapping_add(bytes.0);
        if self.runs {
            let from = self.place;
            self.place = from.wrapping_add(laps(bytes, self.weight));
            self.queues().advance(from, self.place, bytes, self.weight);
            self.withdraw(now);
        }
    }

    /// It returns `bytes` of the last purchase.
    pub(super) fn returned(&mut self, bytes: Bytes) {
        self.total = self.total.wrapping_sub(bytes.0);
        if self.runs {
            self.place = self.place.wrapping_sub(laps(bytes, self.weight));
            self.queues().returned(bytes, self.weight);
        }
    }

    /// Withdraws what it announced.
    fn withdraw(&mut self, now: Nanos) {
        if let Some(wanted) = self.wanted.take() {
            self.queues().has_had(wanted, now);
            self.queues().rests(self.place, now);
        }
    }

    /// Sets its weight among the queues of the class.
    pub(super) fn weigh(&mut self, part: Weight) {
        if self.part == part {
            return;
        }
        self.part = part;
        if self.weight != 0 {
            let weight = self.weight_among_queues();
            let before = std::mem::replace(&mut self.weight, weight);
            if self.runs {
                self.queues().join(self.weight);
                let _: bool = self.queues().leave(before);
            }
        }
    }

    /// Its next packet has this rank from `now` on.
    pub(super) fn rank(&mut self, rank: u8, now: Nanos) {
        let rank = rank.min(RANKS as u8 - 1);
        if rank == self.rank {
            return;
        }
        self.withdraw(now);
        let before = usize::from(std::mem::replace(&mut self.rank, rank));
        let places = self.places.get_or_insert_default();
        places[before] = self.place;
        self.place = places[usize::from(rank)];
        if self.runs {
            self.enter_race();
            let _: bool = self.node.queues(before).leave(self.weight);
        }
    }

    /// Packets are queued here from now on, or no longer.
    pub(super) fn set_active(&mut self, active: bool) {
        if active == (self.weight != 0) {
            return;
        }
        if active {
            self.weight = self.weight_among_queues();
            return self.join();
        }
        let weight = std::mem::take(&mut self.weight);
        if !std::mem::take(&mut self.runs) || self.queues().leave(weight) {
            self.node.retire();
        }
    }

    /// Nothing is queued here now. If leaving at once changes nothing, neither for the other queues
    /// of the class nor for this one when it has packets again, it leaves and returns `true`.
    pub(super) fn rests(&mut self) -> bool {
        // Alone in its race, and where it would start again, it can as well not run. A class that
        // runs in races above it lingers there.
        let queues = self.queues();
        let is_free = !self.runs
            || (queues.is_alone(self.weight)
                && queues.start(self.place, self.weight) == self.place);
        let rests = is_free && !self.node.has_entered();
        if rests {
            self.set_active(false);
        }
        rests
    }
}

impl Drop for QueueHandle {
    fn drop(&mut self) {
        self.set_active(false);
        self.node.stand_up();
    }
}
