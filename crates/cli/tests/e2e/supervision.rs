//! Narrows as a service: notifications to the service manager, reloads, and saved policies.

use crate::setup::{
    NARROWS, Scratch, assert_refused, flood, narrows, own_path, run, show, tc, turn_to_count,
    wait_for,
};
use narrows_testbed::narrows::Instance;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PORTS: [&str; 3] = ["run", "--ports", "port-a,port-b"];
const SHAPED: &str = "qdisc add dev port-b root tbf rate 30mbit burst 100k latency 20ms\n";

/// A service manager, as far as `sd_notify(3)` goes.
pub struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    pub fn new() -> Self {
        let path = own_path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, path }
    }

    /// Starts Narrows as a service.
    fn start(&self, bed: &Testbed, environment: &[&str], arguments: &[&str]) -> Instance {
        self.start_command(bed, environment, &[&PORTS[..], arguments].concat())
    }

    /// Starts Narrows as a service, with all of its arguments.
    pub fn start_command(
        &self,
        bed: &Testbed,
        environment: &[&str],
        arguments: &[&str],
    ) -> Instance {
        let socket = format!("NOTIFY_SOCKET={}", self.path.display());
        let words = [&[socket.as_str()], environment, &[NARROWS], arguments].concat();
        Instance::start_command(bed, Path::new("env"), &words).unwrap()
    }

    /// Waits for a message with all of `words`, and returns it.
    #[track_caller]
    pub fn wait_for(&self, words: &[&str]) -> String {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut heard = Vec::new();
        while let Some(message) = self.message(deadline) {
            if words.iter().all(|word| message.contains(word)) {
                return message;
            }
            heard.push(message);
        }
        panic!("never told {words:?}: {heard:#?}");
    }

    fn message(&self, deadline: Instant) -> Option<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1)))).unwrap();
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    /// The messages of the next `time`.
    fn listen(&self, time: Duration) -> Vec<String> {
        let deadline = Instant::now() + time;
        std::iter::from_fn(|| self.message(deadline)).collect()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn signal(instance: &Instance, signal: &str) {
    let id = instance.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
}

fn shown(bed: &Testbed) -> String {
    String::from_utf8_lossy(&tc(bed, "save").stdout).into_owned()
}

fn events(show: &Value) -> String {
    let events = show["events"].as_array().unwrap().iter();
    events.map(|event| event.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

fn wait_for_event(bed: &Testbed, words: &str) -> String {
    events(&wait_for(bed, words, |show| events(show).contains(words)))
}

#[test]
fn the_service_manager_is_told_of_start_reload_and_end() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let policy = Scratch::new("service.tc", SHAPED);
    let manager = Manager::new();
    let instance = manager.start(&bed, &[], &["-b", policy.path()]);
    manager.wait_for(&["READY=1", "STATUS=joined port-a"]);

    signal(&instance, "HUP");
    let reloading = manager.wait_for(&["RELOADING=1", "MONOTONIC_USEC="]);
    let (_, since) = reloading.split_once("MONOTONIC_USEC=").unwrap();
    assert!(since.trim().parse::<u64>().unwrap() > 0, "{reloading}");
    manager.wait_for(&["READY=1"]);

    std::fs::write(policy.path(), "qdisc add dev port-b root pfifo limit x\n").unwrap();
    signal(&instance, "HUP");
    manager.wait_for(&["RELOADING=1"]);
    let ready = manager.wait_for(&["READY=1", "STATUS="]);
    assert!(ready.contains("nothing changed") && ready.contains("service.tc:1: "), "{ready}");

    crate::setup::ip(bed.shaper(), "link del port-b");
    manager.wait_for(&["STATUS=waiting: "]);

    let (status, log) = instance.stop().unwrap();
    assert!(status.success(), "{log}");
    manager.wait_for(&["STOPPING=1"]);
}

#[test]
fn the_watchdog_hears_beats_while_the_process_is_well_and_none_while_it_hangs() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let manager = Manager::new();
    let instance = manager.start(&bed, &["WATCHDOG_USEC=600000"], &[]);
    manager.wait_for(&["READY=1"]);
    let beats = |messages: Vec<String>| {
        messages.iter().filter(|message| message.contains("WATCHDOG=1")).count()
    };
    let heard = beats(manager.listen(Duration::from_secs(3)));
    assert!((5..=12).contains(&heard), "{heard} beats in 3 s, where one is due every 0.3 s");
    signal(&instance, "STOP");
    manager.listen(Duration::from_millis(300));
    assert_eq!(beats(manager.listen(Duration::from_secs(1))), 0);
    signal(&instance, "CONT");
    manager.wait_for(&["WATCHDOG=1"]);
}

#[test]
fn a_reload_applies_the_file_and_keeps_unchanged_parts() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let policy = Scratch::new("reload.tc", SHAPED);
    let instance = run(&bed, &["-b", policy.path()]);
    let ports: Vec<u16> = (0..32).map(frames::port).collect();
    // Twice the rate: there is a backlog all the time.
    let _load = flood(&bed, &ports, 500, 60e6);
    let sent = || {
        let shown =
            instance.command("tc").args(["-j", "-s", "qdisc", "show", "dev", "port-b"]).output();
        let qdiscs: Value = serde_json::from_slice(&shown.unwrap().stdout).unwrap();
        qdiscs[0]["packets"].as_u64().unwrap()
    };
    wait_for(&bed, "forwarding", |show| {
        show["ports"][1]["total"]["tx_packets"].as_u64() > Some(3000)
    });
    let before = sent();
    let dropped = |show: &Value| show["ports"][1]["total"]["drops_by_reason"].clone();

    // A reload discards a live edit; a line added above changes nothing.
    assert!(tc(&bed, "qdisc replace dev port-a root pfifo limit 5").status.success());
    let longer = format!("qdisc add dev port-a root bfifo limit 77777\n{SHAPED}");
    std::fs::write(policy.path(), &longer).unwrap();
    signal(&instance, "HUP");
    let logged = wait_for_event(&bed, "reloaded");
    assert!(logged.contains("reload.tc"), "{logged}");
    let saved = shown(&bed);
    assert!(saved.contains("bfifo limit 77777") && !saved.contains("pfifo limit 5\n"), "{saved}");
    assert!(saved.contains("dev port-b root handle 8001: tbf"), "{saved}");
    assert!(sent() > before, "the counters of the qdisc that did not change began anew");
    let reasons = dropped(&show(&bed));
    assert!(reasons.as_object().unwrap().keys().all(|reason| reason == "limit"), "{reasons}");

    // Errors change nothing, and each is reported with its line.
    let before = shown(&bed);
    std::fs::write(
        policy.path(),
        "qdisc add dev port-b root pfifo limit 3\nqdisc add dev eth9 root pfifo\n\nqdisc brew\n",
    )
    .unwrap();
    signal(&instance, "HUP");
    let logged = wait_for_event(&bed, "2 mistakes");
    assert!(logged.contains("reload.tc:2: ") && logged.contains("eth9"), "{logged}");
    assert!(logged.contains("reload.tc:4: ") && logged.contains("brew"), "{logged}");
    assert_eq!(shown(&bed), before);
    std::fs::remove_file(policy.path()).unwrap();
    signal(&instance, "HUP");
    wait_for_event(&bed, "cannot read the policy file");
    assert_eq!(shown(&bed), before);

    // Commands that are valid in a file but impossible on these ports.
    std::fs::write(
        policy.path(),
        "qdisc add dev port-b root handle 1: mq\nqdisc add dev port-b parent 1:9 pfifo\n",
    )
    .unwrap();
    signal(&instance, "HUP");
    wait_for_event(&bed, "reload.tc:2: ");
    assert_eq!(shown(&bed), before);
    let log = instance.log();
    assert!(log.contains("nothing changed"), "{log}");
}

