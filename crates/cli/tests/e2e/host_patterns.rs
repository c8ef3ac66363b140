//! Patterns of devices: a process that keeps an instance for each device that matches.

use crate::host_plane::{Received, bed, send};
use crate::setup::{
    NARROWS, Scratch, assert_refused, complaint, hang_up, ip, narrows, tc, turn_to_count,
    turn_to_measure, wait_until,
};
use crate::supervision::Manager;
use narrows_testbed::Testbed;
use narrows_testbed::narrows::Instance;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long what follows an event may take on a busy machine.
const SOON: Duration = Duration::from_secs(5);

const POLICY: &str = "qdisc add dev veth* root tbf rate 10mbit burst 15k latency 50ms\n\
                      qdisc add dev \"tap?\" root tbf rate 2mbit burst 15k latency 50ms\n\
                      qdisc add dev port-a root tbf rate 7mbit burst 15k latency 50ms\n";

fn words<'a>(ports: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--plane", "host", "--ports", ports], arguments].concat()
}

fn run(bed: &Testbed, ports: &str, arguments: &[&str]) -> Instance {
    Instance::start_command(bed, Path::new(NARROWS), &words(ports, arguments)).unwrap()
}

/// Adds a veth of this name, which is up.
fn add(bed: &Testbed, name: &str) {
    ip(bed.shaper(), &format!("link add name {name} up type veth peer name peer-{name}"));
    ip(bed.shaper(), &format!("link set dev peer-{name} up"));
}

/// The qdiscs that an instance has at the device; empty if none has it.
fn qdiscs(bed: &Testbed, device: &str) -> String {
    let shown = tc(bed, &format!("qdisc show dev {device}"));
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

#[track_caller]
fn wait_for_rate(bed: &Testbed, device: &str, rate: &str) {
    let rate = format!("rate {rate} ");
    wait_until(&format!("{device}: {rate}"), SOON, || qdiscs(bed, device).contains(&rate));
}

/// The children of the process `id`, each with its arguments.
fn children(id: u32) -> Vec<(u32, String)> {
    let parent = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse::<u32>().ok()
    };
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let read =
            |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        if parent(&read("status")) == Some(id) {
            children.push((child, read("cmdline").replace('\0', " ")));
        }
    }
    children
}

/// The process that `supervisor` keeps for these ports.
fn process_for(supervisor: u32, ports: &str) -> Option<u32> {
    let word = format!(" --ports={ports} ");
    let all = children(supervisor);
    all.into_iter().find(|(_, arguments)| arguments.contains(&word)).map(|(id, _)| id)
}

fn kill(id: u32) {
    assert!(Command::new("kill").args(["-9", &id.to_string()]).status().unwrap().success());
}

#[test]
fn each_device_that_matches_has_an_instance_while_it_is_there_under_that_name() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let policy = Scratch::new("patterns.tc", POLICY);
    add(&bed, "veth1");
    ip(bed.shaper(), "link set dev lo up");
    let mut instance = run(&bed, "port-a,veth*,l*,tap?,v*", &["--batch", policy.path()]);
    // Those that were there are shaped already.
    assert!(qdiscs(&bed, "veth1").contains("rate 10Mbit "), "{}", qdiscs(&bed, "veth1"));
    assert!(qdiscs(&bed, "port-a").contains("rate 7Mbit "));
    let first = process_for(instance.id(), "veth1").unwrap();

    add(&bed, "veth2");
    wait_for_rate(&bed, "veth2", "10Mbit");
    let second = process_for(instance.id(), "veth2").unwrap();
    ip(bed.shaper(), "link set dev veth2 name tap0");
    wait_for_rate(&bed, "tap0", "2Mbit");
    assert_eq!(qdiscs(&bed, "veth2"), "");
    assert_eq!(process_for(instance.id(), "veth2"), None, "{second} is still there");

    // One that is down sends nothing, and waits.
    ip(bed.shaper(), "link add name veth3 type veth peer name peer-veth3");
    ip(bed.shaper(), "link del dev tap0");
    wait_until("gone", SOON, || process_for(instance.id(), "tap0").is_none());
    assert_eq!(process_for(instance.id(), "veth3"), None);
    ip(bed.shaper(), "link set dev veth3 up");
    wait_for_rate(&bed, "veth3", "10Mbit");

    // A name outside all patterns is nobody's.
    ip(bed.shaper(), "link set dev veth3 name other3");
    wait_until("gone", SOON, || process_for(instance.id(), "veth3").is_none());
    assert_eq!(process_for(instance.id(), "other3"), None);

    assert_eq!(process_for(instance.id(), "veth1"), Some(first), "it was touched");
    assert!(instance.is_running());
    let ports = String::from_utf8(narrows(&bed, &["show"]).stdout).unwrap();
    assert_eq!(
        ports.matches(&format!(", kept by process {}", instance.id())).count(),
        2,
        "{ports}"
    );
    assert!(ports.contains("\nveth1: host plane") && ports.contains("\nport-a: host plane"));
    let (status, log) = instance.stop().unwrap();
    assert!(status.success(), "{log}");
    assert_eq!(log.matches("lo is passed over").count(), 1, "{log}");
    assert!(!log.contains("already joins"), "{log}");
    assert_refused(&tc(&bed, "qdisc show"), 1, &["no narrows runs"]);
}

