//! A start that cannot work is refused, with what to type instead.

use crate::setup::{NARROWS, assert_refused, ip, links, narrows, run, show, tc, turn_to_count};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{PORT_A, PORT_B};
use std::process::{Child, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn start(bed: &Testbed, arguments: &[&str]) -> Output {
    narrows(bed, &[&["run", "--ports"], arguments].concat())
}

#[test]
fn ports_that_cannot_be_joined_are_refused_with_the_remedy() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let before = links(&bed);
    let both = format!("{PORT_A},{PORT_B}");
    assert_refused(&start(&bed, &["port-a,eth9"]), 1, &["eth9"]);
    assert_refused(&start(&bed, &["port-a,port-a"]), 1, &["two different interfaces"]);
    assert_refused(&start(&bed, &["port-a"]), 1, &["joins two interfaces", "--plane host"]);
    assert_refused(&start(&bed, &["port-a,lo"]), 1, &["lo"]);
    assert_eq!(links(&bed), before);

    bed.shaper().run("ethtool", &["-L", PORT_B, "rx", "4", "tx", "2"]).unwrap();
    let refused = start(&bed, &[&both]);
    assert_refused(&refused, 1, &["port-b", "ethtool -L port-b"]);
    bed.shaper().run("ethtool", &["-L", PORT_B, "rx", "4", "tx", "4"]).unwrap();

    ip(bed.shaper(), "link set dev port-b down");
    let refused = start(&bed, &[&both, "--fail-closed"]);
    assert_refused(&refused, 1, &["port-b is down", "ip link set dev port-b up"]);
    ip(bed.shaper(), "link set dev port-b up");

    ip(bed.shaper(), "addr add 192.0.2.1/24 dev port-a");
    let refused = start(&bed, &[&both]);
    assert_refused(&refused, 1, &["192.0.2.1/24", "--fail-closed"]);
    ip(bed.shaper(), "addr del 192.0.2.1/24 dev port-a");

    assert_eq!(links(&bed), before, "a refusal left something behind");
    let _works = run(&bed, &[]);
}

#[test]
fn of_many_that_start_at_once_one_joins_the_ports_and_the_others_say_why() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let start = |ports: &str| {
        let mut command = bed.shaper().command(NARROWS);
        command.args(["run", "--ports", ports]).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    // The same two ports, in either order.
    let ports = ["port-a,port-b", "port-b,port-a"];
    let mut running: Vec<Child> = ports.into_iter().cycle().take(6).map(start).collect();
    let deadline = Instant::now() + Duration::from_secs(10);
    while running.len() > 1 {
        assert!(Instant::now() < deadline, "{} have not been refused", running.len() - 1);
        sleep(Duration::from_millis(20));
        for mut child in std::mem::take(&mut running) {
            if child.try_wait().unwrap().is_none() {
                running.push(child);
                continue;
            }
            assert_refused(&child.wait_with_output().unwrap(), 1, &["another narrows", "stop it"]);
        }
    }
    let begin = Instant::now();
    while !narrows(&bed, &["show"]).status.success() {
        assert!(begin.elapsed() < Duration::from_secs(10), "no answer");
        sleep(Duration::from_millis(20));
    }
    assert_eq!(show(&bed)["state"], "running");
    for mut child in running {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Its remains do not block a new instance.
    let _next = run(&bed, &[]);
}

#[test]
fn a_second_instance_is_refused_and_does_not_disturb_the_first() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let mut instance = run(&bed, &[]);
    let before = links(&bed);
    assert_refused(&start(&bed, &["port-a,port-b"]), 1, &["another narrows", "stop it first"]);
    // Under any other name.
    for ports in ["port-b,port-a", "port-b,lo"] {
        let refused = start(&bed, &[ports]);
        assert_refused(&refused, 1, &["another"]);
    }
    assert!(instance.is_running());
    assert_eq!(links(&bed), before);
    assert_eq!(show(&bed)["state"], "running");
    instance.tc("qdisc show").unwrap();
}

