//! A new binary takes over under load, or the old one continues.

use crate::policing::XDP;
use crate::setup::{
    NARROWS, assert_balanced, complaint, flood, narrows, run, show, turn_to_count, turn_to_measure,
    wait_for,
};
use narrows_control::UpgradeStatus;
use narrows_dataplane::upgrade::state::FORMAT;
use narrows_testbed::accounting::{Books, Direction};
use narrows_testbed::bed::{CLIENT, End, SERVER};
use narrows_testbed::capture::{Arrival, Capture};
use narrows_testbed::ping::Ping;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs `narrows upgrade --json`, whatever the result.
fn upgrade(bed: &Testbed, arguments: &[&str]) -> UpgradeStatus {
    let output = narrows(bed, &[&["upgrade", "--json"], arguments].concat());
    let all: Vec<UpgradeStatus> =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", complaint(&output)));
    assert_eq!(output.status.success(), matches!(all[0], UpgradeStatus::Done { .. }), "{all:?}");
    all[0].clone()
}

/// Runs `narrows upgrade --json`, which must succeed, and returns the process id, the pause and the
/// packets taken over. A busy machine may exceed the time limit; then it is tried again.
fn upgraded(bed: &Testbed) -> (u32, Duration, u64) {
    for _ in 0..5 {
        match upgrade(bed, &[]) {
            UpgradeStatus::Done { pid, pause_us, packets, .. } => {
                return (pid, Duration::from_micros(pause_us), packets);
            }
            UpgradeStatus::Failed { reason, .. }
                if ["took too long", "does not answer"]
                    .iter()
                    .any(|late| reason.contains(late)) =>
            {
                eprintln!("again: {reason}");
            }
            other => panic!("{other}"),
        }
    }
    panic!("five times too late")
}

/// The number of flows.
const FLOWS: usize = 8;
const PORT: u16 = 9;
/// Frames of 1000 bytes: Ethernet, IP and UDP headers, and the rest.
const FRAME: usize = 1000;
const HEADERS: usize = 42;

/// Sends numbered datagrams of several flows at `bits` a second until `end`. Returns their number.
fn send_numbered(from: End<'_>, to: End<'_>, bits: f64, end: &AtomicBool) -> u64 {
    let sockets: Vec<UdpSocket> = from
        .namespace
        .enter(|| {
            (0..FLOWS)
                .map(|flow| {
                    let socket = UdpSocket::bind((from.ip, 5000 + flow as u16))?;
                    socket.connect((to.ip, PORT))?;
                    Ok(socket)
                })
                .collect()
        })
        .unwrap();
    let per_second = bits / (FRAME * 8) as f64;
    let (mut began, mut sent) = (Instant::now(), 0u64);
    let mut due = 0.0;
    let mut datagram = [0; FRAME - HEADERS];
    while !end.load(Ordering::Relaxed) {
        // Frames that could not be sent in time are left out: a device takes 256 at once.
        due += (began.elapsed().as_secs_f64() * per_second).min(64.0);
        began = Instant::now();
        while due >= 1.0 {
            due -= 1.0;
            datagram[..8].copy_from_slice(&sent.to_be_bytes());
            // Waits while the device's buffer is full.
            sockets[sent as usize % FLOWS].send(&datagram).unwrap();
            sent += 1;
        }
        sleep(Duration::from_millis(1));
    }
    sent
}

/// Stops the senders even if the test fails: it waits for their threads.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The result of numbered datagrams.
struct Received {
    count: u64,
    reordered: u64,
    longest_gap: Duration,
    /// The most bytes within 100 ms.
    most: u64,
}

const WINDOW: Duration = Duration::from_millis(100);

fn received(arrivals: &[Arrival]) -> Received {
    let mut last: BTreeMap<u16, u64> = BTreeMap::new();
    let mut result = Received { count: 0, reordered: 0, longest_gap: Duration::ZERO, most: 0 };
    let mut window = std::collections::VecDeque::new();
    let mut before = None;
    for Arrival { at, bytes } in arrivals {
        let port = u16::from_be_bytes([bytes[34], bytes[35]]);
        let number = u64::from_be_bytes(bytes[HEADERS..HEADERS + 8].try_into().unwrap());
        result.count += 1;
        result.reordered += u64::from(last.get(&port).is_some_and(|&last| last >= number));
        last.insert(port, number);
        // Two processors stamp frames, and their clocks may differ slightly.
        let gap = before.map_or(0, |before| at.0.saturating_sub(before));
        result.longest_gap = result.longest_gap.max(Duration::from_nanos(gap));
        before = Some(at.0);
        window.push_back(at.0);
        while window
            .front()
            .is_some_and(|&first| at.0.saturating_sub(first) > WINDOW.as_nanos() as u64)
        {
            window.pop_front();
        }
        result.most = result.most.max((window.len() * FRAME) as u64);
    }
    result
}

