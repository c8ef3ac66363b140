//! What arrives at a port of the host plane, shaped at the port's ifb.
//!
//! The kernel of a test machine may have no `fq`. Then limits police, as in `host_plane`.

use crate::setup::{
    NARROWS, assert_refused, complaint, ip, narrows, paced, port_in, show, tc, turn_to_count,
    turn_to_measure, wait_for, wait_until,
};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{CLIENT_IP, PORT_B, SERVER_IP};
use narrows_testbed::narrows::Instance;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const IFB: &str = "ifb4port-b";
const WITH_IFB: [&str; 7] = ["run", "--plane", "host", "--ports", PORT_B, "--ifb", PORT_B];

/// A bed whose middle receives.
fn bed() -> Testbed {
    let bed = Testbed::up(2).unwrap();
    bed.send_from_the_port().unwrap();
    bed
}

fn run(bed: &Testbed) -> Instance {
    Instance::start_command(bed, Path::new(NARROWS), &WITH_IFB).unwrap()
}

/// A socket of the host that receives.
struct Receiver(UdpSocket);

impl Receiver {
    fn open(bed: &Testbed, port: u16) -> Self {
        let socket = bed.shaper().enter(|| Ok(UdpSocket::bind((CLIENT_IP, port))?)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        Self(socket)
    }

    /// Has `send` send, and counts what comes until nothing does for a while. Returns that, and
    /// what was sent.
    fn receive(&self, send: impl FnOnce() -> u64) -> (u64, u64) {
        let count = || {
            let mut bytes = [0; 2000];
            std::iter::from_fn(|| self.0.recv(&mut bytes).ok()).count() as u64
        };
        std::thread::scope(|scope| {
            // Its buffer holds about 90.
            let counting = scope.spawn(count);
            let sent = send();
            (counting.join().unwrap(), sent)
        })
    }
}

/// Sends datagrams of 1,000 bytes from the server to a port of the host for a while, at so many
/// bits a second. Returns how many.
fn send(bed: &Testbed, port: u16, bits: f64, time: Duration) -> u64 {
    let socket = bed.server().enter(|| Ok(UdpSocket::bind((SERVER_IP, 0))?)).unwrap();
    paced(1000, bits, time, || {
        socket.send_to(&[7; 1000], (CLIENT_IP, port)).unwrap();
    })
}

/// What the ifb has given to the stack, and dropped.
fn passed(bed: &Testbed) -> [u64; 2] {
    let shown = show(bed);
    assert_eq!(shown["conservation"]["unaccounted"], 0, "{shown:#}");
    ["tx_packets", "drops"].map(|key| port_in(&shown, IFB)["total"][key].as_u64().unwrap())
}

fn has_ifb(bed: &Testbed) -> bool {
    ip(bed.shaper(), "-brief link").contains(IFB)
}

#[test]
fn what_arrives_is_held_to_the_limit_of_the_ifb_and_every_packet_is_accounted_for() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = bed();
    let instance = run(&bed);
    instance.tc("qdisc add dev ifb4port-b root tbf rate 20mbit burst 30k latency 50ms").unwrap();
    let receiver = Receiver::open(&bed, 9);
    let begin = Instant::now();
    let mut seconds = 0.0;
    let (came, offered) = receiver.receive(|| {
        let offered = send(&bed, 9, 60e6, Duration::from_secs(2));
        seconds = begin.elapsed().as_secs_f64();
        offered
    });
    let [sent, dropped] = passed(&bed);
    assert_eq!((sent, sent + dropped), (came, offered));
    let bits = came as f64 * 1042.0 * 8.0;
    // Half of a second's error of timing of a busy machine, and the burst.
    let most = 20e6 * (seconds + 0.35) + 30_000.0 * 8.0;
    assert!((20e6 * 2.0 * 0.95..most).contains(&bits), "{bits} bits in {seconds} s");
    instance.stop().unwrap();
    assert!(!has_ifb(&bed));
}

