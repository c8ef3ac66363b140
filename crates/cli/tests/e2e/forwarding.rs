//! Every frame that enters one port leaves the other, unchanged.

use crate::setup::{assert_balanced, ip, narrows, run, set_mtu, show, turn_to_count};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::{CLIENT, CLIENT_MAC, PORT_A, PORT_B, SERVER, SERVER_MAC, SINK_MAC};
use narrows_testbed::capture::Capture;
use narrows_testbed::raw::RawSocket;
use narrows_testbed::{Namespace, Testbed};
use std::thread::sleep;
use std::time::{Duration, Instant};

const BROADCAST: [u8; 6] = [0xff; 6];
const LLDP: [u8; 6] = [1, 0x80, 0xc2, 0, 0, 0x0e];
const SPANNING_TREE: [u8; 6] = [1, 0x80, 0xc2, 0, 0, 0];
const PAUSE: [u8; 6] = [1, 0x80, 0xc2, 0, 0, 1];
const IPV6_MULTICAST: [u8; 6] = [0x33, 0x33, 0, 0, 0, 0x16];
const IPV4_MULTICAST: [u8; 6] = [1, 0, 0x5e, 0, 0, 0xfb];

/// A frame with `headers` after the addresses, padded to `length` bytes with a pattern that reveals
/// shifts and swaps.
fn frame(to: [u8; 6], from: [u8; 6], headers: &[u8], length: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, headers].concat();
    frame.extend((frame.len()..length).map(|place| (place * 7 + length) as u8));
    frame
}

/// An IPv4 header in a packet of `length` bytes; `fragment` is its flags and offset.
fn ipv4(from: [u8; 6], fragment: u16, length: usize) -> Vec<u8> {
    let mut header = vec![0x08, 0x00, 0x45, 0];
    header.extend(u16::to_be_bytes(length as u16 - 14));
    header.extend([0x12, 0x34]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, 17, 0, 0, 198, 18, 0, 9, 198, 18, 0, 10]);
    frame(SINK_MAC, from, &header, length)
}

/// One frame of each kind.
fn one_of_everything(from: [u8; 6]) -> Vec<Vec<u8>> {
    vec![
        // ARP, unpadded and padded, for an address that does not exist.
        frame(BROADCAST, from, &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1], 42),
        frame(BROADCAST, from, &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1], 60),
        // IPv6, and multicast of both kinds.
        frame(SINK_MAC, from, &[0x86, 0xdd, 0x60], 1514),
        frame(IPV6_MULTICAST, from, &[0x86, 0xdd, 0x60], 90),
        frame(IPV4_MULTICAST, from, &[0x08, 0x00, 0x45], 77),
        // VLAN, priority tag, QinQ, three tags; the longest with one tag.
        frame(SINK_MAC, from, &[0x81, 0x00, 0x20, 0x05, 0x08, 0x00], 64),
        frame(SINK_MAC, from, &[0x81, 0x00, 0xe0, 0x00, 0x08, 0x00], 1518),
        frame(SINK_MAC, from, &[0x88, 0xa8, 0, 9, 0x81, 0x00, 0, 5, 0x86, 0xdd], 1000),
        frame(SINK_MAC, from, &[0x81, 0x00, 0, 1, 0x81, 0x00, 0, 2, 0x81, 0x00, 0, 3], 300),
        // Frames that a bridge does not forward: LLDP, spanning tree (by length), pause.
        frame(LLDP, from, &[0x88, 0xcc, 2, 7], 120),
        frame(SPANNING_TREE, from, &[0, 38, 0x42, 0x42, 3], 60),
        frame(PAUSE, from, &[0x88, 0x08, 0, 1, 0, 0], 60),
        // Fragments: the first, one in the middle, the last.
        ipv4(from, 0x2000, 1514),
        ipv4(from, 0x2000 | 185, 1514),
        ipv4(from, 370, 35),
        // MPLS, the EtherType of jumbo frames, an unknown type, a header without payload.
        frame(SINK_MAC, from, &[0x88, 0x47, 0, 1, 0x01, 0x40], 500),
        frame(SINK_MAC, from, &[0x88, 0x70], 700),
        frame(SINK_MAC, from, &[0xab, 0xcd], 15),
        frame(SINK_MAC, from, &[0x88, 0xb5], 14),
        // Full size, to the far end's address and to an unused one.
        frame(SINK_MAC, from, &[0x88, 0xb6], 1514),
    ]
}

