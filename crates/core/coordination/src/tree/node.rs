//! A class of the tree: its ledgers, and the groups of the classes below it.

use super::terms::{Batches, Bucket, Most, Portion, Terms};
use super::virtual_time::VirtualTimeGroup;
use crate::census;
use crate::ledger::Ledger;
use crate::sync::{AtomicBool, AtomicU16, AtomicU64, Ordering, fence};
use narrows_cpu::{prefetch, prefetch_to_write};
use narrows_qdisc::htb::{Class, PRIORITIES};
use narrows_qdisc::{Census, RANKS};
use narrows_units::{Bytes, Nanos};
use std::sync::{Arc, OnceLock};

/// A class has fewer hosts than a port.
type ClassCensus = census::Shared<256>;

/// Whether the class has ever been in the groups above it: a bit beside the number of handles. One
/// that never was need not be looked at closer when it has no more packets.
const HAS_BORROWED: u16 = 1 << 15;

/// One class, as all queues see it.
///
/// A purchase of what the class has of its own touches one cache line of it, and one of each class
/// above it; one that borrows, or that queues share, touches one more.
#[repr(C, align(64))]
pub(super) struct Node {
    pub(super) parent: Option<Arc<Self>>,
    pub(super) sales: Sales,
    pub(super) terms: Terms,
    /// How many queues have a handle at it, and [`HAS_BORROWED`].
    handles: AtomicU16,
    most: Most,
    batches: Batches,

    portion: Portion,
    /// Whether a queue is, or was, in a group of another rank than the first.
    has_ranks: AtomicBool,
    /// The weight and priority with which it is in the groups above it; 0 while it is not.
    entry: AtomicU64,
    /// The queues that send for it, of the first rank or without ranks.
    queues: VirtualTimeGroup,
    /// The parent, where no purchase below this class writes: so a core finds all classes above it
    /// without waiting for what other cores have written.
    above: Option<Arc<Self>>,

    /// What its queues have in common besides. Made with the first that needs it.
    common: OnceLock<Box<Common>>,
    /// The classes that borrow from it or from above it, by limit and priority. Made with the first
    /// of them.
    borrowers: OnceLock<Box<[[VirtualTimeGroup; PRIORITIES]; 2]>>,
    /// Its virtual times in the groups of its ancestors, by limit, the parent first.
    places: Box<[[AtomicU64; 2]]>,
    /// A number that no other node of the tree has or had.
    pub(super) serial: u64,
    /// Its number in the tree.
    pub(super) id: u32,
}

/// What a class sells to those below it. For each limit they are in groups of their own: what one
/// of them has borrowed from this class says nothing about what it has had of this class's ceiling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    /// What it lends. Only borrowers from this class are in these groups.
    Rate,
    /// What it lets pass. All borrowers from it or from above it do in these. Where rate and
    /// ceiling are equal, these count for both.
    Ceil,
}

impl Limit {
    pub(super) const BOTH: [Self; 2] = [Self::Rate, Self::Ceil];
}

/// What the queues of a class have in common where they have ranks, or share by host.
#[derive(Default)]
struct Common {
    /// The queues by the rank of what each sends next, those of the first rank left out.
    ranks: [VirtualTimeGroup; RANKS - 1],
    /// Made for the first that asks.
    census: OnceLock<Arc<ClassCensus>>,
}

/// What it has sold.
#[derive(Default)]
pub(super) struct Sales {
    /// If rate and ceiling are equal, the ceiling's ledger is for both.
    pub(super) rate: Ledger,
    pub(super) ceil: Ledger,
}

impl Node {
    pub(super) fn new(id: u32, serial: u64, class: &Class, parent: Option<Arc<Self>>) -> Self {
        let depth = parent.as_ref().map_or(0, |parent| parent.places.len() + 1);
        let places = (0..depth).map(|_| Default::default()).collect();
        Self {
            id,
            serial,
            above: parent.clone(),
            parent,
            terms: Terms::new(class),
            portion: Portion::new(class),
            sales: Sales::default(),
            handles: AtomicU16::default(),
            has_ranks: AtomicBool::default(),
            most: Most::new(class),
            batches: Batches::new(class),
            entry: AtomicU64::default(),
            queues: VirtualTimeGroup::default(),
            borrowers: OnceLock::new(),
            places,
            common: OnceLock::new(),
        }
    }

    /// Applies the class's new parameters.
    pub(super) fn set(&self, class: &Class) {
        self.terms.set(class);
        self.portion.set(class);
        self.most.set(class);
        self.batches.set(class);
    }

    /// Prefetches what a purchase of its own credit touches.
    #[inline]
    pub(super) fn prefetch_own(&self) {
        prefetch(self);
    }

    /// Prefetches what a purchase touches besides where several queues send for the class.
    #[inline]
    pub(super) fn prefetch_shared(&self) {
        prefetch(&self.portion);
    }

    /// Starts to fetch all that a purchase writes, of this class and those above it. Otherwise each
    /// class would be waited for after the one below it, where other cores have bought since.
    /// A core that alone has bought only pays for it: what it wrote, it still has.
    #[inline]
    pub(super) fn expect_purchase(&self) {
        let path = std::iter::successors(Some(self), |node| node.above.as_deref());
        path.for_each(|node| prefetch_to_write(&node.sales));
    }

