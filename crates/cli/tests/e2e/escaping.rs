//! What comes from outside steers no terminal, forges no line, and runs nothing when a printed
//! command is pasted.

use crate::setup::{NARROWS, complaint, narrows, run, tc, turn_to_count};
use narrows_control::Answer;
use narrows_testbed::Testbed;
use narrows_testbed::narrows::Instance;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Steers a terminal, and begins a line of its own.
const HOSTILE: &str = "x\x1b]0;owned\x07\u{9b}2J\u{202e}\r\nevent: forged";

/// Asserts that `output` shows nothing that a terminal obeys.
#[track_caller]
fn assert_harmless(output: &Output, what: &str) {
    for bytes in [&output.stdout, &output.stderr] {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let is_wrong = |it: char| narrows_escape::is_hidden(it) && !matches!(it, '\n' | '\t');
        assert!(!text.contains(is_wrong), "{what}: {text:?}");
    }
}

/// A snapshot with `HOSTILE` wherever a text may stand.
fn snapshot() -> Value {
    let queue = json!({"tx_packets": 1, "tx_bytes": 60, "backlog_packets": 0, "drops": 1,
        "drops_by_reason": {HOSTILE: 1}});
    let port = |name: &str| {
        json!({"name": format!("{name}{HOSTILE}"), "xdp": HOSTILE, "copy": HOSTILE, "qdisc": HOSTILE,
            "queues": 1, "per_queue": [queue], "total": queue, "to_self": 0, "unserved": 0,
            "qdiscs": [{"kind": HOSTILE, "handle": "1:", "root": true}],
            "classes": [{"class": "htb", "handle": "1:1", "root": true}]})
    };
    json!({"state": HOSTILE, "waiting_for": HOSTILE, "uptime_s": 1.0, "fail": HOSTILE,
        "warnings": [HOSTILE], "ports": [port("a"), port("b")], "workers": [{}],
        "events": [HOSTILE, "honest"]})
}

/// An instance that answers every request with hostile texts. Its socket is removed when dropped.
struct Imposter(PathBuf);

impl Imposter {
    fn start(bed: &Testbed, refuses: bool) -> Self {
        use std::os::unix::fs::DirBuilderExt;
        let inode = bed.shaper().run("stat", &["-L", "-c", "%i", "/proc/self/ns/net"]).unwrap();
        let folder = Path::new("/run/narrows").join(format!("net-{}", inode.trim()));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
        let path = folder.join("a,b.sock");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut line = String::new();
                let _ = BufReader::new(&stream).read_line(&mut line);
                let answer = serde_json::to_string(&Self::answer(line.trim(), refuses)).unwrap();
                let _ = writeln!(stream, "{answer}");
            }
        });
        Self(path)
    }

    fn answer(request: &str, refuses: bool) -> Answer {
        match request {
            "\"ports\"" => Answer::Ports(["a", "b"].map(|it| format!("{it}{HOSTILE}")).into()),
            _ if refuses => Answer::Refused(HOSTILE.into()),
            "\"show\"" | "\"show_with_trees\"" => {
                Answer::Show(serde_json::from_value(snapshot()).unwrap())
            }
            _ if request.contains("let_go") => Answer::LetGo,
            _ if request.contains("\"-j\"") => {
                let stdout = serde_json::to_string(&[HOSTILE]).unwrap();
                Answer::Tc { stdout, stderr: HOSTILE.into(), code: 1 }
            }
            _ if request.contains("tc") || request.contains("set") => {
                Answer::Tc { stdout: HOSTILE.into(), stderr: HOSTILE.into(), code: 1 }
            }
            _ => Answer::Refused(HOSTILE.into()),
        }
    }
}

impl Drop for Imposter {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn the_answers_of_a_hostile_control_socket_are_escaped() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    for refuses in [false, true] {
        let _imposter = Imposter::start(&bed, refuses);
        for words in [
            "show",
            "show --json",
            "show --json --trees",
            "top --once --interval 0.1",
            "tc qdisc show",
            "tc -j qdisc show",
            "tc class show dev a",
            "set list",
            "set add a 192.0.2.1",
            "upgrade",
            "upgrade --json",
            "reconfigure -- true",
            "doctor port-a port-b",
        ] {
            let output = narrows(&bed, &words.split(' ').collect::<Vec<_>>());
            assert_harmless(&output, words);
            if words.contains("json") && output.status.success() {
                serde_json::from_slice::<Value>(&output.stdout).unwrap();
            }
            if words == "show" && !refuses {
                let text = String::from_utf8(output.stdout).unwrap();
                assert!(text.contains("\nevent: honest\n"), "{text}");
                assert!(!text.contains("\nevent: forged"), "{text}");
            }
        }
    }
}

