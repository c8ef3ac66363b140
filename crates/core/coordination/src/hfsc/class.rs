//! A class: what its queues share.
//!
//! What it has had, how far it has come on its curves, and its virtual time among the classes
//! beside it. Its parameters are not here: each queue has a copy.
//!
//! *A class is active while any queue has packets for it or for classes below it.* The queue that
//! makes it active begins its backlogged period. Another queue that comes while it is active
//! continues that.
//!
//! Memory ordering: relaxed, but for the counts of queues that decide who begins and ends a period:
//! who begins the next one sees the virtual time at which the last one ended.

use super::curve::{Curve, Progress, advance_to, earlier, is_before, later};
use crate::census;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::tree::virtual_time::{LEAD, VirtualTimeGroup};
use narrows_qdisc::Census;
use narrows_qdisc::hfsc::{self, Service};
use narrows_units::{Bytes, Nanos};
use std::sync::{Arc, OnceLock};

/// How many leads a class may be behind those on other queues and keep its claim. A class that its
/// upper limit has held up catches up by so much, too.
const LAG_LEADS: u64 = 8;

type ClassCensus = census::Shared<256>;

/// The parameters of a class in the form in which they are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Curves {
    pub(super) real_time: Option<Curve>,
    pub(super) link_share: Option<Curve>,
    pub(super) upper_limit: Option<Curve>,
}

impl Curves {
    pub(super) fn of(class: &hfsc::Class) -> Self {
        Self {
            real_time: class.real_time.map(Curve::of),
            link_share: class.link_share.map(Curve::of),
            upper_limit: class.upper_limit.map(Curve::of),
        }
    }
}

/// One class, as all queues see it.
#[derive(Default)]
pub(super) struct Class {
    pub(super) parent: Option<Arc<Self>>,
    /// Bytes that it has sent.
    total: AtomicU64,
    /// Those of them that it has sent by its real-time curve.
    in_real_time: AtomicU64,
    real_time: Progress,
    link_share: Progress,
    upper_limit: Progress,
    virtual_time: AtomicU64,
    /// By how much its virtual time is ahead of its curve, because its upper limit held it up.
    adjustment: AtomicU64,
    /// How many queues it is active on.
    active: AtomicU32,
    /// How many queues have packets for it that a deadline is for.
    due: AtomicU32,
    /// How many backlogged periods it had, and which one of its parent it was last active in.
    period: AtomicU32,
    parent_period: AtomicU32,

    /// How many classes below it are active.
    children: AtomicU32,
    /// The virtual time of the classes below it: that of the last one that was served. 0 at the
    /// beginning of a period.
    least: AtomicU64,
    /// The greatest virtual time at which a class below it became inactive.
    greatest: AtomicU64,
    /// The classes below it that wait for a limit above them; of a leaf, its queues.
    pub(super) waiting: VirtualTimeGroup,

    /// How many queues have opened it.
    queues: AtomicU32,
    census: OnceLock<Arc<ClassCensus>>,
}

impl Class {
    pub(super) fn new(parent: Option<Arc<Self>>, curves: &Curves) -> Self {
        Self {
            parent,
            real_time: Progress::new(curves.real_time.as_ref()),
            link_share: Progress::new(curves.link_share.as_ref()),
            upper_limit: Progress::new(curves.upper_limit.as_ref()),
            ..Self::default()
        }
    }