/// The limits from the client to the server, and back, in bits per second.
const LIMITS: [u64; 2] = [20_000_000, 10_000_000];
const BURST: u64 = 50_000;

/// What arrived at `port` and found no room in the rings of its sockets, as users see it. A full RX
/// ring and an empty fill ring drop different packets.
fn without_room(show: &Value, port: usize) -> u64 {
    let drops = &show["ports"][port]["kernel_drops"];
    ["rx_ring_full", "rx_dropped"].iter().map(|kind| drops[kind].as_u64().unwrap()).sum()
}

#[test]
fn packets_for_which_the_rings_have_no_room_meanwhile_are_counted() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    // RX rings of 128 frames: at 100,000 packets a second over two queues, 2.6 ms of them.
    let instance = run(&bed, &["--frames", "1024"]);
    let mut books = Books::open(&bed).unwrap();
    let ports: Vec<u16> = (0..16).map(frames::port).collect();
    let load = flood(&bed, &ports, 100, 80e6);
    let lost_by_upgrades = (0..10).any(|_| {
        sleep(Duration::from_millis(200));
        let before = without_room(&show(&bed), 0);
        upgraded(&bed);
        without_room(&show(&bed), 0) > before
    });
    load.stop().unwrap();
    assert!(lost_by_upgrades, "in ten upgrades there was room for all packets");
    let (devices, [forth, _]) = assert_balanced(&mut books, &instance);
    assert_eq!(devices.port_a.rx_dropped, without_room(&show(&bed), 0), "{forth:?}");
}

#[test]
fn five_upgrades_in_a_row_lose_and_reorder_nothing_and_keep_the_limit() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root tbf rate 20mbit burst 50k limit 6m").unwrap();
    instance.tc("qdisc add dev port-a root cake bandwidth 10mbit").unwrap();
    let mut books = Books::open(&bed).unwrap();
    let [client, server] = bed.ends();
    // Receives without reading, so that no error is returned to the sender.
    let _ears = [client, server]
        .map(|end| end.namespace.enter(|| Ok(UdpSocket::bind((end.ip, PORT))?)).unwrap());
    let filter = "udp and dst port 9";
    let captures = [(server, SERVER), (client, CLIENT)]
        .map(|(end, device)| Capture::of_times(end.namespace, device, filter).unwrap());
    let end = AtomicBool::new(false);
    let mut pauses = Vec::new();
    let sent = std::thread::scope(|scope| {
        // A tenth above the limit: there is a backlog.
        let forth = scope.spawn(|| send_numbered(client, server, 22e6, &end));
        let back = scope.spawn(|| send_numbered(server, client, 11e6, &end));
        let ending = Ending(&end);
        sleep(Duration::from_secs(2));
        let mut pid = instance.id();
        for _ in 0..5 {
            let before = pid;
            let (now, pause, packets) = upgraded(&bed);
            pid = now;
            pauses.push(pause);
            eprintln!("process {pid}: {packets} packets taken over, {pause:?} without workers");
            assert!(pid != before && packets > 0, "{pid} after {before}, {packets} packets");
            sleep(Duration::from_millis(400));
        }
        drop(ending);
        [forth.join().unwrap(), back.join().unwrap()]
    });
    let (devices, directions) = assert_balanced(&mut books, &instance);
    let now = show(&bed);
    let arrived = [devices.port_a, devices.port_b];
    assert_eq!(arrived.map(|port| port.rx_dropped), [0, 1].map(|port| without_room(&now, port)));
    assert_eq!(now["conservation"]["unaccounted"], 0, "{now:#}");
    for (index, capture) in captures.into_iter().enumerate() {
        let (arrivals, missed) = capture.arrivals().unwrap();
        assert_eq!(missed, 0, "tcpdump missed frames of direction {index}");
        let Received { count, reordered, longest_gap, most } = received(&arrivals);
        let dropped = directions[index].dropped_by_narrows;
        // Before Narrows, or after it.
        let elsewhere = directions[index].dropped_by_devices;
        let lost = sent[index] as i64 - (count + dropped + elsewhere) as i64;
        eprintln!(
            "direction {index}: {} sent, {dropped} dropped by queue management, {elsewhere} by \
             devices, {lost} lost, {reordered} reordered, longest gap {longest_gap:?}, {most} bytes in {WINDOW:?}",
            sent[index]
        );
        assert_eq!((lost, reordered), (0, 0));
        let limit = LIMITS[index] / 80;
        // A busy machine: the times are those at which the receiver's kernel handled the packets.
        let late = limit / 5;
        let burst = [BURST, 2 * FRAME as u64][index];
        assert!(most <= limit + burst + late, "{most} bytes in {WINDOW:?}, {limit} + {burst}");
    }
    assert_eq!(directions[0].dropped_by_narrows, 0);
    let longest = pauses.iter().max().unwrap();
    assert!(*longest < Duration::from_millis(250), "{pauses:?}");
    let events = now["events"].to_string();
    assert_eq!(events.matches("upgraded from").count(), 5, "{events}");
}

