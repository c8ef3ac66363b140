//! What is offered to the shaper.
//!
//! Traffic is either open-loop (it comes whatever happens; each queue has a [`Source`] of it)
//! or closed-loop (it answers to what arrives at the other end: [`ClosedLoop`]).

use crate::setup::Setup;
use narrows_units::Nanos;

/// A packet that comes in at the shaper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// When.
    pub at: Nanos,
    /// On which queue.
    pub queue: usize,
    /// Of which flow: counted through all traffic of a run.
    pub flow: u32,
    /// Frame length in bytes.
    pub len: u32,
    /// Means something to whoever sent it.
    pub tag: u64,
    /// Can be marked instead of dropped.
    pub ect: bool,
}

/// Open-loop traffic on one queue, in the order of time.
pub trait Source {
    /// When the next packet comes; [`Nanos::MAX`] if none ever does.
    fn next_at(&self) -> Nanos;

    /// Takes it. Only if [`Source::next_at`] is not [`Nanos::MAX`].
    fn take(&mut self) -> Offer;
}

/// A packet that has come out of the next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// As it was offered.
    pub offer: Offer,
    /// Whether it has been marked on the way (ECN CE).
    pub marked: bool,
}

/// Traffic that answers to what is delivered.
pub trait ClosedLoop {
    /// When it wants to act; [`Nanos::MAX`] if only a delivery can change anything.
    fn next_at(&self) -> Nanos;

    /// Acts at `now`: appends what it sends to `offers`, each to come in at `now` or later.
    fn act(&mut self, now: Nanos, offers: &mut Vec<Offer>);

    /// Hears that a packet of one of its flows came out of the next hop at `now`. (A packet
    /// that is dropped is simply never delivered.)
    fn delivered(&mut self, delivery: &Delivery, now: Nanos);
}

/// All traffic of a run.
pub struct Load {
    /// By queue.
    pub sources: Vec<Box<dyn Source>>,
    /// Each with its flows: the first number, and how many.
    pub closed: Vec<(std::ops::Range<u32>, Box<dyn ClosedLoop>)>,
    /// By flow: the index of its group in [`Setup::traffic`].
    pub groups: Vec<u16>,
}

/// Makes the traffic of `setup`.
pub fn load(_setup: &Setup) -> Load {
    todo!()
}
