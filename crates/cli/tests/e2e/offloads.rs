//! Offloads that would corrupt traffic are off while Narrows runs, and restored afterwards.

use crate::policing::XDP;
use crate::setup::{Scratch, ip, run, show, turn_to_count, turn_to_measure, wait_for};
use narrows_testbed::bed::{CLIENT, SERVER, SERVER_IP, SINK_MAC};
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Namespace, Testbed};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whether `feature` of `device` is on.
fn is_on(namespace: &Namespace, device: &str, feature: &str) -> bool {
    let shown = namespace.run("ethtool", &["-k", device]).unwrap();
    let line = shown.lines().find_map(|line| line.strip_prefix(&format!("{feature}: ")));
    line.unwrap_or_else(|| panic!("{feature} is not in {shown}")).starts_with("on")
}

/// A program that tags each packet leaving a device, as a VLAN interface on it would. PROTOCOL
/// stands for the tag protocol.
const TAGGER: &str = r#"
#include <linux/bpf.h>
static long (*push)(struct __sk_buff *skb, unsigned short proto, unsigned short tag) =
    (void *)BPF_FUNC_skb_vlan_push;
__attribute__((section("tc"), used)) int tag(struct __sk_buff *skb)
{ push(skb, PROTOCOL, 42); return 0; }
__attribute__((section("license"), used)) char _license[] = "GPL";
"#;

/// Tags what leaves the client.
fn tag_what_leaves(bed: &Testbed, protocol: u16) {
    let source = TAGGER.replace("PROTOCOL", &protocol.to_be().to_string());
    let source = Scratch::new("tagger.c", &source);
    let object = Scratch::new("tagger.o", "");
    let output = Command::new("clang")
        .args(["-O2", "-target", "bpf", "-c", source.path(), "-o", object.path()])
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let words = format!("filter add dev {CLIENT} egress bpf da obj {} sec tc", object.path());
    bed.client().run("tc", &["qdisc", "add", "dev", CLIENT, "clsact"]).unwrap();
    bed.client().run("tc", &words.split(' ').collect::<Vec<_>>()).unwrap();
}

/// How many of the client's frames with the payload type `0x88b5` arrive with their tag, and how
/// many without.
fn tagged_and_not(bed: &Testbed, protocol: u16) -> (usize, usize) {
    let capture = Capture::start(bed.server(), SERVER, "").unwrap();
    let mac = SINK_MAC.map(|byte| byte.to_string()).join(", ");
    let script = format!(
        "import socket\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.bind(('{CLIENT}', 0))\n\
         frame = bytes([{mac}, 2, 0, 0, 0, 0, 9, 0x88, 0xb5]) + bytes(100)\n\
         [s.send(frame) for _ in range(50)]\n"
    );
    bed.client().run("python3", &["-c", &script]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let arrived = capture.stop().unwrap();
    let with = arrived.iter().filter(|frame| {
        frame[12..14] == protocol.to_be_bytes() && frame[14..18] == [0, 42, 0x88, 0xb5]
    });
    let without = arrived.iter().filter(|frame| frame[12..14] == [0x88, 0xb5]);
    (with.count(), without.count())
}

#[test]
fn tagged_frames_keep_their_tag_with_any_offload_of_the_peer() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    bed.client().run("ethtool", &["-K", CLIENT, "txvlan", "on"]).unwrap();
    tag_what_leaves(&bed, 0x8100);
    let _instance = run(&bed, &[]);
    assert_eq!(tagged_and_not(&bed, 0x8100), (50, 0));

    // An offload that is switched on later does not stay on.
    bed.client().run("ethtool", &["-K", CLIENT, "txvlan", "on"]).unwrap();
    wait_for(&bed, "switched off again", |_| !is_on(bed.client(), CLIENT, "tx-vlan-offload"));
    assert_eq!(tagged_and_not(&bed, 0x8100), (50, 0));
    let events = show(&bed)["events"].to_string();
    assert!(events.matches("tagged frames pass without their tag").count() >= 2, "{events}");
}

#[test]
fn frames_keep_the_outer_tag_of_802_1ad_and_the_veth_its_setting_afterwards() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let is_on = || is_on(bed.client(), CLIENT, "tx-vlan-stag-hw-insert");
    assert!(is_on(), "that is how a veth comes");
    tag_what_leaves(&bed, 0x88a8);
    let instance = run(&bed, &[]);
    assert!(!is_on());
    assert_eq!(tagged_and_not(&bed, 0x88a8), (50, 0));
    instance.stop().unwrap();
    assert!(is_on());
}

