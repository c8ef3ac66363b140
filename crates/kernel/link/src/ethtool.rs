//! Facts that only ethtool provides: the driver, queues, rings and offloads.
//!
//! This uses the old `ioctl` and not generic netlink: every kernel and driver answers it, with the
//! same answers. If a driver does not support a request, the answer is left out. That is no error,
//! because none of these facts is needed to forward.

use crate::status::{Queues, text};
use crate::sys::{Ethtool, FeatureState, Question};
use narrows_escape::shell;
use std::{fmt, io};

/// `ETH_FLAG_TXVLAN`, `ETH_FLAG_RXVLAN`, `ETH_FLAG_LRO` of `linux/ethtool.h`.
pub(crate) const FLAG_TX_VLAN: u32 = 1 << 7;
pub(crate) const FLAG_RX_VLAN: u32 = 1 << 8;
pub(crate) const FLAG_LRO: u32 = 1 << 15;

/// The driver of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Driver {
    /// Its name, such as `ice` or `veth`; the kind of the interface, or empty, if ethtool does not
    /// say.
    pub name: String,
    /// The bus address (`0000:3b:00.0`, `virtio3`); empty if there is none.
    pub bus: String,
}

impl Driver {
    pub(crate) fn read(ethtool: &Ethtool, name: &str, kind: Option<&str>) -> Self {
        match ethtool.driver(name) {
            Ok(raw) => Self { name: text(&raw.driver), bus: text(&raw.bus) },
            Err(_) => Self { name: kind.unwrap_or_default().to_owned(), bus: String::new() },
        }
    }
}

/// The name for messages: `an unknown driver` if there is none.
impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.name.is_empty() { "an unknown driver" } else { &self.name })
    }
}

/// Numbers of queues: present and maximum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounts {
    /// In use.
    pub now: Queues,
    /// The most that `ethtool -L` would accept.
    pub most: Queues,
    /// Whether a receive and a transmit queue form one channel, so that they are changed with
    /// `ethtool -L DEV combined N` and not `rx N tx N`.
    pub combined: bool,
}

impl QueueCounts {
    /// Without channels, the driver uses the queues that it allocated.
    pub(crate) fn read(ethtool: &Ethtool, name: &str, allocated: Queues) -> Self {
        let all = Self { now: allocated, most: allocated, combined: false };
        Self::channels(ethtool, name).unwrap_or(all)
    }

    /// The driver's answer; none if it does not support channels, or is gone.
    pub(crate) fn channels(ethtool: &Ethtool, name: &str) -> Option<Self> {
        let raw = ethtool.channels(name).ok()?;
        Some(Self {
            now: Queues {
                rx: raw.rx.saturating_add(raw.combined),
                tx: raw.tx.saturating_add(raw.combined),
            },
            most: Queues {
                rx: raw.max_rx.max(raw.max_combined),
                tx: raw.max_tx.max(raw.max_combined),
            },
            combined: raw.max_combined > 0,
        })
    }

    /// The command that gives interface `name` this many queues in each direction.
    pub fn command(&self, name: &str, queues: u32) -> String {
        let name = shell(name);
        if self.combined {
            format!("ethtool -L {name} combined {queues}")
        } else {
            format!("ethtool -L {name} rx {queues} tx {queues}")
        }
    }
}

/// Sizes of a device's rings, in descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rings {
    /// For each receive queue.
    pub rx: u32,
    /// For each transmit queue.
    pub tx: u32,
    /// The largest receive ring.
    pub rx_max: u32,
    /// The largest transmit ring.
    pub tx_max: u32,
}

impl Rings {
    pub(crate) fn read(ethtool: &Ethtool, name: &str) -> Option<Self> {
        let raw = ethtool.rings(name).ok()?;
        let rings = Self { rx: raw.rx, tx: raw.tx, rx_max: raw.rx_max, tx_max: raw.tx_max };
        // A driver without rings may answer with zeros.
        (rings != Self::default()).then_some(rings)
    }
}

