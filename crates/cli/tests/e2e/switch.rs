//! The switch: the kernel's bridge decides, our queues send. Three stations, each behind a port.

use crate::setup::{
    NARROWS, Scratch, complaint, ip, narrows, show, turn_to_count, turn_to_measure, wait_for,
};
use narrows_testbed::bed::{CLIENT, PORT_A, PORT_B, SERVER, SERVER_IP, written};
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::raw::RawSocket;
use narrows_testbed::{Namespace, Testbed, frames};
use serde_json::Value;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);
/// As long as a frame would take that must not arrive.
const A_WHILE: Duration = Duration::from_millis(250);

/// The words that choose each plane.
const PLANES: [&[&str]; 2] = [&[], &["--plane", "xdp"]];

/// The third port and what is behind it, in the server's namespace.
const THIRD: &str = "third";
const BEYOND: &str = "beyond";

/// The stations, which no kernel has: one behind each port, and one that never says anything.
const ANNE: [u8; 6] = [2, 0, 0, 0, 9, 1];
const BOB: [u8; 6] = [2, 0, 0, 0, 9, 2];
const CARL: [u8; 6] = [2, 0, 0, 0, 9, 3];
const NOBODY: [u8; 6] = [2, 0, 0, 0, 9, 4];
const ALL: [u8; 6] = [0xff; 6];

/// A switch and its stations.
struct Net {
    bed: Testbed,
    instance: Instance,
}

/// A testbed with a third port.
fn bed() -> Testbed {
    let bed = Testbed::up(2).unwrap();
    let queues = "numtxqueues 2 numrxqueues 2";
    let server = bed.server().name();
    let words = format!("link add {THIRD} {queues} type veth peer name {BEYOND} netns {server}");
    ip(bed.shaper(), &format!("{words} {queues}"));
    for (namespace, device) in [(bed.shaper(), THIRD), (bed.server(), BEYOND)] {
        ip(namespace, &format!("link set {device} up"));
        let offloads = ["-K", device, "rx", "off", "tx", "off", "rxvlan", "off", "txvlan", "off"];
        namespace.run("ethtool", &offloads).unwrap();
    }
    bed
}

/// A bridge of the operator, with all ports.
fn bridge(bed: &Testbed, settings: &str) {
    ip(bed.shaper(), &format!("link add br0 type bridge {settings}"));
    for port in [PORT_A, PORT_B, THIRD] {
        ip(bed.shaper(), &format!("link set {port} master br0"));
    }
    ip(bed.shaper(), "link set br0 up");
}

impl Net {
    fn on(bed: Testbed, arguments: &[&str]) -> Self {
        let ports = format!("{PORT_A},{PORT_B},{THIRD}");
        let run = ["run", "--switch", &ports].into_iter();
        let words: Vec<&str> = run.chain(arguments.iter().copied()).collect();
        let instance = Instance::start_command(&bed, Path::new(NARROWS), &words).unwrap();
        Self { bed, instance }
    }

    /// One whose stations are known.
    fn known(bed: Testbed, arguments: &[&str]) -> Self {
        let net = Self::on(bed, arguments);
        for (station, device) in [(ANNE, CLIENT), (BOB, SERVER), (CARL, BEYOND)] {
            net.send(device, &[frame(station, ALL, 100)]);
        }
        net.wait_until_known(ANNE, BOB);
        net.wait_until_known(CARL, ANNE);
        net
    }

    /// Waits until what `from` sends to `to` is switched in the driver.
    fn wait_until_known(&self, from: [u8; 6], to: [u8; 6]) {
        let device = device_of(from);
        let port = port_of(device);
        let before = switched(&self.show(), port);
        let deadline = Instant::now() + PATIENCE;
        while switched(&self.show(), port) == before {
            assert!(Instant::now() < deadline, "{:#}\n{}", self.show(), self.instance.log());
            self.send(device, &[frame(from, to, 60)]);
            sleep(Duration::from_millis(20));
        }
    }

