//! VLAN tags (IEEE 802.1Q).

use serde::{Deserialize, Serialize};
use std::fmt;

/// The least and the greatest number of a VLAN: 0 means "priority only", 4095 is reserved.
const VIDS: std::ops::RangeInclusive<u16> = 1..=4094;

/// The protocol of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum TagProtocol {
    /// 802.1Q, a customer's tag.
    #[default]
    Customer,
    /// 802.1ad, a provider's outer tag.
    Service,
}

impl TagProtocol {
    /// Its Ethernet type.
    pub const fn ethertype(self) -> u16 {
        match self {
            Self::Customer => 0x8100,
            Self::Service => 0x88a8,
        }
    }

    /// Its name, as iproute2 says it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Customer => "802.1Q",
            Self::Service => "802.1ad",
        }
    }
}

/// The tag of a VLAN: its protocol and number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Tag {
    protocol: TagProtocol,
    vid: u16,
}

impl Tag {
    /// That of VLAN `vid`; `None` if there is no such VLAN.
    pub fn new(protocol: TagProtocol, vid: u16) -> Option<Self> {
        VIDS.contains(&vid).then_some(Self { protocol, vid })
    }

    /// Its protocol.
    pub const fn protocol(self) -> TagProtocol {
        self.protocol
    }

    /// The number of its VLAN.
    pub const fn vid(self) -> u16 {
        self.vid
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            TagProtocol::Customer => write!(f, "VLAN {}", self.vid),
            TagProtocol::Service => write!(f, "{} VLAN {}", self.protocol.name(), self.vid),
        }
    }
}
