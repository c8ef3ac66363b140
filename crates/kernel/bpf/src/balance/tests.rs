//! Packets of services, in test runs: what leaves, and to whom.

use super::*;
use crate::test_run::{DROP, PASS, TX, TestRun, run_arriving};
use crate::tree::tests::checksum;
use narrows_balance::Seen;
use narrows_units::Nanos;
use proptest::prelude::*;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::net::{Ipv4Addr, Ipv6Addr};

mod ports;
mod quic;
mod too_big;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 9];
const PORT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254));
const PORT6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe));
const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 2;
const ACK: u8 = 16;
const LOOPBACK: u32 = 1;
const ETHERNET: usize = 14;
const NOW: Nanos = Nanos::from_secs(1);

const fn port(multi_buffer: bool) -> BalancedPort {
    BalancedPort { number: PortId::FIRST, mac: MAC, multi_buffer, entry: Entry::Own }
}

struct Bench {
    services: Services,
    tables: BalanceTables,
    balancer: Balancer,
    ways: BTreeMap<IpAddr, Way>,
}

impl Bench {
    fn new(text: &str) -> Self {
        let tables = BalanceTables::new().unwrap();
        let balancer = Balancer::load(&tables, port(false)).unwrap();
        let mut bench =
            Self { services: Services::default(), tables, balancer, ways: BTreeMap::new() };
        bench.services.restore(text, NOW).unwrap();
        bench.follow();
        bench
    }

    /// Applies the services; all their servers can be reached.
    fn follow(&mut self) {
        for (id, ..) in self.services.iter() {
            for (server, _) in self.services.servers(id) {
                let source = if server.address.is_ipv4() { PORT } else { PORT6 };
                let way = Way::Beyond(NextHop {
                    port: PortId::FIRST,
                    to: GATEWAY,
                    from: MAC,
                    source,
                    mtu: 1500,
                });
                self.ways.insert(server.address, way);
            }
        }
        self.tables.follow(&self.services, &self.ways).unwrap();
    }

    fn run(&mut self, line: &str) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let reply = self.services.run(&words, &Seen::default, NOW);
        assert_eq!(reply.code, 0, "{line}: {}", reply.stderr);
        self.follow();
    }

    fn send(&self, frame: &[u8]) -> TestRun {
        run_arriving(self.balancer.program(), &[], frame, LOOPBACK).unwrap().0
    }

    /// Which server a frame goes to, by the outer header of IP in IP.
    fn goes(&self, frame: &[u8]) -> Option<IpAddr> {
        let sent = self.send(frame);
        (sent.verdict == TX).then(|| destination(&sent.frame))
    }

    fn fate(&self, fate: Fate) -> u64 {
        self.tables.fates(PortId::FIRST).unwrap()[fate].packets
    }
}

fn destination(frame: &[u8]) -> IpAddr {
    match frame[12..14] {
        [8, 0] => IpAddr::from(<[u8; 4]>::try_from(&frame[30..34]).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(&frame[38..54]).unwrap()),
    }
}

/// An IP packet with `payload`.
fn ip(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0x28, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0];
            header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
            header.extend(from.octets());
            header.extend(to.octets());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut header = vec![0x62, 0x80, 0, 0, 0, 0, protocol, 64];
            header[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
            header.extend(from.octets());
            header.extend(to.octets());
            header
        }
        _ => panic!("of one family"),
    };
    packet.extend(payload);
    packet
}

fn frame(packet: &[u8]) -> Vec<u8> {
    let kind: u16 = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    let mut frame = [MAC, [2, 0, 0, 0, 0, 7]].concat();
    frame.extend(kind.to_be_bytes());
    frame.extend(packet);
    frame
}

fn transport(protocol: u8, ports: [u16; 2], flags: u8) -> Vec<u8> {
    let mut header: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    if protocol == TCP {
        header.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    } else {
        header.extend([0, 12, 0, 0]);
    }
    header.extend(b"data");
    header
}

fn tcp(client: IpAddr, port: u16, to: IpAddr, flags: u8) -> Vec<u8> {
    frame(&ip(client, to, TCP, &transport(TCP, [port, 80], flags)))
}