#[test]
fn offloads_are_as_before_after_the_end_also_where_one_instance_was_killed() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let features = ["tx-checksumming", "tx-vlan-offload"];
    let on = |namespace: &Namespace, device| features.map(|one| is_on(namespace, device, one));
    bed.client().run("ethtool", &["-K", CLIENT, "tx", "on", "txvlan", "on"]).unwrap();
    let before = on(bed.client(), CLIENT);
    assert_eq!(before, [true, true]);
    let start = |bed| Instance::start(bed, Path::new(crate::setup::NARROWS), &[]).unwrap();
    let instance = start(&bed);
    assert_eq!(on(bed.client(), CLIENT), [false, false]);
    instance.kill().unwrap();
    assert_eq!(on(bed.client(), CLIENT), [false, false]);
    // What the killed one recorded is for the next one between the same ports.
    let elsewhere = Testbed::up(1).unwrap();
    start(&elsewhere).stop().unwrap();
    start(&bed).stop().unwrap();
    assert_eq!(on(bed.client(), CLIENT), before);
}

#[test]
fn generic_xdp_has_the_stack_merge_nothing() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    bed.shaper().run("ethtool", &["-K", "port-a", "gro", "on"]).unwrap();
    let gro = || is_on(bed.shaper(), "port-a", "generic-receive-offload");
    let native = run(&bed, &[]);
    assert!(gro(), "it does no harm behind native XDP");
    native.stop().unwrap();
    let generic = run(&bed, &["--xdp", "generic"]);
    assert!(!gro());
    generic.stop().unwrap();
    assert!(gro());
}

/// What a TCP sender says of its connection (`tcp_info`, linux/tcp.h), retransmissions included.
struct SentByTcp {
    segments: u64,
    payload_bytes: u64,
}

/// Sends this many bytes by TCP from the client to the server.
fn send_by_tcp(bed: &Testbed, bytes: u64) -> SentByTcp {
    let serve = format!(
        "import socket\n\
         s = socket.create_server(('{SERVER_IP}', 5001))\n\
         print('ready', flush=True)\n\
         c, n = s.accept()[0], 0\n\
         while data := c.recv(1 << 20): n += len(data)\n\
         print(n)\n"
    );
    let send = format!(
        "import socket, struct\n\
         s = socket.create_connection(('{SERVER_IP}', 5001), 10)\n\
         whole = bytes(1 << 20)\n\
         for _ in range({bytes} >> 20): s.sendall(whole)\n\
         s.sendall(bytes({bytes} & (1 << 20) - 1))\n\
         s.shutdown(socket.SHUT_WR)\n\
         s.recv(1)\n\
         said = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 208)\n\
         print(struct.unpack_from('I', said, 136)[0], struct.unpack_from('Q', said, 200)[0])\n"
    );
    let mut server = bed.server().command("python3");
    let mut server = server.args(["-c", &serve]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    let sent = bed.client().run("python3", &["-c", &send]).unwrap();
    assert_eq!(said.next().unwrap().unwrap(), bytes.to_string());
    server.wait().unwrap();
    let (segments, payload_bytes) = sent.trim().split_once(' ').unwrap();
    let [segments, payload_bytes] = [segments, payload_bytes].map(|one| one.parse().unwrap());
    SentByTcp { segments, payload_bytes }
}

#[test]
fn at_tcx_offloads_stay_on_and_what_they_merge_is_counted_as_frames() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let features = ["tx-checksumming", "tx-vlan-offload", "generic-segmentation-offload"];
    let all = ["-K", CLIENT, "tx", "on", "sg", "on", "txvlan", "on", "gso", "on", "tso", "on"];
    bed.client().run("ethtool", &all).unwrap();
    let instance = run(&bed, &XDP);
    let joined = show(&bed);
    assert_eq!(joined["ports"][0]["xdp"], "tcx");
    assert_eq!(features.map(|one| is_on(bed.client(), CLIENT, one)), [true; 3]);

    const BYTES: u64 = 20_000_000;
    let received = || {
        let path = "/sys/class/net/port-a/statistics/rx_packets";
        let read = bed.shaper().run("cat", &[path]).unwrap();
        read.trim().parse::<u64>().unwrap()
    };
    let before = received();
    let sent = send_by_tcp(&bed, BYTES);
    let now = show(&bed);
    let counted = |figure: &str| now["ports"][1]["total"][figure].as_u64().unwrap();
    let (frames, bytes) = (counted("tx_packets"), counted("tx_bytes"));
    assert!(received() - before < frames / 2, "nothing was merged");
    // The rest is ARP, router solicitations and what follows the end of the connection.
    let beside = frames - sent.segments;
    assert!(beside < 20, "{frames} frames for {} segments", sent.segments);
    // Ethernet, IP, and TCP with timestamps.
    let headers = (bytes - sent.payload_bytes) as f64 / frames as f64;
    assert!((65.0..67.0).contains(&headers), "{headers} bytes of headers in a frame");
    assert_eq!(now["conservation"]["unaccounted"], 0);

    // The tag is beside the packet, for filters, too.
    tag_what_leaves(&bed, 0x8100);
    assert_eq!(tagged_and_not(&bed, 0x8100), (50, 0));
    instance.tc("qdisc add dev port-a clsact").unwrap();
    let drop = "filter add dev port-a ingress protocol 802.1q flower vlan_id";
    instance.tc(&format!("{drop} 43 action drop")).unwrap();
    assert_eq!(tagged_and_not(&bed, 0x8100), (50, 0));
    instance.tc(&format!("{drop} 42 action drop")).unwrap();
    assert_eq!(tagged_and_not(&bed, 0x8100), (0, 0));
}

