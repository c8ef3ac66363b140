//! The parameters of a class in a tree, and the interface of what schedules the classes of a queue.

use crate::hfsc::Service;
use crate::{Census, Spec, Weight};
use narrows_packet::Reading;
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};

/// Priorities of classes, 0 being the first to borrow (`TC_HTB_NUMPRIO`).
pub const PRIORITIES: usize = 8;

/// The most classes one below the other, the leaf included.
pub const DEPTH_MAX: usize = 16;

/// How long a class without packets still counts as active, so that a sparse class does not come
/// and go with each packet.
pub const LINGER: Nanos = Nanos::from_millis(1);

/// The parameters of a class, as `tc-htb(8)` has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    /// The class above it; `None` at the root.
    pub parent: Option<u32>,
    /// Its assured rate.
    pub rate: Rate,
    /// The rate that it never exceeds.
    pub ceil: Rate,
    /// How much may leave at once at `rate` after a pause.
    pub burst: Bytes,
    /// The burst at `ceil`.
    pub cburst: Bytes,
    /// The priority for borrowing: 0 before 7.
    pub prio: u8,
    /// The proportion in which classes of the same priority share borrowed rate.
    pub quantum: u32,
    /// The charge of a frame.
    pub overhead: Overhead,
}

/// A grant to a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// How much.
    pub bytes: Bytes,
    /// How much of that is lent. What the leaf has of its own is used first.
    pub lent: Bytes,
    /// The distance from the leaf to the lender, in classes; 0 if nothing is lent.
    pub lender: u8,
}

impl Grant {
    /// Of the leaf's own credit.
    pub const fn own(bytes: Bytes) -> Self {
        Self { bytes, lent: Bytes::ZERO, lender: 0 }
    }

    /// Of what the class `lender` above the leaf lends; of its own credit if that is 0.
    pub const fn lent(bytes: Bytes, lender: u8) -> Self {
        Self { bytes, lent: if lender == 0 { Bytes::ZERO } else { bytes }, lender }
    }
}

/// A leaf class, as a queue sends for it.
pub struct Leaf {
    /// The charge of a frame.
    pub overhead: Overhead,
    /// How many bytes it may send in a turn, if there is credit.
    pub quantum: u32,
    /// The qdisc of its packets.
    pub qdisc: Spec,
}

impl Leaf {
    /// The leaf of a class with these parameters.
    pub const fn of(class: &Class, qdisc: Spec) -> Self {
        Self { overhead: class.overhead, quantum: class.quantum, qdisc }
    }
}

/// What a class has after its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// More packets: what the next one costs, and what the whole turn would cost, if that is known.
    More(Option<(Bytes, Bytes)>),
    /// No packets.
    Empty,
    /// Packets that its qdisc holds back until then.
    Held(Nanos),
}

/// What is fetched of a class before its turn, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Its own cache lines.
    Leaf,
    /// What they point to: its state in the tree, and a qdisc that is no FIFO.
    Parts,
    /// What these point to: the state of the class above it, and its first packet.
    Turn,
}

/// The classes of one queue: which of them sends next, and how much.
///
/// The queue has the packets, and a place for each class that it sends for. This has the classes'
/// credit and their order. A class of which a packet [has come](Self::arrived) gets a
/// [turn](Self::next), in which it asks for [credit](Self::acquire). If it gets none it waits, for
/// whatever that is, until its next turn.
pub trait Scheduler: Send {
    /// The class `id`, if there is one and no class is below it.
    fn leaf(&self, id: u32) -> Option<Leaf>;

    /// The queue's part in the census of the class `id`, for a qdisc that shares by host or class.
    /// `None` if no other queue sends for it.
    fn census(&self, _id: u32) -> Option<Box<dyn Census>> {
        None
    }

    /// The classes that were added, removed or changed since the last call; `None` if any may have.
    fn changes(&mut self) -> Option<Vec<u32>> {
        None
    }

    /// The packet fields that the qdiscs below any class read.
    fn reading(&self) -> Reading;

    /// Sends for the class `id` at `place` from now on, which is the first one that is vacant or
    /// one behind the last. False if there is no such class.
    fn open(&mut self, place: u32, id: u32) -> bool;