/// Offloads that change what XDP sees of received frames, or how it sends them. What a driver does
/// not support is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    /// Leaves transport checksums of sent packets to the device (`tx`).
    pub tx_checksum: bool,
    /// Checks transport checksums of received packets in the device (`rx`).
    pub rx_checksum: bool,
    /// Segments TCP packets in the device (`tso`).
    pub tso: bool,
    /// Segments packets as late as possible (`gso`).
    pub gso: bool,
    /// Merges received packets in the stack (`gro`).
    pub gro: bool,
    /// Merges received packets in the device (`lro`).
    pub lro: bool,
    /// Strips VLAN tags from received frames (`rxvlan`).
    pub rx_vlan: bool,
    /// Leaves the insertion of VLAN tags to the device (`txvlan`).
    pub tx_vlan: bool,
    /// Strips outer 802.1ad tags from received frames (`rx-vlan-stag-hw-parse`).
    pub rx_service_tag: bool,
    /// Leaves the insertion of outer 802.1ad tags to the device (`tx-vlan-stag-hw-insert`).
    pub tx_service_tag: bool,
    /// Merges received packets in the device so that they can be segmented again (`rx-gro-hw`).
    pub gro_hw: bool,
}

impl Offloads {
    pub(crate) fn read(ethtool: &Ethtool, name: &str) -> Self {
        let on = |question| ethtool.ask(name, question).is_ok_and(|answer| answer != 0);
        let flags = ethtool.ask(name, Question::Flags).unwrap_or_default();
        let features = Features::read(ethtool, name).unwrap_or_default();
        Self {
            tx_checksum: on(Question::TxChecksum),
            rx_checksum: on(Question::RxChecksum),
            tso: on(Question::Tso),
            gso: on(Question::Gso),
            gro: on(Question::Gro),
            lro: flags & FLAG_LRO != 0,
            rx_vlan: flags & FLAG_RX_VLAN != 0,
            tx_vlan: flags & FLAG_TX_VLAN != 0,
            rx_service_tag: features.is_on(RX_SERVICE_TAG),
            tx_service_tag: features.is_on(TX_SERVICE_TAG),
            gro_hw: features.is_on(GRO_HW),
        }
    }
}

/// Features that the older requests do not cover.
pub(crate) const RX_SERVICE_TAG: &str = "rx-vlan-stag-hw-parse";
pub(crate) const TX_SERVICE_TAG: &str = "tx-vlan-stag-hw-insert";
pub(crate) const GRO_HW: &str = "rx-gro-hw";

/// The features of an interface by name.
#[derive(Default)]
struct Features {
    names: Vec<[u8; 32]>,
    state: FeatureState,
}

impl Features {
    fn read(ethtool: &Ethtool, name: &str) -> io::Result<Self> {
        Ok(Self { names: ethtool.feature_names(name)?, state: ethtool.features(name)? })
    }

    /// Whether `feature` is on; false if this kernel does not have it.
    fn is_on(&self, feature: &str) -> bool {
        number(&self.names, feature).is_some_and(|number| self.state.is_on(number))
    }
}

fn number(names: &[[u8; 32]], feature: &str) -> Option<usize> {
    names.iter().position(|name| text(name) == feature)
}

/// Switches a feature by its name. Succeeds even if the driver ignores it.
///
/// # Errors
/// If this kernel has no such feature, the interface is gone, or CAP_NET_ADMIN is missing.
pub(crate) fn set_feature(
    ethtool: &Ethtool,
    name: &str,
    feature: &str,
    on: bool,
) -> io::Result<()> {
    let number = number(&ethtool.feature_names(name)?, feature);
    ethtool.set_feature(name, number.ok_or(io::ErrorKind::Unsupported)?, on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_speaks_of_combined_channels_where_the_driver_does() {
        let combined = QueueCounts { combined: true, ..QueueCounts::default() };
        assert_eq!(combined.command("eth0", 4), "ethtool -L eth0 combined 4");
        assert_eq!(QueueCounts::default().command("sa", 2), "ethtool -L sa rx 2 tx 2");
    }
}