    fn namespace(&self, device: &str) -> &Namespace {
        if device == CLIENT { self.bed.client() } else { self.bed.server() }
    }

    fn send(&self, device: &str, frames: &[Vec<u8>]) {
        let socket = RawSocket::open(self.namespace(device), device).unwrap();
        assert_eq!(socket.send(frames).unwrap(), frames.len());
    }

    fn capture(&self, device: &str) -> Capture {
        Capture::start(self.namespace(device), device, "").unwrap()
    }

    fn show(&self) -> Value {
        show(&self.bed)
    }

    /// Sends `frames` to `device`, and says which of them, in order, arrive at each of the others.
    fn arrivals(&self, device: &str, frames: &[Vec<u8>]) -> Vec<(&'static str, Vec<Vec<u8>>)> {
        let others = [CLIENT, SERVER, BEYOND].into_iter().filter(|other| *other != device);
        let captures: Vec<_> = others.map(|other| (other, self.capture(other))).collect();
        self.send(device, frames);
        sleep(A_WHILE);
        let came = |capture: Capture| capture.frames().into_iter().filter(|it| is_ours(it));
        captures.into_iter().map(|(other, capture)| (other, came(capture).collect())).collect()
    }

    /// How many of `frames` arrive at the devices of the client, the server and beyond.
    fn count(&self, device: &str, frames: &[Vec<u8>]) -> [usize; 3] {
        let arrivals = self.arrivals(device, frames);
        [CLIENT, SERVER, BEYOND].map(|at| {
            let there = arrivals.iter().find(|(device, _)| *device == at);
            there.map_or(0, |(_, came)| came.len())
        })
    }

    fn bridge(&self, words: &str) -> String {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.bed.shaper().run("bridge", &words).unwrap()
    }
}

fn device_of(station: [u8; 6]) -> &'static str {
    match station {
        ANNE => CLIENT,
        BOB => SERVER,
        _ => BEYOND,
    }
}

fn port_of(device: &str) -> usize {
    [CLIENT, SERVER, BEYOND].iter().position(|it| *it == device).unwrap()
}

/// A frame between stations.
fn frame(from: [u8; 6], to: [u8; 6], length: usize) -> Vec<u8> {
    let mut frame = frames::udp(frames::port(0), to, length).unwrap();
    frame[6..12].copy_from_slice(&from);
    frame
}

/// The same in a VLAN.
fn tagged(from: [u8; 6], to: [u8; 6], tci: u16) -> Vec<u8> {
    let mut frame = frame(from, to, 100);
    let [high, low] = tci.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
    frame
}

/// Whether it is from a station, and not from some kernel.
fn is_ours(frame: &[u8]) -> bool {
    frame[6..11] == ANNE[..5]
}

fn outcome(show: &Value, port: usize, outcome: &str) -> u64 {
    show["ports"][port]["routes"][outcome].as_u64().unwrap_or(0)
}

fn switched(show: &Value, port: usize) -> u64 {
    outcome(show, port, "switched")
}

fn sent(show: &Value, port: usize) -> u64 {
    show["ports"][port]["total"]["tx_packets"].as_u64().unwrap()
}