    /// Sends for the class at `place` no longer. The place is vacant.
    fn close(&mut self, place: u32);

    /// Whether the class at `place` is the one that has its number now: it may have gone and come
    /// again.
    fn is_current(&self, _place: u32) -> bool {
        false
    }

    /// Applies new parameters of the class at `place`.
    fn retune(&mut self, place: u32);

    /// The class at `place` has packets.
    fn arrived(&mut self, place: u32);

    /// Whether the order depends on what packets [cost](Self::costs).
    fn needs_costs(&self) -> bool {
        false
    }

    /// The class at `place`, which had no packets, has one at `now` that costs `next`.
    fn costs(&mut self, place: u32, _next: Bytes, _now: Nanos) {
        self.arrived(place);
    }

    /// If the class at `place` waits, it need not: its next packet is another one.
    fn reconsider(&mut self, place: u32);

    /// The class at `place` has this weight among the queues that send for it.
    fn weigh(&mut self, _place: u32, _weight: Weight) {}

    /// The next packet of the class at `place` has this rank: better ranks go first on all queues
    /// of the class.
    fn rank(&mut self, _place: u32, _rank: u8, _now: Nanos) {}

    /// Charges `bytes` that left elsewhere to the topmost class that answers for the class `id`: as
    /// [`Meter::owe`](crate::Meter::owe) does. Schedulers that keep no limit at a topmost class
    /// ignore it.
    fn owe(&mut self, _id: u32, _bytes: Bytes, _now: Nanos) {}

    /// The queue sends at `now`.
    fn begin(&mut self, now: Nanos);

    /// The class that has its turn.
    fn next(&mut self, now: Nanos) -> Option<u32>;

    /// Asks for `want` bytes, or at least `least`, for the class at `place`, which has its turn. If
    /// there is no credit the turn is over, and the class waits.
    fn acquire(&mut self, place: u32, least: Bytes, want: Bytes, now: Nanos) -> Option<Grant>;

    /// Whether the class that got no credit lacks it. If not, its turn was to say what its next
    /// packet costs.
    fn lacks_credit(&self) -> bool {
        true
    }

    /// Ends the turn of the class at `place`, which has `unused` bytes of its grant.
    fn finish(&mut self, place: u32, unused: Bytes, then: Then, now: Nanos);

    /// The queue has sent. When it has to come again, if no packet arrives; `None` for never.
    fn end(&mut self, now: Nanos) -> Option<Nanos>;

    /// The credit of the class at `place` at `now`, at the rate and at the ceiling; negative for
    /// debt. In nanoseconds, as `tc` shows tokens; of the class first, and then of those above it.
    fn tokens(&self, place: u32, now: Nanos) -> Vec<[i64; 2]>;

    /// What the class at `place` has had, and then what those above it have had, where classes have
    /// service curves.
    fn service(&self, _place: u32) -> Vec<Service> {
        Vec::new()
    }

    /// Credit of the class `id` apart from packets, if it has such.
    fn meter(&self, _id: u32) -> Option<Box<dyn ClassMeter>> {
        None
    }

    /// Prefetches what the next turns need, if that is worth it, and tells `others` to do the same.
    fn look_ahead(&mut self, _others: &mut dyn FnMut(Stage, &[u32])) {}
}

/// Credit for a class, apart from packets: for models that have no queue.
pub trait ClassMeter: Send {
    /// Asks for `want` bytes at `now`, or at least `least`: of the class's own credit or, if
    /// `borrow` is true, also of what the classes above lend.
    ///
    /// # Errors
    /// Not even `least`: when to ask again.
    fn buy(&mut self, least: Bytes, want: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos>;

    /// Gives back `bytes` of the last grant, which were not used.
    fn give_back(&mut self, bytes: Bytes);

    /// Packets are queued here from now on, or no longer.
    fn set_active(&mut self, active: bool);

    /// The credit at `now`, as [`Scheduler::tokens`].
    fn tokens(&self, now: Nanos) -> Vec<[i64; 2]>;
}
