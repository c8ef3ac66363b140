//! Packets that do not fit into the way to their server: what their senders are told.

use super::*;
use crate::router::tests::index;
use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::process::Command;
use std::time::{Duration, Instant};

/// Where DF is in a frame of IPv4.
const FRAGMENT: usize = ETHERNET + 6;
/// How many are answered at once.
const AT_ONCE: u64 = 50;

/// A frame of the client to the service of either family, whose IP packet has `bytes` bytes.
fn long(to: IpAddr, bytes: usize) -> Vec<u8> {
    let (from, header) = match to {
        IpAddr::V4(_) => (client(1), 20),
        IpAddr::V6(_) => (address("2001:db8:c::1"), 40),
    };
    let mut segment = transport(TCP, [1000, 80], ACK);
    segment.extend((segment.len()..bytes - header).map(|byte| byte as u8));
    frame(&ip(from, to, TCP, &segment))
}

/// One service of either family, at one server each.
fn tunnels(server: &str, options: &str) -> Bench {
    let services = ["192.0.2.1:80", "[2001:db8::1]:80"];
    let lines = |at| format!("-A -t {at} -s mh\n-a -t {at} -r {server} -i {options}\n");
    Bench::new(&services.map(lines).concat())
}

fn service6() -> IpAddr {
    address("2001:db8::1")
}

/// The frame that tells the sender of `came` that the way takes `mtu` bytes.
fn answer(came: &[u8], mtu: u32) -> Vec<u8> {
    let packet = &came[ETHERNET..];
    let behind = match packet[0] >> 4 {
        4 => {
            let (from, to) = (&packet[16..20], &packet[12..16]);
            let quoted = &packet[..548];
            let header = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu as u16 };
            let kind = Icmpv4Type::DestinationUnreachable(header);
            let icmp = Icmpv4Header::with_checksum(kind, quoted).to_bytes();
            let mut header = etherparse::Ipv4Header::new(
                (icmp.len() + quoted.len()) as u16,
                64,
                etherparse::IpNumber::ICMP,
                from.try_into().unwrap(),
                to.try_into().unwrap(),
            )
            .unwrap();
            header.dscp = 48.try_into().unwrap();
            header.dont_fragment = true;
            header.header_checksum = header.calc_header_checksum();
            [&header.to_bytes()[..], &icmp, quoted].concat()
        }
        _ => {
            let (from, to) =
                (packet[24..40].try_into().unwrap(), packet[8..24].try_into().unwrap());
            let quoted = &packet[..1232];
            let kind = Icmpv6Type::PacketTooBig { mtu };
            let icmp = Icmpv6Header::with_checksum(kind, from, to, quoted).unwrap().to_bytes();
            let header = etherparse::Ipv6Header {
                payload_length: (icmp.len() + quoted.len()) as u16,
                next_header: etherparse::IpNumber::IPV6_ICMP,
                hop_limit: 64,
                source: from,
                destination: to,
                ..Default::default()
            };
            [&header.to_bytes()[..], &icmp, quoted].concat()
        }
    };
    [&came[6..12], &came[..6], &came[12..14], &behind].concat()
}

#[test]
fn a_client_is_told_what_the_tunnel_to_its_server_takes() {
    for (server, outer) in [("10.0.0.1", 20), ("[2001:db8::2]", 40)] {
        for (options, more) in [("", 0), ("--tun-type gue --tun-port 7000", 12)] {
            let bench = tunnels(server, options);
            let mtu = 1500 - outer - more;
            for to in [service(), service6()] {
                let fits = long(to, mtu);
                let sent = bench.send(&fits);
                assert_eq!(sent.frame.len(), ETHERNET + 1500, "{to} by {server} {options}");
                for bytes in [mtu + 1, 1500] {
                    let came = long(to, bytes);
                    let sent = bench.send(&came);
                    assert_eq!(sent.verdict, TX);
                    assert_eq!(sent.frame, answer(&came, mtu as u32), "{to} by {server} {options}");
                }
            }
            let bytes = 2 * (2 * ETHERNET + mtu + 1 + 1500) as u64;
            let answered = bench.tables.fates(PortId::FIRST).unwrap()[Fate::Answered];
            assert_eq!(answered, Fated { packets: 4, bytes });
            assert_eq!(bench.fate(Fate::TooBig), 0);
        }
    }
}

/// Of these frames a program reaches only the first buffer.
#[test]
fn a_frame_in_several_buffers_is_answered_too() {
    let mut bench = tunnels("10.0.0.1", "");
    bench.balancer = Balancer::load(&bench.tables, port(true)).unwrap();
    for to in [service(), service6()] {
        let came = long(to, 9000);
        assert_eq!(bench.send(&came).frame, answer(&came, 1480));
    }
}

