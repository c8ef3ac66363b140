//! The properties of a device when its ports are joined, and later changes; and those that a policy
//! depends on.

use crate::error::InstanceError;
use crate::upgrade::state::DeviceManifest;
use narrows_bpf::{Entry, Hook, OwnAddress};
use narrows_forwarding::PerDevice;
use narrows_link::{Device, DeviceLosses, Link, LinkError, QueueCounts, WayIn};
use narrows_units::counted;

/// The properties of a device that joining its ports needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DeviceFacts {
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    pub(crate) mac: [u8; 6],
    /// The IP addresses that this box has there, and the bridge above it.
    pub(crate) way_in: WayIn,
    pub(crate) mtu: u32,
    /// RX and TX queue pairs in use.
    pub(crate) queues: u32,
    /// Descriptors of the device's own ring of each RX queue; 0 if it has none or does not say.
    pub(crate) rx_ring: u32,
    /// All queues, paired or not.
    pub(crate) counts: QueueCounts,
    /// The driver's name.
    pub(crate) driver: String,
    /// Whether its packets have no header of Ethernet: those of tunnels and of PPP.
    pub(crate) headerless: bool,
}

impl DeviceFacts {
    /// Those of the interface `name`.
    ///
    /// # Errors
    /// If it cannot be read, or is down.
    pub(crate) fn read(name: &str) -> Result<Self, InstanceError> {
        let link = Link::by_name(name)?;
        if !link.status.up {
            return Err(InstanceError::Down(name.to_owned()));
        }
        Ok(Self::of(&link)?)
    }

    fn of(link: &Link) -> Result<Self, LinkError> {
        Ok(Self {
            name: link.name().to_owned(),
            ifindex: link.status.ifindex,
            mac: link.status.mac,
            way_in: WayIn::read(link.status.ifindex)?,
            mtu: link.status.mtu,
            queues: link.queues.now.pairs(),
            rx_ring: link.rings.map_or(0, |rings| rings.rx),
            counts: link.queues,
            driver: link.driver.name.clone(),
            headerless: link.status.headerless,
        })
    }

    /// Its own address, as its programs need it.
    pub(crate) fn own(&self) -> OwnAddress {
        OwnAddress {
            mac: self.mac,
            is_addressed: !self.way_in.addresses.is_empty(),
            bridge_mac: self.way_in.bridge.unwrap_or(self.mac),
            ips: self.way_in.addresses.iter().collect(),
        }
    }

    /// The changes, in words; `None` if there are none. The device's own rings matter only if they
    /// hold our frames: with `zero_copy`. Addresses matter only where ports are in
    /// pairs: `is_paired`.
    pub(crate) fn change(&self, zero_copy: bool, is_paired: bool) -> Option<String> {
        match Link::by_name(&self.name).and_then(|link| Self::of(&link)) {
            Ok(now) if !is_paired => {
                self.change_to(&Self { way_in: self.way_in.clone(), ..now }, zero_copy)
            }
            Ok(now) => self.change_to(&now, zero_copy),
            Err(LinkError::NoSuchName(_) | LinkError::NoSuchIndex(_)) => {
                Some(format!("{} is gone", self.name))
            }
            // What cannot be read, for want of descriptors or memory, is not gone.
            Err(error) => {
                log::debug!("{}: {error}", self.name);
                None
            }
        }
    }

    fn change_to(&self, now: &Self, zero_copy: bool) -> Option<String> {
        let name = &self.name;
        if now.ifindex != self.ifindex {
            return Some(format!("{name} is another interface now"));
        }
        let mut changes = Vec::new();
        if now.queues != self.queues {
            changes.push(format!("{} instead of {}", counted(now.queues, "queue"), self.queues));
        } else if now.counts.now != self.counts.now {
            let [is, was] = [now.counts.now, self.counts.now].map(|of| (of.rx, of.tx));
            changes.push(format!(
                "{} receive and {} instead of {} and {}",
                is.0,
                counted(is.1, "transmit queue"),
                was.0,
                was.1
            ));
        }
        if now.mtu != self.mtu {
            changes.push(format!("MTU {} instead of {}", now.mtu, self.mtu));
        }
        if now.rx_ring != self.rx_ring && zero_copy {
            changes.push(format!("receive rings of {} instead of {}", now.rx_ring, self.rx_ring));
        }
        if now.mac != self.mac {
            changes.push("another address".to_owned());
        }
        let [is, was] = [now, self].map(|facts| facts.own());
        if is.ips != was.ips {
            let has = match now.way_in.addresses.len() {
                0 => "no IP address",
                1 => "an IP address",
                _ => "other IP addresses",
            };
            changes.push(format!("{has} of this host"));
        } else if is.is_addressed && is.bridge_mac != was.bridge_mac {
            changes.push("a bridge with another address".to_owned());
        }
        (!changes.is_empty()).then(|| format!("{name} has {}", changes.join(" and ")))
    }
}

