//! The router: the kernel's routes, our queues. Two hosts in networks of their own, and a third
//! network behind the router.

use crate::setup::{NARROWS, narrows, show, turn_to_count, turn_to_measure, wait_for, wait_until};
use narrows_testbed::bed::{CLIENT, PORT_A, PORT_B, SERVER, written};
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::raw::RawSocket;
use narrows_testbed::{Namespace, Testbed, frames};
use serde_json::Value;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);

/// The words that choose each plane.
const PLANES: [&[&str]; 2] = [&[], &["--plane", "xdp"]];

/// A testbed whose middle routes between 10.1.0.0/24 and fd01::/64, where the client is, and
/// 10.2.0.0/24 and fd02::/64, where the server is. It is in a third network, too, 10.3.0.0/24,
/// behind a device of the router that is no port.
pub fn network() -> Testbed {
    let bed = Testbed::up(2).unwrap();
    let ip = |namespace: &Namespace, words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        namespace.run("ip", &words).unwrap_or_else(|error| panic!("ip {words:?}: {error}"));
    };
    for (namespace, device, port, net) in
        [(bed.client(), CLIENT, PORT_A, 1), (bed.server(), SERVER, PORT_B, 2)]
    {
        ip(namespace, &format!("addr flush dev {device}"));
        namespace.set(&format!("ipv6/conf/{device}/disable_ipv6"), "0").unwrap();
        bed.shaper().set(&format!("ipv6/conf/{port}/disable_ipv6"), "0").unwrap();
        ip(namespace, &format!("addr add 10.{net}.0.2/24 dev {device}"));
        ip(namespace, &format!("-6 addr add fd0{net}::2/64 dev {device} nodad"));
        ip(bed.shaper(), &format!("addr add 10.{net}.0.1/24 dev {port}"));
        ip(bed.shaper(), &format!("-6 addr add fd0{net}::1/64 dev {port} nodad"));
        ip(namespace, &format!("route add default via 10.{net}.0.1"));
        ip(namespace, &format!("-6 route add default via fd0{net}::1"));
    }
    let server = bed.server().name();
    ip(bed.shaper(), &format!("link add third type veth peer name beyond netns {server}"));
    ip(bed.shaper(), "link set third up");
    ip(bed.shaper(), "addr add 10.3.0.1/24 dev third");
    ip(bed.server(), "link set beyond up");
    ip(bed.server(), "addr add 10.3.0.2/24 dev beyond");
    bed.shaper().set("ipv4/ip_forward", "1").unwrap();
    bed.shaper().set("ipv6/conf/all/forwarding", "1").unwrap();
    bed
}

pub fn router(bed: &Testbed, arguments: &[&str]) -> Instance {
    let ports = format!("{PORT_A},{PORT_B}");
    let run = ["run", "--router", &ports].into_iter();
    let words: Vec<&str> = run.chain(arguments.iter().copied()).collect();
    Instance::start_command(bed, Path::new(NARROWS), &words).unwrap()
}

pub fn ping(bed: &Testbed, to: &str, more: &[&str]) -> String {
    let words = ["-c", "3", "-i", "0.2", "-W", "2"].iter().chain(more).copied();
    let words: Vec<&str> = words.chain([to]).collect();
    let output = bed.client().command("ping").args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn routed(show: &Value, port: usize, outcome: &str) -> u64 {
    show["ports"][port]["routes"][outcome].as_u64().unwrap_or(0)
}

#[test]
fn pings_of_both_families_are_routed_in_the_driver_and_pass_the_queues() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(pings_are_routed_on);
}