#[test]
fn without_a_file_a_reload_says_that_there_is_none() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let mut instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root pfifo limit 9").unwrap();
    signal(&instance, "HUP");
    wait_for_event(&bed, "--batch FILE");
    assert!(shown(&bed).contains("limit 9"));
    assert!(instance.is_running());
}

#[test]
fn a_saved_policy_is_in_force_again_after_loading() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    for words in [
        "qdisc add dev port-b root handle 1: tbf rate 30mbit burst 99999 latency 20ms coordination equal",
        "qdisc add dev port-b parent 1:1 fq maxrate 3mbit horizon 1.5s",
        "qdisc add dev port-a root handle 7: mq",
        "qdisc add dev port-a parent 7:1 cake bandwidth 7654321bit nat ack-filter docsis rtt 33ms",
        "qdisc add dev port-a parent 7:2 flowbundler maxrate 1mbit hosts",
    ] {
        assert!(tc(&bed, words).status.success(), "{words}");
    }
    let saved = shown(&bed);
    assert_eq!(saved.lines().count(), 5, "{saved}");
    let only = tc(&bed, "save dev port-b");
    assert_eq!(String::from_utf8_lossy(&only.stdout).lines().count(), 2);
    instance.stop().unwrap();
    let policy = Scratch::new("saved.tc", &saved);
    let _again = run(&bed, &["-b", policy.path()]);
    assert_eq!(shown(&bed), saved);
}

