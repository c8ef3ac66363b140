//! Whether the ports have a carrier.
//!
//! Without one the kernel accepts frames and drops them, so nothing waits and the queues show
//! nothing. The session continues all the same: a cable comes back. The device counts the packets
//! lost meanwhile (`narrows_link::DeviceLosses`).
//!
//! Many drivers drop the carrier for a moment when a program is attached or a ring changes. So a
//! lost carrier is reported only after two checks in a row, a second apart, have found it.

use crate::events::Events;
use narrows_forwarding::DeviceId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Carrier {
    #[default]
    Present,
    /// At the last check, and not before.
    Missing,
    /// And it was reported.
    Lost,
}

/// The carriers of all devices.
#[derive(Clone, Default)]
pub(crate) struct Carriers(BTreeMap<DeviceId, Carrier>);

impl Carriers {
    /// Checks whether `device`, called `name`, has a carrier, and reports changes. Called once per
    /// second.
    pub(crate) fn see(
        &mut self,
        device: DeviceId,
        name: &str,
        has_carrier: bool,
        events: &mut Events,
    ) {
        let carrier = self.0.entry(device).or_default();
        *carrier = match (*carrier, has_carrier) {
            (Carrier::Lost, true) => {
                events.say(format!("{name} has its carrier again"));
                Carrier::Present
            }
            (_, true) => Carrier::Present,
            (Carrier::Present, false) => Carrier::Missing,
            (Carrier::Missing, false) => {
                events.warn(format!(
                    "{name} has no carrier: packets sent there are lost in the kernel"
                ));
                Carrier::Lost
            }
            (Carrier::Lost, false) => Carrier::Lost,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_loss_of_carrier_and_its_end_are_reported() {
        let mut carriers = Carriers::default();
        let mut events = Events::default();
        for has_carrier in [true, false, true, false, false, false, true, true, false] {
            carriers.see(DeviceId::from(1), "eth2", has_carrier, &mut events);
        }
        carriers.see(DeviceId::FIRST, "eth1", true, &mut events);
        let list = events.list();
        assert_eq!(list.len(), 2, "{list:?}");
        assert!(list[0].contains("eth2 has no carrier"), "{list:?}");
        assert!(list[1].contains("eth2 has its carrier again"), "{list:?}");
    }
}
