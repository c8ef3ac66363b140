//! What a policy has to know of a port to be sure that it can be had there.

/// What a tree needs to know of the port that it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortFacts {
    /// Its TX queues; `None` where nobody knows yet (a policy file may be for another box).
    pub queues: Option<u16>,
    /// Its MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// How many packets a FIFO holds that was made without a limit (`txqueuelen`).
    pub tx_queue_len: u32,
}

/// What stands before the payload of every frame, in bytes.
const ETHERNET_HEADER: u32 = 14;

impl PortFacts {
    /// An Ethernet port with the usual MTU and queue length, and nobody knows how many queues.
    pub const ETHERNET: Self = Self { queues: None, mtu: 1500, tx_queue_len: 1000 };

    /// The longest frame without VLAN tags, in bytes.
    pub fn frame(&self) -> u32 {
        self.mtu.saturating_add(ETHERNET_HEADER)
    }
}
