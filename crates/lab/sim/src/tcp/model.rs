//! Many TCP flows, over whole segments.
//!
//! One heap has an entry for each flow's own deadline and one for each acknowledgement that is
//! on its way. A deadline that has moved is looked at again when its entry comes up, so that an
//! acknowledgement costs one entry and no search.

use crate::setup::Control;
use crate::tcp::sender::Sender;
use crate::tcp::{Group, control, tag};
use crate::traffic::{ClosedLoop, Delivery, Offer};
use narrows_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A group of flows.
pub(crate) struct Model {
    group: Group,
    /// By flow of the group.
    senders: Vec<Sender>,
    events: BinaryHeap<Reverse<(Nanos, u32, Event)>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The flow begins, or its deadline may have come.
    Wake,
    /// An acknowledgement arrives: of which transmission (its low half), and whether it was marked.
    Ack(u32, bool),
}

impl Model {
    /// The flows of `group`.
    pub(crate) fn new(group: Group, control: Control) -> Self {
        let starts = (0..).zip(&group.starts);
        let sender = |_| Sender::new(control::new(control), group.ecn);
        Self {
            events: starts.map(|(flow, &start)| Reverse((start, flow, Event::Wake))).collect(),
            senders: group.starts.iter().map(sender).collect(),
            group,
        }
    }
}

impl ClosedLoop for Model {
    fn next_at(&self) -> Nanos {
        match self.events.peek() {
            Some(&Reverse((at, ..))) if at < self.group.stop => at,
            _ => Nanos::MAX,
        }
    }

    fn act(&mut self, now: Nanos, offers: &mut Vec<Offer>) {
        while self.next_at() <= now {
            let Some(Reverse((_, flow, event))) = self.events.pop() else { return };
            let sender = &mut self.senders[flow as usize];
            match event {
                Event::Wake => sender.expire(now),
                Event::Ack(transmission, marked) => sender.acked(transmission, marked, now),
            }
            let ect = sender.marks();
            while let Some((segment, transmission)) = sender.send(now) {
                offers.push(Offer {
                    at: now,
                    queue: usize::from(self.group.queue_of[flow as usize]),
                    flow: self.group.first + flow,
                    len: self.group.frame,
                    tag: tag(segment, transmission),
                    ect,
                });
            }
            if event == Event::Wake {
                self.events.push(Reverse((sender.deadline(), flow, Event::Wake)));
            }
        }
    }

    fn delivered(&mut self, delivery: &Delivery, now: Nanos) {
        let flow = delivery.offer.flow - self.group.first;
        let ack = Event::Ack(delivery.offer.tag as u32, delivery.marked);
        self.events.push(Reverse((now + self.group.rtt, flow, ack)));
    }
}
