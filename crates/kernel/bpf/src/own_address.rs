//! Whose frames to a port's own address are.

/// The MAC address of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnAddress {
    /// The address.
    pub mac: [u8; 6],
    /// Whether this box has an IP address there. Then frames to the MAC address go to its kernel;
    /// else they go where all others go, and none of them reaches the box.
    pub is_addressed: bool,
}

/// The address of a port where the box has an IP address.
impl From<[u8; 6]> for OwnAddress {
    fn from(mac: [u8; 6]) -> Self {
        Self { mac, is_addressed: true }
    }
}