#[test]
fn a_frame_to_a_known_station_leaves_there_only_as_it_came() {
    let Some(_turn) = turn_to_count() else { return };
    let native = ["--plane", "xdp", "--xdp", "native"];
    let generic = ["--xdp", "generic"];
    for plane in PLANES.into_iter().chain([&native[..], &generic]) {
        let bed = bed();
        if plane == native {
            bed.take_redirected(true).unwrap();
            bed.server().run("ethtool", &["-K", BEYOND, "gro", "on"]).unwrap();
        }
        let net = Net::known(bed, plane);
        let before = net.show();
        let sizes = [60, 100, 1000, 1514];
        let to_bob: Vec<_> = sizes.map(|bytes| frame(ANNE, BOB, bytes)).into();
        let expected = vec![(SERVER, to_bob.clone()), (BEYOND, Vec::new())];
        assert_eq!(net.arrivals(CLIENT, &to_bob), expected, "{plane:?}");
        let to_anne: Vec<_> = sizes.map(|bytes| frame(CARL, ANNE, bytes)).into();
        let expected = vec![(CLIENT, to_anne.clone()), (SERVER, Vec::new())];
        assert_eq!(net.arrivals(BEYOND, &to_anne), expected, "{plane:?}");
        let after = net.show();
        for (port, (arrived, left)) in [(4, 4), (0, 4), (4, 0)].into_iter().enumerate() {
            let more = switched(&after, port) - switched(&before, port);
            assert_eq!(more, arrived, "{plane:?}, port {port}: {after:#}");
            assert_eq!(sent(&after, port) - sent(&before, port), left, "port {port}: {after:#}");
        }
        assert_eq!(after["conservation"]["unaccounted"], 0);
    }
}

#[test]
fn what_the_bridge_has_to_flood_or_learn_from_it_gets() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let net = Net::known(bed(), plane);
        let before = net.show();
        assert_eq!(net.count(CLIENT, &[frame(ANNE, NOBODY, 100)]), [0, 1, 1]);
        assert_eq!(net.count(CLIENT, &[frame(ANNE, ALL, 100)]), [0, 1, 1]);
        let multicast = [1, 0, 0x5e, 1, 2, 3];
        assert_eq!(net.count(CLIENT, &[frame(ANNE, multicast, 100)]), [0, 1, 1]);
        // Between bridges: spanning tree's pass one that does not speak it, and LLDP's do not.
        let reserved = |last| frame(ANNE, [1, 0x80, 0xc2, 0, 0, last], 100);
        assert_eq!(net.count(CLIENT, &[reserved(0)]), [0, 1, 1]);
        assert_eq!(net.count(CLIENT, &[reserved(14)]), [0; 3]);
        let new = [2, 0, 0, 0, 9, 7];
        assert_eq!(net.count(CLIENT, &[frame(new, BOB, 100)]), [0, 1, 0]);
        let after = net.show();
        let more = |name| outcome(&after, 0, name) - outcome(&before, 0, name);
        assert_eq!(
            (more("unknown"), more("group"), more("unknown_source")),
            (1, 4, 1),
            "{after:#}"
        );
        // What the bridge sent counts at the ports' limits, if the kernel has a hook for it.
        if let Some(sent) = after["ports"][1]["slow_path"]["sent_packets"].as_u64() {
            assert!(sent >= 5, "{after:#}");
        }
        // Now it is known, too.
        assert_eq!(net.count(SERVER, &[frame(BOB, new, 100)]), [1, 0, 0]);
        let text = narrows(&net.bed, &["show"]);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("unknown source"), "{text}");
    }
}

#[test]
fn hosts_reach_each_other_and_the_box_through_the_bridge() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let bed = bed();
        bridge(&bed, "");
        ip(bed.shaper(), "addr add 198.18.0.9/24 dev br0");
        let net = Net::on(bed, plane);
        let to_server = SERVER_IP.to_string();
        for to in [&*to_server, "198.18.0.9"] {
            let words = ["-c", "5", "-i", "0.2", "-W", "2", to];
            let output = net.bed.client().command("ping").args(words).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains(" 0% packet loss"), "{plane:?}: {said}");
        }
        let after = net.show();
        assert!(switched(&after, 0) >= 3 && switched(&after, 1) >= 3, "{after:#}");
        assert!(outcome(&after, 0, "for_box") >= 5, "{after:#}");
    }
}

#[test]
fn a_station_that_moves_is_followed() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let net = Net::known(bed(), plane);
        net.send(BEYOND, &[frame(BOB, ANNE, 100)]);
        wait_for(&net.bed, "a move", |show| outcome(show, 2, "moved") == 1);
        sleep(A_WHILE);
        let before = net.show();
        assert_eq!(net.count(CLIENT, &[frame(ANNE, BOB, 100)]), [0, 0, 1]);
        assert_eq!(net.count(BEYOND, &[frame(BOB, ANNE, 100)]), [1, 0, 0]);
        let after = net.show();
        assert_eq!(switched(&after, 0) - switched(&before, 0), 1, "{after:#}");
        assert_eq!(switched(&after, 2) - switched(&before, 2), 1, "{after:#}");
    }
}

