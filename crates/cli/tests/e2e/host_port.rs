//! A host's port: a server filters what arrives for itself, in its driver.

use crate::front::figures;
use crate::sets::{frame_from, send};
use crate::setup::{
    NARROWS, Scratch, assert_refused, hang_up, ip, narrows, show, tc, turn_to_count,
    turn_to_count_alone, wait_for, wait_until,
};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{CLIENT, CLIENT_IP, PORT_A, SERVER, SERVER_IP, SERVER_MAC};
use narrows_testbed::capture::Capture;
use narrows_testbed::counters::{Counters, Counts};
use narrows_testbed::flood::{Flood, Pace, Running};
use narrows_testbed::narrows::Instance;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The hooks, and how `narrows run` is told.
const HOOKS: [(&str, &[&str]); 3] =
    [("tcx", &[]), ("native", &["--xdp", "native"]), ("generic", &["--xdp", "generic"])];

pub(crate) const BAD: [u8; 4] = [198, 51, 100, 7];

/// A server in the place of the shaper's box.
pub(crate) fn server() -> Testbed {
    let bed = Testbed::up(1).unwrap();
    bed.serve_at_the_port().unwrap();
    bed
}

pub(crate) fn run(bed: &Testbed, arguments: &[&str]) -> Instance {
    let words = [&["run", "--port", PORT_A], arguments].concat();
    Instance::start_command(bed, Path::new(NARROWS), &words).unwrap()
}

/// A frame from `source` to the server.
pub(crate) fn to_server(source: [u8; 4]) -> Vec<u8> {
    let mut frame = frame_from(source);
    frame[..6].copy_from_slice(&SERVER_MAC);
    frame
}

/// How many UDP packets have come up to the server's stack: nobody takes them.
pub(crate) fn udp_seen(bed: &Testbed) -> u64 {
    let read = || Ok(std::fs::read_to_string("/proc/thread-self/net/snmp")?);
    let text = bed.shaper().enter(read).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let [names, figures] =
        [lines.next().unwrap(), lines.next().unwrap()].map(str::split_whitespace);
    let of = names.zip(figures).filter(|(name, _)| ["InDatagrams", "NoPorts"].contains(name));
    of.map(|(_, figure)| figure.parse::<u64>().unwrap()).sum()
}

/// Bytes sent to an echo service of the server and back, over one connection.
pub(crate) struct Echo {
    stream: TcpStream,
    done: u64,
}

impl Echo {
    pub(crate) fn start(bed: &Testbed) -> Self {
        let listener = bed.shaper().enter(|| Ok(TcpListener::bind((SERVER_IP, 0))?)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let mut bytes = [0; 1000];
            while let read @ 1.. = stream.read(&mut bytes)? {
                stream.write_all(&bytes[..read])?;
            }
            Ok::<_, std::io::Error>(())
        });
        let stream = bed.client().enter(|| Ok(TcpStream::connect(address)?)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Self { stream, done: 0 }
    }

    /// There and back, for a while.
    pub(crate) fn go_on(&mut self, time: Duration) {
        let begin = Instant::now();
        let mut bytes = [7; 1000];
        while begin.elapsed() < time {
            self.stream.write_all(&bytes).unwrap();
            self.stream.read_exact(&mut bytes).expect("the service answers");
            self.done += 1;
        }
    }
}

/// What the client's device has sent to the server's since it was opened.
pub(crate) struct Sent(Counters, Counts);

impl Sent {
    pub(crate) fn open(bed: &Testbed) -> Self {
        let mut counters = Counters::of(bed.client(), CLIENT).unwrap();
        let now = counters.read().unwrap();
        Self(counters, now)
    }

    /// Without those for which the server's device had no room.
    pub(crate) fn packets(&mut self) -> u64 {
        (self.0.read().unwrap() - self.1).tx_packets
    }
}

/// What has become of the frames that came.
#[derive(Clone, Copy)]
struct Came {
    all: u64,
    kept: u64,
    dropped: u64,
}

