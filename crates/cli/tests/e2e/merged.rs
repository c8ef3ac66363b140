//! The XDP plane at tcx, and a guest that sends packets to be cut: what it says of them is not
//! believed, and what the other port counts is what the receiver gets.
//!
//! The guest has a virtual device (a tap whose frames have a header of virtio) and writes what it
//! likes. The receiver's device takes no merged packets, so what it counts was on the wire.

use crate::setup::{NARROWS, ip, narrows, show, turn_to_count, wait_for};
use narrows_testbed::bed::{PORT_B, SERVER, SERVER_IP, SINK_MAC};
use narrows_testbed::counters::Counters;
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Namespace, Testbed};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread::sleep;
use std::time::Duration;

const GUEST: &str = "guest";

/// Opens a tap and writes what it is told, each so often and with a pause after it.
const DEVICE: &str = "
import fcntl, os, struct, sys, time
tap = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack('16sH22x', b'guest', 0x5002))
print('ready', flush=True)
for line in sys.stdin:
    frame, times, pause = line.split()
    frame = bytes.fromhex(frame)
    taken = 0
    for _ in range(int(times)):
        try: taken += os.write(tap, frame) > 0
        except OSError: pass
        time.sleep(float(pause))
    print(taken, flush=True)
";

/// A guest of the shaper's machine.
struct Guest {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Guest {
    fn start(namespace: &Namespace) -> Self {
        let mut process = namespace.command("python3");
        let process = process.args(["-c", DEVICE]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = process.spawn().unwrap();
        let to = process.stdin.take().unwrap();
        let mut guest = Self { to, from: BufReader::new(process.stdout.take().unwrap()), process };
        assert_eq!(guest.line(), "ready");
        namespace.run("sysctl", &["-qw", "net.ipv6.conf.guest.disable_ipv6=1"]).unwrap();
        ip(namespace, "link set dev guest up");
        guest
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Sends this packet so often; returns how many the device took.
    fn sends(&mut self, packet: &Packet, times: u32, pause: Duration) -> u32 {
        let bytes: String = packet.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.to, "{bytes} {times} {}", pause.as_secs_f64()).unwrap();
        self.line().parse().unwrap()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A packet that is to be cut, as a guest hands it over.
#[derive(Clone, Debug)]
struct Packet {
    /// Between the addresses of Ethernet and IP, EtherType included.
    link: Vec<u8>,
    is_v6: bool,
    /// The headers between IPv6's and TCP's, and the protocol number of the first.
    extensions: (u8, Vec<u8>),
    /// Of TCP's header, in words of four bytes.
    words: u8,
    /// The bytes behind what TCP's header has at least.
    rest: usize,
    /// The payload of each frame; 0 for no cutting.
    cut: u16,
    is_udp: bool,
    port: u16,
}

impl Packet {
    /// TCP with 16,000 bytes in frames of 1,000, directly in IPv4.
    fn plain() -> Self {
        Self {
            link: vec![8, 0],
            is_v6: false,
            extensions: (6, vec![]),
            words: 5,
            rest: 16_000,
            cut: 1000,
            is_udp: false,
            port: 7000,
        }
    }

    fn v6(extensions: (u8, Vec<u8>)) -> Self {
        Self { is_v6: true, link: vec![0x86, 0xdd], extensions, ..Self::plain() }
    }

    /// With the header of virtio before it.
    fn bytes(&self) -> Vec<u8> {
        let transport = if self.is_udp { 8 } else { 20 };
        let payload = self.extensions.1.len() + transport + self.rest;
        let mut frame = SINK_MAC.to_vec();
        frame.extend([2, 0, 0, 0, 0, 9]);
        frame.extend(&self.link);
        let protocol = if self.is_udp { 17 } else { self.extensions.0 };
        if self.is_v6 {
            frame.extend([0x60, 0, 0, 0]);
            frame.extend((payload as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend([0x20; 15]);
            frame.push(1);
            frame.extend([0x20; 15]);
            frame.push(2);
        } else {
            let at = frame.len();
            frame.extend([0x45, 0]);
            frame.extend(((20 + payload) as u16).to_be_bytes());
            frame.extend([0, 1, 0, 0, 64, protocol, 0, 0, 198, 18, 0, 1]);
            frame.extend(SERVER_IP.octets());
            let words = frame[at..].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
            let sum: u32 = words.sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        frame.extend(&self.extensions.1);
        let start = frame.len() as u16;
        frame.extend([0x30, 0x39]);
        frame.extend(self.port.to_be_bytes());
        if self.is_udp {
            frame.extend(((8 + self.rest) as u16).to_be_bytes());
            frame.extend([0, 0]);
        } else {
            frame.extend([0, 0, 0, 1, 0, 0, 0, 0, self.words << 4, 0x10, 1, 0, 0, 0, 0, 0]);
        }
        frame.resize(frame.len() + self.rest, 1);
        let sort = match (self.cut, self.is_udp, self.is_v6) {
            (0, ..) => 0,
            (_, true, _) => 5,
            (_, false, false) => 1,
            (_, false, true) => 4,
        };
        let mut all = vec![u8::from(sort != 0), sort];
        for field in [0, self.cut, start, if self.is_udp { 6 } else { 16 }] {
            all.extend(if sort == 0 { 0 } else { field }.to_le_bytes());
        }
        all.extend(frame);
        all
    }
}

/// A testbed with a guest instead of a client, and an instance between guest and server.
struct Bed {
    guest: Guest,
    instance: Instance,
    server: Counters,
    bed: Testbed,
}

impl Bed {
    fn up(lines: &[&str]) -> Self {
        let bed = Testbed::up(1).unwrap();
        // Its counters have no tag that is beside a packet.
        let beside = ["-K", PORT_B, "txvlan", "off", "tx-vlan-stag-hw-insert", "off"];
        bed.shaper().run("ethtool", &beside).unwrap();
        let guest = Guest::start(bed.shaper());
        let ports = format!("{GUEST},{PORT_B}");
        let arguments = ["run", "--ports", &ports, "--plane", "xdp", "--xdp", "tcx"];
        let instance = Instance::start_in(bed.shaper(), Path::new(NARROWS), &arguments).unwrap();
        for line in lines {
            instance.tc(line).unwrap();
        }
        let server = Counters::of(bed.server(), SERVER).unwrap();
        Self { guest, instance, server, bed }
    }

    /// What the program says that it has sent to the server, and what the server got: packets and
    /// bytes.
    fn books(&mut self) -> [[u64; 2]; 2] {
        let shown = show(&self.bed);
        let sent = |figure: &str| shown["ports"][1]["total"][figure].as_u64().unwrap();
        let got = self.server.read().unwrap();
        [[sent("tx_packets"), sent("tx_bytes")], [got.rx_packets, got.rx_bytes]]
    }

    /// By how much both grow when the guest sends `packet` so often.
    fn send(&mut self, packet: &Packet, times: u32) -> [[u64; 2]; 2] {
        let before = self.books();
        self.guest.sends(packet, times, Duration::from_millis(2));
        sleep(Duration::from_millis(100));
        let after = self.books();
        [0, 1].map(|side| [0, 1].map(|figure| after[side][figure] - before[side][figure]))
    }
}

/// A tag with this EtherType before it.
fn tag(ether_type: u16, id: u16) -> Vec<u8> {
    [ether_type.to_be_bytes(), id.to_be_bytes()].concat()
}

#[test]
fn a_merged_packet_counts_as_what_the_receiver_gets_of_it() {
    let Some(_turn) = turn_to_count() else { return };
    let mut bed = Bed::up(&[]);
    let options = |bytes: u8| {
        let mut header = vec![6, bytes / 8 - 1, 1, bytes - 4];
        header.resize(bytes.into(), 0);
        (60, header)
    };
    let mut two = options(64).1;
    two[0] = 60;
    two.extend(options(128).1);
    let behind = |tags: &[u16]| {
        let mut link: Vec<u8> = tags.iter().flat_map(|id| tag(0x8100, *id)).collect();
        link.extend([8, 0]);
        Packet { link, ..Packet::plain() }
    };
    let udp = Packet { is_udp: true, words: 2, ..Packet::plain() };
    let packets = [
        ("plain", Packet::plain()),
        ("options of TCP", Packet { words: 15, ..Packet::plain() }),
        ("a last frame that is shorter", Packet { rest: 15_001, ..Packet::plain() }),
        ("short frames", Packet { cut: 100, rest: 2000, ..Packet::plain() }),
        ("UDP", udp.clone()),
        ("UDP in IPv6", Packet { is_udp: true, ..Packet::v6((17, vec![])) }),
        ("one tag", behind(&[5])),
        ("two tags", behind(&[5, 6])),
        ("three tags", behind(&[5, 6, 7])),
        ("six tags", behind(&[5, 6, 7, 8, 9, 10])),
        ("802.1ad", Packet { link: [tag(0x88a8, 5), behind(&[6]).link].concat(), ..behind(&[]) }),
        ("IPv6", Packet::v6((6, vec![]))),
        ("destination options", Packet::v6(options(8))),
        ("many options", Packet::v6(options(248))),
        ("two headers of options", Packet::v6((60, two))),
        ("hop-by-hop options", Packet::v6((0, options(16).1))),
    ];
    for (what, packet) in packets {
        let [sent, got] = bed.send(&packet, 20);
        assert!(got[0] > 20, "{what}: nothing was cut, {got:?}");
        assert_eq!(sent, got, "{what}");
    }
    // A frame longer than the device takes cannot be sent: as many count as it would have to be.
    let [sent, _] = bed.send(&Packet { cut: 9000, ..Packet::plain() }, 1);
    assert_eq!(sent, [11, 16_000 + 11 * 54]);
    assert_eq!(show(&bed.bed)["conservation"]["unaccounted"], 0);
}

/// One that is 60 kB long, and millions on the wire.
fn slivers(cut: u16) -> Packet {
    Packet { words: 15, rest: 60_000, cut, port: 7001, ..Packet::plain() }
}

/// One of 56 bytes whose TCP header would end at 94.
fn beyond_its_end(cut: u16) -> Packet {
    Packet { words: 15, rest: 2, cut, port: 7001, ..Packet::plain() }
}

/// UDP of another class, each 5 ms: 500 bytes.
fn victim() -> Packet {
    Packet { is_udp: true, rest: 458, cut: 0, port: 7000, ..Packet::plain() }
}

/// What a class has sent and dropped, in packets.
fn class(instance: &Instance, id: &str) -> [u64; 2] {
    let shown = instance.tc("-s -j class show dev port-b").unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let class = shown.as_array().unwrap().iter().find(|class| class["handle"] == id).unwrap();
    ["packets", "drops"].map(|figure| class["stats"][figure].as_u64().unwrap())
}

#[test]
fn no_packet_of_a_guest_puts_another_class_into_debt() {
    let Some(_turn) = turn_to_count() else { return };
    let mut bed = Bed::up(&[
        "qdisc add dev port-b root handle 1: htb default 20",
        "class add dev port-b parent 1: classid 1:1 htb rate 10mbit burst 60k",
        "class add dev port-b parent 1:1 classid 1:10 htb rate 4mbit ceil 10mbit",
        "class add dev port-b parent 1:1 classid 1:20 htb rate 4mbit ceil 10mbit",
        "filter add dev port-b parent 1: protocol ip pref 1 flower ip_proto udp dst_port 7000 \
         classid 1:10",
    ]);
    let tick = Duration::from_millis(5);
    let packets = [slivers(1), slivers(2), slivers(8), slivers(50)].into_iter();
    let short = [1, 2, 65_534, 65_535].map(beyond_its_end).into_iter();
    let whole = [1449, 9000, 60_000, 65_535].map(slivers).into_iter();
    for packet in packets.chain(short).chain(whole) {
        for _ in 0..3 {
            bed.guest.sends(&victim(), 20, tick);
            bed.guest.sends(&packet, 1, tick);
        }
        bed.guest.sends(&victim(), 40, tick);
        let [_, drops] = class(&bed.instance, "1:10");
        assert_eq!(drops, 0, "{} bytes in {}", packet.rest, packet.cut);
    }
    assert_eq!(class(&bed.instance, "1:10"), [12 * 100, 0]);
    // What is counted as sent is not more than what was.
    let [[_, sent], [_, got]] = bed.books();
    assert!(sent < 10_000_000, "{sent} bytes sent, the server got {got}");
}

#[test]
fn a_limit_for_all_goes_on_after_a_packet_with_wrong_lengths() {
    let Some(_turn) = turn_to_count() else { return };
    let limits: [&[&str]; 2] = [
        &["qdisc add dev port-b root tbf rate 10mbit burst 20k latency 20ms"],
        &[
            "qdisc add dev guest clsact",
            "filter add dev guest ingress protocol ip matchall action police rate 10mbit burst 20k \
             conform-exceed drop/pass",
        ],
    ];
    for lines in limits {
        let mut bed = Bed::up(lines);
        for packet in [beyond_its_end(1), slivers(1), beyond_its_end(7)] {
            bed.guest.sends(&packet, 1, Duration::ZERO);
            // What a long packet takes at this rate.
            sleep(Duration::from_millis(100));
            let [[_, sent], got] = bed.send(&victim(), 20);
            assert_eq!(got, [20, 20 * 500], "{lines:?}, {packet:?}");
            assert_eq!(sent, 20 * 500);
        }
    }
}

#[test]
fn a_set_and_a_filter_count_the_frames_of_a_merged_packet() {
    let Some(_turn) = turn_to_count() else { return };
    let mut bed = Bed::up(&["qdisc add dev guest clsact"]);
    for words in ["create guests hash:ip counters", "add guests 198.18.0.1"] {
        let words: Vec<&str> = ["set"].into_iter().chain(words.split(' ')).collect();
        assert!(narrows(&bed.bed, &words).status.success());
    }
    let line = "filter add dev guest ingress protocol ip basic match ipset(guests src) action pass";
    bed.instance.tc(line).unwrap();
    let [sent, _] = bed.send(&Packet::plain(), 10);
    assert_eq!(sent, [160, 10 * 16 * 1054]);
    let listed = narrows(&bed.bed, &["set", "list", "guests"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("packets 160 bytes 168640"), "{listed}");
    wait_for(&bed.bed, "in balance", |show| show["conservation"]["unaccounted"] == 0);
    let shown = bed.instance.tc("-s filter show dev guest ingress").unwrap();
    assert!(shown.contains("Sent 168640 bytes 160 pkt"), "{shown}");
}
