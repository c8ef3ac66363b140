//! A limit that follows a line whose rate changes: TCP through two instances, of which the second
//! plays the line.
//!
//! ```text
//!  client ══ port-a │ near ══ far │ port-b ══ server
//!             follows the line     netem: a rate, a delay, a queue
//! ```

use crate::setup::{NARROWS, complaint, ip, paced, port_in, tc, turn_to_measure};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{CLIENT_IP, CLIENT_MAC, End, SERVER_IP, SERVER_MAC, written};
use narrows_testbed::narrows::Instance;
use narrows_testbed::tcp::{Flows, Running};
use narrows_testbed::window::{Delivered, Meter};
use serde_json::Value;
use std::net::{SocketAddrV4, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// How long the limit may take to find the line's rate. A fall takes it less than a second and a
/// rise three where nothing else runs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The limit, and the line.
fn row(bed: &Testbed) -> [Instance; 2] {
    row_with(bed, &["--fail-closed", "--ports", "port-a,near", "--round-trips"])
}

/// The instance with these words, and the line beyond its port `near`.
fn row_with(bed: &Testbed, words: &[&str]) -> [Instance; 2] {
    ip(bed.shaper(), "link add name near type veth peer name far");
    for device in ["near", "far"] {
        bed.shaper().run("ethtool", &["-K", device, "tx", "off", "txvlan", "off"]).unwrap();
        ip(bed.shaper(), &format!("link set dev {device} up"));
    }
    let start = |words: &[&str]| {
        let words = [&["run"], words].concat();
        Instance::start_command(bed, Path::new(NARROWS), &words).unwrap()
    };
    let row = [start(words), start(&["--fail-closed", "--ports", "far,port-b"])];
    for device in ["far", "port-b"] {
        set(bed, &format!("qdisc add dev {device} root netem delay 10ms rate 20mbit limit 1000"));
    }
    row
}

/// Makes the box in front of the line the client, as far as the server can tell.
fn send_from_near(bed: &Testbed) -> End<'_> {
    let [client_mac, server_mac] = [CLIENT_MAC, SERVER_MAC].map(written);
    ip(bed.shaper(), &format!("link set near address {client_mac}"));
    ip(bed.shaper(), &format!("address add {CLIENT_IP}/24 dev near"));
    ip(bed.shaper(), &format!("neigh replace {SERVER_IP} lladdr {server_mac} dev near"));
    End { namespace: bed.shaper(), device: "near", ip: CLIENT_IP }
}

/// Gives the box an IPv6 address at `near` and the server one, for reflectors.
fn with_ipv6(bed: &Testbed) {
    let ends = [(bed.shaper(), "near", "::1"), (bed.server(), "srv0", "::2")];
    for (namespace, device, host) in ends {
        namespace.set(&format!("ipv6/conf/{device}/disable_ipv6"), "0").unwrap();
        ip(namespace, &format!("address add 2001:db8{host}/64 dev {device} nodad"));
    }
}

fn set(bed: &Testbed, words: &str) {
    let output = tc(bed, words);
    assert!(output.status.success(), "{words}: {}", complaint(&output));
}