#[test]
fn live_edits_that_are_kept_survive_a_kill() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let state = Scratch::new("kept.tc", "");
    std::fs::remove_file(state.path()).unwrap();
    let policy = Scratch::new("begin.tc", SHAPED);
    let start = || run(&bed, &["-b", policy.path(), "--state", state.path()]);
    let instance = start();
    assert!(shown(&bed).contains("rate 30000000bit"));
    assert!(
        tc(&bed, "qdisc change dev port-b root tbf rate 5mbit burst 50k latency 9ms")
            .status
            .success()
    );
    assert!(!tc(&bed, "qdisc change dev port-b root tbf rate x").status.success());
    let edited = shown(&bed);
    instance.kill().unwrap();

    let instance = start();
    assert_eq!(shown(&bed), edited, "the live edit is gone");
    let log = instance.log();
    assert!(log.contains("kept.tc") && log.contains("SIGHUP reads"), "{log}");
    // The file wins when it is read again, and is kept from then on.
    signal(&instance, "HUP");
    wait_for_event(&bed, "reloaded");
    assert!(shown(&bed).contains("rate 30000000bit"));
    assert!(std::fs::read_to_string(state.path()).unwrap().ends_with(&shown(&bed)));
    instance.stop().unwrap();
}

#[test]
fn a_kept_policy_that_cannot_be_used_is_refused_with_the_remedy() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let before = crate::setup::links(&bed);
    let state = Scratch::new("broken.tc", "qdisc add dev port-b root pfifo\nqdisc add dev por");
    let refused = narrows(&bed, &[&PORTS[..], &["--state", state.path()]].concat());
    assert_refused(&refused, 1, &["broken.tc:2", "state file", "remove it"]);
    let refused = narrows(&bed, &[&PORTS[..], &["--state", "/proc/nowhere/state"]].concat());
    assert_refused(&refused, 1, &["/proc/nowhere/state"]);
    assert_eq!(crate::setup::links(&bed), before);

    // A folder that refuses files for a while costs no edit. Root cannot write there either,
    // because it has dropped that privilege.
    let folder = PathBuf::from(format!("{}.d", state.path()));
    std::fs::create_dir(&folder).unwrap();
    let writable = |mode| std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode));
    let file = folder.join("state").display().to_string();
    let _instance = run(&bed, &["--state", &file]);
    writable(0o500).unwrap();
    let output = tc(&bed, "qdisc add dev port-b root pfifo limit 9");
    assert!(output.status.success());
    assert!(crate::setup::complaint(&output).contains("not kept"), "{output:?}");
    writable(0o700).unwrap();
    sleep(Duration::from_millis(1500));
    let kept = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(kept.contains("pfifo limit 9"), "{kept}");
}