/// Asserts that every frame that was sent went up the stack or was dropped by a filter, and that
/// all views say so.
#[track_caller]
fn assert_accounted(sent: &mut Sent, instance: &Instance) -> Came {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let before = sent.packets();
        let shown = instance.show().unwrap();
        let port = &shown.ports[0];
        let seen = port.total.rx_packets;
        if (seen != before || sent.packets() != before) && Instant::now() < deadline {
            // Some are on their way: TCP acknowledges late.
            sleep(Duration::from_millis(50));
            continue;
        }
        assert_eq!(seen, before, "{shown:#?}");
        assert_eq!(port.total.rx_packets, port.to_self + port.total.drops, "{shown:#?}");
        assert_eq!((port.total.tx_packets, port.total.backlog_packets), (0, 0));
        let sum = &shown.conservation;
        let dropped: u64 = sum.dropped.values().sum();
        assert_eq!((sum.received, sum.to_box), (port.total.rx_packets, port.to_self));
        assert_eq!((dropped, sum.sent, sum.unaccounted), (port.total.drops, 0, 0), "{shown:#?}");
        let filtered = sum.dropped.get("filter").copied().unwrap_or(0);
        assert_eq!(filtered, dropped, "{shown:#?}");
        return Came { all: sum.received, kept: sum.to_box, dropped };
    }
}

/// A flood of the bad source.
pub(crate) fn flood(bed: &Testbed, bits: f64) -> Running {
    let limit = Duration::from_secs(60);
    let flood = Flood { frames: vec![to_server(BAD)], pace: Pace::Bits(bits), limit, core: None };
    flood.start(bed.client(), CLIENT).unwrap()
}

#[test]
fn a_server_drops_a_flood_in_its_driver_serves_on_and_counts_every_frame() {
    let Some(_turn) = turn_to_count() else { return };
    for (hook, arguments) in HOOKS {
        let bed = server();
        let instance = run(&bed, arguments);
        assert_eq!(show(&bed)["ports"][0]["xdp"], hook);
        let mut sent = Sent::open(&bed);
        let mut echo = Echo::start(&bed);
        for words in ["create bad hash:net", "add bad 198.51.100.0/24"] {
            let words = [&["set"], &words.split(' ').collect::<Vec<_>>()[..]].concat();
            assert!(narrows(&bed, &words).status.success());
        }
        let stray = udp_seen(&bed);
        send(&bed, &to_server(BAD), 100);
        assert_accounted(&mut sent, &instance);
        assert_eq!(udp_seen(&bed) - stray, 100, "{hook}: no filter is there yet");
        instance.tc("qdisc add dev port-a clsact").unwrap();
        instance
            .tc("filter add dev port-a ingress pref 1 basic match ipset(bad src) action drop")
            .unwrap();
        let load = flood(&bed, 40e6);
        echo.go_on(Duration::from_millis(700));
        load.stop().unwrap();
        assert!(echo.done > 20, "{hook}: {} answers beside the flood", echo.done);
        let Came { dropped, .. } = assert_accounted(&mut sent, &instance);
        assert_eq!(udp_seen(&bed) - stray, 100, "{hook}: none of the flood came up");
        assert!(dropped > 10_000, "{hook}: {dropped}");
        let stats = instance.tc("-s filter show dev port-a ingress").unwrap();
        assert!(stats.contains(&format!("{dropped} pkt (dropped {dropped}")), "{hook}: {stats}");
        // Frames that no filter asks for are the stack's: to other addresses, and of any protocol.
        let mut other = to_server([203, 0, 113, 7]);
        other[..6].fill(0xff);
        send(&bed, &other, 10);
        other[12..14].copy_from_slice(&[0x88, 0xb5]);
        send(&bed, &other, 10);
        let after = assert_accounted(&mut sent, &instance);
        assert_eq!(after.dropped, dropped, "{hook}");
        let text = String::from_utf8(narrows(&bed, &["show"]).stdout).unwrap();
        let Came { all, kept, .. } = after;
        let line = format!(
            "received {all} = sent 0 + to this box {kept} + queued 0 + dropped {dropped} (filter"
        );
        assert!(text.contains(&line), "{hook}: {text}");
    }
}