/// A program that is no successor, or a bad one. Beside the good one, where an instance may read.
struct Fake(PathBuf);

fn fake(name: &str, script: &str) -> Fake {
    let file = format!("nrw-{}-{name}", std::process::id());
    let path = Path::new(NARROWS).with_file_name(file);
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    Fake(path)
}

impl Fake {
    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Shell commands that send a message of `kind`.
fn message(kind: u8, text: &str) -> String {
    let len = text.len();
    format!(r"printf '\00{kind}\000\000\000\000\{len:03o}\000\000\000%s' '{text}' >&0;")
}

#[test]
fn a_new_binary_that_fails_at_any_stage_changes_nothing() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let mut instance = run(&bed, &[]);
    // So slow that the backlog stays.
    instance.tc("qdisc add dev port-b root handle 1: tbf rate 8kbit burst 2k limit 4m").unwrap();
    let mut books = Books::open(&bed).unwrap();
    let ports: Vec<u16> = (0..16).map(frames::port).collect();
    let queued = |show: &Value| show["ports"][1]["total"]["backlog_packets"].as_u64().unwrap();
    let load = flood(&bed, &ports, 500, 4e6);
    wait_for(&bed, "queued", |show| queued(show) >= 300);
    load.stop().unwrap();
    sleep(Duration::from_millis(300));
    let hello = message(1, &format!(r#"{{"format":{FORMAT},"version":"9"}}"#));
    let other = message(1, r#"{"format":999,"version":"9.9.9"}"#);
    let ready = format!("{hello} {}", message(3, ""));
    let cases = [
        ("none", None, "cannot start"),
        ("garbage", Some("\u{7f}ELF garbage".to_owned()), "cannot start"),
        ("ends", Some("#!/bin/sh\nexit 3\n".to_owned()), "before it introduced itself"),
        ("nonsense", Some("#!/bin/sh\necho hello world >&0\n".to_owned()), "a compatible narrows"),
        ("hangs", Some("#!/bin/sh\nexec sleep 60\n".to_owned()), "too long introducing itself"),
        ("other", Some(format!("#!/bin/sh\n{other} exec sleep 60\n")), "format 999"),
        (
            "refuses",
            Some(format!("#!/bin/sh\n{hello} {} exec sleep 60\n", message(7, "not this policy"))),
            "cannot take over: not this policy",
        ),
        ("killed", Some(format!("#!/bin/sh\n{hello} kill -9 $$\n")), "getting ready"),
        ("taking", Some(format!("#!/bin/sh\n{ready} exec sleep 60\n")), "too long taking over"),
        // Half of the time that it has for that.
        ("dies", Some(format!("#!/bin/sh\n{ready} sleep 0.12\nkill -9 $$\n")), "taking over"),
    ];
    let before = queued(&show(&bed));
    for (attempt, (name, script, reason)) in (1u64..).zip(cases) {
        let fake = script.map(|script| fake(&format!("{name}.sh"), &script));
        let path = fake.as_ref().map_or("/nowhere/narrows", Fake::path);
        let began = Instant::now();
        let UpgradeStatus::Failed { reason: said, attempt: number } =
            upgrade(&bed, &["--binary", path])
        else {
            panic!("{name} has taken over")
        };
        assert!(said.contains(reason), "{name}: {said}");
        assert_eq!(number, attempt, "{name}");
        assert!(began.elapsed() < Duration::from_secs(10), "{name}: {:?}", began.elapsed());
        assert!(instance.is_running(), "{name}");
        let now = show(&bed);
        // At 8 kbit/s two packets leave in a second.
        assert!(queued(&now) + 30 >= before, "{name}: {} queued of {before}", queued(&now));
        assert_eq!(now["conservation"]["unaccounted"], 0, "{name}: {now:#}");
        assert!(now["events"].to_string().contains("not upgraded"), "{name}: {now:#}");
    }
    // Then a good one, with everything that is still queued.
    let (pid, ..) = upgraded(&bed);
    assert_ne!(pid, instance.id());
    assert!(queued(&show(&bed)) + 40 >= before);
    instance.tc("qdisc del dev port-b root").unwrap();
    let (_, [forth, _]) = assert_balanced(&mut books, &instance);
    assert_eq!((forth.dropped_by_narrows, forth.queued), (0, 0));
}

#[test]
fn no_burst_of_a_class_is_granted_twice() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    // The burst is what the class earns in a fifth of a second.
    for words in [
        "qdisc add dev port-b root handle 1: htb default 10",
        "class add dev port-b parent 1: classid 1:1 htb rate 20mbit burst 500k cburst 500k",
        "class add dev port-b parent 1:1 classid 1:10 htb rate 20mbit burst 500k cburst 500k",
    ] {
        instance.tc(words).unwrap();
    }
    let [client, server] = bed.ends();
    let _ear = server.namespace.enter(|| Ok(UdpSocket::bind((server.ip, PORT))?)).unwrap();
    let capture = Capture::of_times(server.namespace, SERVER, "udp and dst port 9").unwrap();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let forth = scope.spawn(|| send_numbered(client, server, 40e6, &end));
        let ending = Ending(&end);
        sleep(Duration::from_millis(1500));
        for _ in 0..4 {
            upgraded(&bed);
            sleep(Duration::from_millis(200));
        }
        drop(ending);
        forth.join().unwrap()
    });
    let (arrivals, missed) = capture.arrivals().unwrap();
    assert_eq!(missed, 0, "tcpdump missed frames");
    let began = arrivals[0].at.0 + 1_000_000_000;
    let later: Vec<Arrival> = arrivals.into_iter().filter(|arrival| arrival.at.0 > began).collect();
    let Received { most, .. } = received(&later);
    // A busy machine: the times are those at which the receiver's kernel handled the packets.
    assert!(most < LIMITS[0] / 80 * 6 / 5 + BURST, "{most} bytes in {WINDOW:?}");
}

