//! What the kernel itself sends through the ports of a router is charged to their limits: a flood
//! that needs the kernel is no way round them.

use crate::router::{network, ping, router, to_server};
use crate::setup::{show, turn_to_count, turn_to_measure};
use narrows_testbed::bed::{CLIENT, PORT_A, PORT_B, SERVER};
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::raw::RawSocket;
use narrows_testbed::{Namespace, Testbed};
use rustix::net::sockopt::set_ip_tos;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const SPAN: Duration = Duration::from_secs(3);
/// The limit at the port where packets leave, in Mbit/s.
const LIMIT: f64 = 10.0;
/// What is allowed beyond it: bursts at the beginning, and what the machine delays.
const OVER: f64 = 1.1;

/// Each way in which ports are joined.
const PLANES: [&[&str]; 3] =
    [&[], &["--plane", "xdp", "--xdp", "tcx"], &["--plane", "xdp", "--xdp", "native"]];

/// A router on `plane`.
fn start(bed: &Testbed, plane: &[&str]) -> Instance {
    bed.take_redirected(plane.contains(&"native")).unwrap();
    let instance = router(bed, plane);
    // The kernel finds the neighbours.
    ping(bed, "10.2.0.2", &[]);
    instance
}

/// A router on `plane` with a limit at `port`.
fn limited(bed: &Testbed, plane: &[&str], port: &str) -> Instance {
    let instance = start(bed, plane);
    let words = format!("qdisc add dev {port} root tbf rate 10mbit burst 20k latency 50ms");
    instance.tc(&words).unwrap();
    instance
}

/// `frame`, of IPv4, with four options that do nothing. So the kernel has to route it.
pub fn with_options(frame: &[u8]) -> Vec<u8> {
    let mut frame = [&frame[..34], &[1; 4], &frame[34..]].concat();
    frame[14] = 0x46;
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    summed(frame, 38)
}

/// `frame`, whose IP header ends at `end`, with the right checksum.
fn summed(mut frame: Vec<u8>, end: usize) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..end]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// That of an IP header (RFC 791).
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum + (sum >> 16)) as u16)
}

/// Sends `frames` from the client, some 20 Mbit/s of each at 1000 bytes, until `ended`.
fn flood(bed: &Testbed, frames: &[Vec<u8>], ended: &AtomicBool) {
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    let batch: Vec<&Vec<u8>> = frames.iter().cycle().take(frames.len() * 10).collect();
    let (began, mut batches) = (Instant::now(), 0);
    while !ended.load(Ordering::Relaxed) {
        let _ = socket.send(&batch);
        batches += 1;
        let due = began + Duration::from_millis(4) * batches;
        sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// What `during` returns, while `frames` flood the router. It begins when the first bursts are
/// over.
fn flooded<T>(bed: &Testbed, frames: &[Vec<u8>], during: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| flood(bed, frames, &ended));
        sleep(Duration::from_millis(500));
        let result = during();
        ended.store(true, Ordering::Relaxed);
        result
    })
}

/// What `device` in `namespace` receives in a while, in Mbit/s.
fn received(namespace: &Namespace, device: &str) -> f64 {
    let bytes = || -> u64 {
        let file = format!("/sys/class/net/{device}/statistics/rx_bytes");
        namespace.run("cat", &[&file]).unwrap().trim().parse().unwrap()
    };
    let (before, began) = (bytes(), Instant::now());
    sleep(SPAN);
    (bytes() - before) as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e6
}

/// What the kernel itself sent through `port`, and what was dropped of it, in packets.
fn slow_path(bed: &Testbed, port: usize) -> (u64, u64) {
    let shown = show(bed);
    assert_eq!(shown["conservation"]["unaccounted"], 0);
    let counted = &shown["ports"][port]["slow_path"];
    let of = |name: &str| counted[name].as_u64().unwrap_or_else(|| panic!("{name}: {shown:#}"));
    (of("sent_packets"), of("dropped_packets"))
}

#[test]
fn packets_with_options_keep_to_the_limit_alone_and_beside_plain_ones() {
    let Some(_turn) = turn_to_measure() else { return };
    PLANES.into_iter().for_each(options_keep_to_the_limit_on);
}