#[test]
fn each_source_has_a_rate_at_a_server_and_those_within_it_are_served() {
    let Some(_turn) = turn_to_count() else { return };
    for (hook, arguments) in HOOKS {
        let bed = server();
        let instance = run(&bed, arguments);
        let mut sent = Sent::open(&bed);
        let mut echo = Echo::start(&bed);
        instance.tc("qdisc add dev port-a clsact").unwrap();
        // One packet a second with a burst: few more pass, however slow the machine is. The client
        // passes before.
        let pass = format!("pref 1 flower src_ip {CLIENT_IP} ip_proto tcp action pass");
        for filter in [
            &pass,
            "pref 10 matchall action police pkts_rate 1 pkts_burst 50 conform-exceed \
             drop/continue per src newcomers 30",
        ] {
            instance.tc(&format!("filter add dev port-a ingress protocol ip {filter}")).unwrap();
        }
        let stray = udp_seen(&bed);
        for number in 1..=5 {
            send(&bed, &to_server([203, 0, 113, number]), 40);
        }
        let came = assert_accounted(&mut sent, &instance);
        assert_eq!(came.dropped, 0, "{hook}: all conform");
        send(&bed, &to_server([203, 0, 113, 1]), 500);
        echo.go_on(Duration::from_millis(300));
        let Came { dropped, .. } = assert_accounted(&mut sent, &instance);
        assert!((400..500).contains(&dropped), "{hook}: {dropped} of 540");
        assert_eq!(udp_seen(&bed) - stray, 700 - dropped, "{hook}: the others came up");
        let policed = instance.tc("-s filter show dev port-a ingress").unwrap();
        assert!(policed.contains(&format!("over {dropped} ")), "{hook}: {policed}");
        assert!(figures(&instance)["packets"].as_u64().unwrap() > 0, "{hook}: the client's");
    }
}

#[test]
fn the_filter_holds_while_a_server_is_upgraded_and_the_kernel_receives_after_a_kill() {
    let Some(_turn) = turn_to_count() else { return };
    for (hook, arguments) in HOOKS {
        let bed = server();
        let mut instance = run(&bed, arguments);
        let mut sent = Sent::open(&bed);
        let mut echo = Echo::start(&bed);
        instance.tc("qdisc add dev port-a clsact").unwrap();
        let drop =
            "filter add dev port-a ingress protocol ip pref 1 flower ip_proto udp action drop";
        instance.tc(drop).unwrap();
        let stray = udp_seen(&bed);
        let load = flood(&bed, 20e6);
        echo.go_on(Duration::from_millis(300));
        let before = instance.show().unwrap().ports[0].total.drops;
        for _ in 0..2 {
            instance.upgrade().unwrap();
            echo.go_on(Duration::from_millis(200));
        }
        load.stop().unwrap();
        let after = assert_accounted(&mut sent, &instance);
        assert_eq!(udp_seen(&bed), stray, "{hook}: each frame met the filter");
        assert!(after.dropped > before, "{hook}");
        assert_eq!(instance.show().unwrap().ports[0].xdp, hook);
        // Stopped, it still filters; killed, the kernel receives everything.
        instance.freeze().unwrap();
        send(&bed, &to_server(BAD), 50);
        echo.go_on(Duration::from_millis(100));
        assert_eq!(udp_seen(&bed), stray, "{hook}: a stopped process");
        instance.thaw().unwrap();
        instance.kill().unwrap();
        echo.go_on(Duration::from_millis(100));
        send(&bed, &to_server(BAD), 50);
        wait_until("received", Duration::from_secs(5), || udp_seen(&bed) >= stray + 50);
        assert_eq!(udp_seen(&bed), stray + 50, "{hook}: without the process");
        assert!(!ip(bed.shaper(), "link show dev port-a").contains("xdp"), "{hook}");
    }
}

/// The threads of other CPUs' queues for frames, in all namespaces.
fn queue_threads() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let names = processes.filter_map(|it| std::fs::read_to_string(it.path().join("comm")).ok());
    names.filter(|name| name.starts_with("cpumap/")).collect()
}