#[test]
fn a_port_that_spanning_tree_blocks_forwards_nothing() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let net = Net::known(bed(), plane);
        // Disabled, listening, learning. Without spanning tree the kernel does not keep it
        // blocking.
        for blocked in [0, 1, 2] {
            net.bridge(&format!("link set dev {PORT_B} state {blocked}"));
            sleep(A_WHILE);
            let before = outcome(&net.show(), 0, "not_forwarding");
            let gone = outcome(&net.show(), 0, "unknown");
            assert_eq!(net.count(CLIENT, &[frame(ANNE, BOB, 100)])[1], 0, "{plane:?}");
            assert_eq!(net.count(SERVER, &[frame(BOB, ANNE, 100)]), [0; 3], "{plane:?}");
            let now = net.show();
            let noticed = outcome(&now, 0, "not_forwarding") - before;
            // The bridge may have forgotten who is behind it.
            assert_eq!(noticed + outcome(&now, 0, "unknown") - gone, 1, "{now:#}");
            assert!(outcome(&now, 1, "not_forwarding") >= 1, "{now:#}");
            net.bridge(&format!("link set dev {PORT_B} state 3"));
            sleep(A_WHILE);
            net.wait_until_known(BOB, ANNE);
            assert_eq!(net.count(CLIENT, &[frame(ANNE, BOB, 100)]), [0, 1, 0], "{plane:?}");
        }
    }
}

#[test]
fn a_loop_is_cut_by_spanning_tree_and_the_other_link_takes_over() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let bed = bed();
        let settings = "stp_state 1 forward_delay 200 hello_time 100 max_age 600";
        bridge(&bed, &format!("{settings} priority 0"));
        // Another bridge, with a cable to each of two ports.
        ip(bed.server(), "addr flush dev srv0");
        ip(bed.server(), &format!("link add far up type bridge {settings}"));
        ip(bed.server(), &format!("addr add {SERVER_IP}/24 dev far"));
        for device in [SERVER, BEYOND] {
            ip(bed.server(), &format!("link set {device} master far"));
        }
        ip(bed.client(), &format!("neigh del {SERVER_IP} dev {CLIENT}"));
        let net = Net::on(bed, plane);
        let reaches = || {
            let to = SERVER_IP.to_string();
            let words = ["-c", "3", "-i", "0.2", "-W", "1", &to];
            let output = net.bed.client().command("ping").args(words).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains(" 0% packet loss")
        };
        let state = |device: &str| {
            let words = ["link", "show", "dev", device];
            let said = net.bed.server().run("bridge", &words).unwrap();
            ["forwarding", "blocking"].into_iter().find(|state| said.contains(state))
        };
        let settled = || [SERVER, BEYOND].map(state).iter().all(Option::is_some);
        let deadline = Instant::now() + Duration::from_secs(30);
        while !(settled() && reaches()) {
            assert!(Instant::now() < deadline, "{}", net.bridge("link show"));
        }
        let states = [SERVER, BEYOND].map(state);
        assert_eq!(states, [Some("forwarding"), Some("blocking")], "{plane:?}");
        assert!(switched(&net.show(), 0) > 0 && switched(&net.show(), 1) > 0, "{:#}", net.show());
        // One broadcast is not a storm.
        let before = net.show();
        net.send(CLIENT, &[frame(ANNE, ALL, 100)]);
        sleep(Duration::from_secs(1));
        let arrived = |show: &Value, port: usize| outcome(show, port, "group");
        let after = net.show();
        assert!(arrived(&after, 1) - arrived(&before, 1) < 5, "{after:#}");
        assert!(arrived(&after, 2) - arrived(&before, 2) < 5, "{after:#}");
        // The cable in use is pulled.
        ip(net.bed.server(), &format!("link set {SERVER} down"));
        let deadline = Instant::now() + Duration::from_secs(30);
        while !reaches() {
            assert!(Instant::now() < deadline, "{}", net.bridge("link show"));
        }
        let before = net.show();
        assert!(reaches());
        assert!(switched(&net.show(), 2) > switched(&before, 2), "{plane:?}: {:#}", net.show());
    }
}

