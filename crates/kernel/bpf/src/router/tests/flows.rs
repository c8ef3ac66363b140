//! Packets of flows in the kernel's flowtable, between two hosts, with NAT.

use super::live::{Attached, Host, echo};
use super::*;
use crate::attach::{Hook, XdpMode};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

/// The server's addresses, behind `wan`.
const SERVER: [&str; 2] = ["10.0.1.7", "2001:db8:b::7"];
/// What the server sees: this box.
const OUTSIDE: [&str; 2] = ["10.0.1.1", "2001:db8:b::1"];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 7];
/// Hands connections over once they are answered, hides what is behind `lan`, and lets nobody in
/// from outside.
const FIREWALL: &str = "
    table inet home {
        flowtable f { hook ingress priority 0; devices = { lan, wan }; }
        chain forward {
            type filter hook forward priority 0; policy drop;
            ct state established flow add @f
            ct state established,related accept
            iifname lan accept
        }
        chain postrouting {
            type nat hook postrouting priority srcnat;
            oifname wan masquerade
        }
        chain prerouting {
            type nat hook prerouting priority dstnat;
            meta nfproto ipv4 iifname lan udp dport 5353 dnat ip to 10.0.1.7:53
        }
    }
";

/// Whether the kernel takes these rules; says why if not.
fn takes(rules: &str) -> bool {
    let mut nft = Command::new("nft");
    nft.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::null());
    let nft = nft.spawn();
    let taken = nft.and_then(|mut nft| {
        nft.stdin.take().unwrap().write_all(rules.as_bytes())?;
        nft.wait()
    });
    let is_taken = matches!(&taken, Ok(status) if status.success());
    if !is_taken {
        eprintln!("SKIPPED: this kernel has no flowtables: {taken:?}");
    }
    is_taken
}

/// A home's router, with a client behind `lan` and a server behind `wan`.
struct Home {
    client: Host,
    server: Host,
}

/// Runs `work` with a home by flows; says why if the kernel has none.
fn in_a_home(work: impl Fn(&Bed, &Home) + Send + Sync) {
    in_a_bed(|bed| {
        if !takes(FIREWALL) {
            return;
        }
        let router = bed.router().routed_by(RoutedBy::Flows);
        match router.program(LAN, false, Entry::Own, None) {
            Err(error) if error.to_string().contains("has no bpf_xdp_flow_lookup") => {
                return eprintln!("SKIPPED: {error}");
            }
            loaded => drop(loaded.unwrap()),
        }
        let hook = Hook::Xdp(XdpMode::Native);
        let client = Host::behind("lan", [NEAR, NEAR6], ["10.0.0.1", "2001:db8:a::1"], hook);
        let server = Host::behind("wan", SERVER, OUTSIDE, hook);
        client.run(|| ip("link set eth0 address 02:00:00:00:00:05"));
        server.run(|| ip("link set eth0 address 02:00:00:00:01:07"));
        work(bed, &Home { client, server });
    });
}

impl Home {
    /// A flow of UDP from the client to `to`, which the server answers, and its port as the server
    /// sees it.
    fn udp(&self, family: usize, to: SocketAddr) -> u16 {
        let answerer = self.server.run(move || UdpSocket::bind((SERVER[family], 53)).unwrap());
        let asker =
            self.client.run(move || UdpSocket::bind(([NEAR, NEAR6][family], 1000)).unwrap());
        for socket in [&answerer, &asker] {
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        }
        let exchange = || {
            let mut bytes = [0; 8];
            asker.send_to(b"question", to)?;
            let (_, from) = answerer.recv_from(&mut bytes)?;
            answerer.send_to(b"answer", from)?;
            asker.recv_from(&mut bytes)?;
            Ok::<_, std::io::Error>(from)
        };
        // The second packet of an answered flow is one of a flow. One may be lost where a route
        // has just changed.
        let exchanged: Vec<_> = (0..20).filter_map(|_| exchange().ok()).take(3).collect();
        assert_eq!(exchanged.len(), 3);
        assert_eq!(exchanged[2].ip().to_string(), OUTSIDE[family], "it is masqueraded");
        exchanged[2].port()
    }
}

/// Programs for both ports.
struct Steers([Steered; 2]);

