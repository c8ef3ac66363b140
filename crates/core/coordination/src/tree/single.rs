//! Credit of one class apart from packets, for models that have no queue.

use super::buying::Lack;
use super::node::Node;
use super::queue_handle::QueueHandle;
use narrows_qdisc::htb::{ClassMeter, Grant};
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;

/// One class that buys without a queue.
pub(super) struct Single {
    handle: QueueHandle,
    lender: usize,
}

impl Single {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self { handle: QueueHandle::new(node), lender: 0 }
    }
}

impl ClassMeter for Single {
    fn buy(&mut self, least: Bytes, want: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos> {
        let Lack { mut until, .. } = match self.handle.buy_own(least, want, now) {
            Ok(bytes) => {
                self.lender = 0;
                return Ok(Grant::own(bytes));
            }
            Err(lack) => lack,
        };
        let lenders = if borrow { 1..self.handle.node.depth() + 1 } else { 0..0 };
        for lender in lenders {
            match self.handle.borrow(lender, least, want, now) {
                Ok(bytes) => {
                    self.lender = lender;
                    return Ok(Grant::lent(bytes, lender as u8));
                }
                Err(lack) => until = until.min(lack.until),
            }
        }
        Err(until)
    }

    fn give_back(&mut self, bytes: Bytes) {
        self.handle.give_back(self.lender, bytes);
    }

    fn set_active(&mut self, active: bool) {
        self.handle.set_active(active);
    }

    fn tokens(&self, now: Nanos) -> Vec<[i64; 2]> {
        self.handle.node.tokens(now)
    }
}
