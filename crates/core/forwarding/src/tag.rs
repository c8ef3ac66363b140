//! VLAN tags (IEEE 802.1Q).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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

/// A word that is no VLAN.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{0}\" is no VLAN: say its number, 1 to 4094, or s and the number for one of 802.1ad")]
pub struct NoVlan(String);

/// `100`, or `s100` for a VLAN of 802.1ad.
impl FromStr for Tag {
    type Err = NoVlan;

    fn from_str(word: &str) -> Result<Self, NoVlan> {
        let (protocol, number) = match word.strip_prefix('s') {
            Some(number) => (TagProtocol::Service, number),
            None => (TagProtocol::Customer, word),
        };
        let is_plain = number.bytes().all(|digit| digit.is_ascii_digit());
        let vid = number.parse().ok().filter(|_| is_plain);
        vid.and_then(|vid| Self::new(protocol, vid)).ok_or_else(|| NoVlan(word.to_owned()))
    }
}

impl Tag {
    /// The word that [`Tag::from_str`] reads.
    pub fn word(self) -> String {
        match self.protocol {
            TagProtocol::Customer => self.vid.to_string(),
            TagProtocol::Service => format!("s{}", self.vid),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vlan_is_a_number_and_one_of_802_1ad_has_an_s_before_it() {
        for word in ["1", "100", "4094", "s7"] {
            assert_eq!(word.parse::<Tag>().unwrap().word(), word);
        }
        for word in ["", "0", "4095", "65636", "s", "ss1", "+5", "-1", "1 ", "eth0.1"] {
            assert_eq!(word.parse::<Tag>(), Err(NoVlan(word.to_owned())));
        }
    }
}
