//! A balancer that reads connection ids of QUIC: a client whose address changes keeps its server.

use crate::balance::{Farm, PATIENCE, SERVERS, VIP, server_ip};
use crate::setup::{own_path, port_in, show, turn_to_count, wait_until};
use narrows_testbed::bed::PORT_A;
use narrows_testbed::serve;
use std::collections::BTreeSet;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::Duration;

const PORT: u16 = 443;

/// Each server answers each datagram with its number.
fn serve_datagrams(farm: &Farm) {
    for number in 1..=SERVERS {
        let address = SocketAddrV4::new(VIP, PORT);
        let device = format!("s{number}");
        let socket = serve::datagrams_at_device(farm.bed.server(), &device, address).unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 2000];
            while let Ok((_, client)) = socket.recv_from(&mut bytes) {
                if socket.send_to(&[number], client).is_err() {
                    return;
                }
            }
        });
    }
}

/// A service whose servers have ids: server N has 0x1000 + N.
fn add_servers(farm: &Farm) {
    farm.balance(&format!("add -u {VIP}:{PORT} -s mh -b mh-port --quic lb:3"));
    for number in 1..=SERVERS {
        let id = 0x1000 + u32::from(number);
        let server = server_ip(number);
        farm.balance(&format!("add -u {VIP}:{PORT} -r {server} --quic-id {id:#x}"));
    }
    farm.wait_for_ways();
}

/// A packet with a short header, whose connection id names `server`; or an Initial, whose id its
/// client has chosen.
fn packet(server: Option<u8>) -> Vec<u8> {
    let mut packet = match server {
        Some(server) => vec![0x40, 0x0b, 0, 0x10, server, 5, 5, 5, 5, 5, 5, 5, 5],
        None => vec![0xc0, 0, 0, 0, 1, 8, 0x0b, 0, 0x10, 1, 9, 9, 9, 9, 0],
    };
    packet.resize(60, 1);
    packet
}

/// Which server answers `packet` from another port than all before.
fn ask(farm: &Farm, packet: &[u8]) -> Option<u8> {
    let ask = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        let mut byte = [0];
        for _ in 0..PATIENCE.as_millis() / 500 {
            socket.send_to(packet, (VIP, PORT))?;
            if socket.recv(&mut byte).is_ok() {
                return Ok(Some(byte[0]));
            }
        }
        Ok(None)
    };
    farm.bed.client().enter(ask).unwrap()
}

fn assert_each_keeps_its_server(farm: &Farm) {
    for server in 1..=SERVERS {
        for _ in 0..8 {
            assert_eq!(ask(farm, &packet(Some(server))), Some(server));
        }
    }
}

#[test]
fn a_client_that_moves_keeps_its_server_while_it_is_there() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    serve_datagrams(&farm);
    let state = own_path("quic-state");
    let arguments = ["--state", state.to_str().unwrap()];
    let mut instance = farm.start(&arguments);
    add_servers(&farm);
    assert_each_keeps_its_server(&farm);
    let initials: BTreeSet<Option<u8>> = (0..40).map(|_| ask(&farm, &packet(None))).collect();
    assert!(initials.len() > 1, "an Initial goes where the ring says: {initials:?}");
    let listed = farm.balance("list");
    assert!(listed.contains(" mh (mh-port) quic lb:3\n"), "{listed}");
    assert!(listed.contains(" quic-id 0x1001\n"), "{listed}");
    instance.upgrade().unwrap();
    assert_each_keeps_its_server(&farm);
    let second = format!("-u {VIP}:{PORT} -r {}", server_ip(2));
    farm.balance(&format!("edit {second} -w 0"));
    assert_each_keeps_its_server(&farm);
    farm.balance(&format!("edit {second} --down"));
    let others = ask(&farm, &packet(Some(2)));
    assert!(others.is_some() && others != Some(2), "{others:?}");
    let shown = show(&farm.bed);
    let ids = &port_in(&shown, PORT_A)["connection_ids"];
    let least = 3 * 8 * u64::from(SERVERS);
    assert!(ids["named"].as_u64() >= Some(least) && ids["others"].as_u64() >= Some(40), "{ids}");
    assert_eq!(shown["conservation"]["unaccounted"], 0, "{shown:#}");
    let saved = farm.balance("save");
    assert!(saved.contains(" --quic lb:3\n") && saved.contains(" --quic-id 0x1002\n"), "{saved}");
    let mut services = state.clone().into_os_string();
    services.push(".services");
    let is_kept = || std::fs::read_to_string(&services).is_ok_and(|kept| kept == saved);
    wait_until("kept: the services", PATIENCE, is_kept);
    instance.kill().unwrap();
    let instance = farm.start(&arguments);
    assert_eq!(farm.balance("save"), saved);
    farm.balance(&format!("edit {second} -w 1"));
    farm.wait_for_ways();
    assert_each_keeps_its_server(&farm);
    instance.stop().unwrap();
    for file in [state.as_os_str(), &services] {
        let _ = std::fs::remove_file(file);
    }
}