fn pings_are_routed_on(plane: &[&str]) {
    let bed = network();
    let instance = router(&bed, plane);
    // The first packets may need the kernel, which finds the neighbours.
    ping(&bed, "10.2.0.2", &[]);
    ping(&bed, "fd02::2", &[]);
    let before = show(&bed);
    for to in ["10.2.0.2", "fd02::2"] {
        let said = ping(&bed, to, &[]);
        assert!(said.contains(" 0% packet loss"), "{to}: {said}\n{}", instance.log());
    }
    let after = show(&bed);
    for port in [0, 1] {
        let more = routed(&after, port, "routed") - routed(&before, port, "routed");
        assert_eq!(more, 6, "port {port}: {after:#}");
        let sent = |show: &Value| show["ports"][port]["total"]["tx_packets"].as_u64().unwrap();
        assert_eq!(sent(&after) - sent(&before), 6, "port {port}: {after:#}");
    }
    assert_eq!(after["conservation"]["unaccounted"], 0);
}

#[test]
fn a_routed_frame_has_new_addresses_and_one_hop_less_and_is_else_the_same() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(a_frame_is_routed_on);
}

fn a_frame_is_routed_on(plane: &[&str]) {
    let bed = network();
    let _instance = router(&bed, plane);
    ping(&bed, "10.2.0.2", &[]);
    ping(&bed, "fd02::2", &[]);
    let frames = [to_server(&bed, 300), to_server6(&bed, 300)];
    let capture = Capture::start(bed.server(), SERVER, "udp port 9").unwrap();
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    assert_eq!(socket.send(&frames).unwrap(), frames.len());
    let mut came = capture.wait_for(frames.len(), PATIENCE);
    let hop = [(bed.shaper(), PORT_B), (bed.server(), SERVER)].map(mac);
    let mut expected = frames.map(|frame| frames::routed(&frame, hop).unwrap());
    // They are of two flows, so perhaps in two queues.
    came.sort();
    expected.sort();
    assert_eq!(came, expected);
}

#[test]
fn a_router_of_one_port_routes_between_networks_of_the_same_link() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(one_port_routes_on);
}