#[test]
fn filters_of_the_port_come_first_and_those_of_the_ifb_choose_classes() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let instance = run(&bed);
    for words in [
        "qdisc add dev ifb4port-b root handle 1: htb default 30",
        "class add dev ifb4port-b parent 1: classid 1:1 htb rate 100mbit",
        "class add dev ifb4port-b parent 1:1 classid 1:10 htb rate 50mbit ceil 100mbit",
        "class add dev ifb4port-b parent 1:1 classid 1:30 htb rate 50mbit ceil 100mbit",
        "filter add dev ifb4port-b parent 1: protocol ip pref 1 flower ip_proto udp dst_port 10 classid 1:10",
        "qdisc add dev port-b clsact",
        "filter add dev port-b ingress protocol ip pref 1 flower ip_proto udp dst_port 12 action drop",
    ] {
        instance.tc(words).unwrap();
    }
    let [ten, other, dropped] = [10, 11, 12].map(|port| {
        let receiver = Receiver::open(&bed, port);
        receiver.receive(|| send(&bed, port, 5e6, Duration::from_millis(300)))
    });
    assert_eq!((ten.0, other.0, dropped.0), (ten.1, other.1, 0));
    let classes = tc(&bed, "-s -j class show dev ifb4port-b").stdout;
    let classes: serde_json::Value = serde_json::from_slice(&classes).unwrap();
    let of = |name: &str| {
        let found = classes.as_array().unwrap().iter().find(|class| class["handle"] == name);
        found.unwrap()["stats"]["packets"].as_u64().unwrap()
    };
    assert_eq!([of("1:10"), of("1:30")], [ten.1, other.1]);
    assert_eq!(show(&bed)["conservation"]["dropped"]["filter"], dropped.1);
}

#[test]
fn killed_it_lets_all_arrive_and_the_next_one_uses_what_was_left_and_removes_it() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let receiver = Receiver::open(&bed, 9);
    let arrive = || receiver.receive(|| send(&bed, 9, 20e6, Duration::from_millis(300)));
    let limit = "qdisc add dev ifb4port-b root tbf rate 1mbit burst 10k latency 10ms";
    let mut instance = run(&bed);
    instance.tc(limit).unwrap();
    let (came, sent) = arrive();
    assert!(came < sent / 2, "{came} of {sent}");
    instance.upgrade().unwrap();
    let (came, sent) = arrive();
    assert!(came < sent / 2, "after an upgrade: {came} of {sent}");
    instance.kill().unwrap();
    wait_until("fail-open", Duration::from_secs(5), || {
        let (came, sent) = arrive();
        came == sent
    });
    assert!(has_ifb(&bed));
    let instance = run(&bed);
    instance.tc(limit).unwrap();
    // Somebody removes it: the port is joined anew.
    ip(bed.shaper(), "link del dev ifb4port-b");
    wait_for(&bed, "there again", |now| has_ifb(&bed) && now["state"] == "running");
    let (came, sent) = arrive();
    assert!(came < sent / 2, "there again: {came} of {sent}");
    instance.stop().unwrap();
    assert!(!has_ifb(&bed));
    let (came, sent) = arrive();
    assert_eq!(came, sent);
}

