//! Packets past this host's IP: what it discards is seen, and what is sent goes to a MAC address.

use crate::bed::Bed;
use narrows_link::Link;
use narrows_link::packet_socket::{ADDRESSES_MAX, IpFamily, PacketSocket};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

const UDP: u8 = 17;

/// A packet of a header and a byte that tells it from others.
fn packet(source: IpAddr, to: IpAddr, protocol: u8, mark: u8) -> Vec<u8> {
    let mut packet = match (source, to) {
        (IpAddr::V4(source), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0, 0, 29, 0, 0, 0, 0, 64, protocol, 0, 0];
            header.extend(source.octets());
            header.extend(to.octets());
            header
        }
        (IpAddr::V6(source), IpAddr::V6(to)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 9, protocol, 64];
            header.extend(source.octets());
            header.extend(to.octets());
            header
        }
        _ => panic!("two families"),
    };
    packet.extend([0, 0, 0, 0, 0, 0, 0, 0, mark]);
    packet
}

/// The marks of what arrives, up to that of the last one.
fn marks(socket: &PacketSocket, last: u8) -> Vec<u8> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut marks = Vec::new();
    while marks.last() != Some(&last) {
        let mut packet = [0; 2048];
        match socket.receive(&mut packet) {
            // Hosts send by themselves, too.
            Ok(bytes) if !packet[..bytes - 1].ends_with(&[0; 8]) => {}
            Ok(bytes) => marks.push(packet[bytes - 1]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                assert!(Instant::now() < deadline, "only {marks:?}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    marks
}

#[test]
fn what_a_host_discards_is_seen_if_it_comes_from_one_of_the_sources() {
    let Some(bed) = Bed::new() else { return };
    let four = |last| IpAddr::from(Ipv4Addr::new(192, 0, 2, last));
    let six = |last| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    bed.shaper.ip("addr add 192.0.2.9/24 dev sa");
    bed.shaper.ip("addr add 192.0.2.100/32 dev sa");
    bed.shaper.must("sysctl -qw net.ipv6.conf.sa.disable_ipv6=0");
    bed.shaper.ip("addr add 2001:db8::9/64 dev sa nodad");
    bed.shaper.ip("addr add 2001:db8::100/128 dev sa nodad");
    let mac = bed.shaper.inside(|| Link::by_name("sa")).unwrap().status.mac;
    let device = bed.client.inside(|| Link::by_name("v0")).unwrap().status.ifindex;
    for (family, own, here, other, icmp) in [
        (IpFamily::V4, four(100), four(9), four(7), 1),
        (IpFamily::V6, six(0x100), six(9), six(7), 58),
    ] {
        let [sender, receiver] = [&bed.client, &bed.shaper]
            .map(|namespace| namespace.inside(|| PacketSocket::open(family)).unwrap());
        let send = |source, protocol, mark| {
            sender.send(device, mac, &packet(source, here, protocol, mark)).unwrap();
        };
        send(own, UDP, 1);
        std::thread::sleep(Duration::from_millis(50));
        let mut packet = [0; 2048];
        while let Ok(bytes) = receiver.receive(&mut packet) {
            // Hosts send ICMP by themselves, too.
            assert!(!packet[..bytes - 1].ends_with(&[0; 8]), "nobody was named");
        }
        receiver.receive_from([own, four(1), six(1)]).unwrap();
        // The host itself discards the first: its source is one of its own addresses.
        send(own, UDP, 2);
        send(other, UDP, 3);
        send(other, icmp, 4);
        send(own, UDP, 5);
        assert_eq!(marks(&receiver, 5), [2, 4, 5], "{family:?}");
        let many = (0..=ADDRESSES_MAX as u32).map(|last| match family {
            IpFamily::V4 => IpAddr::from(Ipv4Addr::from(last)),
            IpFamily::V6 => IpAddr::from(Ipv6Addr::from(u128::from(last))),
        });
        receiver.receive_from(many).unwrap();
        send(other, UDP, 6);
        assert_eq!(marks(&receiver, 6).last(), Some(&6), "all, if there are too many");
    }
}
