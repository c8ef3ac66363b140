//! A queue's meter at a class: Algorithm 1 of the paper, for departing packets.

use super::epoch::Bucket;
use super::graph::Graph;
use narrows_qdisc::htb::{ClassMeter, Grant};
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;

/// One queue's meter at a class, which takes tokens from its bucket or from a lender's.
pub(super) struct QueueMeter {
    graph: Arc<Graph>,
    place: usize,
    /// The last lender; the class itself if there was none.
    lender: usize,
}

/// Takes `want` from `bucket`, or at least `least`.
fn meter(bucket: &Bucket, least: Bytes, want: Bytes) -> Option<Bytes> {
    if want > least && bucket.meter(want) {
        return Some(want);
    }
    bucket.meter(least).then_some(least)
}

impl QueueMeter {
    pub(super) fn new(graph: Arc<Graph>, place: usize) -> Self {
        Self { graph, place, lender: place }
    }

    /// Takes up to `want` bytes from the class itself or, if `borrow` is true, from a lender, which
    /// it returns.
    ///
    /// # Errors
    /// When the next of them is refilled.
    fn find(
        &self,
        least: Bytes,
        want: Bytes,
        borrow: bool,
        now: Nanos,
    ) -> Result<(usize, Grant), Nanos> {
        let own = &self.graph.node(self.place).state.own;
        if let Some(bytes) = meter(own, least, want) {
            return Ok((self.place, Grant::own(bytes)));
        }
        let mut next = own.next();
        if borrow {
            for (lender, steps) in self.graph.lenders(self.place) {
                self.graph.update_lent(lender, now);
                let shadow = &self.graph.node(lender).state.shadow;
                if let Some(bytes) = meter(shadow, least, want) {
                    return Ok((lender, Grant::lent(bytes, steps)));
                }
                next = next.min(shadow.next());
            }
        }
        Err(next)
    }

    /// Counts `bytes` at the class and at its ancestors.
    fn count(&self, bytes: i64) {
        for at in self.graph.path(self.place) {
            self.graph.node(at).state.count(bytes);
        }
    }
}

impl ClassMeter for QueueMeter {
    fn buy(&mut self, least: Bytes, want: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos> {
        // Another core may be about to fill a bucket whose epoch is over.
        let later = |next: Nanos| next.max(now + Nanos(1));
        self.graph.update(self.place, now);
        let node = self.graph.node(self.place);
        let mut want = want.max(least);
        if node.is_limited() {
            let ceil = &node.state.ceil;
            want = meter(ceil, least, want).ok_or_else(|| later(ceil.next()))?;
        }
        let found = self.find(least, want, borrow, now);
        let used = found.as_ref().map_or(Bytes::ZERO, |(_, grant)| grant.bytes);
        if node.is_limited() {
            node.state.ceil.put_back(want - used);
        }
        let (lender, grant) = found.map_err(later)?;
        self.lender = lender;
        self.count(used.0 as i64);
        Ok(grant)
    }

    fn give_back(&mut self, bytes: Bytes) {
        self.count(-(bytes.0 as i64));
        let node = self.graph.node(self.place);
        if node.is_limited() {
            node.state.ceil.put_back(bytes);
        }
        let lender = &self.graph.node(self.lender).state;
        let bucket = if self.lender == self.place { &lender.own } else { &lender.shadow };
        bucket.put_back(bytes);
    }

    /// FlowValve has no queues, so activity does not matter.
    fn set_active(&mut self, _: bool) {}

    fn tokens(&self, _: Nanos) -> Vec<[i64; 2]> {
        let nanos = |bucket: &Bucket| {
            let rate = i128::from(bucket.rate().max(1));
            let nanos = i128::from(bucket.tokens()) * 1_000_000_000 / rate;
            i64::try_from(nanos).unwrap_or(i64::MAX)
        };
        let tokens = |at: usize| {
            let node = self.graph.node(at);
            let own = nanos(&node.state.own);
            [own, if node.is_limited() { nanos(&node.state.ceil) } else { own }]
        };
        self.graph.path(self.place).map(tokens).collect()
    }
}
