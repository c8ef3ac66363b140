//! The priority of a packet, from its headers alone.
//!
//! Linux keeps a priority with each packet (`skb->priority`). A router sets it from the TOS byte of
//! an IPv4 packet that it forwards, and `prio` and `ets` choose a band by it. A bump in the wire
//! has no socket that could have set another priority, so this rule is the only one. It also
//! applies to IPv6's traffic class, for which Linux leaves the priority at 0.
//!
//! Source: `rt_tos2priority()` and `ip_tos2prio` in `net/ipv4/route.c`; `tc-prio(8)`.

use narrows_packet::dissect::Keys;

/// The bits of a priority that count: priorities are below 16 (`TC_PRIO_MAX`).
pub const PRIORITY_MASK: u8 = 15;

/// "Minimize delay" and "maximize throughput" (RFC 1349). They are also the last two bits of a
/// DSCP's class.
const LOW_DELAY: u8 = 0x10;
const THROUGHPUT: u8 = 0x08;

/// The priority of `frame`, 0 to 15: 6 (interactive) for low delay, 2 (bulk) for throughput, 4 for
/// both, 0 (best effort) for anything else and for frames that are not IP.
pub fn priority(frame: &[u8]) -> u8 {
    let ip = Keys::of(frame).and_then(|keys| keys.ip);
    let tos = ip.map_or(0, |ip| ip.traffic_class);
    match (tos & LOW_DELAY != 0, tos & THROUGHPUT != 0) {
        (false, false) => 0,
        (false, true) => 2,
        (true, false) => 6,
        (true, true) => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn v4(tos: u8) -> Vec<u8> {
        let builder =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        let mut frame = Vec::new();
        builder.udp(1, 2).write(&mut frame, &[0; 20]).unwrap();
        frame[15] = tos;
        frame
    }

    /// The kernel's table, by bits 1 to 4 of the byte.
    const IP_TOS2PRIO: [u8; 16] = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];

    #[test]
    fn it_is_a_router_s_priority_of_the_tos_byte() {
        for tos in 0..=255u8 {
            let expected = IP_TOS2PRIO[usize::from((tos & 0x1e) >> 1)];
            assert_eq!(priority(&v4(tos)), expected, "tos {tos:#x}");
        }
    }

    #[test]
    fn a_traffic_class_of_ipv6_counts_the_same() {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64);
        let mut frame = Vec::new();
        builder.udp(1, 2).write(&mut frame, &[0; 20]).unwrap();
        assert_eq!(priority(&frame), 0);
        (frame[14], frame[15]) = (0x61, 0);
        assert_eq!(priority(&frame), 6);
    }

    #[test]
    fn packets_without_ip_have_none() {
        assert_eq!(priority(&[0xff; 60]), 0);
        assert_eq!(priority(&[]), 0);
    }
}
