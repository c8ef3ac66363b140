//! The API to write: `narrows serve --write-tokens`, beside a running instance.

use crate::setup::{NARROWS, Scratch, complaint, narrows, run, turn_to_count, wait_for};
use narrows_testbed::Testbed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// `narrows serve` in the namespace of the shaper; stopped when dropped.
struct Serve<'a> {
    bed: &'a Testbed,
    process: Child,
}

impl Drop for Serve<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl<'a> Serve<'a> {
    /// One with the directory `store` and the file of `tokens`, when it answers.
    #[track_caller]
    fn start(bed: &'a Testbed, store: &str, tokens: &str) -> Self {
        let mut command = bed.shaper().command(NARROWS);
        command.args(["serve", "--directory", store, "--write-tokens", tokens]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let serve = Self { bed, process };
        wait_for(bed, "the server", |_| serve.ask("GET", "directory", "", &Value::Null).is_some());
        serve
    }

    /// Ends it as a service manager does, and expects that it ends well.
    #[track_caller]
    fn end(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        assert!(self.process.wait().unwrap().success());
    }

    /// Status and body of the answer; none if nobody answers.
    fn ask(&self, method: &str, path: &str, token: &str, body: &Value) -> Option<(u64, Value)> {
        // A separate program, because a socket belongs to the namespace in which it is created.
        let script = "import http.client, json, sys\n\
             method, path, token, body = sys.argv[1:]\n\
             server = http.client.HTTPConnection('127.0.0.1', 9466, timeout=60)\n\
             headers = {'Content-Type': 'application/json'}\n\
             if token: headers['Authorization'] = 'Bearer ' + token\n\
             server.request(method, '/api/v1/' + path, None if method == 'GET' else body, headers)\n\
             answer = server.getresponse()\n\
             print(json.dumps([answer.status, json.loads(answer.read())]))";
        let mut python = self.bed.shaper().command("python3");
        let output = python.args(["-c", script, method, path, token, &body.to_string()]).output();
        let answer: Value = serde_json::from_slice(&output.unwrap().stdout).ok()?;
        Some((answer[0].as_u64()?, answer[1].clone()))
    }

    #[track_caller]
    fn write(&self, method: &str, path: &str, body: &Value) -> (u64, Value) {
        self.ask(method, path, TOKEN, body).unwrap()
    }
}

fn subscriber(number: u32, mbit: u64) -> Value {
    json!({
        "name": format!("Name {number}"),
        "plan": {"ceiling": [mbit * 1_000_000, mbit * 1_000_000]},
        "addresses": [format!("10.0.0.{number}")]
    })
}

fn running(bed: &Testbed) -> String {
    String::from_utf8(narrows(bed, &["tc", "save"]).stdout).unwrap()
}

#[test]
fn what_the_api_writes_runs_and_what_the_instance_refuses_is_not_kept() {
    let Some(_turn) = turn_to_count() else { return };
    if !Path::new(NARROWS).with_file_name("narrows-sync").exists() {
        eprintln!("SKIPPED: narrows-sync is not there: make programs");
        return;
    }
    let bed = Testbed::up(2).unwrap();
    let scratch = Scratch::new("directory-api", &format!("write {TOKEN}\n"));
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o600)).unwrap();
    let folder = format!("{}.d", scratch.path());
    fs::create_dir_all(&folder).unwrap();
    let store = format!("{folder}/store");
    let instance = run(&bed, &[]);
    let ports = ["--ports", "port-a,port-b", "--uplink", "50mbit"];
    let policy = format!("{folder}/policy");
    let has_policy = |words: &str| fs::read_to_string(&policy).is_ok_and(|it| it.contains(words));
    let stores = ["sync", "apply", "--store", &store, "--policy", &policy];
    let output = narrows(&bed, &[&stores, &ports[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));

    let serve = Serve::start(&bed, &store, scratch.path());
    let (status, said) = serve.ask("PUT", "subscribers/7", "", &subscriber(7, 5)).unwrap();
    assert_eq!(status, 401, "{said}");
    for number in [6, 7] {
        let path = format!("subscribers/{number}");
        let (status, said) = serve.write("PUT", &path, &subscriber(number, 5));
        assert_eq!(status, 201, "{said}");
    }
    let before = running(&bed);
    assert!(before.contains("10.0.0.7"), "{before}");

    // A changed plan touches the class of this subscriber, at both ports.
    let (status, said) = serve.write("PUT", "subscribers/7", &subscriber(7, 6));
    assert_eq!((status, said["summary"].as_str()), (200, Some("1 subscriber changed")), "{said}");
    let after = running(&bed);
    let changed: Vec<&str> = after.lines().filter(|line| !before.contains(line)).collect();
    assert_eq!(changed.len(), 2, "{changed:?}");
    assert!(changed.iter().all(|line| line.contains("ceil 6000000bit")), "{changed:?}");

    // A class of the operator's below that of a subscriber: it cannot be deleted.
    let class = changed[0].split("classid ").nth(1).unwrap().split(' ').next().unwrap();
    let own = format!("class add dev port-b parent {class} classid 1:99 htb rate 1mbit");
    instance.tc(&own).unwrap();
    let before = running(&bed);
    let (status, said) = serve.write("DELETE", "subscribers/7", &Value::Null);
    assert_eq!(status, 502, "{said}");
    assert!(said["error"].as_str().unwrap().contains("the directory is as it was"), "{said}");
    assert_eq!(running(&bed), before);
    let (status, kept) = serve.ask("GET", "subscribers/7", "", &Value::Null).unwrap();
    assert_eq!((status, &kept["plan"]["ceiling"][0]), (200, &json!(6_000_000)));

    instance.tc("class del dev port-b classid 1:99").unwrap();
    let (status, said) = serve.write("DELETE", "subscribers/7", &Value::Null);
    assert_eq!(status, 200, "{said}");
    assert!(!running(&bed).contains("10.0.0.7"));
    assert!(running(&bed).contains("10.0.0.6"));

    // The file for the next start follows, and one that was not written follows the next server.
    wait_for(&bed, "the file", |_| has_policy("10.0.0.6") && !has_policy("10.0.0.7"));
    // One that is ended writes first what it has promised.
    let (status, said) = serve.write("PUT", "subscribers/9", &subscriber(9, 5));
    assert_eq!(status, 201, "{said}");
    serve.end();
    assert!(has_policy("10.0.0.9"));
    fs::remove_file(&policy).unwrap();
    let serve = Serve::start(&bed, &store, scratch.path());
    wait_for(&bed, "the file", |_| has_policy("10.0.0.6"));
    // Where no instance runs, it is all that a write does, and there with the answer.
    drop(instance);
    let (status, said) = serve.write("PUT", "subscribers/8", &subscriber(8, 5));
    assert_eq!(status, 201, "{said}");
    assert!(has_policy("10.0.0.8"));
    let _ = fs::remove_dir_all(folder);
}