#[test]
fn a_limit_holds_while_a_process_is_killed_and_nothing_holds_without_a_keeper() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = bed();
    let policy = Scratch::new(
        "patterns.tc",
        "qdisc add dev port-b* root tbf rate 20mbit burst 30k latency 50ms\n",
    );
    let instance = run(&bed, "port-b*", &["--batch", policy.path()]);
    add(&bed, "port-b2");
    wait_for_rate(&bed, "port-b2", "20Mbit");
    let limited = || {
        let mut received = Received::open(&bed);
        let begin = Instant::now();
        let sent = send(&bed, 9, 60e6, Duration::from_secs(1));
        let seconds = begin.elapsed().as_secs_f64();
        sleep(Duration::from_millis(300));
        let bits = received.counts().rx_bytes as f64 * 8.0;
        // Half of a second's error of timing of a busy machine, and the burst.
        let most = 20e6 * (seconds + 0.35) + 30_000.0 * 8.0;
        assert!((20e6 * 0.9..most).contains(&bits), "{bits} bits of {sent} packets in {seconds} s");
    };
    limited();

    let id = instance.id();
    let [first, other] = ["port-b", "port-b2"].map(|port| process_for(id, port).unwrap());
    kill(first);
    wait_until("started again", SOON, || {
        process_for(id, "port-b").is_some_and(|new| new != first)
            && qdiscs(&bed, "port-b").contains("rate 20Mbit ")
    });
    assert_eq!(process_for(id, "port-b2"), Some(other));
    limited();
    assert_eq!(instance.log().matches("port-b: its process has ended").count(), 1);

    let kept = ["port-b", "port-b2"].map(|port| process_for(id, port).unwrap());
    instance.kill().unwrap();
    // One that has ended, and that nobody has waited for yet, has no arguments any more.
    let is_gone =
        |id: &u32| std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default().is_empty();
    wait_until("all gone", SOON, || kept.iter().all(is_gone));
    let mut received = Received::open(&bed);
    let free = send(&bed, 9, 40e6, Duration::from_millis(500));
    sleep(Duration::from_millis(100));
    assert_eq!(received.counts().rx_packets, free);

    // What it has left is in nobody's way.
    let again = run(&bed, "port-b*", &["--batch", policy.path()]);
    assert!(qdiscs(&bed, "port-b").contains("rate 20Mbit "));
    assert_eq!(again.log().matches("its process has ended").count(), 0, "{}", again.log());
}

#[test]
fn a_process_that_takes_over_is_kept_like_the_one_before() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let policy = Scratch::new("patterns.tc", POLICY);
    add(&bed, "veth1");
    let instance = run(&bed, "port-a,veth*,tap?", &["--batch", policy.path()]);
    let (id, old) = (instance.id(), process_for(instance.id(), "veth1").unwrap());
    let upgraded = narrows(&bed, &["upgrade", "veth1"]);
    let said = complaint(&upgraded);
    assert!(upgraded.status.success(), "{said}");
    assert!(said.contains(&format!("process {id}, which keeps an instance")), "{said}");
    wait_until("replaced", SOON, || process_for(id, "veth1").is_some_and(|new| new != old));
    assert!(qdiscs(&bed, "veth1").contains("rate 10Mbit "));

    std::fs::write(policy.path(), POLICY.replace("10mbit", "11mbit")).unwrap();
    hang_up(&instance);
    wait_for_rate(&bed, "veth1", "11Mbit");
    let new = process_for(id, "veth1").unwrap();
    kill(new);
    wait_until("started again", SOON, || process_for(id, "veth1").is_some_and(|it| it != new));
    wait_for_rate(&bed, "veth1", "11Mbit");
    ip(bed.shaper(), "link del dev veth1");
    wait_until("gone", SOON, || process_for(id, "veth1").is_none());
    let log = instance.log();
    assert_eq!(log.matches("its process has ended").count(), 1, "{log}");
}

