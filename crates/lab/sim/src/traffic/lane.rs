//! One group of flows on one queue.
//!
//! The set of flows here changes when everything is spread anew and when flows end and begin; in
//! between, a heap knows whose packet is next. Memory: a slot for each flow that has been here at
//! the same time as others, never more than the group has flows.

use crate::setup::{Kind, Traffic};
use crate::traffic::Offer;
use crate::traffic::churn::Churn;
use crate::traffic::pace::{Pace, Share};
use crate::traffic::seed::{Purpose, generator};
use crate::traffic::sizes::Sizes;
use crate::traffic::slot::{Sending, Slot};
use crate::traffic::spread::Placing;
use narrows_units::Nanos;
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A group's packets on a queue.
pub(crate) struct Lane {
    queue: u16,
    /// Number of the group's first flow.
    first: u32,
    placing: Placing,
    sending: Sending,
    chance: Pcg64,
    /// Nothing comes from here on.
    until: Nanos,
    respread: Option<Nanos>,
    next_epoch: u64,
    churn: Option<Churn>,
    pace: Pace,
    ect: bool,
    slots: Vec<Slot>,
    /// When, which flow, and its slot.
    heap: BinaryHeap<Reverse<(Nanos, u32, u32)>>,
}

impl Lane {
    /// Of `traffic`, whose flows are numbered from `first` and placed by `placing`. Nothing
    /// comes from `end` on.
    pub(crate) fn new(
        traffic: &Traffic,
        placing: Placing,
        first: u32,
        queue: u16,
        end: Nanos,
    ) -> Self {
        let mut lane = Self {
            queue,
            first,
            sending: Sending { kind: traffic.kind, sizes: Sizes::new(&traffic.sizes) },
            chance: generator(placing.seed, placing.group, Purpose::Packets, u64::from(queue)),
            until: traffic.stop.min(end),
            respread: traffic.respread,
            next_epoch: traffic.respread.map_or(0, |every| traffic.start.0 / every.0),
            churn: traffic.lifetime.map(|mean| Churn::new(&placing, traffic.start, mean)),
            placing,
            pace: Pace::of_interval(Nanos::MAX),
            ect: traffic.headers.ecn,
            slots: Vec::new(),
            heap: BinaryHeap::new(),
        };
        lane.spread(traffic.start);
        lane.keep_up();
        lane
    }

    /// When the next packet comes; [`Nanos::MAX`] if none does.
    pub(crate) fn next_at(&self) -> Nanos {
        match self.heap.peek() {
            Some(&Reverse((at, ..))) if at < self.until => at,
            _ => Nanos::MAX,
        }
    }

    /// Takes it.
    pub(crate) fn take(&mut self) -> Option<Offer> {
        let mut top = self.heap.peek_mut()?;
        let Reverse((at, flow, slot)) = *top;
        let sender = &mut self.slots[slot as usize];
        let len = self.sending.send(sender, &mut self.chance);
        *top = Reverse((sender.at(), flow, slot));
        drop(top);
        self.keep_up();
        let (queue, flow) = (usize::from(self.queue), self.first + flow);
        Some(Offer { at, queue, flow, len, tag: 0, ect: self.ect })
    }

    /// Processes all events before the next packet.
    fn keep_up(&mut self) {
        loop {
            let packet = self.heap.peek().map_or(Nanos::MAX, |&Reverse((at, ..))| at);
            let spread = self
                .respread
                .map_or(Nanos::MAX, |every| Nanos(every.0.saturating_mul(self.next_epoch)));
            let churn = self.churn.as_ref().map_or(Nanos::MAX, Churn::at);
            let now = spread.min(churn);
            if now > packet || now >= self.until {
                return;
            }
            if spread <= churn { self.spread(now) } else { self.replace(now) }
        }
    }

    /// A new epoch begins.
    fn spread(&mut self, now: Nanos) {
        for slot in &mut self.slots {
            slot.leave(now.into());
        }
        let placement = self.placing.in_epoch(self.next_epoch);
        self.next_epoch += 1;
        self.pace = pace(self.sending.kind, placement.share_on[usize::from(self.queue)]);
        let queue = self.queue;
        let here = (0..).zip(&placement.queue_of).filter(|&(_, &q)| q == queue);
        for (place, (flow, _)) in here.enumerate() {
            self.enter(place, flow, now);
        }
        self.order();
    }

    /// A flow ends and another begins.
    fn replace(&mut self, now: Nanos) {
        let Some(churn) = &mut self.churn else { return };
        let (flow, queue) = churn.take(&self.placing);
        let place = self.slots.iter().position(|slot| slot.flow == Some(flow));
        match place {
            Some(place) if queue != self.queue => self.slots[place].leave(now.into()),
            None if queue == self.queue => {
                let empty = self.slots.iter().position(|slot| slot.flow.is_none());
                self.enter(empty.unwrap_or(self.slots.len()), flow, now);
            }
            _ => return,
        }
        self.order();
    }

    fn enter(&mut self, place: usize, flow: u32, now: Nanos) {
        let now = now.into();
        if place == self.slots.len() {
            self.slots.push(self.sending.empty_slot(now, self.pace, &mut self.chance));
        }
        self.sending.enter(&mut self.slots[place], flow, self.pace, now, &mut self.chance);
    }

    fn order(&mut self) {
        self.heap.clear();
        let slots = (0..).zip(&self.slots);
        self.heap.extend(
            slots.filter_map(|(place, slot)| Some(Reverse((slot.at(), slot.flow?, place)))),
        );
    }
}

/// How long a unit takes each flow that has `share` of the group's rate.
fn pace(kind: Kind, share: Share) -> Pace {
    match kind {
        Kind::Constant(rate)
        | Kind::Uneven(rate)
        | Kind::Poisson(rate)
        | Kind::OnOff { rate, .. } => Pace::of_rate(rate.bits_per_sec(), share),
        Kind::Ping { interval } => Pace::of_interval(interval),
        // These react to departures, or have times of their own.
        Kind::Tcp { .. } | Kind::Backlogged { .. } | Kind::Trace { .. } => {
            Pace::of_interval(Nanos::MAX)
        }
    }
}