fn show(bed: &Testbed, port: &str) -> Value {
    let text = bed.shaper().run(NARROWS, &["show", "--json", port]).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The rate in force at `port`, in Mbit/s.
fn in_force(bed: &Testbed, port: &str) -> f64 {
    let now = show(bed, port);
    port_in(&now, port)["rate_set_bps"].as_f64().unwrap() / 1e6
}

/// Waits until the rate in force at `port` is in `range`. Returns how long it took.
fn comes_to(bed: &Testbed, port: &str, range: std::ops::Range<f64>) -> Duration {
    let begin = Instant::now();
    loop {
        let rate = in_force(bed, port);
        if range.contains(&rate) {
            return begin.elapsed();
        }
        assert!(begin.elapsed() < PATIENCE, "{port}: {rate} Mbit/s is not in {range:?}: {}", {
            show(bed, port)["events"].clone()
        });
        sleep(Duration::from_millis(50));
    }
}

fn load(from: End<'_>, to: End<'_>) -> Running {
    let to_ports = (0..4).map(|n| SocketAddrV4::new(to.ip, 5001 + n));
    Flows::to(from, to.namespace, &to_ports.collect::<Vec<_>>()).unwrap().start().unwrap()
}

/// What arrives at `end` within two seconds, in Mbit/s.
fn delivered(end: End<'_>) -> f64 {
    let mut meter = Meter::at(end).unwrap();
    let before = meter.read().unwrap();
    sleep(Duration::from_secs(2));
    let after = meter.read().unwrap();
    Delivered::between(&before, &after).rate().bits_per_sec() as f64 / 1e6
}

#[test]
fn an_upload_follows_its_line_down_and_up() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let _row = row(&bed);
    set(&bed, "qdisc add dev near root cake bandwidth 15mbit autorate 2mbit 40mbit");
    let [client, server] = bed.ends();
    let load = load(client, server);
    let full = comes_to(&bed, "near", 17.0..26.0);
    set(&bed, "qdisc change dev port-b root netem delay 10ms rate 8mbit limit 1000");
    let fell = comes_to(&bed, "near", 5.0..9.0);
    sleep(Duration::from_secs(3));
    let low = delivered(server);
    set(&bed, "qdisc change dev port-b root netem delay 10ms rate 20mbit limit 1000");
    let rose = comes_to(&bed, "near", 15.0..26.0);
    sleep(Duration::from_secs(1));
    let high = delivered(server);
    load.stop().unwrap();
    println!("full after {full:?}, fell in {fell:?} to {low}, rose in {rose:?} to {high} Mbit/s");
    // The line carries 8 and 20 Mbit/s; a busy machine has other delays, too.
    assert!(low > 5.0 && high > 12.0, "{low} and {high} Mbit/s arrive");
    let events = show(&bed, "near")["events"].to_string();
    assert!(events.contains("near: rate"), "{events}");
}

#[test]
fn a_download_follows_the_line_of_the_other_port() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let _row = row(&bed);
    set(&bed, "qdisc add dev port-a root cake bandwidth 15mbit autorate 2mbit 40mbit line near");
    let [client, server] = bed.ends();
    let load = load(server, client);
    let full = comes_to(&bed, "port-a", 17.0..26.0);
    set(&bed, "qdisc change dev far root netem delay 10ms rate 8mbit limit 1000");
    let fell = comes_to(&bed, "port-a", 5.0..9.0);
    sleep(Duration::from_secs(3));
    let low = delivered(client);
    load.stop().unwrap();
    println!("full after {full:?}, fell in {fell:?} to {low} Mbit/s");
    assert!(low > 5.0, "{low} Mbit/s arrive");
}

#[test]
fn a_line_that_cannot_be_followed_is_refused_with_what_to_write() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let _row = row(&bed);
    for (words, why) in [
        ("dev near root cake bandwidth 15mbit autorate 2mbit 40mbit line eth7", "line eth7"),
        ("dev near root cake bandwidth 50mbit autorate 2mbit 40mbit", "not between"),
        ("dev port-b root cake bandwidth 15mbit autorate 2mbit 40mbit", "--round-trips"),
    ] {
        let output = tc(&bed, &format!("qdisc replace {words}"));
        assert!(!output.status.success(), "{words}");
        let complaint = complaint(&output);
        assert!(complaint.contains(why), "{words}: {complaint}");
    }
}

/// Echo requests that came to the namespace of `end`, so far.
fn asked(end: End<'_>) -> u64 {
    let text = end.namespace.run("cat", &["/proc/net/snmp"]).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find(|(name, _)| *name == "InEchos").unwrap().1.parse().unwrap()
}

/// The same of ICMPv6.
fn asked_v6(end: End<'_>) -> u64 {
    let text = end.namespace.run("cat", &["/proc/net/snmp6"]).unwrap();
    let mut words = text.split_whitespace();
    words.find(|word| *word == "Icmp6InEchos").unwrap();
    words.next().unwrap().parse().unwrap()
}