#[test]
fn vlans_are_those_of_the_bridge_and_tags_come_and_go_as_its_ports_say() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let bed = bed();
        let probe = ["link", "add", "probe", "type", "bridge", "vlan_filtering", "1"];
        if let Err(error) = bed.shaper().run("ip", &probe) {
            eprintln!("SKIPPED: this kernel's bridges know no VLANs: {error}");
            return;
        }
        bridge(&bed, "vlan_filtering 1 vlan_default_pvid 0");
        let vlan = |words: &str| {
            let words: Vec<&str> = ["vlan", "add"].into_iter().chain(words.split(' ')).collect();
            bed.shaper().run("bridge", &words).unwrap();
        };
        vlan(&format!("dev {PORT_A} vid 10"));
        vlan(&format!("dev {PORT_A} vid 20"));
        vlan(&format!("dev {PORT_B} vid 10 pvid untagged"));
        vlan(&format!("dev {THIRD} vid 20 pvid untagged"));
        let net = Net::on(bed, plane);
        net.send(CLIENT, &[tagged(ANNE, ALL, 10), tagged(ANNE, ALL, 20)]);
        net.send(SERVER, &[frame(BOB, ALL, 100)]);
        net.send(BEYOND, &[frame(CARL, ALL, 100)]);
        sleep(A_WHILE);
        let before = net.show();
        // Between a port with tags and one without, both ways. The priority goes with the tag.
        let priority = 5 << 13;
        let arrivals = net.arrivals(CLIENT, &[tagged(ANNE, BOB, priority | 10)]);
        assert_eq!(arrivals, [(SERVER, vec![frame(ANNE, BOB, 100)]), (BEYOND, vec![])]);
        let arrivals = net.arrivals(CLIENT, &[tagged(ANNE, CARL, 20)]);
        assert_eq!(arrivals, [(SERVER, vec![]), (BEYOND, vec![frame(ANNE, CARL, 100)])]);
        let arrivals = net.arrivals(BEYOND, &[frame(CARL, ANNE, 100)]);
        assert_eq!(arrivals, [(CLIENT, vec![tagged(CARL, ANNE, 20)]), (SERVER, vec![])]);
        let after = net.show();
        let more = |port| switched(&after, port) - switched(&before, port);
        assert_eq!((more(0), more(1), more(2)), (2, 0, 1), "{plane:?}: {after:#}");
        // From one VLAN to the other there is no way, nor in one that a port is not in.
        assert_eq!(net.count(CLIENT, &[tagged(ANNE, CARL, 10)])[2], 0);
        assert_eq!(net.count(SERVER, &[frame(BOB, CARL, 100)])[2], 0);
        assert_eq!(net.count(CLIENT, &[tagged(ANNE, BOB, 30)]), [0; 3]);
        assert_eq!(net.count(CLIENT, &[frame(ANNE, BOB, 100)]), [0; 3]);
        let after = net.show();
        assert!(outcome(&after, 0, "not_in_vlan") >= 2, "{after:#}");
        // The port leaves the VLAN.
        net.bridge(&format!("vlan del dev {PORT_B} vid 10"));
        sleep(A_WHILE);
        assert_eq!(net.count(CLIENT, &[tagged(ANNE, BOB, 10)]), [0; 3]);
    }
}