#[test]
fn on_the_xdp_plane_upgrades_lose_and_reorder_nothing_and_keep_limit_and_counters() {
    let Some(_turn) = turn_to_measure() else { return };
    for hook in ["native", "tcx"] {
        let bed = Testbed::up(2).unwrap();
        bed.take_redirected(hook == "native").unwrap();
        let instance = run(&bed, &[&XDP[..], &["--xdp", hook]].concat());
        for words in [
            "qdisc add dev port-b root handle 1: htb default 20",
            "class add dev port-b parent 1: classid 1:1 htb rate 20mbit burst 50k",
            "class add dev port-b parent 1:1 classid 1:10 htb rate 18mbit ceil 20mbit",
            "class add dev port-b parent 1:1 classid 1:20 htb rate 2mbit ceil 20mbit",
            "qdisc add dev port-a clsact",
            "filter add dev port-a ingress protocol ip flower ip_proto udp dst_port 9 \
             action skbedit priority 1:10",
            "qdisc add dev port-a root tbf rate 10mbit burst 20k latency 20ms",
        ] {
            instance.tc(words).unwrap();
        }
        let mut books = Books::open(&bed).unwrap();
        let [client, server] = bed.ends();
        let _ears = [client, server]
            .map(|end| end.namespace.enter(|| Ok(UdpSocket::bind((end.ip, PORT))?)).unwrap());
        let captures = [(server, SERVER), (client, CLIENT)].map(|(end, device)| {
            Capture::of_times(end.namespace, device, "udp and dst port 9").unwrap()
        });
        let end = AtomicBool::new(false);
        // Of the class that a filter in front chooses; the root's figures begin with the root.
        let counted = || {
            let class = instance.tc("-s -j class show dev port-b classid 1:10").unwrap();
            let class: Value = serde_json::from_str(&class).unwrap();
            let root: Value =
                serde_json::from_str(&instance.tc("-s -j qdisc show dev port-b").unwrap()).unwrap();
            [&class[0]["stats"], &root[0]].map(|shown| shown["packets"].as_u64().unwrap())
        };
        let sent = std::thread::scope(|scope| {
            // A tenth above the limit.
            let forth = scope.spawn(|| send_numbered(client, server, 22e6, &end));
            let back = scope.spawn(|| send_numbered(server, client, 11e6, &end));
            let ending = Ending(&end);
            sleep(Duration::from_millis(500));
            let mut pid = instance.id();
            for _ in 0..3 {
                let before = (pid, counted());
                let (now, pause, packets) = upgraded(&bed);
                pid = now;
                assert!(pid != before.0 && packets == 0 && pause.is_zero(), "{packets} {pause:?}");
                let after = counted();
                assert!(after.iter().zip(before.1).all(|(now, then)| *now >= then), "{before:?}");
                sleep(Duration::from_millis(300));
            }
            // Commands work as before, and move no class.
            instance.tc("class change dev port-b classid 1:20 htb rate 1mbit ceil 9mbit").unwrap();
            sleep(Duration::from_millis(200));
            drop(ending);
            [forth.join().unwrap(), back.join().unwrap()]
        });
        let (_, directions) = assert_balanced(&mut books, &instance);
        let now = show(&bed);
        assert_eq!(now["conservation"]["unaccounted"], 0, "{now:#}");
        assert_eq!(now["ports"][0]["xdp"], hook);
        let reasons = now["conservation"]["dropped"].as_object().unwrap();
        let by_policy = |(reason, count): (&String, &Value)| {
            *count == 0 || ["limit", "aqm"].contains(&reason.as_str())
        };
        assert!(reasons.iter().all(by_policy), "{reasons:?}");
        assert!(counted()[0] * 10 > sent[0] * 8, "{:?} of {sent:?}", counted());
        for (index, capture) in captures.into_iter().enumerate() {
            let (arrivals, missed) = capture.arrivals().unwrap();
            assert_eq!(missed, 0, "tcpdump missed frames of direction {index}");
            let Received { count, reordered, most, .. } = received(&arrivals);
            let Direction { dropped_by_narrows, dropped_by_devices, .. } = directions[index];
            let lost =
                sent[index] as i64 - (count + dropped_by_narrows + dropped_by_devices) as i64;
            assert_eq!((lost, reordered), (0, 0), "{hook}, direction {index}");
            assert!(dropped_by_narrows > 0, "{hook}, direction {index}: the limit is not reached");
            // With the burst, and the virtual queue once; a fifth for a busy machine.
            let limit = LIMITS[index] / 80;
            assert!(most < limit * 6 / 5 + 2 * BURST, "{most} bytes in {WINDOW:?} at {hook}");
        }
    }
}