/// Waits until `is_so`, for as long as anything may take here.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn reflectors_are_asked_while_nothing_passes_and_only_then() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let _row = row(&bed);
    let [client, server] = bed.ends();
    let words = "qdisc replace dev near root cake bandwidth 15mbit autorate 2mbit 40mbit";
    let reflector = format!("{words} reflector {}", server.ip);
    let output = tc(&bed, &reflector);
    assert!(!output.status.success());
    let why = complaint(&output);
    assert!(why.contains("address at near"), "{why}");
    let [a, b, c, _] = server.ip.octets();
    ip(bed.shaper(), &format!("address add {a}.{b}.{c}.77/24 dev near"));
    set(&bed, &reflector);
    let before = asked(server);
    until("the reflector is asked", || asked(server) > before + 2);
    let load = load(client, server);
    comes_to(&bed, "near", 17.0..26.0);
    let begin = asked(server);
    comes_to(&bed, "near", 0.0..18.5);
    assert_eq!(asked(server), begin, "packets make trips, and nobody is asked");
    load.stop().unwrap();
    until("it is asked again", || asked(server) > begin + 2);
}

/// What arrives at the end of a line of 8 Mbit/s once a limit in the driver has settled there: a
/// limit that drops leaves some of the line to TCP's caution. `MIN` is half of it.
const SETTLED: f64 = 4.0;

/// Has the rate at `dev` follow the line, whose device `down` is set, down under a load. Asserts
/// that more than [`SETTLED`] arrives then at `to` within some seconds.
#[track_caller]
fn assert_falls(bed: &Testbed, dev: &str, down: &str, [from, to]: [End<'_>; 2]) {
    let load = load(from, to);
    let full = comes_to(bed, dev, 16.0..40.0);
    set(bed, &format!("qdisc change dev {down} root netem delay 10ms rate 8mbit limit 1000"));
    let fell = comes_to(bed, dev, 4.0..9.5);
    sleep(Duration::from_secs(1));
    let mut low = 0.0;
    for _ in 0..6 {
        low = f64::max(low, delivered(to));
        if low > SETTLED {
            break;
        }
    }
    load.stop().unwrap();
    println!("{dev}: full after {full:?}, fell in {fell:?} to {low} Mbit/s");
    assert!(low > SETTLED, "{low} Mbit/s arrive");
}

/// A limit of a plane without queues of its own.
const TBF: &str = "root tbf rate 15mbit burst 10k latency 10ms autorate 2mbit 40mbit";

#[test]
fn a_limit_in_the_driver_follows_its_line() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let _row = row_with(&bed, &["--plane", "xdp", "--ports", "port-a,near"]);
    set(&bed, &format!("qdisc add dev near {TBF}"));
    let [client, server] = bed.ends();
    assert_falls(&bed, "near", "port-b", [client, server]);
}

#[test]
fn a_download_through_the_driver_follows_the_line_of_the_other_port() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let _row = row_with(&bed, &["--plane", "xdp", "--ports", "port-a,near"]);
    set(&bed, &format!("qdisc add dev port-a {TBF} line near"));
    let [client, server] = bed.ends();
    assert_falls(&bed, "port-a", "far", [server, client]);
}

#[test]
fn what_a_host_sends_follows_its_line() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let _row = row_with(&bed, &["--plane", "host", "--ports", "near"]);
    let host = send_from_near(&bed);
    set(&bed, &format!("qdisc add dev near {TBF}"));
    let [_, server] = bed.ends();
    assert_falls(&bed, "near", "port-b", [host, server]);
}

#[test]
fn what_a_host_receives_follows_the_line_of_the_ifb_s_port() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(1).unwrap();
    let _row = row_with(&bed, &["--plane", "host", "--ports", "near", "--ifb", "near"]);
    let host = send_from_near(&bed);
    set(&bed, &format!("qdisc add dev ifb4near {TBF}"));
    let [_, server] = bed.ends();
    assert_falls(&bed, "ifb4near", "far", [server, host]);
}