#[test]
fn what_a_server_lets_pass_is_received_on_another_cpu_and_all_of_it_is_counted() {
    let Some(_turn) = turn_to_count_alone() else { return };
    for (hook, arguments) in [("native", &[][..]), ("generic", &["--xdp", "generic"])] {
        let bed = server();
        let mut instance = run(&bed, &[&["--rps", "1"], arguments].concat());
        assert_eq!(show(&bed)["ports"][0]["xdp"], hook);
        assert!(queue_threads().iter().any(|name| name.starts_with("cpumap/1/")), "{hook}");
        let mut sent = Sent::open(&bed);
        let mut echo = Echo::start(&bed);
        let stray = udp_seen(&bed);
        send(&bed, &to_server(BAD), 100);
        echo.go_on(Duration::from_millis(300));
        assert_eq!(assert_accounted(&mut sent, &instance).dropped, 0, "{hook}");
        assert_eq!(udp_seen(&bed) - stray, 100, "{hook}: the stack has all of them");
        instance.tc("qdisc add dev port-a clsact").unwrap();
        let drop = "filter add dev port-a ingress protocol ip pref 1 flower src_ip 198.51.100.7 \
                    action drop";
        instance.tc(drop).unwrap();
        let load = flood(&bed, 20e6);
        echo.go_on(Duration::from_millis(300));
        instance.upgrade().unwrap();
        echo.go_on(Duration::from_millis(300));
        load.stop().unwrap();
        assert!(assert_accounted(&mut sent, &instance).dropped > 1_000, "{hook}");
        assert_eq!(udp_seen(&bed) - stray, 100, "{hook}: filters are in front");
        instance.kill().unwrap();
        echo.go_on(Duration::from_millis(100));
        wait_until("gone", Duration::from_secs(5), || queue_threads().is_empty());
    }
}

#[test]
fn what_does_not_fit_into_the_queue_of_a_cpu_is_counted_as_such() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = server();
    let instance = run(&bed, &["--rps", "1"]);
    let mut sent = Sent::open(&bed);
    let stray = udp_seen(&bed);
    // The stack takes far longer for a packet than the driver, so the queue is full soon.
    let load = flood(&bed, 40e9);
    let shown = wait_for(&bed, "full", |shown| {
        shown["conservation"]["dropped"]["cpu_busy"].as_u64().is_some_and(|lost| lost > 0)
    });
    load.stop().unwrap();
    assert!(shown["ports"][0]["total"]["drops"].as_u64().unwrap() > 0);
    let patience = Duration::from_secs(10);
    // The client also answers, and asks by ARP.
    let is_received = || {
        let to_box = instance.show().unwrap().conservation.to_box;
        let udp = udp_seen(&bed) - stray;
        (udp..udp + 20).contains(&to_box)
    };
    wait_until("received", patience, is_received);
    wait_until("seen", patience, || {
        instance.show().unwrap().conservation.received == sent.packets()
    });
    let sum = instance.show().unwrap().conservation;
    assert_eq!(sum.unaccounted, 0, "{sum:?}");
    assert_eq!(sum.received, sum.to_box + sum.dropped["cpu_busy"], "{sum:?}");
}

#[test]
fn a_port_that_goes_and_comes_back_is_filtered_again() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = server();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-a clsact").unwrap();
    instance
        .tc("filter add dev port-a ingress protocol ip pref 1 flower ip_proto udp action drop")
        .unwrap();
    send(&bed, &to_server(BAD), 20);
    ip(bed.shaper(), "link set dev port-a name away");
    wait_for(&bed, "waiting", |shown| shown["state"] == "waiting");
    let stray = udp_seen(&bed);
    send(&bed, &to_server(BAD), 30);
    assert_eq!(udp_seen(&bed), stray + 30, "the kernel receives meanwhile");
    ip(bed.shaper(), "link set dev away name port-a");
    wait_for(&bed, "joined", |shown| shown["state"] == "running");
    send(&bed, &to_server(BAD), 40);
    let shown = wait_for(&bed, "counted", |shown| shown["ports"][0]["total"]["drops"] == 60);
    assert_eq!(shown["conservation"]["unaccounted"], 0);
    assert_eq!(udp_seen(&bed), stray + 30);
}