#[test]
#[ignore = "measures; nothing can fail"]
fn what_a_tcp_flow_gets_at_each_hook() {
    let Some(_turn) = turn_to_measure() else { return };
    const BYTES: u64 = 1 << 30;
    for hook in ["generic", "native", "tcx"] {
        let bed = Testbed::up(1).unwrap();
        let ends = bed.ends().map(|end| (end.namespace, end.device));
        let ports = ["port-a", "port-b"].map(|port| (bed.shaper(), port));
        for (namespace, device) in ends.into_iter().chain(ports) {
            let all = ["-K", device, "tx", "on", "sg", "on", "gso", "on", "tso", "on", "gro", "on"];
            namespace.run("ethtool", &all).unwrap();
        }
        let instance = run(&bed, &[&XDP[..], &["--xdp", hook]].concat());
        let rate = || {
            let began = Instant::now();
            send_by_tcp(&bed, BYTES);
            BYTES as f64 * 8e-9 / began.elapsed().as_secs_f64()
        };
        let mut rates = [(); 5].map(|()| rate());
        rates.sort_by(f64::total_cmp);
        println!("{hook}: {:.1} Gbit/s ({:.1} to {:.1})", rates[2], rates[0], rates[4]);
        drop(instance);
    }
}

#[test]
fn unequal_mtus_are_refused_at_the_start_and_said_later() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    ip(bed.shaper(), "link set dev port-a mtu 1400");
    let refused = crate::setup::narrows(&bed, &["run", "--ports", "port-a,port-b"]);
    let words = ["port-b", "MTU 1500, but port-a has 1400", "ip link set dev port-b mtu 1400"];
    crate::setup::assert_refused(&refused, 1, &words);
    ip(bed.shaper(), "link set dev port-a mtu 1500");
    let _instance = run(&bed, &[]);
    ip(bed.shaper(), "link set dev port-b mtu 1400");
    wait_for(&bed, "said", |show| show["warnings"].to_string().contains("port-a has MTU 1500"));
    ip(bed.shaper(), "link set dev port-b mtu 1500");
    wait_for(&bed, "well again", |show| show["warnings"].is_null());
}

#[test]
fn unserved_receive_queues_are_reported_and_their_frames_counted() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let set = |place: usize, rx: &str, tx: &str| {
        let (namespace, device) = crate::setup::devices(&bed)[place];
        namespace.run("ethtool", &["-L", device, "rx", rx, "tx", tx]).unwrap();
    };
    (0..4).for_each(|place| set(place, "2", "2"));
    let _instance = run(&bed, &[]);
    let ports: Vec<u16> = (0..32).map(narrows_testbed::frames::port).collect();
    set(1, "4", "2");
    set(0, "2", "4");
    let load = crate::setup::flood(&bed, &ports, 500, 4e6);
    let now = wait_for(&bed, "said", |show| {
        show["warnings"].to_string().contains("4 receive queues, of which 2 are served")
            && show["events"].to_string().contains("and bypass the limit")
    });
    assert!(now["ports"][0]["unserved"].as_u64().unwrap() > 0, "{now:#}");
    set(0, "2", "2");
    wait_for(&bed, "stopped", |show| {
        show["events"].to_string().contains("frames bypassed the limit")
    });
    // The remedy is the command in the warning.
    let words = ["reconfigure", "--", "ethtool", "-L", "port-a", "rx", "2", "tx", "2"];
    let output = crate::setup::narrows(&bed, &words);
    assert!(output.status.success(), "{}", crate::setup::complaint(&output));
    assert!(show(&bed)["warnings"].is_null());
    load.stop().unwrap();
}
