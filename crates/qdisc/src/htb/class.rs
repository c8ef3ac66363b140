//! What a class of a tree is to be, and how a queue asks for what it may send.

use crate::{Census, Spec, Weight};
use narrows_packet::Reading;
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};

/// Priorities of classes, 0 being the first to borrow (`TC_HTB_NUMPRIO`).
pub const PRIORITIES: usize = 8;

/// The most classes one below the other, the leaf included.
pub const DEPTH_MAX: usize = 16;

/// The parameters of a class, as `tc-htb(8)` has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    /// The class above it; `None` at the root.
    pub parent: Option<u32>,
    /// What it gets whatever others do.
    pub rate: Rate,
    /// What it never exceeds.
    pub ceil: Rate,
    /// How much may leave at once at `rate` after a pause.
    pub burst: Bytes,
    /// The same at `ceil`.
    pub cburst: Bytes,
    /// Who borrows first: 0 before 7.
    pub prio: u8,
    /// In what proportion classes of the same priority share what they borrow.
    pub quantum: u32,
    /// What a frame is charged.
    pub overhead: Overhead,
}

/// What a queue has been granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// How much.
    pub bytes: Bytes,
    /// How many classes above the leaf the one stands that lends it; 0 where the leaf itself has
    /// it.
    pub lender: u8,
}

/// What a class that was refused waits for, where others wait for the same: at each of the classes
/// above it up to one there is a line of those below that want it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// By what right it asks: at one class, those that ask by the same stand in one line. Where one
    /// of them is refused, so are the others.
    pub rank: u8,
    /// In how many lines it has to be the first: those of so many classes above it, its parent's
    /// before all.
    pub levels: u8,
    /// Whether what it waits for is lent. If not, it has of its own what it needs.
    pub borrows: bool,
}

/// One queue's seat at one leaf class, while it has something to send.
pub trait ClassMeter: Send {
    /// Asks for `want` bytes at `now`, or for `least` of them where there are not more: of what the
    /// class itself has, or, where `borrow` is true, of what those above it lend as well.
    ///
    /// # Errors
    /// Not even `least`: when to ask again.
    fn buy(&mut self, least: Bytes, want: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos>;

    /// Where somebody above the class refused the last [`ClassMeter::buy`], with `borrow`: what is
    /// waited for. `None` where it is a matter of this class alone.
    fn line(&self) -> Option<Line> {
        None
    }

    /// What its line at the class `level` above it is called, the parent being 1, and its turn
    /// there: whose is lower asks first. Turns wrap.
    fn place_in_line(&self, _level: u8, _now: Nanos) -> (u64, u64) {
        (0, 0)
    }

    /// When the class, or one less than `level` above it, will have `least` bytes, or
    /// [`Nanos::MAX`] where it cannot say.
    fn due_below(&mut self, _level: u8, _least: Bytes, _now: Nanos) -> Nanos {
        Nanos::MAX
    }

    /// It will soon be asked: has what it shares with other queues brought near.
    fn expect(&self) {}

    /// Gives back `bytes` of the last grant, which were not used.
    fn give_back(&mut self, bytes: Bytes);

    /// The queue's part of the class weighs `weight` from now on, beside those of other queues that
    /// send for it. Strategies whose queues are served as they come ignore it.
    fn weigh(&mut self, _weight: Weight) {}

    /// What the queue sends next for the class is of this rank from `now` on: on all queues of the
    /// class, better ranks go first. Strategies whose queues are served as they come ignore it.
    fn rank(&mut self, _rank: u8, _now: Nanos) {}

    /// A number that no other class of its tree has or had, for [`TreeMeter::is_seat_of`].
    fn seat_of(&self) -> u64 {
        0
    }

    /// Something is queued here from now on, or nothing any more.
    fn set_active(&mut self, active: bool);

    /// Nothing is queued here now. Whether this may be made known at once and has been, as by
    /// [`ClassMeter::set_active`], because nothing changes by it: neither for the other queues of
    /// the class nor, when it has something again, for this one.
    fn rests(&mut self) -> bool {
        false
    }

    /// What is in credit at `now` at the rate and at the ceiling; negative where it is owed. In
    /// nanoseconds, as `tc` shows tokens; of the class first, and then of those above it.
    fn tokens(&self, now: Nanos) -> Vec<[i64; 2]>;
}

/// A leaf class, as a queue sends for it.
pub struct Leaf {
    /// Its parameters.
    pub class: Class,
    /// What its packets wait in.
    pub qdisc: Spec,
}

/// So many classes on a queue each ask for themselves, see [`TreeMeter::asking_alone`]. It costs
/// little, and nobody waits for another one's turn.
const FEW: usize = 32;

/// One queue's seat at a tree.
pub trait TreeMeter: Send {
    /// How many classes on the queue each ask for themselves. Where there are more, those that wait
    /// for the same lender stand in a line, of which the first one asks.
    fn asking_alone(&self) -> usize {
        FEW
    }

    /// The class `id`, if there is one and no class is below it.
    fn leaf(&self, id: u32) -> Option<Leaf>;

    /// The queue's seat at the class `id`, if there is one.
    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>>;

    /// The queue's seat at what the queues of the class `id` count together, for a qdisc that
    /// shares out by host or class. `None` where no other queue sends for it.
    fn census(&self, _id: u32) -> Option<Box<dyn Census>> {
        None
    }

    /// Whether [`ClassMeter::seat_of`] of a seat is that of the class `id` as it is now.
    fn is_seat_of(&self, _seat: u64, _id: u32) -> bool {
        false
    }

    /// The classes that came, went or changed since this was asked last; `None` where any may have.
    fn changes(&mut self) -> Option<Vec<u32>> {
        None
    }

    /// What the qdiscs below any of the classes want to know of packets.
    fn reading(&self) -> Reading;
}