#[test]
fn names_of_interfaces_are_quoted_in_commands_and_escaped_in_views_and_logs() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let (port, peer) = (";reboot;", "p\x1b[1m$(id)");
    let ip = |words: &[&str]| bed.shaper().run("ip", words).unwrap();
    ip(&["link", "add", port, "type", "veth", "peer", "name", peer]);
    let output = narrows(&bed, &["doctor", port, peer]);
    assert_harmless(&output, "doctor");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("-> ip link set dev ';reboot;' up\n"), "{text}");
    let output = narrows(&bed, &["doctor", port, peer, "--json"]);
    assert_harmless(&output, "doctor --json");
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(findings.iter().any(|it| it["subject"] == peer), "{findings:#?}");
    let ports = format!("{port},{peer}");
    let output = narrows(&bed, &["run", "--ports", &ports]);
    assert!(!output.status.success());
    assert_harmless(&output, "run");
    let words = ["--ports", &ports, "--down", "9mbit", "--up", "9mbit", "--link", "raw"];
    let output = narrows(&bed, &[&["setup", "--dry-run"], &words[..]].concat());
    assert_harmless(&output, "setup");
}

#[test]
fn comments_and_words_of_commands_are_escaped_and_saved_as_they_are() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance: Instance = run(&bed, &[]);
    let comment = "a\x1b[31m\u{202e}b";
    let set = |words: &[&str]| narrows(&bed, &[&["set"], words].concat());
    assert!(set(&["create", "a", "hash:net", "comment"]).status.success());
    let added = set(&["add", "a", "192.0.2.0/24", "comment", comment]);
    assert!(added.status.success(), "{}", complaint(&added));
    let listed = set(&["list", "a"]);
    assert_harmless(&listed, "set list");
    assert!(String::from_utf8(listed.stdout).unwrap().contains("a\\x1b[31m\\u{202e}b"));
    let saved = String::from_utf8(set(&["save", "a"]).stdout).unwrap();
    assert!(saved.contains(comment), "what is read back is as it was: {saved:?}");
    for words in [
        &["add", "a", "\x1b[1m"][..],
        &["create", "\x1b[1m", "hash:net"],
        &["\x1b[1m"],
        &["flush", "\x1b[1m"],
        &["swap", "$(id)", "\x1b"],
    ] {
        let output = set(words);
        assert!(!output.status.success());
        assert_harmless(&output, &words.join(" "));
    }
    for words in ["qdisc add dev \x1b[1m root pfifo", "\x1b[1m", "qdisc add dev port-a root \x1b"] {
        let output = tc(&bed, words);
        assert!(!output.status.success());
        assert_harmless(&output, words);
    }
    instance.stop().unwrap();
}

#[test]
fn files_and_arguments_are_escaped_in_complaints() {
    let folder = std::env::temp_dir().join(format!("nrw-escaping-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("hostile");
    let text = "config queue 'a'\n option interface '\x1b[1m'\n option qdisc '\u{9b}x'\n\x1b[2J\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    for words in [
        vec!["tc", "--policy", file, "qdisc", "show"],
        vec!["tc", "--policy", file, "-batch", file],
        vec!["import", "sqm", file, "--ports", "a,b"],
        vec!["import", "tc", file, "--dev", "\x1b[1m"],
        vec!["import", "libreqos", "\x1b[1m", "--ports", "a,b"],
        vec!["run", "--ports", "\x1b[1m,b", "--batch", file],
        vec!["sim", "\x1b[1m"],
        vec!["show", "\x1b[1m"],
        vec!["top", "--once", "\x1b[1m"],
        vec!["tc", "qdisc", "show", "dev", "\x1b[1m"],
        vec!["\x1b[1m"],
        vec!["run", "--\x1b[1m"],
        vec!["doctor", "\x1b[1m", "\u{202e}"],
    ] {
        let output = std::process::Command::new(NARROWS).args(&words).output().unwrap();
        assert_harmless(&output, &format!("{words:?}"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