#[test]
fn the_words_that_redirect_are_taken_and_what_cannot_be_is_refused() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let start = |words: &[&str]| narrows(&bed, &[&["run", "--plane", "host"], words].concat());
    assert_refused(&start(&["--ports", PORT_B, "--ifb", "eth7"]), 1, &["none of the ports"]);
    ip(bed.shaper(), "link add ifb4port-b type ifb");
    ip(bed.shaper(), "link set ifb4port-b up");
    let of_others = start(&["--ports", PORT_B, "--ifb", PORT_B]);
    assert_refused(&of_others, 1, &["not Narrows'", "ip link del dev ifb4port-b"]);
    assert!(has_ifb(&bed));
    ip(bed.shaper(), "link del ifb4port-b");
    let generic = start(&["--ports", PORT_B, "--ifb", PORT_B, "--xdp", "generic"]);
    assert_refused(&generic, 1, &["generic XDP"]);
    assert!(!has_ifb(&bed), "{}", complaint(&generic));

    let instance = run(&bed);
    let redirect = |to: &str| {
        tc(
            &bed,
            &format!(
                "filter add dev port-b ingress pref 5 matchall action mirred egress redirect dev {to}"
            ),
        )
    };
    instance.tc("qdisc add dev port-b clsact").unwrap();
    assert_refused(&redirect("ifb0"), 2, &["only to its own ifb", "--ifb port-b"]);
    let said = redirect(IFB);
    assert_eq!((said.status.code(), complaint(&said).as_str()), (Some(0), ""));
    let root = tc(&bed, "qdisc add dev ifb4port-b root tbf rate 1mbit burst 10k latency 10ms");
    assert_eq!((root.status.code(), complaint(&root).as_str()), (Some(0), ""));
    let shown = String::from_utf8(tc(&bed, "qdisc show").stdout).unwrap();
    assert!(shown.contains("tbf") && !shown.contains("pending"), "{shown}");
    let receiver = Receiver::open(&bed, 9);
    let (came, sent) = receiver.receive(|| send(&bed, 9, 20e6, Duration::from_millis(300)));
    assert!(came > 0 && came < sent / 2, "{came} of {sent}");
}

/// A tunnel's packets have no header of Ethernet, and an ifb has only such.
#[test]
fn what_arrives_through_a_tunnel_is_shaped_too() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    // Reads numbers of packets from its input, and has so many arrive.
    let tunnel = "import fcntl, os, socket, struct, subprocess, sys\n\
                  tun = os.open('/dev/net/tun', os.O_RDWR)\n\
                  fcntl.ioctl(tun, 0x400454ca, struct.pack('16sH', b'tun9', 0x1001))\n\
                  for words in ['link set tun9 up', 'addr add 10.77.0.1/24 dev tun9']:\n\
                  \x20 subprocess.check_call(['ip'] + words.split())\n\
                  print('ready', flush=True)\n\
                  udp = struct.pack('!HHHH', 5, 9, 1008, 0) + bytes(1000)\n\
                  head = struct.pack('!BBHHHBBH4s4s', 69, 0, 1028, 0, 0, 64, 17, 0, \
                  socket.inet_aton('10.77.0.2'), socket.inet_aton('10.77.0.1'))\n\
                  total = sum(struct.unpack('!10H', head))\n\
                  total = (total & 0xffff) + (total >> 16)\n\
                  head = head[:10] + struct.pack('!H', ~total & 0xffff) + head[12:]\n\
                  for line in sys.stdin:\n\
                  \x20 for _ in range(int(line)): os.write(tun, head + udp)\n\
                  \x20 print('sent', flush=True)\n";
    let mut command = bed.shaper().command("python3");
    let command = command.args(["-c", tunnel]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = command.spawn().unwrap();
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let mut input = python.stdin.take().unwrap();
    let socket = bed.shaper().enter(|| Ok(UdpSocket::bind(("10.77.0.1", 9))?)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let receiver = Receiver(socket);
    let mut arrive = |packets: u64| {
        let send = || {
            std::io::Write::write_all(&mut input, format!("{packets}\n").as_bytes()).unwrap();
            assert_eq!(lines.next().unwrap().unwrap(), "sent");
            packets
        };
        receiver.receive(send).0
    };
    assert_eq!(arrive(80), 80);
    let words = ["run", "--plane", "host", "--ports", "tun9", "--ifb", "tun9"];
    let instance = Instance::start_command(&bed, Path::new(NARROWS), &words).unwrap();
    assert_eq!(arrive(80), 80, "no limit");
    instance.tc("qdisc add dev ifb4tun9 root tbf rate 1mbit burst 10k latency 10ms").unwrap();
    let came = arrive(80);
    assert!((5..60).contains(&came), "{came} of 80");
    let shown = show(&bed);
    let total = &port_in(&shown, "ifb4tun9")["total"];
    assert_eq!((&total["tx_packets"], &total["drops"]), (&(80 + came).into(), &(80 - came).into()));
    instance.stop().unwrap();
    drop(input);
    python.wait().unwrap();
}