fn one_port_routes_on(plane: &[&str]) {
    let bed = network();
    let own = written(mac((bed.client(), CLIENT)));
    for words in [
        "addr add 10.9.0.1/24 dev port-a".to_owned(),
        format!("neigh add 10.9.0.2 lladdr {own} dev port-a nud permanent"),
        format!("neigh replace 10.1.0.2 lladdr {own} dev port-a nud permanent"),
    ] {
        bed.shaper().run("ip", &words.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let words: Vec<&str> = ["run", "--router", PORT_A].iter().chain(plane).copied().collect();
    let _instance = Instance::start_command(&bed, Path::new(NARROWS), &words).unwrap();
    let ips = ["10.1.0.2", "10.9.0.2"].map(|ip| ip.parse().unwrap());
    let frame = frames::udp4(frames::port(0), to_router(&bed), ips, 300).unwrap();
    let capture = Capture::start(bed.client(), CLIENT, "udp port 9").unwrap();
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    assert_eq!(socket.send(&[&frame[..]]).unwrap(), 1);
    let hop = [(bed.shaper(), PORT_A), (bed.client(), CLIENT)].map(mac);
    let came = capture.wait_for(1, PATIENCE);
    assert_eq!(came, [frames::routed(&frame, hop).unwrap()]);
    let after = show(&bed);
    assert_eq!(routed(&after, 0, "routed"), 1, "{after:#}");
    assert_eq!(after["ports"][0]["total"]["tx_packets"], 1, "{after:#}");
    assert_eq!(after["conservation"]["unaccounted"], 0);
}

/// A frame of UDP without a checksum from the client to the router, for the server.
pub fn to_server(bed: &Testbed, length: usize) -> Vec<u8> {
    let ips = ["10.1.0.2", "10.2.0.2"].map(|ip| ip.parse().unwrap());
    frames::udp4(frames::port(0), to_router(bed), ips, length).unwrap()
}

/// The same over IPv6.
fn to_server6(bed: &Testbed, payload: usize) -> Vec<u8> {
    let ips = ["fd01::2", "fd02::2"].map(|ip| ip.parse().unwrap());
    frames::udp6(frames::port(0), to_router(bed), ips, payload).unwrap()
}

pub fn to_router(bed: &Testbed) -> [[u8; 6]; 2] {
    [(bed.client(), CLIENT), (bed.shaper(), PORT_A)].map(mac)
}

fn mac((namespace, device): (&Namespace, &str)) -> [u8; 6] {
    namespace.mac_address(device).unwrap()
}

#[test]
fn what_needs_the_kernel_gets_the_kernel() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(the_kernel_gets_its_part_on);
}

fn the_kernel_gets_its_part_on(plane: &[&str]) {
    let bed = network();
    let _instance = router(&bed, plane);
    ping(&bed, "10.2.0.2", &[]);
    // Its own addresses, a network behind a device that is no port, and a TTL that is used up.
    for to in ["10.1.0.1", "10.2.0.1", "10.3.0.2"] {
        let said = ping(&bed, to, &[]);
        assert!(said.contains(" 0% packet loss"), "{to}: {said}");
    }
    let said = ping(&bed, "10.2.0.2", &["-t", "1"]);
    assert!(said.contains("Time to live exceeded"), "{said}");
    let said = ping(&bed, "10.9.0.2", &[]);
    assert!(said.contains("Net Unreachable") || said.contains("Network"), "{said}");
    let after = show(&bed);
    assert_eq!(routed(&after, 0, "ttl"), 3, "{after:#}");
    assert!(routed(&after, 0, "not_forwarded") >= 9, "{after:#}");
    assert!(routed(&after, 0, "other_port") >= 2, "{after:#}");
}

#[test]
fn the_qdisc_of_the_port_where_it_leaves_limits_what_is_routed_there() {
    let Some(_turn) = turn_to_measure() else { return };
    PLANES.into_iter().for_each(a_limit_holds_on);
}

fn a_limit_holds_on(plane: &[&str]) {
    let bed = network();
    let instance = router(&bed, plane);
    ping(&bed, "10.2.0.2", &[]);
    instance.tc("qdisc add dev port-b root tbf rate 4mbit burst 16k latency 50ms").unwrap();
    let frame = to_server(&bed, 1000);
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    let sent = || show(&bed)["ports"][1]["total"]["tx_bytes"].as_f64().unwrap();
    let (before, begin) = (sent(), Instant::now());
    while begin.elapsed() < Duration::from_secs(3) {
        let _ = socket.send(&[&frame[..]]);
        sleep(Duration::from_micros(500));
    }
    let rate = (sent() - before) * 8.0 / begin.elapsed().as_secs_f64() / 1e6;
    assert!((3.6..4.3).contains(&rate), "{rate} Mbit/s at a limit of 4");
}

#[test]
fn a_route_that_changes_is_followed_at_once_and_so_is_the_kernel_after_a_kill() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(routes_are_followed_on);
}

fn routes_are_followed_on(plane: &[&str]) {
    let bed = network();
    let instance = router(&bed, plane);
    ping(&bed, "10.2.0.2", &[]);
    let run = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        bed.shaper().run("ip", &words).unwrap();
    };
    run("route add blackhole 10.2.0.2/32");
    let said = ping(&bed, "10.2.0.2", &["-W", "1"]);
    assert!(said.contains("100% packet loss"), "{said}");
    assert!(routed(&show(&bed), 0, "blackhole") >= 3);
    run("route del blackhole 10.2.0.2/32");
    assert!(ping(&bed, "10.2.0.2", &[]).contains(" 0% packet loss"));
    // An address of the box is no source, as soon as it has it.
    run("addr add 10.1.0.2/32 dev third");
    wait_for(&bed, "what claims to come from the box", |show| {
        ping(&bed, "10.2.0.2", &["-c", "1", "-W", "1"]);
        routed(show, 0, "own_source") > 0
    });
    run("addr del 10.1.0.2/32 dev third");
    instance.kill().unwrap();
    assert!(ping(&bed, "10.2.0.2", &[]).contains(" 0% packet loss"), "the kernel routes");
}

