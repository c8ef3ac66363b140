//! The parameters of a class in a tree, and the interface through which a queue buys credit for it.

use crate::{Census, Spec, Weight};
use narrows_packet::Reading;
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use std::sync::Arc;

/// Priorities of classes, 0 being the first to borrow (`TC_HTB_NUMPRIO`).
pub const PRIORITIES: usize = 8;

/// The most classes one below the other, the leaf included.
pub const DEPTH_MAX: usize = 16;

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
    /// The distance from the leaf to the lender, in classes; 0 for the leaf's own credit.
    pub lender: u8,
}

/// What a refused class waits for together with others: each class above it, up to one, has a line
/// of those below that wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// The right by which it asks. At one class, requests with the same right are in one line: if
    /// one is refused, so are the others.
    pub rank: u8,
    /// In how many lines it must be the first: those of this many classes above it, starting with
    /// its parent.
    pub levels: u8,
    /// Whether it waits to borrow. If not, it has enough credit of its own.
    pub borrows: bool,
}

/// What a leaf class has of its own, for the queue that alone has a seat at it.
///
/// Most classes of a port are of this kind most of the time: one queue sends for them, and they
/// stay below their rates. Such a queue buys here and does not touch its seat. With thousands of
/// classes, whose seats are in no cache, that is a cache line less for each packet.
pub trait OwnCredit: Send + Sync {
    /// Sells `least` bytes at `now`, or up to `want`. `None` if the class has too little, if the
    /// classes above do not let it pass, or if another queue has a seat, too: then the queue asks
    /// at its seat.
    fn buy(&self, least: Bytes, want: Bytes, now: Nanos) -> Option<Bytes>;

    /// Takes back `bytes` of the last sale, which were not used.
    fn give_back(&self, bytes: Bytes);

    /// Prefetches what a sale touches of the class.
    fn expect(&self);

    /// The same of the class above it, after [`expect`](Self::expect).
    fn expect_above(&self);

    /// Starts to fetch, in order to write, what a sale writes here and above, where other queues
    /// have written since.
    fn expect_purchase(&self);
}

/// One queue's seat at one leaf class, while it has packets.
pub trait ClassMeter: Send {
    /// Asks for `want` bytes at `now`, or at least `least`: of the class's own credit or, if
    /// `borrow` is true, also of what the classes above lend.
    ///
    /// # Errors
    /// Not even `least`: when to ask again.
    fn buy(&mut self, least: Bytes, want: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos>;

    /// If a class above refused the last [`ClassMeter::buy`]: what this class waits for. `None` if
    /// the refusal concerns this class alone.
    fn line(&self) -> Option<Line> {
        None
    }

    /// Whether the last [`ClassMeter::buy`] was refused although the class has enough credit of its
    /// own: the classes above it did not let the purchase pass. Borrowing is of no use then.
    fn is_held(&self) -> bool {
        false
    }

    /// Instead of asking for `least` bytes at `now`, the class waits for what it waited for when it
    /// was last refused: with enough credit of its own (`held`, see [`ClassMeter::is_held`]), or
    /// without. Returns when it gets credit from a class less than `level` above it, as
    /// [`ClassMeter::due_below`]; `None` if it has to ask.
    fn waits_again(
        &mut self,
        _held: bool,
        _level: u8,
        _least: Bytes,
        _now: Nanos,
    ) -> Option<Nanos> {
        None
    }

    /// The number of its line at the class `level` above it (1 for the parent), and its turn there:
    /// lower turns ask first. Turns wrap.
    fn place_in_line(&self, _level: u8, _now: Nanos) -> (u64, u64) {
        (0, 0)
    }

    /// When the class, or one less than `level` above it, will have `least` bytes, or
    /// [`Nanos::MAX`] if it cannot say.
    fn due_below(&mut self, _level: u8, _least: Bytes, _now: Nanos) -> Nanos {
        Nanos::MAX
    }

    /// Prefetches the data that it shares with other queues.
    fn expect(&self) {}

    /// The same of the class above it, after [`expect`](Self::expect).
    fn expect_above(&self) {}

    /// As [`OwnCredit::expect_purchase`].
    fn expect_purchase(&self) {}

    /// Gives back `bytes` of the last grant, which were not used.
    fn give_back(&mut self, bytes: Bytes);

    /// Sets the queue's weight among the queues that send for the class. Strategies that serve
    /// queues in the order of their requests ignore it.
    fn weigh(&mut self, _weight: Weight) {}

    /// From `now` on, the queue's next packet for the class has this rank: better ranks go first on
    /// all queues of the class. Strategies that serve queues in the order of their requests ignore
    /// it.
    fn rank(&mut self, _rank: u8, _now: Nanos) {}

    /// A number that no other class of its tree has or had, for [`TreeMeter::is_seat_of`].
    fn seat_of(&self) -> u64 {
        0
    }

    /// Where the queue buys while it [buys alone](Self::buys_alone). `None` if it always asks here.
    fn own_credit(&self) -> Option<Arc<dyn OwnCredit>> {
        None
    }

    /// After a grant: whether the queue waits for nothing and alone has a seat, so that it can do
    /// without this one until [`OwnCredit::buy`] has nothing.
    fn buys_alone(&self) -> bool {
        false
    }

    /// Packets are queued here from now on, or no longer.
    fn set_active(&mut self, active: bool);

    /// Nothing is queued here now. If leaving at once changes nothing, neither for the other queues
    /// of the class nor for this one when it has packets again, it leaves as by
    /// [`ClassMeter::set_active`] and returns `true`.
    fn rests(&mut self) -> bool {
        false
    }

    /// The credit at `now` at the rate and at the ceiling; negative for debt. In nanoseconds, as
    /// `tc` shows tokens; of the class first, and then of those above it.
    fn tokens(&self, now: Nanos) -> Vec<[i64; 2]>;
}

/// A leaf class, as a queue sends for it.
pub struct Leaf {
    /// Its parameters.
    pub class: Class,
    /// The qdisc of its packets.
    pub qdisc: Spec,
}

/// Up to this many classes on a queue each ask for themselves, see [`TreeMeter::asking_alone`].
/// That costs little, and no class waits for another's turn.
const FEW: usize = 32;

/// One queue's seat at a tree.
pub trait TreeMeter: Send {
    /// How many classes on the queue each ask for themselves. If there are more, those that wait
    /// for the same lender form a line, and one asks for all.
    fn asking_alone(&self) -> usize {
        FEW
    }

    /// The class `id`, if there is one and no class is below it.
    fn leaf(&self, id: u32) -> Option<Leaf>;

    /// The queue's seat at the class `id`, if there is one.
    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>>;

    /// The queue's seat at the census of the class `id`, for a qdisc that shares by host or class.
    /// `None` if no other queue sends for it.
    fn census(&self, _id: u32) -> Option<Box<dyn Census>> {
        None
    }

    /// Whether other queues have a seat at the tree, too.
    fn has_others(&self) -> bool {
        false
    }

    /// Whether [`ClassMeter::seat_of`] of a seat is the present class `id`.
    fn is_seat_of(&self, _seat: u64, _id: u32) -> bool {
        false
    }

    /// The classes that were added, removed or changed since the last call; `None` if any may have.
    fn changes(&mut self) -> Option<Vec<u32>> {
        None
    }

    /// The packet fields that the qdiscs below any class read.
    fn reading(&self) -> Reading;
}