/// Sends `frames` and returns what the other end captured.
fn carry(
    (from, sender): (&Namespace, &str),
    (to, receiver): (&Namespace, &str),
    frames: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let capture = Capture::start(to, receiver, "").unwrap();
    let socket = RawSocket::open(from, sender).unwrap();
    for frame in frames {
        assert_eq!(socket.send(&[frame]).unwrap(), 1, "{} bytes are not taken", frame.len());
    }
    let limit = Duration::from_secs(5);
    capture.wait_for(frames.len(), limit);
    let mut arrived = capture.stop().unwrap();
    arrived.sort();
    arrived
}

fn sorted(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    frames.sort();
    frames
}

#[track_caller]
fn assert_same(arrived: &[Vec<u8>], sent: &[Vec<u8>]) {
    let header = |frame: &Vec<u8>| format!("{} bytes {:02x?}", frame.len(), &frame[..14]);
    let missing: Vec<_> = sent.iter().filter(|frame| !arrived.contains(frame)).collect();
    let strange: Vec<_> = arrived.iter().filter(|frame| !sent.contains(frame)).collect();
    assert!(
        missing.is_empty() && strange.is_empty() && arrived.len() == sent.len(),
        "{} of {} arrived; missing {:?}; not sent {:?}",
        arrived.len(),
        sent.len(),
        missing.into_iter().map(header).collect::<Vec<_>>(),
        strange.into_iter().map(header).collect::<Vec<_>>()
    );
}

#[test]
fn every_kind_of_frame_arrives_as_it_was_sent_in_both_directions() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let _instance = run(&bed, &[]);
    let (client, server) = ((bed.client(), CLIENT), (bed.server(), SERVER));
    let forth = sorted(one_of_everything(CLIENT_MAC));
    assert_same(&carry(client, server, &forth), &forth);
    let back = sorted(one_of_everything(SERVER_MAC));
    assert_same(&carry(server, client, &back), &back);
}

#[test]
fn tags_that_a_vlan_device_puts_on_pass() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    // Otherwise a veth keeps the tag outside the frame, where no XDP program sees it.
    bed.client().run("ethtool", &["-K", CLIENT, "txvlan", "off"]).unwrap();
    let words = ["link", "add", "link", CLIENT, "name", "tagged", "up", "type", "vlan", "id", "77"];
    if bed.client().run("ip", &words).is_err() {
        eprintln!("SKIPPED: this kernel has no VLAN devices (CONFIG_VLAN_8021Q)");
        return;
    }
    let _instance = run(&bed, &[]);
    let plain = frame(SINK_MAC, CLIENT_MAC, &[0x88, 0xb5], 300);
    let arrived =
        carry((bed.client(), "tagged"), (bed.server(), SERVER), std::slice::from_ref(&plain));
    let tagged = [&plain[..12], &[0x81, 0x00, 0, 77], &plain[12..]].concat();
    assert_same(&arrived, &[tagged]);
}

#[test]
fn frames_for_the_box_itself_go_to_its_kernel_and_not_across() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    // Without an address of the operator's there, nothing at a port is for the box.
    ip(bed.shaper(), &format!("addr add 192.0.2.1/24 dev {PORT_A}"));
    ip(bed.shaper(), &format!("addr add 198.51.100.1/24 dev {PORT_B}"));
    let instance = run(&bed, &["--fail-closed"]);
    let mut books = Books::open(&bed).unwrap();
    let mac = |port| bed.shaper().mac_address(port).unwrap();
    let client = RawSocket::open(bed.client(), CLIENT).unwrap();
    let server = RawSocket::open(bed.server(), SERVER).unwrap();
    for _ in 0..7 {
        client.send(&[frame(mac(PORT_A), CLIENT_MAC, &[0x08, 0x00], 60)]).unwrap();
        server.send(&[frame(mac(PORT_B), SERVER_MAC, &[0x08, 0x00], 60)]).unwrap();
    }
    // From here, the other port's address is a foreign one.
    client.send(&[frame(mac(PORT_B), CLIENT_MAC, &[0x08, 0x00], 60)]).unwrap();
    let (devices, [forth, back]) = assert_balanced(&mut books, &instance);
    assert_eq!((forth.to_kernel, back.to_kernel), (7, 7));
    assert_eq!((devices.server.rx_packets, devices.client.rx_packets), (1, 0));
}