fn client(number: u16) -> IpAddr {
    IpAddr::from(Ipv4Addr::from(0xc633_6400 + u32::from(number)))
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn service() -> IpAddr {
    address("192.0.2.1")
}

fn web(servers: u8) -> String {
    let server = |number| format!("-a -t 192.0.2.1:80 -r 10.0.0.{number} -i\n");
    let servers: String = (1..=servers).map(server).collect();
    format!("-A -t 192.0.2.1:80 -s mh -b mh-port\n{servers}")
}

/// The inner packet is the one that came, with one hop less.
fn assert_inner(sent: &[u8], outer: usize, came: &[u8]) {
    let (inner, mut before) = (&sent[ETHERNET + outer..], came[ETHERNET..].to_vec());
    if before[0] >> 4 == 4 {
        before[8] -= 1;
        before[10..12].fill(0);
        let sum = checksum(&before[..20]);
        before[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        before[7] -= 1;
    }
    assert_eq!(inner, before);
}

#[test]
fn a_packet_goes_in_an_ip_packet_to_its_server() {
    let bench = Bench::new(&web(1));
    let came = tcp(client(1), 1000, service(), SYN);
    let sent = bench.send(&came);
    assert_eq!(sent.verdict, TX);
    assert_eq!(sent.frame[..14], [&GATEWAY[..], &MAC, &[8, 0]].concat());
    let outer = &sent.frame[14..34];
    assert_eq!(checksum(outer), 0);
    assert_eq!((outer[0], outer[1], outer[8], outer[9]), (0x45, 0x28, 64, 4));
    assert_eq!(u16::from_be_bytes([outer[2], outer[3]]) as usize, sent.frame.len() - 14);
    assert_eq!(outer[12..], [10, 0, 0, 254, 10, 0, 0, 1]);
    assert_inner(&sent.frame, 20, &came);
}

#[test]
fn a_packet_of_either_family_goes_in_one_of_either_family() {
    let six = address("2001:db8::1");
    let client6 = address("2001:db8:c::1");
    for (server, overhead) in [("10.0.0.1", 20), ("2001:db8::2", 40)] {
        for (gue, more) in [("", 0), (" --tun-type gue --tun-port 7000", 12)] {
            for (to, from) in [(service(), client(1)), (six, client6)] {
                let at = if to.is_ipv4() { "192.0.2.1:80" } else { "[2001:db8::1]:80" };
                let server_words =
                    if server.contains(':') { format!("[{server}]") } else { server.into() };
                let bench = Bench::new(&format!(
                    "-A -t {at} -s mh\n-a -t {at} -r {server_words} -i{gue}\n"
                ));
                let came = tcp(from, 1000, to, SYN);
                let sent = bench.send(&came);
                assert_eq!(sent.verdict, TX, "{at} {server}{gue}");
                assert_eq!(destination(&sent.frame), address(server));
                assert_inner(&sent.frame, overhead + more, &came);
                let inner = if to.is_ipv4() { 4 } else { 41 };
                let carried = sent.frame[14 + if overhead == 20 { 9 } else { 6 }];
                assert_eq!(carried, if more == 0 { inner } else { UDP });
                if more > 0 {
                    let udp = &sent.frame[14 + overhead..][..12];
                    assert_eq!(udp[2..4], 7000_u16.to_be_bytes());
                    let length = u16::from_be_bytes([udp[4], udp[5]]);
                    assert_eq!(usize::from(length), sent.frame.len() - 14 - overhead);
                    assert_eq!(udp[6..], [0, 0, 0, inner, 0, 0]);
                }
            }
        }
    }
}

#[test]
fn a_server_of_the_same_network_gets_the_packet_as_it_is() {
    let bench = Bench::new("-A -t 192.0.2.1:80 -s mh\n-a -t 192.0.2.1:80 -r 10.0.0.1 -g\n");
    let came = tcp(client(1), 1000, service(), ACK);
    let sent = bench.send(&came);
    assert_eq!((sent.verdict, &sent.frame[..12]), (TX, &[GATEWAY, MAC].concat()[..]));
    assert_inner(&sent.frame, 0, &came);
}

#[test]
fn what_is_of_no_service_goes_on_as_it_came() {
    let bench = Bench::new(&web(2));
    let other_mac = {
        let mut frame = tcp(client(1), 1000, service(), SYN);
        frame[0] = 0xff;
        frame
    };
    let tagged = {
        let mut frame = tcp(client(1), 1000, service(), SYN);
        frame.splice(12..12, [0x81, 0, 0, 5]);
        frame
    };
    let fragment = {
        let mut frame = tcp(client(1), 1000, service(), SYN);
        frame[20] = 0x20;
        frame
    };
    let elsewhere = [
        tcp(client(1), 1000, address("192.0.2.2"), SYN),
        frame(&ip(client(1), service(), TCP, &transport(TCP, [1000, 81], SYN))),
        frame(&ip(client(1), service(), UDP, &transport(UDP, [1000, 80], 0))),
        frame(&ip(client(1), service(), 1, &[8, 0, 0, 0, 0, 1, 0, 1])),
        frame(&ip(client(1), service(), 50, &[0; 20])),
        other_mac,
        tagged,
    ];
    for came in &elsewhere {
        let sent = bench.send(came);
        assert_eq!((sent.verdict, &sent.frame), (PASS, came));
    }
    assert_eq!(bench.send(&fragment).verdict, PASS);
    assert_eq!(bench.fate(Fate::Elsewhere), elsewhere.len() as u64);
    assert_eq!(bench.fate(Fate::Fragment), 1);
}

#[test]
fn what_cannot_be_sent_is_dropped_and_counted() {
    let mut bench = Bench::new(&web(1));
    let came = tcp(client(1), 1000, service(), SYN);
    let mut last = came.clone();
    last[22] = 1;
    assert_eq!((bench.send(&last).verdict, bench.fate(Fate::Expired)), (DROP, 1));
    bench.tables.follow(&bench.services, &BTreeMap::new()).unwrap();
    assert_eq!((bench.send(&came).verdict, bench.fate(Fate::NoWay)), (DROP, 1));
    bench.run("edit -t 192.0.2.1:80 -r 10.0.0.1 -w 0");
    assert_eq!((bench.send(&came).verdict, bench.fate(Fate::NoServer)), (DROP, 1));
    let established = tcp(client(1), 1000, service(), ACK);
    assert_eq!(bench.send(&established).verdict, TX, "it drains");
    bench.run("del -t 192.0.2.1:80");
    assert_eq!(bench.send(&came).verdict, PASS, "there is no service");
}

/// An oracle: the slot of the ring of what crates/core/balance hashes.
fn expected(bench: &Bench, from: IpAddr, port: u16, hashes_port: bool) -> IpAddr {
    let (id, _, _, ring) = bench.services.iter().next().unwrap();
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    match from {
        IpAddr::V4(from) => hasher.write_u64(u32::from_ne_bytes(from.octets()).into()),
        IpAddr::V6(from) => hasher.write(&from.octets()),
    }
    hasher.write_u64(if hashes_port { port.into() } else { 0 });
    let slot = ((hasher.finish() >> 32) * ring.slots().len() as u64) >> 32;
    let number = ring.slots()[slot as usize].now;
    let mut servers = bench.services.servers(id);
    servers.find(|(_, server)| server.number == number).unwrap().0.address
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_connection_goes_where_the_ring_says(
        flows in prop::collection::vec((any::<u16>(), any::<u16>(), any::<bool>()), 1..60),
    ) {
        let bench = Bench::new(&web(7));
        for (number, port, is_new) in flows {
            let came = tcp(client(number), port, service(), if is_new { SYN } else { ACK });
            prop_assert_eq!(bench.goes(&came), Some(expected(&bench, client(number), port, true)));
        }
    }
}

#[test]
fn without_a_flag_all_connections_of_a_client_go_to_one_server() {
    let bench = Bench::new(&web(7).replace(" -b mh-port", ""));
    for number in 0..50 {
        let expected = expected(&bench, client(number), 0, false);
        for port in [1, 2, 3] {
            assert_eq!(bench.goes(&tcp(client(number), port, service(), SYN)), Some(expected));
        }
    }
    let six = bench_of_six();
    for number in 0..20 {
        let from = IpAddr::from(Ipv6Addr::from(0x2001_0db8_000c << 80 | number));
        let came = tcp(from, 5, address("2001:db8::1"), SYN);
        assert_eq!(six.goes(&came), Some(expected(&six, from, 0, false)));
    }
}

fn bench_of_six() -> Bench {
    let at = "[2001:db8::1]:80";
    let server = |number| format!("-a -t {at} -r 10.0.0.{number} -i\n");
    let servers: String = (1..=7).map(server).collect();
    Bench::new(&format!("-A -t {at} -s mh\n{servers}"))
}

/// Connections from before and after a server drains, goes and comes back: none moves whose server
/// is there.
#[test]
fn connections_stay_while_servers_come_and_go() {
    const FLOWS: u16 = 400;
    let mut bench = Bench::new(&web(5));
    let packet = |number, flags| tcp(client(number), 1000 + number, service(), flags);
    let mut at: BTreeMap<u16, IpAddr> = BTreeMap::new();
    let mut next = 0;
    let steps = [
        "edit -t 192.0.2.1:80 -r 10.0.0.2 -w 0",
        "add -t 192.0.2.1:80 -r 10.0.0.6 -i",
        "del -t 192.0.2.1:80 -r 10.0.0.3",
        "edit -t 192.0.2.1:80 -r 10.0.0.2 -w 3",
        "add -t 192.0.2.1:80 -r 10.0.0.3 -i",
        "edit -t 192.0.2.1:80 -r 10.0.0.4 --down",
        "edit -t 192.0.2.1:80 -r 10.0.0.4 --up",
    ];
    for step in [&["list"], &steps[..]].concat() {
        bench.run(step);
        let left = match step {
            step if step.contains("del") => Some(address("10.0.0.3")),
            step if step.contains("--down") => Some(address("10.0.0.4")),
            _ => None,
        };
        let (moved, stay) = at.into_iter().partition(|(_, server)| Some(*server) == left);
        let moved: BTreeMap<u16, IpAddr> = moved;
        at = stay;
        for number in moved.keys() {
            assert_ne!(bench.goes(&packet(*number, ACK)), left, "{number}, after {step}");
        }
        for (number, server) in &at {
            assert_eq!(bench.goes(&packet(*number, ACK)), Some(*server), "{number}, after {step}");
        }
        for number in next..next + FLOWS {
            at.insert(number, bench.goes(&packet(number, SYN)).unwrap());
        }
        next += FLOWS;
        for (number, server) in &at {
            assert_eq!(bench.goes(&packet(*number, ACK)), Some(*server), "{number}, in {step}");
        }
    }
    bench.services.settle(NOW + Nanos::from_secs(1000));
    bench.follow();
    for (number, server) in &at {
        assert_eq!(bench.goes(&packet(*number, ACK)), Some(*server), "{number}, settled");
    }
}

#[test]
fn servers_take_turns_and_a_connection_stays() {
    let bench = Bench::new(
        "-A -t 192.0.2.1:80 -s wrr\n\
         -a -t 192.0.2.1:80 -r 10.0.0.1 -i -w 3\n-a -t 192.0.2.1:80 -r 10.0.0.2 -i -w 1\n",
    );
    let packet = |number, flags| tcp(client(number), 7, service(), flags);
    let first: Vec<IpAddr> =
        (0..8).map(|number| bench.goes(&packet(number, SYN)).unwrap()).collect();
    let of_one = first.iter().filter(|server| **server == address("10.0.0.1")).count();
    assert_eq!(of_one, 6);
    for (number, server) in (0..).zip(&first) {
        assert_eq!(bench.goes(&packet(number, ACK)), Some(*server));
    }
    assert_eq!(bench.send(&packet(100, ACK)).verdict, PASS, "nobody knows it");
    assert_eq!(bench.fate(Fate::Unrecorded), 1);
}

#[test]
fn more_connections_than_the_front_has_stay_at_their_servers() {
    let bench = Bench::new(
        "-A -t 192.0.2.1:80 -s rr\n\
         -a -t 192.0.2.1:80 -r 10.0.0.1 -i\n-a -t 192.0.2.1:80 -r 10.0.0.2 -i\n",
    );
    let packet = |number: u32, flags| {
        tcp(IpAddr::from(Ipv4Addr::from(0x0b00_0000 + number)), 7, service(), flags)
    };
    let all = 0..(ROWS / 16 * 8) as u32 + 50_000;
    let first: Vec<Option<IpAddr>> =
        all.clone().map(|number| bench.goes(&packet(number, SYN))).collect();
    for (number, server) in all.zip(first) {
        assert_eq!(bench.goes(&packet(number, ACK)), server, "{number}");
    }
}

#[test]
fn a_client_that_persists_for_hours_stays_where_servers_take_turns() {
    let bench = Bench::new(
        "-A -t 192.0.2.1:0 -s rr -p 7200\n\
         -a -t 192.0.2.1:0 -r 10.0.0.1 -i\n-a -t 192.0.2.1:0 -r 10.0.0.2 -i\n",
    );
    let goes = |number| bench.goes(&tcp(client(number), 7, service(), SYN));
    let first: Vec<Option<IpAddr>> = (0..100).map(goes).collect();
    assert_eq!((0..100).map(goes).collect::<Vec<_>>(), first);
}

#[test]
fn a_client_that_persists_stays_where_servers_take_turns() {
    let bench = Bench::new(
        "-A -t 192.0.2.1:0 -s rr -p 300 -M 255.255.255.0\n\
         -a -t 192.0.2.1:0 -r 10.0.0.1 -i\n-a -t 192.0.2.1:0 -r 10.0.0.2 -i\n",
    );
    let first = bench.goes(&tcp(client(1), 1, service(), SYN));
    for number in 2..20 {
        assert_eq!(bench.goes(&tcp(client(number), number, service(), SYN)), first);
    }
    let mut fragment = tcp(client(3), 1000, service(), ACK);
    fragment[21] = 9;
    assert_eq!(bench.goes(&fragment), first, "a fragment is of that client, too");
}

#[test]
fn datagrams_of_a_client_stay_when_servers_come() {
    let text = web(2).replace("-t", "-u");
    let mut bench = Bench::new(&text);
    let packet = |number| frame(&ip(client(number), service(), UDP, &transport(UDP, [5, 80], 0)));
    let first: Vec<Option<IpAddr>> = (0..100).map(|number| bench.goes(&packet(number))).collect();
    bench.run("add -u 192.0.2.1:80 -r 10.0.0.3 -i");
    for (number, server) in (0..).zip(first) {
        assert_eq!(bench.goes(&packet(number)), server);
    }
    let new: Vec<Option<IpAddr>> = (100..200).map(|number| bench.goes(&packet(number))).collect();
    assert!(new.contains(&Some(address("10.0.0.3"))), "new ones go there, too");
}

#[test]
fn an_error_goes_to_the_server_whose_packet_it_quotes() {
    let bench = Bench::new(&web(7));
    for number in 0..40 {
        let expected = expected(&bench, client(number), 1000, true);
        let quoted = ip(service(), client(number), TCP, &transport(TCP, [80, 1000], ACK));
        let error = [&[3, 4, 0, 0, 0, 0, 5, 0], &quoted[..28]].concat();
        let came = frame(&ip(address("203.0.113.1"), service(), 1, &error));
        assert_eq!(bench.goes(&came), Some(expected));
    }
    let six = bench_of_six();
    let from = address("2001:db8:c::9");
    let quoted = ip(address("2001:db8::1"), from, TCP, &transport(TCP, [80, 1000], ACK));
    let error = [&[2, 0, 0, 0, 0, 0, 5, 0], &quoted[..]].concat();
    let came = frame(&ip(address("2001:db8:f::1"), address("2001:db8::1"), 58, &error));
    assert_eq!(six.goes(&came), Some(expected(&six, from, 1000, false)));
}

/// Of a frame in several buffers a program reaches only the first.
#[test]
fn a_frame_in_several_buffers_is_as_long_as_its_header_says() {
    let mut bench = Bench::new(&web(1));
    bench.balancer = Balancer::load(&bench.tables, port(true)).unwrap();
    let way = Way::Beyond(NextHop {
        port: PortId::FIRST,
        to: GATEWAY,
        from: MAC,
        source: PORT,
        mtu: 9000,
    });
    bench.ways.insert(address("10.0.0.1"), way);
    bench.tables.follow(&bench.services, &bench.ways).unwrap();
    let payload = [&transport(TCP, [1, 80], ACK)[..], &[7; 6000]].concat();
    let came = frame(&ip(client(1), service(), TCP, &payload));
    let sent = bench.send(&came);
    assert_eq!(sent.verdict, TX);
    assert_eq!(sent.frame.len(), came.len() + 20);
    let said = u16::from_be_bytes([sent.frame[16], sent.frame[17]]);
    assert_eq!(usize::from(said), sent.frame.len() - ETHERNET);
    assert_eq!(bench.tables.figures().unwrap().services[&0].bytes, came.len() as u64);
}

#[test]
fn packets_and_connections_are_counted() {
    let mut bench = Bench::new(&web(1));
    for flags in [SYN, ACK, ACK] {
        bench.send(&tcp(client(1), 1000, service(), flags));
    }
    let Figures { services, servers } = bench.tables.figures().unwrap();
    let due = Counts { connections: 1, packets: 3, bytes: 3 * (14 + 20 + 24) };
    assert_eq!((services[&0], servers[&1]), (due, due));
    assert_eq!(bench.fate(Fate::Balanced), 3);
    bench.run("edit -t 192.0.2.1:80 -r 10.0.0.1 --down");
    assert_eq!(bench.tables.figures().unwrap().servers[&1], due, "its counters stay");
}

#[test]
fn a_flood_of_new_connections_moves_none_of_the_old() {
    let bench = Bench::new(&web(5));
    let first: Vec<Option<IpAddr>> =
        (0..100).map(|number| bench.goes(&tcp(client(number), 1, service(), SYN))).collect();
    for number in 0..20_000_u32 {
        let from = IpAddr::from(Ipv4Addr::from(0x0b00_0000 + number));
        bench.send(&tcp(from, 9, service(), SYN));
    }
    for (number, server) in (0..).zip(first) {
        assert_eq!(bench.goes(&tcp(client(number), 1, service(), ACK)), server);
    }
}
