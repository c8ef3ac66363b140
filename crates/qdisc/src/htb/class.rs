//! What a class of a tree is to be, and how a queue asks for what it may send.

use crate::Spec;
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

/// One queue's seat at one leaf class, while it has something to send.
pub trait ClassMeter: Send {
    /// Asks for `want` bytes at `now`, or for `least` of them where there are not more: of what the
    /// class itself has, or, where `borrow` is true, of what those above it lend as well.
    ///
    /// # Errors
    /// Not even `least`: when to ask again.
    fn buy(&mut self, least: Bytes, want: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos>;

    /// Gives back `bytes` of the last grant, which were not used.
    fn give_back(&mut self, bytes: Bytes);

    /// Something is queued here from now on, or nothing any more.
    fn set_active(&mut self, active: bool);

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

/// One queue's seat at a tree.
pub trait TreeMeter: Send {
    /// The class `id`, if there is one and no class is below it.
    fn leaf(&self, id: u32) -> Option<Leaf>;

    /// The queue's seat at the class `id`, if there is one.
    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>>;

    /// What the qdiscs below any of the classes want to know of packets.
    fn reading(&self) -> Reading;
}