#[test]
fn a_file_is_read_whole_or_not_at_all_and_the_service_manager_knows() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let policy = Scratch::new("patterns.tc", POLICY);
    let wrong = format!("{POLICY}qdisc add dev veth1 root pfifo\nqdisc add dev tap? root brew\n");
    std::fs::write(policy.path(), &wrong).unwrap();
    let arguments = words("port-a,veth*,tap?", &["--batch", policy.path()]);
    let refused = narrows(&bed, &arguments);
    assert_refused(&refused, 1, &["patterns.tc:4: ", "Cannot find device", "patterns.tc:5: "]);
    assert_refused(&tc(&bed, "qdisc show"), 1, &["no narrows runs"]);

    std::fs::write(policy.path(), POLICY).unwrap();
    add(&bed, "veth1");
    let manager = Manager::new();
    let instance = manager.start_command(&bed, &[], &arguments);
    manager.wait_for(&["EXTEND_TIMEOUT_USEC="]);
    manager.wait_for(&["READY=1", "STATUS=port-a, 1 device of veth*, 0 devices of tap?\n"]);
    add(&bed, "veth2");
    manager.wait_for(&["STATUS=port-a, 2 devices of veth*, 0 devices of tap?\n"]);

    std::fs::write(policy.path(), &wrong).unwrap();
    hang_up(&instance);
    manager.wait_for(&["RELOADING=1"]);
    let ready = manager.wait_for(&["READY=1", "STATUS="]);
    assert!(ready.contains("nothing changed") && ready.contains("patterns.tc:4: "), "{ready}");
    // One that comes now has what was good.
    add(&bed, "veth3");
    wait_for_rate(&bed, "veth3", "10Mbit");

    std::fs::write(policy.path(), POLICY.replace("10mbit", "12mbit")).unwrap();
    hang_up(&instance);
    for device in ["veth1", "veth2", "veth3"] {
        wait_for_rate(&bed, device, "12Mbit");
    }
    assert!(qdiscs(&bed, "port-a").contains("rate 7Mbit "));
    let (status, log) = instance.stop().unwrap();
    assert!(status.success(), "{log}");
    manager.wait_for(&["STOPPING=1"]);
}

#[test]
fn live_edits_are_kept_in_a_file_for_each_device() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    let state = Scratch::new("states", "");
    std::fs::remove_file(state.path()).unwrap();
    let policy = Scratch::new("patterns.tc", POLICY);
    let start = || run(&bed, "veth*,tap?,port-a", &["-b", policy.path(), "--state", state.path()]);
    add(&bed, "veth1");
    let instance = start();
    let edit = "qdisc change dev veth1 root tbf rate 5mbit burst 15k latency 50ms";
    assert!(tc(&bed, edit).status.success());
    instance.stop().unwrap();
    let kept = std::fs::read_to_string(format!("{}/veth1.tc", state.path())).unwrap();
    assert!(kept.contains("dev veth1") && kept.contains("rate 5000000bit"), "{kept}");
    let instance = start();
    assert!(qdiscs(&bed, "veth1").contains("rate 5Mbit "));
    instance.stop().unwrap();
    std::fs::remove_dir_all(state.path()).unwrap();
}

#[test]
fn patterns_elsewhere_and_options_that_no_instance_of_them_takes_are_refused() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = bed();
    for (arguments, said) in [
        (&["run", "--ports", "veth*,port-a"][..], "only --plane host --ports takes patterns"),
        (&["run", "--port", "port-?"], "only --plane host --ports takes patterns"),
        (&["run", "--plane", "host", "--ports", "a/*"], "matches no interface"),
        (&["run", "--plane", "host", "--ports", "veth*,veth*"], "named twice"),
        (&["run", "--plane", "host", "--ports", "veth*", "--xdp", "tcx"], "leave out --xdp"),
        (&["run", "--plane", "host", "--ports", "v*", "--state", "/proc/no/state"], "is a folder"),
        (&["run", "--plane", "host", "--ports", "v*", "--batch", "/nowhere"], "/nowhere"),
    ] {
        assert_refused(&narrows(&bed, arguments), 1, &[said]);
    }
}
