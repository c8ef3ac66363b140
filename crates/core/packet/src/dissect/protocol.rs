//! The meaning of IP protocol numbers, which are also IPv6's next headers.

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// What follows an IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    /// Nothing that distinguishes flows.
    Opaque,
    /// Source and destination port come first.
    Ports,
    /// A security parameter index comes first, and all else is encrypted.
    Encrypted,
    /// An authentication header (RFC 4302): its length counts units of four bytes, its payload is
    /// in clear.
    Authentication,
    /// An IPv6 extension header whose length counts units of eight bytes.
    Extension,
    /// IPv6's fragment header.
    Fragment,
    /// ICMP or ICMPv6. The types `.0` and `.1` are echoes and have an identifier.
    Echo(u8, u8),
    /// An IPv4 packet.
    Ipv4,
    /// An IPv6 packet.
    Ipv6,
    /// Generic routing encapsulation.
    Gre,
}

static PROTOCOLS: [Protocol; 256] = {
    let mut table = [Protocol::Opaque; 256];
    table[TCP as usize] = Protocol::Ports;
    table[UDP as usize] = Protocol::Ports;
    table[33] = Protocol::Ports; // DCCP
    table[132] = Protocol::Ports; // SCTP
    table[136] = Protocol::Ports; // UDP-Lite
    table[50] = Protocol::Encrypted;
    table[51] = Protocol::Authentication;
    table[0] = Protocol::Extension; // hop-by-hop options
    table[43] = Protocol::Extension; // routing
    table[60] = Protocol::Extension; // destination options
    table[135] = Protocol::Extension; // mobility
    table[44] = Protocol::Fragment;
    table[1] = Protocol::Echo(0, 8); // ICMP
    table[58] = Protocol::Echo(128, 129); // ICMPv6
    table[4] = Protocol::Ipv4;
    table[41] = Protocol::Ipv6;
    table[47] = Protocol::Gre;
    table
};

/// The meaning of `number`.
#[inline]
pub(super) fn protocol(number: u8) -> Protocol {
    PROTOCOLS[usize::from(number)]
}
