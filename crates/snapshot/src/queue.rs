//! What one queue of a port received, sent, holds and dropped.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A queue of a port, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Packets that came in here.
    #[serde(default)]
    pub rx_packets: u64,
    /// Their frame bytes.
    #[serde(default)]
    pub rx_bytes: u64,
    /// Packets handed to the device to leave here. What it lost of them is in
    /// [`Port::device_losses`](crate::Port::device_losses).
    pub tx_packets: u64,
    /// Their frame bytes.
    pub tx_bytes: u64,
    /// System calls made to have them sent: none where a driver needs no waking, more than one a
    /// batch where the kernel took part of it.
    #[serde(default)]
    pub tx_kicks: u64,
    /// Packets queued to leave here.
    pub backlog_packets: u64,
    /// Their frame bytes.
    #[serde(default)]
    pub backlog_bytes: u64,
    /// Packets that were to leave here and were dropped.
    pub drops: u64,
    /// The same by reason; reasons that did not occur are left out.
    #[serde(default)]
    pub drops_by_reason: BTreeMap<String, u64>,
}