    /// The most that may be bought at once.
    #[inline]
    pub(super) fn most(&self) -> Bytes {
        self.most.get()
    }

    /// For how much of this limit it waits that wants `want`, or `least`.
    #[inline]
    pub(super) fn batch(&self, limit: Limit, least: Bytes, want: Bytes) -> Bytes {
        let most = self.batches.get(limit);
        if want <= most || least >= most || least == Bytes::ZERO {
            return want.min(most).max(least);
        }
        // Packets are likely to be alike: what is not used has to be given back.
        Bytes(most.0 / least.0 * least.0)
    }

    /// Its weight in the groups above it, in bytes; at least one.
    #[inline]
    pub(super) fn quantum(&self) -> u32 {
        self.portion.quantum()
    }

    /// Its priority, below [`PRIORITIES`].
    #[inline]
    pub(super) fn prio(&self) -> usize {
        self.portion.prio()
    }

    /// How many classes are above it.
    #[inline]
    pub(super) fn depth(&self) -> usize {
        self.places.len()
    }

    /// The groups for `limit` of the classes below it, by priority.
    #[inline]
    pub(super) fn borrowers(&self, limit: Limit) -> &[VirtualTimeGroup; PRIORITIES] {
        &self.borrowers.get_or_init(Box::default)[limit as usize]
    }

    /// The limit in whose groups the classes below it are for `limit`.
    #[inline]
    pub(super) fn counted(&self, limit: Limit) -> Limit {
        if self.rate_apart().is_some() { limit } else { Limit::Ceil }
    }

    /// Its queues of which the next packet has this rank.
    #[inline]
    pub(super) fn queues(&self, rank: usize) -> &VirtualTimeGroup {
        if rank == 0 { &self.queues } else { self.queues_behind(rank - 1) }
    }

    /// Those of a rank behind the first.
    #[inline(never)]
    fn queues_behind(&self, at: usize) -> &VirtualTimeGroup {
        let ranks = &self.common().ranks;
        if !self.has_ranks() {
            self.has_ranks.store(true, Ordering::Relaxed);
        }
        &ranks[at]
    }

    /// Whether the next packet of any queue has, or ever had, another rank than the first.
    #[inline]
    pub(super) fn has_ranks(&self) -> bool {
        self.has_ranks.load(Ordering::Relaxed)
    }

    /// Whether no queue is in its groups. If two leave groups of different ranks at once, or one of
    /// them was in none, at least one sees this, and what the other did above: each has done that
    /// and left its group before the fence, and checks after it.
    fn is_idle(&self) -> bool {
        fence(Ordering::SeqCst);
        let ranks = if self.has_ranks() { RANKS } else { 1 };
        (0..ranks).all(|rank| self.queues(rank).is_empty())
    }

    /// A queue takes a handle.
    pub(super) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// A queue drops its handle.
    pub(super) fn remove_handle(&self) {
        self.handles.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether several queues have a handle. Of two that take one, the later one sees this at once.
    /// The other may see it a moment late. Until then it is not in the group of the queues,
    /// which decides shares and not the sum.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.handles.load(Ordering::Relaxed) & !HAS_BORROWED > 1
    }

    /// A handle at its queues' census.
    pub(super) fn census(&self) -> Box<dyn Census> {
        Box::new(Arc::clone(self.common().census.get_or_init(ClassCensus::new)).handle())
    }

    fn common(&self) -> &Common {
        self.common.get_or_init(Box::default)
    }