/// Frame sizes around every boundary, starting below the minimum of a wire.
fn sizes(mtu: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        [14, 60, 1514, 1792, 1793, 2048, 3414, 3840, 3841, 4096, 7680, 7681]
            .into_iter()
            .filter(|&size| size < mtu + 14)
            .collect();
    sizes.push(mtu + 14);
    sizes
}

fn frames_of(sizes: &[usize], from: [u8; 6]) -> Vec<Vec<u8>> {
    sorted(sizes.iter().map(|&size| frame(SINK_MAC, from, &[0x88, 0xb5], size)).collect())
}

#[test]
fn frames_longer_than_usual_pass_whole_up_to_the_mtu() {
    let Some(_turn) = turn_to_count() else { return };
    for mtu in [3000, 3498, 3499, 9000, 16_000] {
        let bed = Testbed::up(2).unwrap();
        set_mtu(&bed, mtu);
        let instance = run(&bed, &[]);
        let mut books = Books::open(&bed).unwrap();
        let (client, server) = ((bed.client(), CLIENT), (bed.server(), SERVER));
        let forth = frames_of(&sizes(mtu as usize), CLIENT_MAC);
        assert_same(&carry(client, server, &forth), &forth);
        let back = frames_of(&sizes(mtu as usize), SERVER_MAC);
        assert_same(&carry(server, client, &back), &back);
        assert_balanced(&mut books, &instance);
        assert_eq!(show(&bed)["ports"][0]["mtu"], mtu);
    }
}

#[test]
fn an_mtu_that_does_not_work_is_refused_and_one_that_starts_works() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let mtu = 65_535;
    set_mtu(&bed, mtu);
    let ports = format!("{PORT_A},{PORT_B}");
    let refused = {
        let mut command = bed.shaper().command("timeout");
        command.args(["-s", "TERM", "2", crate::setup::NARROWS, "run", "--ports", &ports]);
        let output = command.output().unwrap();
        (!String::from_utf8_lossy(&output.stdout).contains("ready")).then_some(output)
    };
    if let Some(output) = refused {
        crate::setup::assert_refused(&output, 1, &["MTU", "65535"]);
        return;
    }
    let _instance = run(&bed, &[]);
    let sent = frames_of(&[60, 1514, 9014, 40_000, 65_549], CLIENT_MAC);
    assert_same(&carry((bed.client(), CLIENT), (bed.server(), SERVER), &sent), &sent);
}

/// Pseudo-random numbers, the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn frame(&mut self) -> Vec<u8> {
        let length = 14 + self.next() as usize % 1501;
        (0..length).map(|_| (self.next() >> 32) as u8).collect()
    }
}

#[test]
fn frames_of_random_bytes_do_no_harm_and_every_one_is_accounted_for() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let mut instance = run(&bed, &[]);
    let tbf = "qdisc replace dev port-a root tbf rate 100mbit burst 50k latency 20ms";
    instance.tc(tbf).unwrap();
    let mut books = Books::open(&bed).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let sockets = [
        RawSocket::open(bed.client(), CLIENT).unwrap(),
        RawSocket::open(bed.server(), SERVER).unwrap(),
    ];
    // The socket itself refuses frames with a VLAN type in the wrong place; they do not count as
    // sent. The devices' counters are the reference.
    let end = Instant::now() + Duration::from_secs(2);
    let mut tried = 0;
    while Instant::now() < end || tried < 4000 {
        let frames: Vec<Vec<u8>> = (0..32).map(|_| random.frame()).collect();
        for socket in &sockets {
            tried += socket.send(&frames).unwrap();
        }
        sleep(Duration::from_micros(500));
    }
    let (devices, directions) = assert_balanced(&mut books, &instance);
    assert!(devices.client.tx_packets >= 1000, "{devices:#?}");
    assert!(directions.iter().all(|direction| direction.received > 0), "{directions:#?}");
    assert!(instance.is_running());
    assert_eq!(show(&bed)["conservation"]["unaccounted"], 0);
    assert!(narrows(&bed, &["show"]).status.success());
}