#[test]
fn a_neighbour_to_which_the_kernel_sends_nothing_is_found_again_when_it_moves() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = network();
    let of_port = format!("ipv4/neigh/{PORT_B}");
    bed.shaper().set(&format!("{of_port}/delay_first_probe_time"), "1").unwrap();
    bed.shaper().set(&format!("{of_port}/ucast_solicit"), "1").unwrap();
    let _instance = router(&bed, &[]);
    // The first packets may need the kernel, which finds the neighbours.
    ping(&bed, "10.2.0.2", &[]);
    assert!(ping(&bed, "10.2.0.2", &[]).contains(" 0% packet loss"));
    let moved = ["neigh", "replace", "10.2.0.2", "lladdr", "02:00:00:00:00:01", "dev", PORT_B];
    bed.shaper().run("ip", &[&moved[..], &["nud", "stale"]].concat()).unwrap();
    assert!(ping(&bed, "10.2.0.2", &["-W", "1"]).contains("100% packet loss"));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !ping(&bed, "10.2.0.2", &["-W", "1"]).contains(" 0% packet loss") {
        assert!(Instant::now() < deadline, "{:#}", show(&bed));
    }
}

#[test]
fn a_firewall_that_comes_later_is_not_jumped_over() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(a_firewall_is_seen_on);
}

fn a_firewall_is_seen_on(plane: &[&str]) {
    let bed = network();
    let _instance = router(&bed, plane);
    ping(&bed, "10.2.0.2", &[]);
    let nft = |words: &str| bed.shaper().run("nft", &[words]).unwrap();
    nft("add table ip filter");
    nft("add chain ip filter forward { type filter hook forward priority 0; policy drop; }");
    wait_for(&bed, "the ports are released", |show| show["state"] == "waiting");
    assert!(ping(&bed, "10.2.0.2", &["-W", "1"]).contains("100% packet loss"));
    let waits = show(&bed)["waiting_for"].as_str().unwrap_or_default().to_owned();
    assert!(waits.contains("ip filter forward"), "{waits}");
    let start = narrows(&bed, &["doctor", PORT_A, PORT_B, "--router"]);
    let said = String::from_utf8_lossy(&start.stdout);
    assert!(said.contains("ip filter forward") && said.contains("--skip-netfilter"), "{said}");
    nft("delete table ip filter");
    wait_for(&bed, "the ports are joined again", |show| show["state"] == "running");
    assert!(ping(&bed, "10.2.0.2", &[]).contains(" 0% packet loss"));
}

#[test]
fn an_upgrade_of_a_router_loses_and_reorders_nothing() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(an_upgrade_loses_nothing_on);
}

fn an_upgrade_loses_nothing_on(plane: &[&str]) {
    const FRAMES: u16 = 600;
    let bed = network();
    let mut instance = router(&bed, plane);
    ping(&bed, "10.2.0.2", &[]);
    // The XDP plane has no queue where frames could wait.
    if plane.is_empty() {
        instance.tc("qdisc add dev port-b root tbf rate 20mbit burst 16k latency 1s").unwrap();
    }
    let capture = Capture::start(bed.server(), SERVER, "udp port 9").unwrap();
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    let mut frame = to_server(&bed, 500);
    for number in 0..FRAMES {
        frame[60..62].copy_from_slice(&number.to_be_bytes());
        assert_eq!(socket.send(&[&frame[..]]).unwrap(), 1);
        if number == FRAMES / 2 {
            instance.upgrade().unwrap();
        }
        sleep(Duration::from_micros(500));
    }
    let came = capture.wait_for(usize::from(FRAMES), PATIENCE);
    let numbers: Vec<u16> =
        came.iter().map(|frame| u16::from_be_bytes([frame[60], frame[61]])).collect();
    assert_eq!(numbers, (0..FRAMES).collect::<Vec<_>>());
    let shown = show(&bed);
    assert!(routed(&shown, 0, "routed") >= u64::from(FRAMES), "counters continue: {shown:#}");
    assert_eq!(shown["conservation"]["unaccounted"], 0);
}