#[test]
fn a_static_entry_counts_and_a_deleted_one_does_not() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let net = Net::known(bed(), plane);
        let station = written(NOBODY);
        net.bridge(&format!("fdb add {station} dev {PORT_B} master static"));
        sleep(A_WHILE);
        assert_eq!(net.count(CLIENT, &[frame(ANNE, NOBODY, 100)]), [0, 1, 0]);
        net.bridge(&format!("fdb replace {station} dev {THIRD} master static"));
        sleep(A_WHILE);
        assert_eq!(net.count(CLIENT, &[frame(ANNE, NOBODY, 100)]), [0, 0, 1]);
        net.bridge(&format!("fdb del {station} dev {THIRD} master"));
        sleep(A_WHILE);
        assert_eq!(net.count(CLIENT, &[frame(ANNE, NOBODY, 100)]), [0, 1, 1]);
    }
}

#[test]
fn a_table_that_changes_faster_than_it_is_told_is_read_again() {
    let Some(_turn) = turn_to_count() else { return };
    let net = Net::known(bed(), &["--plane", "xdp"]);
    let file = Scratch::new("fdb", &{
        let line = |number: u32| {
            let [_, _, a, b] = number.to_be_bytes();
            format!("fdb add 02:00:00:01:{a:02x}:{b:02x} dev {PORT_B} master static\n")
        };
        (0..20_000).map(line).collect::<String>()
    });
    net.bridge(&format!("-batch {}", file.path()));
    let reaches_bob_only = |number: u32| {
        let [_, _, a, b] = number.to_be_bytes();
        net.count(CLIENT, &[frame(ANNE, [2, 0, 0, 1, a, b], 100)]) == [0, 1, 0]
    };
    let deadline = Instant::now() + PATIENCE;
    while ![0, 9_999, 19_999].into_iter().all(reaches_bob_only) {
        assert!(Instant::now() < deadline, "{:#}", net.show());
    }
    // All of them go with the port, which Narrows' own bridge gets back.
    ip(net.bed.shaper(), &format!("link set {PORT_B} nomaster"));
    let frame = frame(ANNE, [2, 0, 0, 1, 0, 7], 100);
    // The bridge has the port back before the program knows, and floods what it gets until then.
    let deadline = Instant::now() + PATIENCE;
    while net.count(CLIENT, std::slice::from_ref(&frame)) != [0, 1, 1]
        || outcome(&net.show(), 0, "unknown") == 0
    {
        assert!(Instant::now() < deadline, "{:#}", net.show());
    }
}

#[test]
fn an_operators_bridge_that_goes_is_waited_for_and_none_is_made_in_its_place() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let bed = bed();
        bridge(&bed, "");
        let net = Net::known(bed, plane);
        ip(net.bed.shaper(), "link del br0");
        sleep(Duration::from_millis(1500));
        assert_eq!(net.count(CLIENT, &[frame(ANNE, BOB, 100)]), [0; 3], "{plane:?}");
        assert_eq!(ip(net.bed.shaper(), "-br link show type bridge"), "");
        let text = narrows(&net.bed, &["show"]);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("br0 is gone"), "{text}");
        bridge(&net.bed, "");
        wait_for(&net.bed, "the bridge is there", |_| {
            net.send(SERVER, &[frame(BOB, ALL, 100)]);
            net.count(CLIENT, &[frame(ANNE, BOB, 100)]) == [0, 1, 0]
        });
        net.wait_until_known(ANNE, BOB);
    }
}