/// The properties of a port that a policy depends on, with `queues` queues, or as many as it has.
pub(crate) fn policy_facts(link: &Link, queues: Option<usize>) -> narrows_policy::PortFacts {
    let queues = queues.map_or(link.queues.now.pairs(), |queues| queues as u32);
    narrows_policy::PortFacts {
        queues: u16::try_from(queues).ok(),
        mtu: link.status.mtu,
        // As in the kernel: a queue length of 0 would be an empty queue.
        tx_queue_len: match link.status.tx_queue_len {
            0 => narrows_policy::PortFacts::ETHERNET.tx_queue_len,
            length => length,
        },
    }
}

/// Packets lost by each device so far; zero if unreadable.
pub(crate) fn losses(devices: &PerDevice<DeviceFacts>) -> PerDevice<DeviceLosses> {
    let read = |facts: &DeviceFacts| Device::read(facts.ifindex).map(|device| device.losses);
    devices.iter().map(|device| read(device).unwrap_or_default()).collect()
}

impl DeviceManifest {
    /// The handover of the port of `facts`; its program runs at `hook`, and is attached through
    /// `entry`.
    pub(crate) fn new(facts: &DeviceFacts, hook: Hook, entry: Entry) -> Self {
        let DeviceFacts { ifindex, mac, mtu, queues, .. } = *facts;
        let (name, hook) = (facts.name.clone(), hook.name().to_owned());
        Self { name, ifindex, mac, mtu, queues, hook, shared: entry == Entry::Shared }
    }

    /// Where the program of the port of `facts` runs. `None` if it is not this port as it is now.
    pub(crate) fn hook_on(&self, facts: &DeviceFacts) -> Option<Hook> {
        let hook = Hook::named(&self.hook)?;
        (Self::new(facts, hook, self.entry()) == *self).then_some(hook)
    }

    /// How its program is attached at XDP.
    pub(crate) fn entry(&self) -> Entry {
        if self.shared { Entry::Shared } else { Entry::Own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_link::Queues;

    fn port() -> DeviceFacts {
        let now = Queues { rx: 4, tx: 4 };
        DeviceFacts {
            name: "eth1".into(),
            ifindex: 3,
            mac: [2; 6],
            way_in: WayIn::default(),
            mtu: 1500,
            queues: 4,
            rx_ring: 512,
            counts: QueueCounts { now, most: now, combined: false },
            driver: "ice".into(),
            headerless: false,
        }
    }

    #[test]
    fn an_unchanged_port_has_no_change() {
        assert_eq!(port().change_to(&port(), true), None);
    }

    #[test]
    fn all_that_changed_is_named_in_one_sentence() {
        let now = DeviceFacts { mtu: 9000, queues: 2, mac: [4; 6], ..port() };
        assert_eq!(
            port().change_to(&now, false).unwrap(),
            "eth1 has 2 queues instead of 4 and MTU 9000 instead of 1500 and another address"
        );
        let with = |addresses: &[[u8; 4]], bridge| {
            let addresses = addresses.iter().map(|&address| address.into()).collect();
            DeviceFacts { way_in: WayIn { addresses, bridge }, ..port() }
        };
        let now = with(&[[192, 0, 2, 1]], None);
        assert_eq!(port().change_to(&now, false).unwrap(), "eth1 has an IP address of this host");
        assert_eq!(now.change_to(&port(), false).unwrap(), "eth1 has no IP address of this host");
        let two = with(&[[192, 0, 2, 1], [192, 0, 2, 2]], None);
        assert_eq!(now.change_to(&two, false).unwrap(), "eth1 has other IP addresses of this host");
        assert_eq!(
            now.change_to(&with(&[[192, 0, 2, 1]], Some([6; 6])), false).unwrap(),
            "eth1 has a bridge with another address"
        );
        assert_eq!(port().change_to(&with(&[], Some([6; 6])), false), None, "nobody asks for it");
        let another = DeviceFacts { ifindex: 9, ..port() };
        assert_eq!(port().change_to(&another, true).unwrap(), "eth1 is another interface now");
    }

    #[test]
    fn rings_of_the_device_matter_in_zero_copy_only() {
        let now = DeviceFacts { rx_ring: 1024, ..port() };
        assert_eq!(port().change_to(&now, false), None);
        let said = port().change_to(&now, true).unwrap();
        assert_eq!(said, "eth1 has receive rings of 1024 instead of 512");
    }

    #[test]
    fn receive_queues_that_have_no_partner_are_a_change_too() {
        let counts = QueueCounts { now: Queues { rx: 8, tx: 4 }, ..port().counts };
        let said = port().change_to(&DeviceFacts { counts, ..port() }, false).unwrap();
        assert_eq!(said, "eth1 has 8 receive and 4 transmit queues instead of 4 and 4");
    }
}
