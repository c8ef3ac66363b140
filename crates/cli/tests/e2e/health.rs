//! `narrows health` beside a balancer: servers that stop to answer, and come back.

use crate::balance::{Farm, PATIENCE, PORT, SERVER6, SERVERS, VIP, VIP6, server_ip, servers_of};
use crate::setup::{NARROWS, Scratch, complaint, narrows, turn_to_count, wait_until};
use narrows_testbed::collect::Collector;
use narrows_testbed::process::Process;
use narrows_testbed::{serve, unpack};
use rustix::net::{Shutdown, shutdown};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, TcpListener};
use std::thread::{self, JoinHandle};

/// A server takes a second and a half to go, and one to come back.
const CHECKS: &str = "--direct --interval 500ms --timeout 500ms --rise 2 --fall 3";

/// The process that a server's health depends on: it listens at the server's own address.
struct Daemon {
    listener: TcpListener,
    accepting: Option<JoinHandle<()>>,
}

impl Daemon {
    fn start(farm: &Farm, number: u8) -> Self {
        let address = SocketAddrV4::new(server_ip(number).parse().unwrap(), PORT);
        let listener = serve::at_device(farm.bed.server(), &format!("s{number}"), address).unwrap();
        let own = listener.try_clone().unwrap();
        let accepting = thread::spawn(move || while own.accept().is_ok() {});
        Self { listener, accepting: Some(accepting) }
    }

    fn start_all(farm: &Farm) -> Vec<Self> {
        (1..=SERVERS).map(|number| Self::start(farm, number)).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Who waits for a connection is told that none comes.
        let _ = shutdown(&self.listener, Shutdown::Both);
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

/// `narrows health` with a file.
struct Health {
    _process: Process,
    log: Collector,
    _file: Scratch,
}

impl Health {
    fn start(farm: &Farm) -> Self {
        let file = Scratch::new("checks", &format!("-t {VIP}:{PORT} --tcp {CHECKS}\n"));
        let mut command = farm.bed.shaper().command(NARROWS);
        command.args(["health", file.path()]);
        let log = Collector::over_both(&mut command).unwrap();
        let process = Process::start(&mut command).unwrap();
        Self { _process: process, log, _file: file }
    }

    #[track_caller]
    fn wait_for(&self, words: &str) {
        let has_said = |log: &[u8]| String::from_utf8_lossy(log).contains(words);
        assert!(self.log.wait_until(has_said, PATIENCE), "no {words:?} in:\n{}", self.log.text());
    }
}

/// The servers that are down.
fn down(farm: &Farm) -> BTreeSet<u8> {
    let listed: Value = serde_json::from_str(&farm.balance("list -j")).unwrap();
    let servers = listed[0]["servers"].as_array().unwrap().clone();
    let is_down = |number: &u8| {
        let server = servers.iter().find(|server| server["address"] == server_ip(*number));
        server.unwrap()["health"] == "down"
    };
    (1..=SERVERS).filter(is_down).collect()
}

#[track_caller]
fn wait_for_down(farm: &Farm, health: &Health, servers: &[u8]) {
    let wanted: BTreeSet<u8> = servers.iter().copied().collect();
    wait_until(&format!("down: {servers:?}\n{}", health.log.text()), PATIENCE, || {
        down(farm) == wanted
    });
}

#[test]
fn a_server_that_stops_to_answer_is_taken_out_and_comes_back_and_the_last_one_stays() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let _instance = farm.start(&[]);
    farm.serve_all("-s mh -b mh-port");
    let mut daemons = Daemon::start_all(&farm);
    let health = Health::start(&farm);
    health.wait_for("checking 4 servers of 1 service");
    let (of_second, mut others): (Vec<_>, Vec<_>) =
        farm.connect_many(60).into_iter().partition(|connection| connection.server == 2);
    assert!(!of_second.is_empty() && servers_of(&others) == [1, 3, 4].into());

    drop(daemons.remove(1));
    wait_for_down(&farm, &health, &[2]);
    health.wait_for("198.18.0.12 is down: 3 checks failed in a row: Connection refused");
    for mut connection in of_second {
        let ended = connection.try_ask().unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::ConnectionReset, "the client learns of it at once");
    }
    for connection in &mut others {
        assert_eq!(connection.ask(), connection.server, "others keep their servers");
    }
    assert_eq!(servers_of(&farm.connect_many(60)), [1, 3, 4].into());

    daemons.insert(1, Daemon::start(&farm, 2));
    wait_for_down(&farm, &health, &[]);
    assert_eq!(servers_of(&farm.connect_many(60)), [1, 2, 3, 4].into());

    daemons.clear();
    wait_until("down: all but one", PATIENCE, || down(&farm).len() == 3);
    health.wait_for("ALL SERVERS FAIL");
    let list = farm.balance("list");
    assert!(list.contains("FAILS, and is up as the last"), "{list}");
    let last = (1..=SERVERS).find(|number| !down(&farm).contains(number)).unwrap();
    assert_eq!(servers_of(&farm.connect_many(20)), [last].into(), "connections go somewhere");

    // It leaves all as it is when it ends, and goes on from there.
    drop(health);
    assert_eq!(down(&farm).len(), 3);
    let first = (1..=SERVERS).find(|number| *number != last).unwrap();
    daemons.push(Daemon::start(&farm, first));
    let health = Health::start(&farm);
    let rest: Vec<u8> = (1..=SERVERS).filter(|number| *number != first).collect();
    wait_for_down(&farm, &health, &rest);
}