/// Sends datagrams from `from` to `to` at 30 Mbit/s while it lives.
struct Flood(Option<JoinHandle<()>>, Arc<AtomicBool>);

impl Flood {
    fn start(from: End<'_>, to: End<'_>) -> Self {
        let socket = from.namespace.enter(|| Ok(UdpSocket::bind((from.ip, 0))?)).unwrap();
        let (to, is_over) = (to.ip, Arc::new(AtomicBool::new(false)));
        let ends = Arc::clone(&is_over);
        let sending = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                // A packet that is dropped at once is an error to some kernels.
                let send = || drop(socket.send_to(&[7; 1000], (to, 9)));
                paced(1000, 30e6, Duration::from_millis(200), send);
            }
        });
        Self(Some(sending), is_over)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        self.0.take().map(JoinHandle::join);
    }
}

/// The rate that is in force at `port` most of the time, over four seconds, in Mbit/s: while a
/// queue drains it is another.
fn mostly_in_force(bed: &Testbed, port: &str) -> f64 {
    let sample = |_| {
        sleep(Duration::from_millis(50));
        in_force(bed, port)
    };
    let mut rates: Vec<f64> = (0..80).map(sample).collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Asserts that reflectors tell the rate of a line on `plane`, under datagrams that make no trips.
#[track_caller]
fn assert_reflectors_tell(plane: &str) {
    let bed = Testbed::up(1).unwrap();
    let words = ["--plane", plane, "--fail-closed", "--ports", "port-a,near"];
    let _row = row_with(&bed, &words);
    with_ipv6(&bed);
    set(&bed, &format!("qdisc add dev near {TBF} reflector 2001:db8::2"));
    let [client, server] = bed.ends();
    let flood = Flood::start(client, server);
    until("the reflector is asked often", || asked_v6(server) > 40);
    let before = mostly_in_force(&bed, "near");
    set(&bed, "qdisc change dev port-b root netem delay 10ms rate 6mbit limit 1000");
    sleep(Duration::from_secs(4));
    let after = mostly_in_force(&bed, "near");
    println!("{plane}: {before} and then {after} Mbit/s");
    drop(flood);
    assert!(before > 11.0 && after < 8.0, "{plane}: {before} and then {after} Mbit/s");
}

#[test]
fn reflectors_tell_queues_where_nothing_passes_that_makes_trips() {
    let Some(_turn) = turn_to_measure() else { return };
    assert_reflectors_tell("xsk");
}

#[test]
fn reflectors_tell_the_driver_where_nothing_passes_that_makes_trips() {
    let Some(_turn) = turn_to_measure() else { return };
    assert_reflectors_tell("xdp");
}

#[test]
fn another_process_goes_on_with_the_rate_that_was_found() {
    let Some(_turn) = turn_to_measure() else { return };
    let of_queues = (&["--round-trips"][..], "root cake bandwidth 5mbit");
    let in_driver = (&["--plane", "xdp"][..], "root tbf rate 5mbit burst 10k latency 10ms");
    for (plane, limit) in [of_queues, in_driver] {
        let bed = Testbed::up(1).unwrap();
        let words = [&["run", "--fail-closed", "--ports", "port-a,port-b"], plane].concat();
        let mut instance = Instance::start_command(&bed, Path::new(NARROWS), &words).unwrap();
        set(&bed, &format!("qdisc add dev port-b {limit} autorate 2mbit 40mbit"));
        let [client, server] = bed.ends();
        let load = load(client, server);
        comes_to(&bed, "port-b", 25.0..41.0);
        load.stop().unwrap();
        // Without load the rate holds.
        let before = in_force(&bed, "port-b");
        instance.upgrade().unwrap();
        let now = show(&bed, "port-b");
        let port = port_in(&now, "port-b");
        let after = port["rate_set_bps"].as_f64().unwrap() / 1e6;
        assert!((after / before - 1.0).abs() < 0.3, "{before} and then {after} Mbit/s");
        assert_eq!(port["follows"]["most_bps"], 40_000_000, "{port}");
        assert!(port["follows"]["reason"].is_string(), "{port}");
    }
}