    pub(super) fn is_opened(&self) {
        self.queues.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_closed(&self) {
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether several queues send for it.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.queues.load(Ordering::Relaxed) > 1
    }

    /// A queue's handle at the census of its hosts.
    pub(super) fn census(&self) -> Box<dyn Census> {
        Box::new(Arc::clone(self.census.get_or_init(ClassCensus::new)).handle())
    }

    #[inline]
    pub(super) fn virtual_time(&self) -> u64 {
        self.virtual_time.load(Ordering::Relaxed)
    }

    pub(super) fn service(&self) -> Service {
        Service {
            period: self.period.load(Ordering::Relaxed),
            work: Bytes(self.total.load(Ordering::Relaxed)),
            real_time: Bytes(self.in_real_time.load(Ordering::Relaxed)),
        }
    }

    /// Its curves were `before` and are `curves` now: those that differ begin anew.
    pub(super) fn follow(&self, before: &Curves, curves: &Curves, now: u64) {
        let time = self.virtual_time();
        for (progress, before, curve, start) in [
            (&self.real_time, before.real_time, curves.real_time, now),
            (&self.link_share, before.link_share, curves.link_share, time),
            (&self.upper_limit, before.upper_limit, curves.upper_limit, now),
        ] {
            if let Some(curve) = curve.filter(|curve| before != Some(*curve)) {
                progress.restart(&curve, start);
            }
        }
    }

    /// A queue has packets for it that a deadline is for.
    pub(super) fn enter_real_time(&self, curve: &Curve, now: u64) {
        if self.due.fetch_add(1, Ordering::AcqRel) == 0 {
            self.real_time.begin(curve, now);
        }
    }

    /// A queue has none left.
    pub(super) fn leave_real_time(&self) {
        self.due.fetch_sub(1, Ordering::AcqRel);
    }

    /// From when on it may be served to keep its deadlines, and the deadline of a packet.
    #[inline]
    pub(super) fn eligible_and_deadline(&self, curve: &Curve, packet: Bytes) -> (u64, u64) {
        let before = self.in_real_time.load(Ordering::Relaxed);
        (self.real_time.eligible(curve), self.real_time.deadline(curve, before, packet))
    }

    /// A queue makes it active, where `greatest` is the greatest virtual time of its siblings on
    /// this queue. Returns whether no other queue had.
    pub(super) fn enter(&self, curves: &Curves, greatest: Option<u64>, now: u64) -> bool {
        if self.active.fetch_add(1, Ordering::AcqRel) > 0 {
            return false;
        }
        let Some(parent) = &self.parent else { return true };
        if parent.children.fetch_add(1, Ordering::AcqRel) > 0 {
            let least = parent.least.load(Ordering::Relaxed);
            let start = match greatest {
                // Between the least and the greatest.
                Some(greatest) if least != 0 => {
                    least.wrapping_add_signed((greatest.wrapping_sub(least) as i64) / 2)
                }
                Some(greatest) => greatest,
                // Its siblings are on other queues.
                None => least,
            };
            let is_new =
                parent.period.load(Ordering::Relaxed) != self.parent_period.load(Ordering::Relaxed);
            if is_new || is_before(self.virtual_time(), start) {
                self.virtual_time.store(start, Ordering::Relaxed);
            }
        } else {
            // The first of a period of the parent begins behind all that have been served before.
            let start = parent.greatest.load(Ordering::Relaxed);
            self.virtual_time.store(start, Ordering::Relaxed);
            parent.least.store(0, Ordering::Relaxed);
        }
        if let Some(curve) = &curves.link_share {
            self.link_share.begin(curve, self.virtual_time());
        }
        self.adjustment.store(0, Ordering::Relaxed);
        self.period.fetch_add(1, Ordering::Relaxed);
        // A parent that becomes active with this class begins its own period after it.
        let begins = parent.parent.is_none() || parent.active.load(Ordering::Relaxed) == 0;
        let period = parent.period.load(Ordering::Relaxed).wrapping_add(begins.into());
        self.parent_period.store(period, Ordering::Relaxed);
        if let Some(curve) = &curves.upper_limit {
            self.upper_limit.begin(curve, now);
        }
        true
    }

    /// A queue has nothing left for it.
    pub(super) fn leave(&self) {
        if let Some(parent) = &self.parent
            && self.active.load(Ordering::Relaxed) == 1
        {
            advance_to(&parent.greatest, self.virtual_time());
        }
        if self.active.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(parent) = &self.parent
        {
            parent.children.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// From when on its own upper limit lets it be served.
    #[inline]
    pub(super) fn fit_from(&self, curves: &Curves) -> u64 {
        curves.upper_limit.as_ref().map_or(0, |curve| self.upper_limit.reached(curve))
    }

    /// Whether its upper limit lets `bytes` pass, which are counted then.
    #[inline]
    pub(super) fn sell(&self, curves: &Curves, bytes: Bytes, now: u64) -> bool {
        curves.upper_limit.as_ref().is_none_or(|curve| {
            let before = self.total.load(Ordering::Relaxed);
            self.upper_limit.sell(curve, before, bytes, now)
        })
    }

    /// Undoes [`Self::sell`].
    pub(super) fn take_back(&self, curves: &Curves, bytes: Bytes) {
        if let Some(curve) = &curves.upper_limit {
            let before = self.total.load(Ordering::Relaxed);
            self.upper_limit.take_back(curve, before, bytes);
        }
    }

    /// It has sent `bytes`; `in_real_time`, they have passed its upper limit unasked.
    #[inline]
    pub(super) fn serve(&self, curves: &Curves, bytes: Bytes, in_real_time: bool, now: u64) {
        let before = self.total.fetch_add(bytes.0, Ordering::Relaxed);
        if let Some(curve) = &curves.link_share {
            self.link_share.serve(curve, before, bytes);
        }
        if in_real_time && let Some(curve) = &curves.upper_limit {
            self.upper_limit.serve(curve, before, bytes);
            self.upper_limit.limit(now);
        }
    }

    /// A leaf has sent `bytes` by its real-time curve.
    #[inline]
    pub(super) fn serve_in_real_time(&self, curve: &Curve, bytes: Bytes) {
        let before = self.in_real_time.fetch_add(bytes.0, Ordering::Relaxed);
        self.real_time.serve(curve, before, bytes);
    }

    /// Gives back `bytes` that it was served and has not sent.
    pub(super) fn give_back(&self, curves: &Curves, bytes: Bytes) {
        let before = self.total.fetch_sub(bytes.0, Ordering::Relaxed).wrapping_sub(bytes.0);
        for (progress, curve) in
            [(&self.link_share, &curves.link_share), (&self.upper_limit, &curves.upper_limit)]
        {
            if let Some(curve) = curve {
                progress.take_back(curve, before, bytes);
            }
        }
    }

    /// Takes back `bytes` that a leaf was served by its real-time curve.
    pub(super) fn give_back_in_real_time(&self, curve: &Curve, bytes: Bytes) {
        let before = self.in_real_time.fetch_sub(bytes.0, Ordering::Relaxed);
        self.real_time.take_back(curve, before.wrapping_sub(bytes.0), bytes);
    }

    /// An upper limit holds it up, its own or those of all the classes below it, so others need not
    /// wait for it.
    #[inline]
    pub(super) fn withdraw(&self, now: u64) {
        if let Some(parent) = self.parent.as_ref().filter(|parent| parent.is_shared()) {
            parent.waiting.stop_waiting(self.virtual_time(), Nanos(now));
        }
    }

    /// Its virtual time, after it has been served. One that its upper limit has held up does not
    /// catch up with what the others have had meanwhile.
    #[inline]
    pub(super) fn advance(&self, curve: &Curve) -> u64 {
        let adjustment = self.adjustment.load(Ordering::Relaxed);
        let mut time = self.link_share.reached(curve).wrapping_add(adjustment);
        if let Some(parent) = &self.parent {
            let mut least = parent.least.load(Ordering::Relaxed);
            if least != 0 && parent.is_shared() {
                // On other queues others may be ahead by as much as they may.
                let lag = Bytes(LAG_LEADS * LEAD.0);
                least = least.wrapping_sub(curve.byte_time().span(0, lag).0);
            }
            if least != 0 && is_before(time, least) {
                let more = adjustment.wrapping_add(least.wrapping_sub(time));
                self.adjustment.store(more, Ordering::Relaxed);
                time = least;
            }
        }
        let before = self.virtual_time();
        self.virtual_time.store(time, Ordering::Relaxed);
        if let Some(parent) = self.parent.as_ref().filter(|parent| parent.is_shared()) {
            parent.waiting.moves(before, time);
        }
        time
    }

    /// A class below it is next, at this virtual time. With a `lead`, others on other queues may be
    /// behind by so much or more.
    #[inline]
    pub(super) fn serves(&self, virtual_time: u64, lead: u64, now: u64) {
        let mut time = virtual_time.wrapping_sub(lead);
        if lead > 0
            && let Some(hindmost) = self.waiting.hindmost(Nanos(now))
        {
            time = earlier(time, hindmost);
        }
        let least = self.least.load(Ordering::Relaxed);
        if least == 0 || is_before(least, time) {
            self.least.store(time, Ordering::Relaxed);
        }
    }
}

/// The weight of a class among those that wait beside it, so that virtual time is in nanoseconds.
#[inline]
pub(super) fn weight(curve: &Curve) -> u64 {
    let weight = (1u128 << 64) / u128::from(curve.byte_time().word().max(1));
    u64::try_from(weight).unwrap_or(u64::MAX).max(1)
}

/// The later of two fit times.
#[inline]
pub(super) fn both(one: u64, other: u64) -> u64 {
    // A fit time of 0 is now.
    if one == 0 || other == 0 { one.max(other) } else { later(one, other) }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use narrows_units::Rate;

    const NOW: u64 = 1_000_000_000;
    const PACKET: Bytes = Bytes(1_000);

    fn curves() -> Curves {
        let line = Curve::of(hfsc::Curve::line(Rate::from_bits_per_sec(8_000_000)));
        Curves { link_share: Some(line), upper_limit: Some(line), ..Curves::default() }
    }

    /// A class below a root.
    fn class() -> (Arc<Class>, Arc<Class>) {
        let root = Arc::new(Class::default());
        (Arc::clone(&root), Arc::new(Class::new(Some(root), &curves())))
    }

    #[test]
    fn loom_two_queues_begin_and_end_a_period_together_or_one_each() {
        loom::model(|| {
            let (root, class) = class();
            let come_and_go = |class: &Class| {
                let begins = class.enter(&curves(), None, NOW);
                class.leave();
                u32::from(begins)
            };
            let other = {
                let class = Arc::clone(&class);
                thread::spawn(move || come_and_go(&class))
            };
            let begun = come_and_go(&class) + other.join().unwrap();
            assert!((1..=2).contains(&begun));
            assert_eq!(class.service().period, begun);
            let left = [&class.active, &root.children].map(|count| count.load(Ordering::Relaxed));
            assert_eq!(left, [0, 0], "it is active nowhere");
        });
    }

    #[test]
    fn loom_an_upper_limit_lets_a_packet_pass_once() {
        loom::model(|| {
            let (_, class) = class();
            class.enter(&curves(), None, NOW);
            let buy = |class: &Class| u32::from(class.sell(&curves(), PACKET, NOW));
            let other = {
                let class = Arc::clone(&class);
                thread::spawn(move || buy(&class))
            };
            let bought = buy(&class) + other.join().unwrap();
            assert_eq!(bought, 1, "the next one may pass a millisecond later");
            assert_eq!(class.fit_from(&curves()), NOW + 1_000_000);
        });
    }

    #[test]
    fn loom_service_of_two_queues_is_counted_once_each() {
        loom::model(|| {
            let (_, class) = class();
            class.enter(&curves(), None, NOW);
            let serve = |class: &Class| class.serve(&curves(), PACKET, true, NOW);
            let other = {
                let class = Arc::clone(&class);
                thread::spawn(move || serve(&class))
            };
            serve(&class);
            other.join().unwrap();
            assert_eq!(class.service().work, Bytes(2_000));
            assert_eq!(class.fit_from(&curves()), NOW + 2_000_000);
            assert_eq!(class.advance(&curves().link_share.unwrap()), 2_000_000);
        });
    }
}