#[test]
fn what_is_known_of_servers_survives_an_upgrade_and_a_restart_of_the_instance() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let mut instance = farm.start(&[]);
    farm.serve_all("-s mh");
    let mut daemons = Daemon::start_all(&farm);
    let health = Health::start(&farm);
    health.wait_for("checking 4 servers");
    drop(daemons.remove(0));
    wait_for_down(&farm, &health, &[1]);
    instance.upgrade().unwrap();
    assert_eq!(down(&farm), [1].into());
    drop(daemons.remove(0));
    wait_for_down(&farm, &health, &[1, 2]);

    instance.stop().unwrap();
    health.wait_for("no narrows runs");
    let _instance = farm.start(&[]);
    farm.serve_all("-s mh");
    wait_for_down(&farm, &health, &[1, 2]);
    // What is new is checked, too, and what is gone is not.
    farm.balance(&format!("del -t {VIP}:{PORT} -r {}", server_ip(1)));
    drop(daemons.remove(0));
    health.wait_for("198.18.0.13 is down");
    farm.balance(&format!("add -t {VIP}:{PORT} -r {}", server_ip(1)));
    wait_for_down(&farm, &health, &[1, 2, 3]);
}

#[test]
fn one_look_at_all_servers_prints_ways_and_answers_and_changes_nothing() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let _instance = farm.start(&[]);
    farm.serve_all("-s mh");
    farm.balance("add -u 198.18.0.100:53 -s mh");
    farm.balance(&format!("add -u 198.18.0.100:53 -r {} -i", server_ip(1)));
    let mut daemons = Daemon::start_all(&farm);
    let file = Scratch::new("checks", &format!("-t {VIP}:{PORT} --direct\n"));
    let output = narrows(&farm.bed, &["health", "--once", file.path()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", complaint(&output));
    assert_eq!(text.matches(" passed in ").count(), 4, "{text}");
    assert_eq!(text.matches("packets of up to 1500 bytes arrive").count(), 4, "{text}");
    assert!(text.contains("not checked, packets of up to 1480 bytes\n"), "in a tunnel\n{text}");
    assert!(text.contains("UDP 198.18.0.100:53: not checked: no server answers"), "{text}");
    drop(daemons.pop());
    let output = narrows(&farm.bed, &["health", "--once", "--json", file.path()]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let server = &report["services"][0]["servers"][3];
    assert_eq!(server["answer"]["passed"], false, "{report:#}");
    assert!(server["answer"]["why"].as_str().unwrap().contains("refused"), "{report:#}");
    // No route leads to it, and nothing else keeps it from being well.
    farm.balance("add -u 198.18.0.100:53 -r 203.0.113.1 -i");
    daemons.push(Daemon::start(&farm, SERVERS));
    let output = narrows(&farm.bed, &["health", "--once", file.path()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("NO WAY: there is no route to it: ip route add"), "{text}");
    assert_eq!(down(&farm), [].into());
}

/// Servers behind tunnels of either family, and one beside the balancer.
#[test]
fn a_check_goes_the_way_of_clients_packets() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    farm.add_ipv6();
    let servers = farm.bed.server();
    let [outer4, outer6] = [server_ip(1), SERVER6.to_string()];
    let unpack = |outer: &str| unpack::ip_in_ip(servers, outer.parse().unwrap()).unwrap();
    let unpacking = [&outer4, &outer6].map(|outer| unpack(outer));
    let services = [IpAddr::from(VIP), VIP6.into()].map(|vip| SocketAddr::new(vip, 8080));
    let listen = |at| servers.enter(|| Ok(TcpListener::bind(at)?)).unwrap();
    let listeners = services.map(listen);
    let _instance = farm.start(&[]);
    farm.serve_all("-s mh");
    for (service, outer) in services.iter().zip([&outer4, &outer6]) {
        farm.balance(&format!("add -t {service} -s mh"));
        farm.balance(&format!("add -t {service} -r {outer} -i"));
    }
    let look = || {
        let output = narrows(&farm.bed, &["health", "--once"]);
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    // A neighbour of IPv6 may take some seconds, until the bridge knows which groups it has joined.
    wait_until("well: all servers", PATIENCE, || look().0);
    let (_, text) = look();
    assert_eq!(text.matches(" passed in ").count(), 6, "{text}");
    assert_eq!(text.matches("packets of up to 1500 bytes arrive").count(), 4, "{text}");
    assert_eq!(text.matches("packets of up to 1480 bytes arrive").count(), 1, "{text}");
    assert_eq!(text.matches("packets of up to 1460 bytes arrive").count(), 1, "{text}");

    // Nothing listens at the service's address; the server's own address is another matter.
    drop(listeners);
    let (is_good, text) = look();
    assert!(!is_good);
    assert_eq!(text.matches("FAILED: Connection refused").count(), 2, "{text}");

    // The servers do not unpack, and say so.
    drop(unpacking);
    let (is_good, text) = look();
    assert!(!is_good);
    assert_eq!(text.matches("FAILED: ").count(), 2, "{text}");
    assert!(!text.contains("1480 bytes arrive"), "{text}");
    assert_eq!(text.matches("it does not unpack the tunnel").count(), 2, "{text}");
}