fn options_keep_to_the_limit_on(plane: &[&str]) {
    let bed = network();
    let instance = limited(&bed, plane, "port-b");
    let plain = to_server(&bed, 1000);
    let needy = with_options(&plain);
    let alone = flooded(&bed, std::slice::from_ref(&needy), || received(bed.server(), SERVER));
    let log = instance.log();
    assert!(alone < LIMIT * OVER && alone > LIMIT * 0.4, "{plane:?}: {alone} Mbit/s alone\n{log}");
    let (sent, dropped) = slow_path(&bed, 1);
    println!("{plane:?}: {alone:.2} Mbit/s with options, {sent} sent, {dropped} dropped");
    assert!(sent > 1000 && dropped > 1000, "{sent} sent, {dropped} dropped");

    let plain_alone =
        flooded(&bed, std::slice::from_ref(&plain), || received(bed.server(), SERVER));
    assert!(
        plain_alone < LIMIT * OVER && plain_alone > LIMIT * 0.85,
        "{plane:?}: {plain_alone} Mbit/s of plain packets"
    );

    let capture = Capture::of_times(bed.server(), SERVER, "udp port 9").unwrap();
    let both = flooded(&bed, &[plain, needy], || received(bed.server(), SERVER));
    let (came, _) = capture.arrivals().unwrap();
    assert!(both < LIMIT * OVER && both > LIMIT * 0.85, "{plane:?}: {both} Mbit/s of both");
    let is_plain = came.iter().filter(|frame| frame.bytes[14] == 0x45).count();
    let part = is_plain as f64 / came.len() as f64;
    println!("{plane:?}: {plain_alone:.2} Mbit/s plain; {both:.2} of both, {part:.2} plain");
    assert!((0.3..0.8).contains(&part), "{plane:?}: {part} of {} are plain", came.len());
}

#[test]
fn answers_to_packets_that_are_too_old_keep_to_the_limit_of_their_port() {
    let Some(_turn) = turn_to_measure() else { return };
    PLANES.into_iter().for_each(errors_keep_to_the_limit_on);
}

fn errors_keep_to_the_limit_on(plane: &[&str]) {
    let bed = network();
    // Else the kernel says it once a second.
    bed.shaper().set("ipv4/icmp_ratelimit", "0").unwrap();
    let instance = start(&bed, plane);
    instance.tc("qdisc add dev port-a root tbf rate 1mbit burst 10k latency 50ms").unwrap();
    let mut old = to_server(&bed, 1000);
    old[22] = 1;
    let old = summed(old, 34);
    let answers = flooded(&bed, &[old], || received(bed.client(), CLIENT));
    println!("{plane:?}: {answers:.2} Mbit/s of answers");
    assert!(answers < 1.0 * OVER && answers > 0.4, "{plane:?}: {answers} Mbit/s of answers");
    let (sent, dropped) = slow_path(&bed, 0);
    assert!(sent > 100 && dropped > 100, "{sent} sent, {dropped} dropped");
}

/// A connection from the router to the server.
fn connect(bed: &Testbed) -> (TcpStream, TcpStream) {
    let listener = bed.server().enter(|| Ok(TcpListener::bind("10.2.0.2:179")?)).unwrap();
    let here = bed.shaper().enter(|| Ok(TcpStream::connect("10.2.0.2:179")?)).unwrap();
    (here, listener.accept().unwrap().0)
}

#[test]
fn what_the_box_sends_keeps_to_the_limit() {
    let Some(_turn) = turn_to_measure() else { return };
    PLANES.into_iter().for_each(own_traffic_keeps_to_the_limit_on);
}

fn own_traffic_keeps_to_the_limit_on(plane: &[&str]) {
    let bed = network();
    let _instance = limited(&bed, plane, "port-b");
    let (mut here, mut there) = connect(&bed);
    let ended = AtomicBool::new(false);
    here.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let rate = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let _ = here.write(&[0; 1 << 16]);
            }
        });
        scope.spawn(|| {
            let mut into = vec![0; 1 << 16];
            there.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            while !ended.load(Ordering::Relaxed) {
                let _ = there.read(&mut into);
            }
        });
        sleep(Duration::from_millis(500));
        let rate = received(bed.server(), SERVER);
        ended.store(true, Ordering::Relaxed);
        rate
    });
    println!("{plane:?}: {rate:.2} Mbit/s of the box's own");
    // TCP learns of a drop on its own host at once, and with nothing under way it pauses for 200
    // ms.
    assert!(rate < LIMIT * OVER && rate > LIMIT * 0.2, "{plane:?}: {rate} Mbit/s of the box's own");
    assert!(slow_path(&bed, 1).0 > 1000);
}

