//! Several ports: a packet leaves where the way to its server leads, wherever it came in.

use super::*;
use crate::test_run::REDIRECT;

/// The addresses of the ports' devices.
const MACS: [[u8; 6]; 2] = [MAC, [2, 0, 0, 0, 0, 2]];

/// Two ports, each with a server behind it.
struct Ports {
    tables: BalanceTables,
    balancers: [Balancer; 2],
    services: Services,
}

impl Ports {
    fn new() -> Self {
        let tables = BalanceTables::new().unwrap();
        let number = |at| PortId::new(at as u8).unwrap();
        let load = |at: usize| {
            let port = BalancedPort { number: number(at), mac: MACS[at], ..port(false) };
            let mut balancer = Balancer::load(&tables, port).unwrap();
            balancer.reach(&[(number(1 - at), LOOPBACK)].into()).unwrap();
            balancer
        };
        let balancers = [load(0), load(1)];
        let mut ports = Self { balancers, tables, services: Services::default() };
        ports.services.restore(&web(2), NOW).unwrap();
        ports.follow([1500, 1500]);
        ports
    }

    /// The way to server 10.0.0.N leads through port N - 1, which takes as much as its MTU says.
    fn follow(&mut self, mtus: [u16; 2]) {
        let way = |at: usize| {
            let server = IpAddr::from([10, 0, 0, 1 + at as u8]);
            let port = PortId::new(at as u8).unwrap();
            (
                server,
                Way::Beyond(NextHop {
                    port,
                    to: GATEWAY,
                    from: MACS[at],
                    source: PORT,
                    mtu: mtus[at],
                }),
            )
        };
        self.tables.follow(&self.services, &[way(0), way(1)].into()).unwrap();
    }

    /// What becomes of `packet` that arrives at port `at`.
    fn send(&self, at: usize, packet: &[u8]) -> TestRun {
        let mut came = frame(packet);
        came[..6].copy_from_slice(&MACS[at]);
        run_arriving(self.balancers[at].program(), &[], &came, LOOPBACK).unwrap().0
    }

    fn counted(&self, at: usize, fate: Fate) -> Fated {
        self.tables.fates(PortId::new(at as u8).unwrap()).unwrap()[fate]
    }

    fn of_other_ports(&self, at: usize) -> Fated {
        self.tables.fates(PortId::new(at as u8).unwrap()).unwrap().of_other_ports()
    }
}

fn to_service(from: u16, bytes: usize) -> Vec<u8> {
    let mut segment = transport(TCP, [from, 80], SYN);
    segment.resize(bytes - 20, 0);
    ip(client(from), service(), TCP, &segment)
}

#[test]
fn a_packet_leaves_through_the_port_that_its_way_leads_through() {
    let ports = Ports::new();
    let mut left = [[0; 2]; 2];
    for at in [0, 1] {
        for number in 0..100 {
            let sent = ports.send(at, &to_service(number, 60));
            let through = match destination(&sent.frame) {
                server if server == address("10.0.0.1") => 0,
                _ => 1,
            };
            assert_eq!(sent.verdict, if through == at { TX } else { REDIRECT });
            assert_eq!(sent.frame[..12], [GATEWAY, MACS[through]].concat());
            left[at][through] += 1;
        }
    }
    assert_eq!(left[0], left[1], "a client has the same server at each port");
    for at in [0, 1] {
        assert!(left[at].iter().all(|packets| *packets > 20), "{left:?}");
        assert_eq!(ports.counted(at, Fate::Balanced).packets, left[at][at]);
        assert_eq!(ports.counted(at, Fate::Redirected).packets, left[at][1 - at]);
        assert_eq!(ports.of_other_ports(at), ports.counted(1 - at, Fate::Redirected));
    }
    assert_eq!(ports.tables.figures().unwrap().services[&0].packets, 200);
}

#[test]
fn a_packet_to_a_port_that_sends_nothing_of_others_is_dropped_and_counted() {
    let mut ports = Ports::new();
    ports.balancers[0].reach(&BTreeMap::new()).unwrap();
    for number in 0..50 {
        ports.send(0, &to_service(number, 60));
    }
    let lost = ports.counted(0, Fate::PortGone).packets;
    assert!(lost > 0);
    assert_eq!(ports.counted(0, Fate::Balanced).packets + lost, 50);
    assert_eq!(ports.of_other_ports(1), Fated::default());
    assert_eq!(ports.counted(0, Fate::Redirected), Fated::default());
}

#[test]
fn what_is_too_long_for_another_port_is_answered_where_it_came_in() {
    let mut ports = Ports::new();
    ports.services.restore(&web(2).replace("-i", "-g"), NOW).unwrap();
    ports.follow([1500, 1400]);
    let mut answered = 0;
    for number in 0..20 {
        let sent = ports.send(0, &to_service(number, 1450));
        assert_eq!(sent.verdict, TX);
        if sent.frame[ETHERNET + 9] == 1 {
            answered += 1;
            assert_eq!(sent.frame[..12], [[2, 0, 0, 0, 0, 7], MACS[0]].concat());
            let mtu = &sent.frame[ETHERNET + 26..ETHERNET + 28];
            assert_eq!(mtu, 1400_u16.to_be_bytes());
        }
    }
    assert!(answered > 0);
    assert_eq!(ports.counted(0, Fate::Answered).packets, answered);
}

/// IPVS's "Local": the packet goes up this box's own stack as it came, also where the command says
/// a tunnel.
#[test]
fn a_server_that_is_this_box_gets_its_packets_as_they_came() {
    let mut bench = Bench::new(&web(3));
    bench.ways.insert(address("10.0.0.2"), Way::Local);
    bench.tables.follow(&bench.services, &bench.ways).unwrap();
    let mut kept = 0;
    for number in 0..100 {
        // The way to no server takes so much, and nothing is on its last hop.
        let mut packet = to_service(number, 60);
        packet[8] = 1 + (number % 2) as u8;
        let came = frame(&packet);
        let sent = bench.send(&came);
        if expected(&bench, client(number), number, true) == address("10.0.0.2") {
            assert_eq!((sent.verdict, &sent.frame), (PASS, &came));
            kept += 1;
        }
    }
    assert!(kept > 10);
    assert_eq!(bench.fate(Fate::Local), kept);
    let figures = bench.tables.figures().unwrap();
    assert_eq!(figures.servers[&2].packets, kept);
    bench.run("edit -t 192.0.2.1:80 -r 10.0.0.2 --down");
    bench.ways.insert(address("10.0.0.2"), Way::Local);
    bench.tables.follow(&bench.services, &bench.ways).unwrap();
    for number in 0..100 {
        assert_ne!(bench.send(&frame(&to_service(number, 60))).verdict, PASS, "it is down");
    }
}
