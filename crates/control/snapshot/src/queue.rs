//! The counters of one queue of a port.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A queue of a port, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Packets that arrived here.
    #[serde(default)]
    pub rx_packets: u64,
    /// Their frame bytes.
    #[serde(default)]
    pub rx_bytes: u64,
    /// Packets passed to the device to leave here. Those that the device lost are in
    /// [`Port::device_losses`](crate::Port::device_losses).
    pub tx_packets: u64,
    /// Their frame bytes.
    pub tx_bytes: u64,
    /// System calls to start transmission: 0 if the driver needs no wake-up, more than one per
    /// batch if the kernel took only part of it.
    #[serde(default)]
    pub tx_kicks: u64,
    /// Packets queued to leave here.
    pub backlog_packets: u64,
    /// Their frame bytes.
    #[serde(default)]
    pub backlog_bytes: u64,
    /// Packets that were due to leave here and were dropped.
    pub drops: u64,
    /// Packets that were dropped, by reason; reasons that did not occur are left out.
    #[serde(default)]
    pub drops_by_reason: BTreeMap<String, u64>,
}
