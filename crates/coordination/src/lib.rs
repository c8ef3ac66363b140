//! Who may send how much: the only state that workers share.
//!
//! A [`Limit`] is kept by several queues together. Each queue has a seat at it, a
//! [`Meter`](narrows_qdisc::Meter) that only its worker touches; what the seats need to know of
//! each other stands in a few cache lines that a [`Coordination`] owns. How they divide the
//! limit is a [`Strategy`].

use narrows_qdisc::Meter;
use narrows_qdisc::tbf::Peak;
use narrows_units::{Bytes, Nanos, Rate};
use std::sync::Arc;

/// How queues that share a limit divide it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// One bucket under a mutex.
    Lock,
    /// One departure clock advanced atomically, with a drop horizon.
    Edt,
    /// mq-cake as published.
    Equal {
        /// How long a queue relies on its last count of active siblings.
        sync_time: Nanos,
    },
}

/// What the queues keep together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The rate that is kept on average.
    pub rate: Rate,
    /// How much may leave at once after a pause.
    pub burst: Bytes,
    /// A rate that is never exceeded, not even by the burst.
    pub peak: Option<Peak>,
    /// How much may be queued, all queues together.
    pub backlog: Bytes,
}

/// A limit shared by a number of seats.
pub struct Coordination {
    _private: (),
}

impl Coordination {
    /// A limit for `seats` queues, divided by `strategy`.
    pub fn new(_strategy: Strategy, _limit: Limit, _seats: usize) -> Arc<Self> {
        todo!()
    }

    /// The seat of queue number `seat` (from 0). Each may be taken once at a time.
    pub fn seat(self: &Arc<Self>, _seat: usize) -> Box<dyn Meter> {
        todo!()
    }

    /// Sets another limit while packets flow. Seats follow at their next packet; credit and
    /// debt are carried over, capped to the new burst.
    pub fn set_limit(&self, _limit: Limit) {
        todo!()
    }
}