#[test]
fn a_silent_station_ages_and_one_whose_frames_the_bridge_does_not_see_stays() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let bed = bed();
        bridge(&bed, "ageing_time 300");
        let net = Net::known(bed, plane);
        // Both are asked from time to time; Carl never answers.
        let talk = |time: Duration| {
            let begin = Instant::now();
            while begin.elapsed() < time {
                net.send(CLIENT, &[frame(ANNE, BOB, 60)]);
                net.send(SERVER, &[frame(BOB, ANNE, 60)]);
                sleep(Duration::from_millis(100));
            }
        };
        let knows = |station: [u8; 6]| {
            let station = written(station);
            net.bridge("fdb show br br0").contains(&station)
        };
        assert!(knows(ANNE) && knows(BOB) && knows(CARL));
        let before = net.show();
        talk(Duration::from_secs(9));
        assert!(knows(ANNE) && knows(BOB) && !knows(CARL), "{}", net.bridge("fdb show br br0"));
        let after = net.show();
        for port in [0, 1] {
            let other = ["unknown", "unknown_source", "moved"];
            let more = other.map(|name| outcome(&after, port, name) - outcome(&before, port, name));
            assert_eq!(more, [0; 3], "{plane:?}, port {port}: {after:#}");
        }
        assert_eq!(net.count(CLIENT, &[frame(ANNE, CARL, 100)]), [0, 1, 1], "it is flooded");
    }
}

#[test]
fn the_qdisc_of_the_port_where_it_leaves_limits_what_is_switched_there() {
    let Some(_turn) = turn_to_measure() else { return };
    for plane in PLANES {
        let net = Net::known(bed(), plane);
        let limit = format!("qdisc add dev {PORT_B} root tbf rate 4mbit burst 16k latency 50ms");
        net.instance.tc(&limit).unwrap();
        let socket = RawSocket::open(net.bed.client(), CLIENT).unwrap();
        let bytes = |port: usize| net.show()["ports"][port]["total"]["tx_bytes"].as_f64().unwrap();
        let (before, begin) = ([1, 2].map(bytes), Instant::now());
        let both = [frame(ANNE, BOB, 1000), frame(ANNE, CARL, 1000)];
        while begin.elapsed() < Duration::from_secs(3) {
            let _ = socket.send(&both);
            sleep(Duration::from_micros(500));
        }
        let time = begin.elapsed().as_secs_f64();
        let [limited, free] =
            [0, 1].map(|index| (bytes(index + 1) - before[index]) * 8.0 / time / 1e6);
        assert!((3.6..4.3).contains(&limited), "{plane:?}: {limited} Mbit/s at a limit of 4");
        assert!(free > 6.0, "{plane:?}: {free} Mbit/s without one");
    }
}

#[test]
fn the_bridge_goes_on_when_the_process_is_killed() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let net = Net::known(bed(), plane);
        let links = ip(net.bed.shaper(), "-br link show type bridge");
        assert!(links.contains("nrwsw"), "{links}");
        net.bed.shaper().run("kill", &["-9", &net.instance.id().to_string()]).unwrap();
        sleep(Duration::from_millis(300));
        assert_eq!(net.count(CLIENT, &[frame(ANNE, BOB, 100)]), [0, 1, 0], "it knows Bob");
        assert_eq!(net.count(CLIENT, &[frame(ANNE, NOBODY, 100)]), [0, 1, 1]);
    }
}

#[test]
fn an_upgrade_of_a_switch_loses_and_reorders_nothing() {
    let Some(_turn) = turn_to_count() else { return };
    const FRAMES: u16 = 600;
    for plane in PLANES {
        let mut net = Net::known(bed(), plane);
        // The XDP plane has no queue where frames could wait.
        if plane.is_empty() {
            let limit = "qdisc add dev port-b root tbf rate 20mbit burst 16k latency 1s";
            net.instance.tc(limit).unwrap();
        }
        let capture = Capture::start(net.bed.server(), SERVER, "udp port 9").unwrap();
        let socket = RawSocket::open(net.bed.client(), CLIENT).unwrap();
        let mut frame = frame(ANNE, BOB, 500);
        for number in 0..FRAMES {
            frame[60..62].copy_from_slice(&number.to_be_bytes());
            assert_eq!(socket.send(&[&frame[..]]).unwrap(), 1);
            if number == FRAMES / 2 {
                net.instance.upgrade().unwrap();
            }
            sleep(Duration::from_micros(500));
        }
        let came = capture.wait_for(usize::from(FRAMES), PATIENCE);
        let numbers: Vec<u16> =
            came.iter().map(|frame| u16::from_be_bytes([frame[60], frame[61]])).collect();
        assert_eq!(numbers, (0..FRAMES).collect::<Vec<_>>(), "{plane:?}");
        let shown = net.show();
        assert!(switched(&shown, 0) >= u64::from(FRAMES), "counters continue: {shown:#}");
        assert_eq!(shown["conservation"]["unaccounted"], 0);
    }
}