#[test]
fn what_leaves_a_server_and_what_it_cannot_be_are_refused_with_the_reason() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = server();
    let start =
        |arguments: &[&str]| narrows(&bed, &[&["run", "--port", PORT_A], arguments].concat());
    assert_refused(&start(&["--plane", "xsk"]), 1, &["no queues", "Leave out --plane xsk"]);
    assert_refused(&start(&["--fail-closed"]), 1, &["cannot fail closed"]);
    assert_refused(&start(&["--rps", "1", "--xdp", "tcx"]), 1, &["--xdp native or generic"]);
    assert_refused(&start(&["--rps", "4000"]), 1, &["CPU 4000"]);
    let pair = narrows(&bed, &["run", "--ports", "a,b", "--rps", "1"]);
    assert_refused(&pair, 1, &["it needs --port"]);
    let shaped = Scratch::new(
        "shaped.tc",
        "qdisc add dev port-a root tbf rate 1mbit burst 9k latency 9ms\n",
    );
    assert_refused(
        &start(&["--batch", shaped.path()]),
        1,
        &["port-a is a host port", "narrows run --plane host --ports port-a"],
    );
    // A bridge has no driver, and what it would drop has passed those of its ports.
    ip(bed.shaper(), "link add name br0 type bridge");
    ip(bed.shaper(), "link set dev br0 up");
    let bridge = narrows(&bed, &["run", "--port", "br0"]);
    assert_refused(&bridge, 1, &["is a bridge", "name one of its ports"]);
    let said = narrows(&bed, &["doctor", "br0", "--port"]);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let said = narrows(&bed, &["doctor", PORT_A, "--port"]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");

    let policy = Scratch::new("policy.tc", "qdisc add dev port-a clsact\n");
    let instance = run(&bed, &["--batch", policy.path()]);
    for words in [
        "qdisc replace dev port-a root cake bandwidth 1mbit",
        "qdisc add dev port-a root handle 1: htb",
        "filter add dev port-a egress matchall action drop",
    ] {
        assert_refused(
            &tc(&bed, words),
            2,
            &["port-a is a host port", "narrows run --plane host --ports port-a"],
        );
    }
    assert_eq!(instance.tc("qdisc show dev port-a").unwrap().lines().count(), 2);
    // A file that is read again may not have that either, and the old policy stays.
    std::fs::write(policy.path(), "qdisc add dev port-a root pfifo limit 9\n").unwrap();
    hang_up(&instance);
    let deadline = Instant::now() + Duration::from_secs(5);
    while !instance.log().contains("port-a is a host port") {
        assert!(Instant::now() < deadline, "{}", instance.log());
        sleep(Duration::from_millis(50));
    }
    assert_eq!(instance.tc("qdisc show dev port-a").unwrap().lines().count(), 2);
    // It is there already.
    assert_refused(&start(&[]), 1, &[]);
}

#[test]
fn a_port_of_a_bridge_filters_for_what_is_behind_the_bridge() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    for line in [
        "link add name br0 type bridge",
        "link set dev br0 up",
        "link set dev port-a master br0",
        "link set dev port-b master br0",
    ] {
        ip(bed.shaper(), line);
    }
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-a clsact").unwrap();
    instance
        .tc("filter add dev port-a ingress protocol ip pref 1 flower src_ip 198.51.100.7 action drop")
        .unwrap();
    // The bridge sends frames of its own, reports of IGMP.
    let capture = Capture::start(bed.server(), SERVER, "udp").unwrap();
    const GOOD: [u8; 4] = [203, 0, 113, 7];
    send(&bed, &to_server(BAD), 50);
    send(&bed, &to_server(GOOD), 20);
    let shown = wait_for(&bed, "counted", |shown| shown["conservation"]["received"] == 70);
    assert_eq!(
        (&shown["ports"][0]["to_self"], &shown["conservation"]["to_box"]),
        (&20.into(), &20.into())
    );
    let came = capture.wait_for(20, Duration::from_secs(5));
    assert!(came.len() == 20 && came.iter().all(|frame| frame[26..30] == GOOD), "{came:02x?}");
}