#[test]
fn a_routing_protocol_of_the_box_survives_a_flood_that_the_kernel_routes() {
    let Some(_turn) = turn_to_measure() else { return };
    PLANES.into_iter().for_each(a_routing_protocol_survives_on);
}

fn a_routing_protocol_survives_on(plane: &[&str]) {
    let bed = network();
    let _instance = limited(&bed, plane, "port-b");
    let (mut here, mut there) = connect(&bed);
    // CS6, as BGP has it.
    set_ip_tos(&here, 0xc0).unwrap();
    here.set_nodelay(true).unwrap();
    there.set_nodelay(true).unwrap();
    let needy = with_options(&to_server(&bed, 1000));
    let longest = flooded(&bed, &[needy], || {
        let mut longest = Duration::ZERO;
        for _ in 0..30 {
            let began = Instant::now();
            here.write_all(&[0; 19]).unwrap();
            there.read_exact(&mut [0; 19]).unwrap();
            longest = longest.max(began.elapsed());
            sleep(Duration::from_millis(50));
        }
        longest
    });
    let (_, dropped) = slow_path(&bed, 1);
    println!("{plane:?}: a message took {longest:?} at most, {dropped} of the flood were dropped");
    assert!(dropped > 1000, "there was a flood: {dropped}");
    // Less than TCP takes to send anything again.
    assert!(longest < Duration::from_millis(200), "{plane:?}: a message took {longest:?}");
}

#[test]
fn pings_of_the_box_survive_a_flood_of_strangers_where_there_are_queues() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = network();
    let _instance = limited(&bed, &[], "port-b");
    let plain = to_server(&bed, 1000);
    let said = flooded(&bed, &[plain.clone(), with_options(&plain)], || {
        let words = ["-c", "50", "-i", "0.02", "-W", "1", "10.2.0.2"];
        let output = bed.shaper().command("ping").args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let (_, dropped) = slow_path(&bed, 1);
    assert!(dropped > 1000, "there was a flood: {dropped}");
    let part = said.split(", ").find(|part| part.contains("% packet loss")).unwrap();
    let lost: f64 = part.split('%').next().unwrap().parse().unwrap();
    println!("{}", said.trim());
    assert!(lost <= 4.0, "{said}");
}

#[test]
fn an_upgrade_goes_on_counting_and_limiting() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(an_upgrade_goes_on_on);
}

fn an_upgrade_goes_on_on(plane: &[&str]) {
    let bed = network();
    let mut instance = limited(&bed, plane, "port-b");
    let frame = with_options(&to_server(&bed, 200));
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    let (before, _) = slow_path(&bed, 1);
    for number in 0..200 {
        assert_eq!(socket.send(&[&frame[..]]).unwrap(), 1);
        if number == 100 {
            instance.upgrade().unwrap();
        }
        sleep(Duration::from_millis(2));
    }
    let (after, dropped) = slow_path(&bed, 1);
    // ARP is among it, too.
    assert!((200..210).contains(&(after - before)), "{plane:?}: {before} then {after}");
    assert_eq!(dropped, 0);
    let rate =
        flooded(&bed, &[with_options(&to_server(&bed, 1000))], || received(bed.server(), SERVER));
    assert!(rate < LIMIT * OVER, "{plane:?}: {rate} Mbit/s after an upgrade");
    instance.kill().unwrap();
    let attached = bed.shaper().run("ip", &["-d", "link", "show", "dev", PORT_A]).unwrap();
    assert!(!attached.contains("prog/xdp"), "{attached}");
    let free =
        flooded(&bed, &[with_options(&to_server(&bed, 1000))], || received(bed.server(), SERVER));
    assert!(free > LIMIT * 1.3, "{plane:?}: {free} Mbit/s once the process is gone");
}

#[test]
fn frames_that_a_tree_redirects_at_tcx_are_charged_once() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = network();
    let _instance = limited(&bed, &["--plane", "xdp", "--xdp", "tcx"], "port-b");
    // The box reports its groups of IPv6 a while after the start, and the flood may drop that.
    bed.shaper().set(&format!("ipv6/conf/{PORT_B}/disable_ipv6"), "1").unwrap();
    let (before, _) = slow_path(&bed, 1);
    let plain = to_server(&bed, 1000);
    let rate = flooded(&bed, &[plain], || received(bed.server(), SERVER));
    let (after, dropped) = slow_path(&bed, 1);
    assert!(rate > LIMIT * 0.85 && rate < LIMIT * OVER, "{rate} Mbit/s");
    assert!(after - before < 20 && dropped == 0, "{before} then {after}, {dropped} dropped");
}
