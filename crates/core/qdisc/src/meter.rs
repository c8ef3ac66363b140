//! A queue's meter at a limit: it decides what a qdisc may send.
//!
//! A rate limit may belong to one queue or to a whole port with many. The qdisc does not need to
//! know which: it holds a [`Meter`] and asks. The `coordination` layer decides what is behind it: a
//! private bucket, a bucket under a lock, mq-cake's scan of its siblings.
//!
//! A strategy may decide when a packet arrives (EDT stamps it), when it leaves (a token bucket
//! charges it), or both. A qdisc calls both ends and so works with all of them.

use narrows_packet::Backlog;
use narrows_units::{Bytes, Nanos};

/// A meter's answer to a packet that wants to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// It may leave now, and has been charged.
    Granted,
    /// Not before this time; asking earlier is harmless. Nothing was charged.
    Wait(Nanos),
}

/// The part of the whole limit that a meter may count on at the moment, in 1/65536.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Share(pub u32);

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self(1 << 16);

    /// One part of `parts` equal ones (all of it for 0).
    pub const fn one_of(parts: u32) -> Self {
        Self(Self::WHOLE.0 / if parts == 0 { 1 } else { parts })
    }

    /// This share of `bytes`, rounded down.
    pub fn of(self, bytes: Bytes) -> Bytes {
        Bytes(((u128::from(bytes.0) * u128::from(self.0)) >> 16) as u64)
    }
}

/// A queue's weight when a limit is divided: twice the weight, twice the share. In 1/256, so that
/// it can be fractional (a host with flows on three queues counts for a third on each).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Weight(pub u32);

impl Weight {
    /// The default weight of a queue.
    pub const ONE: Self = Self(1 << 8);

    /// The weight of this many flows; at least that of one.
    pub(crate) fn of_flows(flows: u32) -> Self {
        Self(Self::ONE.0.saturating_mul(flows.max(1)))
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

/// How often a meter has touched cache lines that other cores write: the cost of coordination
/// beyond instructions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Contact {
    /// Lines read that a sibling writes.
    pub reads: u64,
    /// Atomic updates of lines that every meter writes; sections under a lock included.
    pub updates: u64,
    /// Sections under a lock that every meter takes.
    pub locked: u64,
}

/// The most that a limit owes for what passes no meter ([`Meter::owe`]), as a time at its rate.
/// Only after its rate was lowered there can be more.
pub const OWED_MAX: Nanos = Nanos::from_millis(100);

/// One queue's meter at a limit.
pub trait Meter: Send {
    /// A packet that will cost `cost` arrives: returns its earliest departure time, or `None` if
    /// that is beyond the strategy's horizon and the packet must be dropped. Strategies that decide
    /// at departure return [`Nanos::ZERO`].
    fn stamp(&mut self, cost: Bytes, now: Nanos) -> Option<Nanos>;

    /// The queue dropped packets that cost `cost` together and were stamped `edt` at the latest.
    /// Strategies that decide at departure have nothing to take back.
    fn unstamp(&mut self, _cost: Bytes, _edt: Nanos, _now: Nanos) {}

    /// Packets that this meter has not stamped are queued ahead of all later arrivals, and cost
    /// about `cost` more together. Strategies that decide at departure need not know.
    fn take_over(&mut self, _cost: Bytes) {}

    /// May a packet that costs `cost` and was stamped `edt` leave at `now`? Charges it if so.
    fn take(&mut self, cost: Bytes, edt: Nanos, now: Nanos) -> Take;

    /// Charges the limit for `bytes` that left without passing any of its meters since this was
    /// last called: as if they had left then, so what the limit could not store meanwhile pays for
    /// them first. The rest is a debt of all meters, of at most [`OWED_MAX`]. A strategy that
    /// ignores it exceeds its limit by what passes no meter.
    fn owe(&mut self, _bytes: Bytes, _now: Nanos) {}

    /// Publishes the remaining backlog. Called once per batch, after the last [`Meter::take`] of
    /// that batch, also when nothing is queued.
    fn report(&mut self, backlog: Backlog, now: Nanos);

    /// The part of the limit that this meter may count on; qdiscs size their own limits by it.
    fn share(&self) -> Share;

    /// The part of the burst that stores this meter's unused credit; the share, unless all meters
    /// share one bucket.
    fn part_of_burst(&self) -> Share {
        self.share()
    }

    /// The longest packet, as charged, that can ever be granted; longer ones are dropped on
    /// arrival instead of blocking those behind them.
    fn longest(&self) -> Bytes;

    /// A packet was dropped because the queue is full: its demand exceeds its send rate.
    fn overflowed(&mut self) {}

    /// Sets this queue's weight. Strategies without weights ignore it.
    fn weigh(&mut self, _weight: Weight) {}

    /// Whether requests from now on yield: they leave room for requests on other queues that do not
    /// yield, and let those go first. Off by default. Strategies without a reserve ignore it.
    fn yields(&mut self, _yields: bool) {}

    /// How often this meter has touched lines that others write.
    fn contact(&self) -> Contact {
        Contact::default()
    }
}
