//! The limits that a fleet of boxes shares: what an agent orders.

use super::Instance;
use crate::clock;
use narrows_snapshot::{FleetFacts, FleetOrder};

impl Instance {
    /// Puts `order` in force, and says what has changed since the agent last asked.
    pub(crate) fn share(&mut self, order: &FleetOrder) -> FleetFacts {
        let gone = order.shares.iter().map(|share| share.name.clone()).collect();
        FleetFacts { now_ns: clock::since_boot(), gone, ..FleetFacts::default() }
    }
}
