//! Round trips beyond each port, measured from passing packets and compared with known path delays.
//!
//! Three instances in a row: the outer two delay with `netem`, the one in the middle measures.
//!
//! ```text
//!  client ══ port-a │ west ══ mid-a │ mid-b ══ east │ port-b ══ server
//!              10 ms each way      measures       15 ms each way
//! ```

use crate::setup::{NARROWS, complaint, ip, port_in, tc, turn_to_count, turn_to_measure};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{CLIENT_IP, End, SERVER_IP};
use narrows_testbed::narrows::Instance;
use narrows_testbed::ping::Ping;
use narrows_testbed::tcp::{Flows, Running};
use serde_json::Value;
use std::net::SocketAddrV4;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// The running instances: west, middle, east.
type Row = [Instance; 3];

fn row(bed: &Testbed) -> Row {
    for [one, other] in [["west", "mid-a"], ["mid-b", "east"]] {
        ip(bed.shaper(), &format!("link add name {one} type veth peer name {other}"));
        for device in [one, other] {
            bed.shaper().run("ethtool", &["-K", device, "tx", "off", "txvlan", "off"]).unwrap();
            ip(bed.shaper(), &format!("link set dev {device} up"));
        }
    }
    let start = |ports: &str, more: &[&str]| {
        let words = [&["run", "--fail-closed", "--ports", ports], more].concat();
        Instance::start_command(bed, Path::new(NARROWS), &words).unwrap()
    };
    let row = [
        start("port-a,west", &[]),
        start("mid-a,mid-b", &["--round-trips"]),
        start("east,port-b", &[]),
    ];
    for (device, delay) in [("port-a", 10), ("west", 10), ("east", 15), ("port-b", 15)] {
        set(bed, &format!("qdisc add dev {device} root netem delay {delay}ms limit 5000"));
    }
    row
}

fn set(bed: &Testbed, words: &str) {
    let output = tc(bed, words);
    assert!(output.status.success(), "{words}: {}", complaint(&output));
}

/// The state of this port, from its instance.
fn port(bed: &Testbed, name: &str) -> Value {
    let text = bed.shaper().run(NARROWS, &["show", "--json", "--trees", name]).unwrap();
    port_in(&serde_json::from_str(&text).unwrap(), name).clone()
}

/// That many connections from one end to the other, each sending as fast as it can.
fn load(from: End<'_>, to: End<'_>, connections: u16) -> Running {
    let to_ports = (0..connections).map(|n| SocketAddrV4::new(to.ip, 5001 + n));
    Flows::to(from, to.namespace, &to_ports.collect::<Vec<_>>()).unwrap().start().unwrap()
}

/// The shortest round trip beyond a port, in milliseconds.
fn shortest(port: &Value) -> f64 {
    let counts = &port["round_trips"]["times"]["counts"];
    counts[0][0].as_f64().unwrap_or_else(|| panic!("no round trip: {port:#}")) / 1e3
}

fn losses(port: &Value) -> [f64; 3] {
    ["segments", "before", "beyond"].map(|key| port["round_trips"]["losses"][key].as_f64().unwrap())
}

