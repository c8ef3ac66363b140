//! The limit of open files, whatever it is: an instance runs whole, or says what to raise.

use crate::setup::{NARROWS, complaint, links, narrows, show, tc, turn_to_count};
use narrows_testbed::Testbed;
use narrows_testbed::bed::SERVER_IP;
use narrows_testbed::narrows::Instance;
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// With fewer open files the program's libraries cannot be read.
const FEWEST: u64 = 4;
/// As many as clients can be connected at once.
const CLIENTS: usize = 64;

/// The longest that a refusal may take.
const REFUSAL: Duration = Duration::from_secs(10);

/// The words that start Narrows with at most so many open files.
fn words(limit: &str) -> [&str; 5] {
    [limit, NARROWS, "run", "--ports", "port-a,port-b"]
}

/// Asserts that Narrows refuses to start with at most `limit` open files, with a sentence. Returns
/// how many it says that it needs.
fn refused(bed: &Testbed, limit: u64) -> u64 {
    let limit = format!("--nofile={limit}:{limit}");
    let mut command = bed.shaper().command("prlimit");
    command.args(words(&limit)).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + REFUSAL;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        sleep(Duration::from_millis(2));
    }
    // If it still runs, that shows below.
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(1), "{limit}: {said}");
    assert!(said.contains("raise the limit"), "{limit}: {said}");
    let needed = said.split_once("and needs ").and_then(|(_, after)| after.split_once(':'));
    needed.and_then(|(needed, _)| needed.parse().ok()).expect(&said)
}

fn assert_forwards(bed: &Testbed) {
    bed.client().run("ping", &["-c", "3", "-i", "0.1", "-W", "2", &SERVER_IP.to_string()]).unwrap();
}

#[test]
fn with_any_limit_of_open_files_it_runs_or_says_what_to_raise() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let before = links(&bed);
    let mut needed = 0;
    for limit in FEWEST..80 {
        needed = refused(&bed, limit);
        assert!(needed > limit);
    }
    // What it says first is what one queue needs, and then what all do.
    assert_eq!(refused(&bed, needed - 1), needed);
    let all = refused(&bed, needed);
    assert!(all > needed);
    assert_eq!(refused(&bed, all - 1), all);
    assert_eq!(links(&bed), before, "a refusal left something behind");

    let enough = format!("--nofile={all}:{all}");
    let mut instance =
        Instance::start_command(&bed, Path::new("prlimit"), &words(&enough)).unwrap();
    assert_forwards(&bed);
    let namespace = std::fs::read_link(format!("/proc/{}/ns/net", instance.id())).unwrap();
    let namespace = namespace.to_str().unwrap().replace(":[", "-").replace(']', "");
    let socket = format!("/run/narrows/{namespace}/port-a,port-b.sock");
    let clients: Vec<_> = (0..CLIENTS).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    // What takes another program, or another process.
    for words in [
        "qdisc add dev port-a clsact",
        "filter add dev port-a ingress protocol ip pref 1 flower dst_ip 192.0.2.7 action drop",
        "qdisc replace dev port-b root cake bandwidth 100mbit nat",
        "qdisc replace dev port-b root htb",
    ] {
        let output = tc(&bed, words);
        assert!(output.status.success(), "tc {words}: {}", complaint(&output));
    }
    assert_eq!(show(&bed)["state"], "running");
    assert_forwards(&bed);
    drop(clients);
    assert!(instance.is_running());
    let output = narrows(&bed, &["upgrade", "--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let new_process = outcome[0]["done"]["pid"].to_string();
    assert_forwards(&bed);
    assert!(Command::new("kill").args(["-s", "TERM", &new_process]).status().unwrap().success());
}
