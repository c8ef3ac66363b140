//! The facts about a port that a policy needs to be validated.

/// Facts about a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortFacts {
    /// Its TX queues; `None` if unknown (a policy file may be for another machine).
    pub queues: Option<u16>,
    /// Its MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// The default limit of a FIFO, in packets (`txqueuelen`).
    pub tx_queue_len: u32,
}

/// The Ethernet header, in bytes.
const ETHERNET_HEADER: u32 = 14;

impl PortFacts {
    /// An Ethernet port with the usual MTU and queue length, and an unknown number of queues.
    pub const ETHERNET: Self = Self { queues: None, mtu: 1500, tx_queue_len: 1000 };

    /// The longest frame without VLAN tags, in bytes.
    pub fn frame(&self) -> u32 {
        self.mtu.saturating_add(ETHERNET_HEADER)
    }
}