#[test]
fn a_firewall_of_the_bridge_is_not_jumped_over() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in PLANES {
        let net = Net::known(bed(), plane);
        let nft = |words: &str| net.bed.shaper().run("nft", &[words]);
        if let Err(error) = nft("add table bridge filter") {
            eprintln!("SKIPPED: this kernel has no nftables for bridges: {error}");
            return;
        }
        let chain = "{ type filter hook forward priority 0; policy drop; }";
        nft(&format!("add chain bridge filter forward {chain}")).unwrap();
        wait_for(&net.bed, "the ports are released", |show| show["state"] == "waiting");
        assert_eq!(net.count(CLIENT, &[frame(ANNE, BOB, 100)]), [0; 3], "{plane:?}");
        let waits = net.show()["waiting_for"].as_str().unwrap_or_default().to_owned();
        assert!(waits.contains("bridge filter forward"), "{waits}");
        let doctor = narrows(&net.bed, &["doctor", PORT_A, PORT_B, THIRD, "--switch"]);
        let said = String::from_utf8_lossy(&doctor.stdout);
        assert!(said.contains("bridge filter forward") && said.contains("--skip-netfilter"));
        nft("delete table bridge filter").unwrap();
        wait_for(&net.bed, "the ports are joined again", |show| show["state"] == "running");
        assert_eq!(net.count(CLIENT, &[frame(ANNE, BOB, 100)]), [0, 1, 0], "{plane:?}");
    }
}

#[test]
fn wrong_switches_are_refused_with_what_to_do_instead() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let refused = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = narrows(&bed, &words);
        assert!(!output.status.success(), "{words:?}");
        complaint(&output)
    };
    let run = |ports: &str| refused(&format!("run --switch {ports}"));
    assert!(run(PORT_A).contains("a switch has 2 to 64 ports"));
    assert!(run("port-a,nowhere").contains("nowhere"));
    let closed = refused("run --switch port-a,port-b --fail-closed");
    assert!(closed.contains("a switch cannot fail closed"), "{closed}");
    ip(bed.shaper(), "link add br0 type bridge");
    ip(bed.shaper(), "link set port-a master br0");
    let said = run("port-a,port-b");
    assert!(said.contains("ip link set dev port-b master br0"), "{said}");
    ip(bed.shaper(), "link add br1 type bridge");
    ip(bed.shaper(), "link set port-b master br1");
    let said = run("port-a,port-b");
    assert!(said.contains("the ports of a switch are in one bridge"), "{said}");
    let said = run("br0,port-b");
    assert!(said.contains("br0 is a bridge"), "{said}");
    ip(bed.shaper(), "link set port-b master br0");
    let with = ["doctor", "port-a", "port-b", "--switch"];
    let said = String::from_utf8_lossy(&narrows(&bed, &with).stdout).into_owned();
    assert!(said.contains("br0 decides"), "{said}");
    ip(bed.shaper(), "link set third master br0");
    let net = Net::on(bed, &[]);
    // A port in two instances.
    let output = narrows(&net.bed, &["run", "--switch", "port-b,third"]);
    assert!(!output.status.success());
    let said = complaint(&output);
    assert!(said.contains("port-b"), "{said}");
    for words in [
        "tc qdisc add dev port-a clsact",
        "tc filter add dev port-a ingress protocol all u32 match u32 0 0 action mirred egress \
         redirect dev ifb0",
    ] {
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = narrows(&net.bed, &words);
        if words.contains(&"mirred") {
            assert!(complaint(&output).contains("through several ports"), "{output:?}");
        }
    }
}