#[test]
fn round_trips_beyond_each_port_are_those_of_the_paths_and_of_ping() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let _row = row(&bed);
    let ping = Ping::start(&bed, Duration::from_secs(10)).unwrap();
    sleep(Duration::from_secs(1));
    let ping = ping.stop().unwrap().percentile(0.0).unwrap().as_secs_f64() * 1e3;
    // A delay here is in no round trip.
    set(&bed, "qdisc add dev mid-a root tbf rate 20mbit burst 20kb latency 80ms");
    set(&bed, "qdisc add dev mid-b root handle 1: htb default 10");
    set(&bed, "class add dev mid-b parent 1: classid 1:10 htb rate 20mbit");
    set(&bed, "class add dev mid-b parent 1: classid 1:20 htb rate 5mbit");
    set(&bed, "qdisc add dev mid-b parent 1:10 bfifo limit 200kb");
    let [client, server] = bed.ends();
    let load = [load(client, server, 2), load(server, client, 2)];
    sleep(Duration::from_secs(6));
    let [a, b] = ["mid-a", "mid-b"].map(|name| port(&bed, name));
    load.into_iter().for_each(|load| load.stop().unwrap());
    let waited = b["delays"]["p50_us"].as_f64().unwrap() / 1e3;
    assert!(waited > 15.0, "nothing waited at mid-b: {waited} ms");
    let [west, east] = [shortest(&a), shortest(&b)];
    println!("west {west} ms, east {east} ms, ping {ping} ms, waited {waited} ms");
    for (found, is) in [(west, 20.0), (east, 30.0), (west + east, ping)] {
        assert!((found / is - 1.0).abs() < 0.05, "{west} and {east} ms; ping takes {ping} ms");
    }

    // The hosts of the last window.
    let named = |kind: &str, address: std::net::Ipv4Addr| {
        let hosts = b["heaviest"][kind].as_array().unwrap();
        let host = hosts.iter().find(|host| host["name"] == address.to_string());
        host.unwrap_or_else(|| panic!("{address} is not in {}", b["heaviest"])).clone()
    };
    let [source, destination] = [named("sources", CLIENT_IP), named("destinations", SERVER_IP)];
    for (host, path) in [(&source, 20.0), (&destination, 30.0)] {
        let trip = host["round_trip"]["min_us"].as_f64().unwrap() / 1e3;
        assert!((trip / path - 1.0_f64).abs() < 0.1, "{trip} ms of {path}: {host:#}");
        assert!(host["delay_p99_us"].as_u64().unwrap() > 10_000, "{host:#}");
        assert!(host["losses"]["segments"].as_u64().unwrap() > 0, "{host:#}");
    }

    // And its classes.
    let class = |handle: &str| {
        let classes = b["classes"].as_array().unwrap();
        classes.iter().find(|class| class["handle"] == handle).unwrap()["stats"].clone()
    };
    let [full, idle] = [class("1:10"), class("1:20")];
    let trip = full["round_trip"]["min_us"].as_f64().unwrap() / 1e3;
    assert!((trip / 30.0 - 1.0).abs() < 0.1, "{trip} ms of 30: {full:#}");
    assert!(full["losses"]["segments"].as_u64().unwrap() > 0, "{full:#}");
    assert!(idle.get("round_trip").is_none() && idle.get("losses").is_none(), "{idle:#}");
}

#[test]
fn losses_before_and_beyond_a_port_are_distinguished() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let _row = row(&bed);
    set(&bed, "qdisc add dev mid-b root tbf rate 20mbit burst 20kb latency 200ms");
    let [client, server] = bed.ends();
    // The place of the loss, and the counter for it.
    for (device, delay, place) in [("port-b", 15, 2), ("west", 10, 1)] {
        let lossy = |percent: u32| {
            let netem = format!("netem delay {delay}ms limit 5000 loss {percent}%");
            set(&bed, &format!("qdisc change dev {device} root {netem}"));
        };
        lossy(3);
        let before = losses(&port(&bed, "mid-b"));
        let load = load(client, server, 6);
        sleep(Duration::from_secs(5));
        let after = losses(&port(&bed, "mid-b"));
        load.stop().unwrap();
        lossy(0);
        let grown: Vec<f64> = after.iter().zip(before).map(|(is, was)| is - was).collect();
        println!("{device} loses 3 %: segments, lost before, lost beyond: {grown:?}");
        assert!(grown[0] > 500.0, "{device}: {grown:?}");
        // Of some thousand; the sender retransmits some that were not lost.
        let share = |place: usize| grown[place] / grown[0];
        assert!((0.015..0.06).contains(&share(place)), "{device}: {grown:?}");
        assert!(share(3 - place) < 0.01, "{device}: {grown:?}");
    }
}
