//! The load offered to the shaper.
//!
//! Traffic is either open-loop (it arrives independently; each queue has a [`Source`] of it) or
//! closed-loop (it responds to what arrives at the other end: [`ClosedLoop`]).
//!
//! *Idea.* Everything is generated on demand. A queue's source merges a [`lane`] for each group, or
//! a [`replay`] of a trace; a lane merges [`slot`]s, places that flows send from. The placement of
//! flows follows from the seed alone ([`spread`], [`churn`]), so each queue computes it
//! independently.
//!
//! *Non-goals.* Arrivals that depend on each other over a long time (self-similar traffic).

mod backlogged;
mod churn;
pub(crate) mod headers;
mod lane;
mod merge;
mod pace;
mod replay;
pub(crate) mod seed;
mod sizes;
mod slot;
pub(crate) mod spread;
mod validate;

pub use validate::validate;

use crate::setup::{Kind, Setup};
use crate::tcp;
use backlogged::Backlogged;
use lane::Lane;
use merge::{Merge, Stream};
use narrows_packet::Headers;
use narrows_units::Nanos;
use replay::Replay;
use spread::Placing;
use std::sync::Arc;

/// A packet that arrives at the shaper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// When.
    pub at: Nanos,
    /// On which queue.
    pub queue: usize,
    /// Its flow, numbered over all traffic of a run.
    pub flow: u32,
    /// Frame length in bytes.
    pub len: u32,
    /// Defined by the sender.
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

/// A packet that has left the next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// As it was offered.
    pub offer: Offer,
    /// Whether it has been marked on the way (ECN CE).
    pub marked: bool,
}

/// Traffic that answers to what is delivered.
pub trait ClosedLoop {
    /// When it acts next; [`Nanos::MAX`] if only a delivery can change anything.
    fn next_at(&self) -> Nanos;

    /// Acts at `now`: appends the packets that it sends to `offers`, each arriving at `now` or
    /// later.
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
    /// By flow: what its packets say; flows that are not listed say nothing in particular.
    pub headers: Arc<[Headers]>,
}

/// Makes the traffic of `setup`, which [`validate`] accepts.
pub fn load(setup: &Setup) -> Load {
    let mut lanes: Vec<Vec<Stream>> = (0..setup.port.queues).map(|_| Vec::new()).collect();
    let mut closed = Vec::new();
    let mut groups = Vec::new();
    for (group, traffic) in setup.traffic.iter().enumerate() {
        let first = groups.len() as u32;
        groups.resize(groups.len() + traffic.flows as usize, group as u16);
        let placing = Placing {
            seed: setup.seed,
            group,
            flows: traffic.flows,
            queues: setup.port.queues,
            spread: traffic.spread.clone(),
        };
        if let Kind::Tcp { stack, control, rtt } = traffic.kind {
            let flows = tcp::flows(setup, traffic, &placing, first, (stack, control, rtt));
            closed.push((first..first + traffic.flows, flows));
            continue;
        }
        if let Kind::Backlogged { pace, queued } = traffic.kind {
            let flows = Backlogged::new(traffic, &placing, first, (pace, queued));
            closed.push((first..first + traffic.flows, Box::new(flows)));
            continue;
        }
        let end = setup.run.end();
        for (queue, lanes) in (0u16..).zip(&mut lanes) {
            lanes.push(match traffic.kind {
                Kind::Trace { number, load } => {
                    let (trace, place) = (Arc::clone(&setup.traces[number]), (first, queue));
                    Stream::Replay(Replay::new(trace, load, traffic, &placing, place, end))
                }
                _ => {
                    let lane = Lane::new(traffic, placing.clone(), first, queue, end);
                    Stream::Lane(Box::new(lane))
                }
            });
        }
    }
    let source = |lanes| Box::new(Merge::new(lanes)) as Box<dyn Source>;
    Load {
        sources: lanes.into_iter().map(source).collect(),
        closed,
        groups,
        headers: headers::of_flows(setup).into(),
    }
}