#[test]
fn who_may_not_be_told_is_not() {
    let bench = tunnels("10.0.0.1", "");
    let whole = long(service(), 1500);
    let edited = |at: usize, bytes: &[u8]| {
        let mut frame = whole.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let source = ETHERNET + 12;
    let quoted = ip(service(), client(1), TCP, &transport(TCP, [80, 1000], ACK));
    let error = [&[3, 4, 0, 0, 0, 0, 5, 0], &quoted[..], &[0; 1424]].concat();
    let mut from_link_local = long(service6(), 1500);
    from_link_local[22..24].copy_from_slice(&[0xfe, 0x80]);
    let silent = [
        ("may be fragmented", edited(FRAGMENT, &[0])),
        ("from many", edited(source, &[224, 0, 0, 1])),
        ("from all", edited(source, &[255; 4])),
        ("from nobody", edited(source, &[0; 4])),
        ("of one link", from_link_local),
        ("an error", frame(&ip(address("203.0.113.1"), service(), 1, &error))),
    ];
    for (number, (why, frame)) in (1..).zip(&silent) {
        assert_eq!((bench.send(frame).verdict, bench.fate(Fate::TooBig)), (DROP, number), "{why}");
    }
    assert_eq!(bench.fate(Fate::Answered), 0);
}

#[test]
fn of_fragments_the_first_is_answered() {
    let service = "192.0.2.1:0";
    let bench = Bench::new(&format!("-A -t {service} -s mh -p\n-a -t {service} -r 10.0.0.1 -i\n"));
    let fragment = |offset: [u8; 2]| {
        let mut frame = long(super::service(), 1500);
        frame[FRAGMENT..FRAGMENT + 2].copy_from_slice(&offset);
        frame
    };
    // "More fragments", and an offset.
    let (first, second) = (fragment([0x60, 0]), fragment([0x60, 185]));
    assert_eq!(bench.send(&first).frame, answer(&first, 1480));
    assert_eq!((bench.send(&second).verdict, bench.fate(Fate::TooBig)), (DROP, 1));
}

/// No sender of IPv6 goes below 1280 bytes.
#[test]
fn a_way_that_is_too_narrow_for_a_family_is_not_told() {
    let mut bench = tunnels("10.0.0.1", "");
    let mut narrow = |mtu| {
        let way =
            Way::Beyond(NextHop { port: PortId::FIRST, to: GATEWAY, from: MAC, source: PORT, mtu });
        let ways = [(address("10.0.0.1"), way)].into();
        bench.tables.follow(&bench.services, &ways).unwrap();
        [service(), service6()].map(|to| {
            let came = long(to, 1300);
            bench.send(&came).frame == answer(&came, u32::from(mtu) - 20)
        })
    };
    assert_eq!(narrow(1300), [true, true]);
    assert_eq!(narrow(1299), [true, false]);
    assert_eq!(narrow(400), [true, false]);
    // Shorter than what an answer quotes.
    let short = long(service(), 500);
    assert_eq!((bench.send(&short).verdict, bench.fate(Fate::TooBig)), (DROP, 3));
}

#[test]
fn a_way_without_a_tunnel_that_takes_less_than_the_port_is_told() {
    let bench = Bench::new("-A -t 192.0.2.1:80 -s mh\n-a -t 192.0.2.1:80 -r 10.0.0.1 -g\n");
    assert_eq!(bench.send(&long(service(), 1500)).verdict, TX);
    let came = long(service(), 1501);
    assert_eq!(bench.send(&came).frame, answer(&came, 1500));
    assert_eq!((bench.fate(Fate::Balanced), bench.fate(Fate::Answered)), (1, 1));
}

/// What a sender on this machine leaves to its device to cut up.
#[test]
fn what_no_wire_carries_is_not_answered() {
    let bench = tunnels("10.0.0.1", "");
    let sent = std::thread::scope(|scope| {
        let in_namespace = || {
            // SAFETY: no memory or descriptor is unshared.
            #[allow(unsafe_code)]
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            let add = "link add port type veth peer name far".split(' ');
            assert!(Command::new("ip").args(add).status().unwrap().success());
            let port = index("port");
            let send = |bytes| {
                let frame = long(service(), bytes);
                run_arriving(bench.balancer.program(), &[], &frame, port).unwrap().0
            };
            [1500, 1501, 2920].map(|bytes| send(bytes).verdict)
        };
        scope.spawn(in_namespace).join().unwrap()
    });
    assert_eq!(sent, [TX, DROP, DROP]);
    assert_eq!((bench.fate(Fate::Answered), bench.fate(Fate::TooBig)), (1, 2));
}

#[test]
fn no_flood_gets_more_answers_than_a_thousand_a_second() {
    let bench = tunnels("10.0.0.1", "");
    let came = long(service(), 1500);
    let began = Instant::now();
    for _ in 0..2000 {
        bench.send(&came);
    }
    let most = AT_ONCE + began.elapsed().as_millis() as u64 + 1;
    let answered = bench.fate(Fate::Answered);
    assert!((AT_ONCE..=most).contains(&answered), "{answered} of at most {most}");
    assert_eq!(bench.fate(Fate::TooBig), 2000 - answered);
    std::thread::sleep(Duration::from_millis(2 * AT_ONCE));
    assert_eq!(bench.send(&came).verdict, TX);
}