impl Steers {
    fn of(router: &Router) -> Self {
        Self([(LAN, LAN_MAC), (WAN, WAN_MAC)].map(|(port, mac)| {
            let heartbeats = Heartbeats::new().unwrap();
            let mut heart = heartbeats.heart(0, Nanos(1)).unwrap();
            heart.beat(Nanos::ZERO);
            let stalled = Stalled::Pass;
            let watchdog = Watchdog { heartbeats, after: Nanos::from_secs(500), stalled };
            let entry = Entry::Own;
            let steer =
                Steer::load_router(mac, false, SEAL, watchdog, entry, router, port).unwrap();
            let socket = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
            rustix::net::sockopt::set_xdp_rx_ring_size(&socket, 64).unwrap();
            steer.serve(0, socket.as_fd()).unwrap();
            Steered { steer, heart, _socket: socket }
        }))
    }

    /// What becomes of a frame that arrives at `port`: the frame, if it leaves.
    fn run(&self, port: PortId, frame: &[u8]) -> Result<Vec<u8>, Outcome> {
        let steer = &self.0[port.index()].steer;
        let before = steer.outcomes().unwrap();
        let device = index(["lan", "wan"][port.index()]);
        let (run, meta) = run_arriving(steer.first(), &[], frame, device).unwrap();
        let after = steer.outcomes().unwrap();
        let mut counted = after.iter().zip(before.iter()).filter(|(a, b)| a != b);
        let ((outcome, _), _) = counted.next().expect("it is counted");
        assert!(counted.next().is_none());
        match (outcome, run.verdict) {
            (Outcome::ByFlow, REDIRECT) => {
                let other = if port == LAN { WAN } else { LAN };
                assert_eq!(egress_port(&meta, SEAL), Some(other.index() as u8));
                Ok(run.frame)
            }
            (outcome, PASS) => {
                assert!(run.frame == frame && meta.is_empty(), "{outcome:?}: it is altered");
                Err(outcome)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Where the addresses of a frame begin, how long each is, and where its ports are.
fn places(frame: &[u8]) -> (usize, usize, usize) {
    if frame[12] == 8 { (26, 4, 34) } else { (22, 16, 54) }
}

/// The frame with right checksums. UDP without one stays so.
fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    let (addresses, bytes, ports) = places(&frame);
    let is_udp = frame[if bytes == 4 { 23 } else { 20 }] == 17;
    let at = ports + if is_udp { 6 } else { 16 };
    if bytes == 4 {
        seal_header(&mut frame);
    }
    if is_udp && bytes == 4 && frame[at..at + 2] == [0, 0] {
        return frame;
    }
    frame[at..at + 2].fill(0);
    let mut all = frame[addresses..].to_vec();
    let protocol: u16 = if is_udp { 17 } else { 6 };
    all.resize(all.len().next_multiple_of(2), 0);
    all.extend(protocol.to_be_bytes());
    all.extend((frame.len() as u16 - ports as u16).to_be_bytes());
    let sum = match checksum(&all) {
        0 if is_udp => 0xffff,
        sum => sum,
    };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The frame with these ends, each an address and a port, as it is routed from `from` to `to`.
fn translated(frame: &[u8], ends: [(&str, u16); 2], from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let mut frame = model::leaving(frame, from, to);
    let (addresses, bytes, ports) = places(&frame);
    for (place, (address, port)) in ends.into_iter().enumerate() {
        let octets = match address.parse().unwrap() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        frame[addresses + place * bytes..][..bytes].copy_from_slice(&octets);
        frame[ports + place * 2..][..2].copy_from_slice(&port.to_be_bytes());
    }
    sealed(frame)
}

/// A frame of UDP from `from`, where `gateway` leads on.
fn udp(from: (&str, u16), to: (&str, u16), macs: [[u8; 6]; 2], bytes: usize) -> Vec<u8> {
    let mut frame = frame(from.0, to.0, 8 + bytes);
    frame[..12].copy_from_slice(&macs.concat());
    let (_, _, ports) = places(&frame);
    frame[ports..ports + 2].copy_from_slice(&from.1.to_be_bytes());
    frame[ports + 2..ports + 4].copy_from_slice(&to.1.to_be_bytes());
    sealed(frame)
}

const FROM_CLIENT: [[u8; 6]; 2] = [LAN_MAC, HOST];
const FROM_SERVER: [[u8; 6]; 2] = [WAN_MAC, SERVER_MAC];

#[test]
fn a_packet_of_a_flow_leaves_with_the_ends_of_its_translation_and_right_checksums() {
    in_a_home(|bed, home| {
        let router = bed.router().routed_by(RoutedBy::Flows);
        bed.follow(&router);
        let steers = Steers::of(&router);
        let asked: [(usize, SocketAddr); 3] = [
            (0, (SERVER[0].parse::<IpAddr>().unwrap(), 53).into()),
            (1, (SERVER[1].parse::<IpAddr>().unwrap(), 53).into()),
            // Another address and port, which lead to the server.
            (0, (Ipv4Addr::new(10, 0, 1, 99), 5353).into()),
        ];
        for (family, to) in asked {
            let client = ([NEAR, NEAR6][family], 1000);
            let server = (SERVER[family], 53);
            let outside = (OUTSIDE[family], home.udp(family, to));
            let named = to.ip().to_string();
            bed.follow(&router);
            for bytes in [0, 1, 2, 37, 1400] {
                let there = udp(client, (&named, to.port()), FROM_CLIENT, bytes);
                let expected = translated(&there, [outside, server], WAN_MAC, SERVER_MAC);
                assert!(steers.run(LAN, &there) == Ok(expected), "{bytes} bytes to {to}");
                let back = udp(server, outside, FROM_SERVER, bytes);
                let expected = translated(&back, [(&named, to.port()), client], LAN_MAC, HOST);
                assert!(steers.run(WAN, &back) == Ok(expected), "{bytes} bytes from {to}");
            }
            // Checksums all over their range.
            for word in (0..=u16::MAX).step_by(255) {
                let mut there = udp(client, (&named, to.port()), FROM_CLIENT, 2);
                let end = there.len() - 2;
                there[end..].copy_from_slice(&word.to_be_bytes());
                let there = sealed(there);
                let expected = translated(&there, [outside, server], WAN_MAC, SERVER_MAC);
                assert!(steers.run(LAN, &there) == Ok(expected), "{word} to {to}");
            }
            if family == 0 {
                let mut there = udp(client, (&named, to.port()), FROM_CLIENT, 9);
                there[40..42].fill(0);
                let left = steers.run(LAN, &there).unwrap();
                assert_eq!(left[40..42], [0, 0], "UDP without a checksum gets none");
            }
        }
    });
}

#[test]
fn whatever_is_not_plainly_of_a_flow_goes_to_the_kernel_as_it_came() {
    in_a_home(|bed, home| {
        let router = bed.router().routed_by(RoutedBy::Flows);
        bed.follow(&router);
        let steers = Steers::of(&router);
        let there = || udp((NEAR, 1000), (SERVER[0], 53), FROM_CLIENT, 9);
        assert_eq!(steers.run(LAN, &there()), Err(Outcome::NoFlow), "nothing was handed over");
        home.udp(0, (SERVER[0].parse::<IpAddr>().unwrap(), 53).into());
        bed.follow(&router);
        assert!(steers.run(LAN, &there()).is_ok());

        let other_port = udp((NEAR, 1001), (SERVER[0], 53), FROM_CLIENT, 9);
        assert_eq!(steers.run(LAN, &other_port), Err(Outcome::NoFlow));
        // From the other side, where the flow does not come from.
        let spoofed = udp((NEAR, 1000), (SERVER[0], 53), [WAN_MAC, SERVER_MAC], 9);
        assert_eq!(steers.run(WAN, &spoofed), Err(Outcome::NoFlow));
        for (at, byte, outcome) in [
            (5, 9, Outcome::NotForUs),
            (14, 0x46, Outcome::Options),
            (22, 1, Outcome::Ttl),
            (23, 1, Outcome::NoFlow),
            (20, 0x20, Outcome::NoFlow),
            (21, 1, Outcome::NoFlow),
            (17, 27, Outcome::Short),
        ] {
            assert_eq!(steers.run(LAN, &with(there(), at, byte)), Err(outcome), "{at}: {byte}");
        }
        let long = udp((NEAR, 1000), (SERVER[0], 53), FROM_CLIENT, 1473);
        assert_eq!(steers.run(LAN, &long), Err(Outcome::TooLong));

        // Another route than when it was handed over. The kernel looks for such flows each second,
        // and removes them.
        let is_gone_or = |found: Result<Vec<u8>, Outcome>, outcome| {
            found == Err(outcome) || found == Err(Outcome::NoFlow)
        };
        let hand_over_again = || {
            home.udp(0, (SERVER[0].parse::<IpAddr>().unwrap(), 53).into());
            bed.follow(&router);
            assert!(steers.run(LAN, &there()).is_ok());
        };
        ip("route add 10.0.1.7 via 10.0.2.2 dev aside");
        bed.follow(&router);
        assert!(is_gone_or(steers.run(LAN, &there()), Outcome::OtherPort));
        ip("route del 10.0.1.7 via 10.0.2.2 dev aside");
        hand_over_again();
        ip("route add 10.0.1.7 via 10.0.1.2 dev wan");
        bed.follow(&router);
        match (steers.run(LAN, &there()), bed.by_tables) {
            // Without rules a route is the kernel's next choice, too.
            (Ok(frame), true) => assert_eq!(frame[..6], HOP),
            (other, _) => assert!(is_gone_or(other, Outcome::OtherWay)),
        }
        ip("route del 10.0.1.7 via 10.0.1.2 dev wan");
        hand_over_again();
        ip("neigh flush dev wan");
        bed.follow(&router);
        assert!(is_gone_or(steers.run(LAN, &there()), Outcome::NoNeighbour));
        hand_over_again();
        assert!(takes("flush ruleset"));
        assert_eq!(steers.run(LAN, &there()), Err(Outcome::NoFlow), "the flowtable is gone");
    });
}

#[test]
fn tcp_opens_and_closes_by_the_kernel_and_runs_by_its_flow() {
    in_a_home(|bed, home| {
        let router = bed.router().routed_by(RoutedBy::Flows);
        let steers = Steers::of(&router);
        let listener = home.server.run(|| TcpListener::bind((SERVER[0], 7)).unwrap());
        let mut near = home.client.run(|| TcpStream::connect((SERVER[0], 7)).unwrap());
        let (mut far, _) = listener.accept().unwrap();
        let outside = (OUTSIDE[0], far.peer_addr().unwrap().port());
        let client = (NEAR, near.local_addr().unwrap().port());
        for _ in 0..3 {
            near.write_all(b"there").unwrap();
            far.write_all(b"back").unwrap();
            thread::sleep(Duration::from_millis(50));
        }
        bed.follow(&router);
        let tcp = |flags: u8, bytes: usize| {
            let mut frame = udp(client, (SERVER[0], 7), FROM_CLIENT, 12 + bytes);
            frame[23] = 6;
            frame[46] = 0x50;
            frame[47] = flags;
            sealed(frame)
        };
        const ACK: u8 = 16;
        for bytes in [0, 1, 100] {
            let there = tcp(ACK, bytes);
            let ends = [outside, (SERVER[0], 7)];
            let expected = translated(&there, ends, WAN_MAC, SERVER_MAC);
            assert!(steers.run(LAN, &there) == Ok(expected), "{bytes}");
        }
        for flag in [1, 2, 4] {
            assert_eq!(steers.run(LAN, &tcp(ACK | flag, 0)), Err(Outcome::Handshake), "{flag}");
        }
        let mut short = tcp(ACK, 0);
        short.pop();
        let bytes = (short.len() - 14) as u16;
        short[16..18].copy_from_slice(&bytes.to_be_bytes());
        seal_header(&mut short);
        assert_eq!(steers.run(LAN, &short), Err(Outcome::Short));
    });
}

#[test]
fn connections_through_a_home_s_router_run_in_the_driver_and_nobody_comes_in() {
    in_a_home(|bed, home| {
        let hook = Hook::Xdp(XdpMode::Native);
        let by_tables = [bed.by_tables; 2];
        // Its tables are empty: all is asked.
        let ingress = Ingress { by_tables, ..Ingress::default() };
        let attached = Attached::routing(hook, RoutedBy::Flows, ingress).unwrap();
        for server in SERVER {
            echo(&home.client, &home.server, server, 2_000_000);
        }
        let by_flow = attached.routed(Outcome::ByFlow);
        assert_eq!(attached.sent(), by_flow);
        assert!(by_flow > 2000, "{by_flow}");
        assert!(attached.routed(Outcome::Handshake) >= 4);
        // The firewall still sees who begins.
        let listener = home.client.run(|| TcpListener::bind((NEAR, 9)).unwrap());
        home.server.run(|| ip("route add 10.0.0.0/24 via 10.0.1.1"));
        let address = listener.local_addr().unwrap();
        let refused = home
            .server
            .run(move || TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_err());
        assert!(refused, "a connection came in");
    });
}
