//! Prefixes of a list, all over the address space, and addresses that they cover.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The number of sources in a run: `SOURCES` of `programs/spread.bpf.c`.
const SOURCES: u32 = 65_536;

/// The source of a frame that is not another one each time; the first prefix covers it.
pub(super) const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// This many prefixes: of IPv4, with 24 and 28 bits, or of IPv6, with 48 and 64 bits below
/// 2000::/3.
pub(super) fn prefixes(count: u32, is_six: bool) -> Vec<(IpAddr, u8)> {
    // Knuth's multiplier spreads them.
    let spread = |entry: u32| entry.wrapping_mul(2_654_435_761);
    let one = |entry: u32| match is_six {
        false if entry == 0 => (Ipv4Addr::new(10, 0, 0, 0).into(), 28),
        // Below 224.0.0.0.
        false => {
            let network = (spread(entry) % 0xe000_0000) | 0x0b00_0000;
            (Ipv4Addr::from(network).into(), [24, 28][entry as usize % 2])
        }
        true => {
            let high = 0x2000_0000_u64 << 32 | u64::from(spread(entry) >> 3) << 32;
            let network = high | u64::from(spread(entry ^ 0x5555)) & 0xffff_0000;
            (Ipv6Addr::from(u128::from(network) << 64).into(), [48, 64][entry as usize % 2])
        }
    };
    (0..count).map(one).collect()
}

/// Sources that `prefixes` cover, in random order, as bytes of `programs/spread.bpf.c`.
pub(super) fn sources(prefixes: &[(IpAddr, u8)]) -> impl Iterator<Item = (u32, [u8; 16])> + '_ {
    (0..SOURCES).map(|number| {
        let at = number.wrapping_mul(2_654_435_761) as usize % prefixes.len().max(1);
        let address = prefixes.get(at).map_or(SOURCE.into(), |(address, _)| *address);
        (number, bytes(address))
    })
}

/// An address, of IPv4 in the first four bytes.
pub(super) fn bytes(address: IpAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes = v6.octets(),
    }
    bytes
}