    /// The class and its ancestors.
    #[inline]
    pub(super) fn path(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |node| node.parent.as_deref())
    }

    /// Whether `ceil`, its ceiling, holds nothing up that the class above lets pass: that one's is
    /// no higher and its bucket no deeper, so it is empty first. If it is not its rate, too, it is
    /// not sold at all, which saves a word that all queues write. So it is whole where a change of
    /// either class makes it count.
    #[inline]
    pub(super) fn is_covered(&self, ceil: Bucket) -> bool {
        self.parent.as_deref().is_some_and(|above| ceil.covers(above.terms.ceil()))
    }

    /// The ledger of its rate, if that differs from the ledger of its ceiling.
    #[inline]
    pub(super) fn rate_apart(&self) -> Option<(&Ledger, Bucket)> {
        let (rate, ceil) = (self.terms.rate(), self.terms.ceil());
        (rate != ceil).then_some((&self.sales.rate, rate))
    }

    /// The ledger of its rate.
    #[inline]
    pub(super) fn rate(&self) -> (&Ledger, Bucket) {
        self.rate_apart().unwrap_or((&self.sales.ceil, self.terms.ceil()))
    }

    /// Charges `bytes` that left elsewhere.
    pub(super) fn owe(&self, bytes: Bytes, now: Nanos) {
        let bucket = self.terms.ceil();
        self.sales.ceil.owe(bucket.pace.span(0, bytes), now);
        if let Some((rate, bucket)) = self.rate_apart() {
            rate.owe(bucket.pace.span(0, bytes), now);
        }
    }

    /// Up to when its rate and its ceiling are sold; `None` if the credit of both is whole.
    pub(super) fn spent(&self, now: Nanos) -> Option<[Nanos; 2]> {
        let ceil = self.sales.ceil.spent(self.terms.ceil().depth, now);
        let rate = self.rate_apart().and_then(|(rate, bucket)| rate.spent(bucket.depth, now));
        (rate.is_some() || ceil.is_some()).then(|| [rate, ceil].map(Option::unwrap_or_default))
    }

    /// The inverse, before any queue buys.
    pub(super) fn resume(&self, [rate, ceil]: [Nanos; 2]) {
        self.sales.rate.resume(rate);
        self.sales.ceil.resume(ceil);
    }

    /// Its virtual time in the groups for `limit` of the class `steps` above it.
    #[inline]
    pub(super) fn place(&self, steps: usize, limit: Limit) -> &AtomicU64 {
        &self.places[steps - 1][limit as usize]
    }

    /// The value of [`place`](Self::place) now.
    #[inline]
    pub(super) fn time(&self, steps: usize, limit: Limit) -> u64 {
        self.place(steps, limit).load(Ordering::Relaxed)
    }

    /// The credit at `now` at rate and ceiling, of the class first and then of those above it, in
    /// nanoseconds.
    pub(super) fn tokens(&self, now: Nanos) -> Vec<[i64; 2]> {
        let tokens = |at: &Self| {
            let (ledger, bucket) = at.rate();
            [ledger.level(bucket.depth, now), at.sales.ceil.level(at.terms.ceil().depth, now)]
        };
        self.path().map(tokens).collect()
    }

    /// Joins the groups above it.
    #[inline]
    pub(super) fn enter(&self) {
        let entry = u64::from(self.quantum()) << 3 | self.prio() as u64;
        if self.entry.load(Ordering::Relaxed) != entry {
            self.handles.fetch_or(HAS_BORROWED, Ordering::Relaxed);
            self.exchange(entry);
        }
    }

    /// Whether it is in them.
    #[inline]
    pub(super) fn has_entered(&self) -> bool {
        self.handles.load(Ordering::Relaxed) & HAS_BORROWED != 0
            && self.entry.load(Ordering::Relaxed) != 0
    }

    /// Leaves these groups for a queue that no longer sends for it, if no other is in its own. The
    /// last one that does knows what the others did before they left (see
    /// [`VirtualTimeGroup::leave`]): so it knows that the class has entered. Another queue that
    /// still has packets enters again with its next purchase.
    pub(super) fn retire(&self) {
        if (!self.is_shared() || self.is_idle()) && self.has_entered() {
            self.exchange(0);
        }
    }

    /// The queue that exchanges the entry takes back exactly what the entry had added. Another
    /// queue may enter at the same moment and find itself retired: it enters again with its next
    /// purchase.
    #[cold]
    fn exchange(&self, entry: u64) {
        let before = self.entry.swap(entry, Ordering::Relaxed);
        let parts = |entry: u64| (entry >> 3, (entry & 7) as usize);
        let above = self.path().enumerate().skip(1);
        for ((steps, above), limit) in above.flat_map(|one| Limit::BOTH.map(|limit| (one, limit))) {
            let groups = above.borrowers(limit);
            if before != 0 {
                let (weight, prio) = parts(before);
                let _: bool = groups[prio].leave(weight);
            }
            if entry != 0 {
                let (weight, prio) = parts(entry);
                groups[prio].join(weight);
                let place = self.place(steps, limit);
                let from = groups[prio].start(place.load(Ordering::Relaxed), weight);
                place.store(from, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn a_purchase_touches_one_cache_line_of_a_class_and_one_more_to_borrow() {
        assert_eq!(offset_of!(Node, portion), 64);
        assert_eq!(offset_of!(Node, common), 2 * 64);
        assert_eq!(size_of::<Node>(), 3 * 64);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use narrows_units::{Bytes, Rate, wire::Overhead};

    fn class(parent: Option<u32>) -> Class {
        let rate = Rate::from_bits_per_sec(1_000_000);
        let burst = Bytes(10_000);
        let (cburst, overhead) = (burst, Overhead::NONE);
        Class { parent, rate, ceil: rate, burst, cburst, prio: 0, quantum: 1_000, overhead }
    }

    #[test]
    fn loom_the_last_queue_to_leave_retires_the_class_at_any_rank() {
        loom::model(|| {
            let root = Arc::new(Node::new(1, 1, &class(None), None));
            let node = Arc::new(Node::new(2, 2, &class(Some(1)), Some(Arc::clone(&root))));
            node.queues(0).join(1_000);
            node.queues(1).join(1_000);
            node.enter();
            let leave = |node: &Node, rank| {
                if node.queues(rank).leave(1_000) {
                    node.retire();
                }
            };
            let other = {
                let node = Arc::clone(&node);
                thread::spawn(move || leave(&node, 1))
            };
            leave(&node, 0);
            other.join().unwrap();
            assert!(root.borrowers(Limit::Ceil)[0].is_empty());
        });
    }
}