#[test]
fn wrong_routers_are_refused_with_what_to_do_instead() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = network();
    let refused = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = narrows(&bed, &words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused("run --router port-a,port-a").contains("named twice"));
    assert!(refused("run --router port-a,nowhere").contains("nowhere"));
    let closed = refused("run --router port-a,port-b --fail-closed");
    assert!(closed.contains("a router cannot fail closed"), "{closed}");
    let _instance = router(&bed, &[]);
    for words in [
        "tc qdisc add dev port-a clsact",
        "tc filter add dev port-a ingress protocol all u32 match u32 0 0 action mirred egress \
         redirect dev ifb0",
    ] {
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = narrows(&bed, &words);
        let said = String::from_utf8_lossy(&output.stderr);
        if words.contains(&"mirred") {
            assert!(said.contains("through several ports"), "{said}");
        }
    }
}

#[test]
fn the_table_the_helper_and_the_kernel_are_shown_side_by_side() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(ways_are_shown_on);
}

fn ways_are_shown_on(plane: &[&str]) {
    let bed = network();
    let _instance = router(&bed, plane);
    let ask = |words: &str| -> (bool, Value) {
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = narrows(&bed, &[&["route", "--json"], &words[..]].concat());
        let said = serde_json::from_slice(&output.stdout);
        (
            output.status.success(),
            said.unwrap_or(Value::String(String::from_utf8_lossy(&output.stderr).into_owned())),
        )
    };
    let is_used = |family: usize| ask("stats").1["families"][family]["in_use"] == true;
    ping(&bed, "10.2.0.2", &[]);
    ping(&bed, "fd02::2", &[]);
    wait_until("in use", PATIENCE, || is_used(0) && is_used(1));
    for (to, from) in [("10.2.0.2", "10.1.0.2"), ("fd02::2", "fd01::2")] {
        for asked in [format!("get {to}"), format!("get {to} from {from} iif {PORT_A}")] {
            let (agree, ways) = ask(&asked);
            assert!(agree, "{asked}: {ways:#}");
            for who in ["table", "helper", "kernel"] {
                assert_eq!(ways[who]["dev"], PORT_B, "{asked}, {who}: {ways:#}");
            }
            assert_eq!(ways["table"]["via"], to, "{ways:#}");
            assert_eq!(ways["table"]["lladdr"], ways["helper"]["lladdr"]);
        }
    }
    // Not by a port, and not plain.
    let ip = |words: &str| bed.shaper().run("ip", &words.split(' ').collect::<Vec<_>>()).unwrap();
    ip("route add 192.0.2.0/24 nexthop via 10.2.0.2 nexthop via 10.3.0.2");
    for to in ["10.3.0.2", "192.0.2.1", "10.1.0.1", "8.8.8.8"] {
        let (agree, ways) = ask(&format!("get {to}"));
        let says = ways["table"]["says"].as_str().unwrap_or_default();
        assert!(agree && says.starts_with("the kernel is asked"), "{to}: {ways:#}");
    }
    assert_eq!(ask("get 10.3.0.2").1["kernel"]["dev"], "third");
    // A route is in the table at once, and with a rule no table is right.
    ip("route add 198.51.100.0/24 via 10.2.0.2");
    wait_until("in the table", PATIENCE, || {
        ask("get 198.51.100.1").1["table"]["via"] == "10.2.0.2"
    });
    ip("rule add from 10.9.9.9 table 100");
    wait_until("out of use", PATIENCE, || !is_used(0) && is_used(1));
    for wrong in [
        "get",
        "get nowhere",
        "get 10.2.0.2 from fd01::2 iif port_a",
        "get 10.2.0.2 from 10.1.0.2 iif x",
    ] {
        let (agree, said) = ask(wrong);
        assert!(!agree && said.is_string(), "{wrong}: {said:#}");
    }
}

#[test]
fn only_a_router_has_a_table_of_routes() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let _instance = Instance::start(&bed, Path::new(NARROWS), &[]).unwrap();
    let said = narrows(&bed, &["route", "stats"]).stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("does not route") && said.contains("--router"), "{said}");
}