#[test]
fn on_the_xdp_plane_a_new_binary_that_fails_changes_nothing() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let mut instance = run(&bed, &XDP);
    instance.tc("qdisc add dev port-b root handle 1: tbf rate 8mbit burst 20k limit 40k").unwrap();
    let mut books = Books::open(&bed).unwrap();
    let load = flood(&bed, &[frames::port(0)], 500, 10e6);
    let hello = message(1, &format!(r#"{{"format":{FORMAT},"version":"9"}}"#));
    let ready = format!("{hello} {}", message(3, ""));
    for (name, script, reason) in [
        ("killed", format!("{hello} kill -9 $$"), "getting ready"),
        ("dies", format!("{ready} sleep 0.12\nkill -9 $$"), "taking over"),
    ] {
        let fake = fake(&format!("{name}.sh"), &format!("#!/bin/sh\n{script}\n"));
        let status = upgrade(&bed, &["--binary", fake.path()]);
        let UpgradeStatus::Failed { reason: said, .. } = status else { panic!("{name}: {status}") };
        assert!(said.contains(reason), "{name}: {said}");
        assert!(instance.is_running(), "{name}");
        instance
            .tc("qdisc change dev port-b root handle 1: tbf rate 8mbit burst 20k limit 40k")
            .unwrap();
    }
    // The other plane does not continue this one.
    let other = format!("#!/bin/sh\nexec {NARROWS} run --ports port-a,port-b --take-over\n");
    let other = fake("other-plane.sh", &other);
    let status = upgrade(&bed, &["--binary", other.path()]);
    assert!(status.to_string().contains("another plane"), "{status}");
    let (pid, ..) = upgraded(&bed);
    assert_ne!(pid, instance.id());
    load.stop().unwrap();
    let (_, [forth, _]) = assert_balanced(&mut books, &instance);
    assert!(forth.dropped_by_narrows > 0, "{forth:?}");
}

#[test]
fn an_heir_that_ends_is_fail_open() {
    let Some(_turn) = turn_to_count() else { return };
    for plane in [&[][..], &XDP] {
        assert_an_heir_that_ends_is_fail_open(plane);
    }
}

fn assert_an_heir_that_ends_is_fail_open(plane: &[&str]) {
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, plane);
    let ping = Ping::start(&bed, Duration::from_secs(30)).unwrap();
    let hello = message(1, &format!(r#"{{"format":{FORMAT},"version":"9"}}"#));
    let script =
        format!("#!/bin/sh\n{hello} {} sleep 0.05\n{} sleep 0.3\n", message(3, ""), message(5, ""));
    let liar = fake("liar.sh", &script);
    let output = narrows(&bed, &["upgrade", "--binary", liar.path()]);
    assert!(!output.status.success());
    drop(instance);
    sleep(Duration::from_millis(1500));
    let stats = ping.stop().unwrap();
    assert!(stats.received > 50, "{stats:?}");
    assert!(stats.longest_gap <= Duration::from_secs(1), "{stats:?}");
}

#[test]
fn a_giver_that_is_killed_leaves_no_heir_and_traffic_flows() {
    let Some(_turn) = turn_to_count() else { return };
    for (delay, plane) in [("0.2", &[][..]), ("0", &[]), ("0", &XDP)] {
        let bed = Testbed::up(2).unwrap();
        let instance = run(&bed, plane);
        let ping = Ping::start(&bed, Duration::from_secs(30)).unwrap();
        let slow = fake("slow.sh", &format!("#!/bin/sh\nsleep {delay}\nexec {NARROWS} \"$@\"\n"));
        let client = bed.shaper().start(NARROWS, &["upgrade", "--binary", slow.path()]).unwrap();
        sleep(Duration::from_millis(100));
        instance.kill().unwrap();
        sleep(Duration::from_millis(1500));
        // It had either taken over by then, or is gone.
        let pids = narrows_testbed::process::run(std::process::Command::new("ip").args([
            "netns",
            "pids",
            bed.shaper().name(),
        ]));
        let took_over = narrows(&bed, &["show"]).status.success();
        assert_eq!(took_over, !pids.unwrap().trim().is_empty(), "delay {delay}");
        drop(client);
        let stats = ping.stop().unwrap();
        assert!(stats.longest_gap <= Duration::from_secs(1), "{stats:?}");
    }
}

#[test]
fn a_policy_that_was_changed_meanwhile_and_unknown_ports_are_refused_or_kept() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    for words in [
        "qdisc add dev port-b root handle 1: tbf rate 12345kbit burst 20k latency 30ms",
        "qdisc add dev port-b parent 1:1 handle 7: fq limit 2000",
        "qdisc add dev port-a root handle 3: mq",
        "qdisc add dev port-a parent 3:2 handle 9: cake bandwidth 7mbit diffserv4 nat",
        "qdisc add dev port-a parent 3:3 handle 8: flowbundler",
    ] {
        instance.tc(words).unwrap();
    }
    let before = instance.tc("-d qdisc show").unwrap();
    upgraded(&bed);
    assert_eq!(instance.tc("-d qdisc show").unwrap(), before);
    let output = narrows(&bed, &["upgrade", "eth9"]);
    assert!(complaint(&output).contains("eth9"), "{}", complaint(&output));
    let by_hand = narrows(&bed, &["run", "--ports", "port-a,port-b", "--take-over"]);
    assert!(complaint(&by_hand).contains("narrows upgrade"), "{}", complaint(&by_hand));
}