#[test]
fn the_sockets_of_a_killed_instance_are_no_obstacle() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    // The kernel may still have queues of the one before.
    for _ in 0..5 {
        run(&bed, &[]).kill().unwrap();
    }
    let _again = run(&bed, &[]);
    assert_eq!(show(&bed)["state"], "running");
}

#[test]
fn without_root_it_says_what_it_needs() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = bed.shaper().command("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", NARROWS]);
        command.args(arguments).output().unwrap()
    };
    let refused = run(&["run", "--ports", "port-a,port-b"]);
    if String::from_utf8_lossy(&refused.stderr).contains("setpriv: failed to execute") {
        eprintln!("SKIPPED: others may not run {NARROWS}");
        return;
    }
    assert_refused(&refused, 1, &["root"]);
    assert_refused(&run(&["doctor", "port-a", "port-b"]), 1, &[]);
    // Another user's instance can be neither queried nor changed.
    let _instance = crate::setup::run(&bed, &[]);
    assert_eq!(run(&["show"]).status.code(), Some(1));
    assert_eq!(run(&["tc", "qdisc", "del", "dev", "port-b", "root"]).status.code(), Some(1));
}

#[test]
fn a_port_with_another_xdp_program_is_refused() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    // The other program is the bare forwarder's.
    let arguments = ["bench", "bare-forwarder", "--ports", "port-a,port-b"];
    let Ok(_other) = narrows_testbed::narrows::Instance::start_command(
        &bed,
        std::path::Path::new(NARROWS),
        &arguments,
    ) else {
        panic!("narrows {} does not start", arguments.join(" "));
    };
    let refused = start(&bed, &["port-a,port-b"]);
    assert_refused(&refused, 1, &["XDP program", "ip link set dev port-a xdp"]);
}

#[test]
fn commands_without_an_instance_say_what_to_do() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let remedy = "narrows run --ports A,B";
    assert_refused(&tc(&bed, "qdisc show"), 1, &["no narrows runs", remedy, "--policy FILE"]);
    assert_refused(&narrows(&bed, &["show"]), 1, &["no narrows runs", remedy]);
    let _instance = run(&bed, &[]);
    assert_refused(&tc(&bed, "qdisc show dev eth9"), 1, &["\"eth9\"", "port-a, port-b"]);
    assert_refused(&narrows(&bed, &["show", "eth9"]), 1, &["\"eth9\""]);
}

#[test]
fn doctor_tells_by_its_exit_code_whether_a_start_can_work() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let doctor = |ports: [&str; 2]| narrows(&bed, &["doctor", ports[0], ports[1], "--json"]);
    let fit = doctor([PORT_A, PORT_B]);
    let text = String::from_utf8_lossy(&fit.stdout).into_owned();
    assert_eq!(fit.status.code(), Some(0), "{text}");
    let findings: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(findings.as_array().unwrap().iter().all(|f| f["severity"] != "blocker"), "{text}");

    assert_eq!(doctor([PORT_A, "eth9"]).status.code(), Some(1));
    {
        let _instance = run(&bed, &[]);
        let taken = doctor([PORT_A, PORT_B]);
        let text = String::from_utf8_lossy(&taken.stdout).into_owned();
        assert_eq!(taken.status.code(), Some(1), "{text}");
        assert!(text.contains("narrows show port-a") && !text.contains("xdpdrv off"), "{text}");
    }
    // A problem that the start repairs does not prevent it.
    bed.client().run("ethtool", &["-K", narrows_testbed::bed::CLIENT, "tx", "on"]).unwrap();
    let repaired = doctor([PORT_A, PORT_B]);
    let text = String::from_utf8_lossy(&repaired.stdout).into_owned();
    assert_eq!(repaired.status.code(), Some(0), "{text}");
    assert!(text.contains("checksum") && text.contains("switches it off"), "{text}");
    bed.shaper().run("ethtool", &["-L", PORT_A, "rx", "2", "tx", "1"]).unwrap();
    let unfit = doctor([PORT_A, PORT_B]);
    let text = String::from_utf8_lossy(&unfit.stdout).into_owned();
    assert_eq!(unfit.status.code(), Some(1), "{text}");
    assert!(text.contains("ethtool -L port-a rx 1 tx 1"), "{text}");
}
