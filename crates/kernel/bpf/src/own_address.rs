//! Whose frames to a port's own address are.

use std::net::IpAddr;

/// The most IP addresses for which questions (ARP, neighbour solicitations) go to the box.
pub const OWN_IPS_MAX: usize = 8;

/// The MAC address of a port, and what else leads to this box there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnAddress {
    /// The address.
    pub mac: [u8; 6],
    /// Whether this box has an IP address there. Then frames to the MAC address go to its kernel;
    /// else they go where all others go, and none of them reaches the box.
    pub is_addressed: bool,
    /// The MAC address of the bridge above the port, or again the port's own.
    pub bridge_mac: [u8; 6],
    /// The IP addresses there, as [`OwnIps`].
    pub ips: OwnIps,
}

/// Up to [`OWN_IPS_MAX`] addresses as the programs have them: four words in network order, of which
/// the first three are 0 for IPv4. No IPv6 address of a host begins so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnIps {
    words: [[u32; 4]; OWN_IPS_MAX],
    count: u32,
}

impl OwnIps {
    /// The words of each, and how many count.
    pub(crate) fn parts(&self) -> ([[u32; 4]; OWN_IPS_MAX], u32) {
        (self.words, self.count)
    }
}

/// Those beyond the first [`OWN_IPS_MAX`] are left out.
impl<'a> FromIterator<&'a IpAddr> for OwnIps {
    fn from_iter<T: IntoIterator<Item = &'a IpAddr>>(addresses: T) -> Self {
        let mut ips = Self::default();
        for (into, address) in ips.words.iter_mut().zip(addresses) {
            *into = match address {
                IpAddr::V4(v4) => [0, 0, 0, u32::from_ne_bytes(v4.octets())],
                IpAddr::V6(v6) => {
                    let mut words = [0; 4];
                    for (word, octets) in words.iter_mut().zip(v6.octets().as_chunks().0) {
                        *word = u32::from_ne_bytes(*octets);
                    }
                    words
                }
            };
            ips.count += 1;
        }
        ips
    }
}

impl OwnAddress {
    /// The address of a port above which there is no bridge.
    pub const fn of(mac: [u8; 6], is_addressed: bool) -> Self {
        let ips = OwnIps { words: [[0; 4]; OWN_IPS_MAX], count: 0 };
        Self { mac, is_addressed, bridge_mac: mac, ips }
    }
}

/// The address of a port where the box has an IP address.
impl From<[u8; 6]> for OwnAddress {
    fn from(mac: [u8; 6]) -> Self {
        Self::of(mac, true)
    }
}
