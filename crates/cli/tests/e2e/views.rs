//! Views of a running instance agree with `narrows show`.

use crate::balance::{Farm, PORT, VIP, server_ip};
use crate::fleet_boxes::{self, Boxes};
use crate::setup::{NARROWS, Scratch, flood, run, show, tc, turn_to_count, wait_for};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{CLIENT_IP, PORT_B};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The listening address in its namespace.
const ADDRESS: &str = "127.0.0.1:9466";

/// `narrows serve`; stopped when dropped.
struct Serve(Child);

impl Serve {
    fn start(bed: &Testbed, arguments: &[&str]) -> Self {
        let mut command: Command = bed.shaper().command(NARROWS);
        command.arg("serve").args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The status line and the body of the answer to a GET of `path`.
fn get(bed: &Testbed, path: &str) -> Option<(String, String)> {
    get_under("127.0.0.1", bed, path)
}

/// The status line and the body of the answer to a GET of `path` with `host` as the host name.
fn get_under(host: &str, bed: &Testbed, path: &str) -> Option<(String, String)> {
    // A separate program, because a socket belongs to the namespace in which it is created. With
    // HTTP/1.0 the body is not in chunks.
    let script = format!(
        "import socket\ns = socket.create_connection(('127.0.0.1', 9466), 5)\n\
         s.sendall(b'GET {path} HTTP/1.0\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n')\n\
         b = b''.join(iter(lambda: s.recv(65536), b''))\nprint(b.decode())"
    );
    let output = bed.shaper().command("python3").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_owned(), body.to_owned()))
}

/// The metrics, once they show that the instance answers and satisfy `wanted`.
fn metrics(bed: &Testbed, wanted: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = get(bed, "/metrics").map(|(_, body)| body).unwrap_or_default();
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within 20 s:\n{answer}");
        sleep(Duration::from_millis(200));
    }
}

/// The value of the sample with this name and these labels.
#[track_caller]
fn value(metrics: &str, sample: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{sample} is not in\n{metrics}")).parse().unwrap()
}

#[test]
fn metrics_agree_with_show() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let policy = "qdisc replace dev port-b root handle 1: htb default 10\n\
                  class add dev port-b parent 1: classid 1:1 htb rate 20mbit\n\
                  class add dev port-b parent 1:1 classid 1:10 htb rate 5mbit ceil 20mbit\n";
    let policy = Scratch::new("views.tc", policy);
    let instance = run(&bed, &["--batch", policy.path()]);
    let names = Scratch::new("tc_cls", "1:10 Ann\n");
    let serve = Serve::start(&bed, &["--listen", ADDRESS, "--names", names.path()]);
    let traffic = flood(&bed, &[1, 2, 3], 1000, 10e6);
    sleep(Duration::from_secs(2));
    traffic.stop().unwrap();
    let is_reported = |now: &Value| {
        let heaviest = &now["ports"][1]["heaviest"];
        heaviest["sources"][0]["name"] == CLIENT_IP.to_string()
            && heaviest["flows"][0]["bps"].as_u64() > Some(0)
    };
    wait_for(&bed, "the heaviest host told", is_reported);
    let resting = |now: &Value| {
        let total = &now["ports"][1]["total"];
        total["backlog_packets"] == 0 && total["tx_packets"].as_u64() > Some(0)
    };
    let now = wait_for(&bed, "at rest", resting);
    let total = &now["ports"][1]["total"];
    let sent = total["tx_packets"].as_f64().unwrap();
    let page = metrics(&bed, |page| {
        page.lines().any(|line| line == format!("narrows_sent_packets_total {sent}"))
    });
    assert_eq!(value(&page, "narrows_up"), 1.0);
    let books = &now["conservation"];
    assert_eq!(value(&page, "narrows_received_packets_total"), books["received"].as_f64().unwrap());
    assert_eq!(value(&page, "narrows_unaccounted_packets"), 0.0);
    for (metric, key) in [("packets", "tx_packets"), ("bytes", "tx_bytes")] {
        let queues = (0..2).map(|queue| {
            let labels = format!("{{device=\"{PORT_B}\",queue=\"{queue}\"}}");
            value(&page, &format!("narrows_queue_transmit_{metric}_total{labels}"))
        });
        assert_eq!(queues.sum::<f64>(), total[key].as_f64().unwrap(), "{metric}");
    }
    let root = format!("node_qdisc_packets_total{{device=\"{PORT_B}\",kind=\"htb\"}}");
    assert_eq!(value(&page, &root), sent);
    let class = format!("{{device=\"{PORT_B}\",classid=\"1:10\",name=\"Ann\",parent=\"1:1\"}}");
    assert_eq!(value(&page, &format!("narrows_class_transmit_packets_total{class}")), sent);
    assert_eq!(value(&page, &format!("narrows_class_delay_seconds_count{class}")), sent);
    let limit = format!("narrows_port_limit_bytes_per_second{{device=\"{PORT_B}\"}}");
    assert_eq!(value(&page, &limit), 2_500_000.0);

    let (status, _) = get_under("a.page.elsewhere", &bed, "/metrics").unwrap();
    assert!(status.contains("421"), "{status}");
    let (status, body) = get(&bed, "/api/snapshot").unwrap();
    assert!(status.contains("200"), "{status}");
    let latest: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(latest["snapshot"]["ports"][1]["total"], *total);
    let findings = latest["snapshot"]["findings"].as_array().unwrap();
    assert!(findings.iter().any(|it| it["subject"] == "kernel" && it["severity"] == "ok"));
    assert!(findings.iter().all(|it| it["severity"] != "blocker"), "{findings:#?}");
    let (_, body) = get(&bed, "/api/history").unwrap();
    let history: Value = serde_json::from_str(&body).unwrap();
    let series = history["series"].as_array().unwrap();
    let limits = series.iter().find(|one| one["what"] == "limit").unwrap();
    assert_eq!(limits["values"].as_array().unwrap().last().unwrap().as_f64(), Some(20e6));

    drop(instance);
    let page = metrics(&bed, |page| page.lines().any(|line| line == "narrows_up 0"));
    assert!(!page.contains("narrows_sent_packets_total"), "figures of an instance that is gone");
    drop(serve);
}

#[test]
fn one_frame_of_top_shows_every_port_queue_and_class() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let _instance = run(&bed, &[]);
    for words in [
        "qdisc replace dev port-b root handle 1: htb default 10",
        "class add dev port-b parent 1: classid 1:10 htb rate 20mbit",
    ] {
        assert!(tc(&bed, words).status.success());
    }
    let output = bed.shaper().command(NARROWS).args(["top", "--once"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let now = show(&bed);
    assert!(text.starts_with("narrows running"), "{text}");
    for port in now["ports"].as_array().unwrap() {
        assert!(text.contains(port["name"].as_str().unwrap()), "{text}");
    }
    let names = Scratch::new("tc_cls", "1:10 Ann\n");
    let named = |words: &[&str]| bed.shaper().run(NARROWS, words).unwrap();
    let text_of = ["top", "--once", "--view", "classes", "--names", names.path()];
    assert!(named(&text_of).contains(" Ann#1:10 "));
    let words = ["tc", "-nm", "-cf", names.path(), "class", "show", "dev", "port-b"];
    assert!(named(&words).starts_with("class htb Ann#1:10 root "), "{}", named(&words));
    for part in ["of 20.0Mbit/s", " queue 1", " 1:10", "received 0 = sent 0"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn services_and_servers_are_in_all_views() {
    let Some(_turn) = turn_to_count() else { return };
    let farm = Farm::up();
    let _instance = farm.start(&[]);
    farm.serve_all("-s mh -b mh-port");
    farm.connect_many(20);
    farm.balance(&format!("edit -t {VIP}:{PORT} -r {} --down", server_ip(2)));
    let listed: Value = serde_json::from_str(&farm.balance("list -j")).unwrap();
    let of_server = |number: usize| listed[0]["servers"][number]["stats"]["connections"].clone();

    let output =
        farm.bed.shaper().command(NARROWS).args(["top", "--once", "--view", "services"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let row = |name: &str| -> Vec<String> {
        let line =
            text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    let service = row(&format!("TCP {VIP}:{PORT}"));
    assert_eq!(service.last(), Some(&"20".to_owned()), "{text}");
    let down = row(&format!("{}:{PORT}", server_ip(2)));
    assert_eq!(down.last(), Some(&"DOWN".to_owned()), "{text}");
    let up = row(&format!("{}:{PORT}", server_ip(1)));
    assert_eq!(up[up.len() - 2..], [of_server(0).to_string(), "up".to_owned()], "{text}");

    let _serve = Serve::start(&farm.bed, &["--listen", ADDRESS]);
    let page = metrics(&farm.bed, |page| page.contains("narrows_server_up"));
    let labels = format!("protocol=\"tcp\",service=\"{VIP}:{PORT}\"");
    assert_eq!(value(&page, &format!("narrows_service_connections_total{{{labels}}}")), 20.0);
    for (number, is_up) in [(1, 1.0), (2, 0.0)] {
        let labels = format!("{labels},server=\"{}\"", server_ip(number));
        assert_eq!(value(&page, &format!("narrows_server_up{{{labels}}}")), is_up);
        let connections = value(&page, &format!("narrows_server_connections_total{{{labels}}}"));
        assert_eq!(Some(connections), of_server(usize::from(number) - 1).as_f64());
    }
    let (_, snapshot) = get(&farm.bed, "/api/snapshot").unwrap();
    let snapshot: Value = serde_json::from_str(&snapshot).unwrap();
    assert_eq!(snapshot["snapshot"]["services"][0]["servers"][1]["health"], "down");
    let (_, script) = get(&farm.bed, "/page.js").unwrap();
    assert!(script.contains("Balanced services"));
}

#[test]
fn views_find_the_agent_of_a_fleet_where_they_are_told_to_look() {
    let Some(program) = fleet_boxes::agent() else { return };
    let Some(_turn) = turn_to_count() else { return };
    let mut boxes = Boxes::up(&program, 2, "boxes 2");
    for number in 0..2 {
        let config = boxes.fleet.config(number);
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(config, format!("view = \"../agent.sock\"\n{text}")).unwrap();
    }
    boxes.fleet.start_agents().unwrap();
    let bed = &boxes.beds[0];
    let socket = boxes.fleet.etc(0).join("agent.sock").to_str().unwrap().to_owned();
    assert!(Path::new(&socket).exists());
    let top = |more: &[&str], variable: &str| {
        let mut command: Command = bed.shaper().command(NARROWS);
        command.args(["top", "--once", "--view", "fleet", "--interval", "0.1"]).args(more);
        let output = command.env("NARROWS_FLEET_SOCKET", variable).output().unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), out + &err)
    };
    // At the usual place there is none, which is no error.
    let (is_well, said) = top(&[], "");
    assert!(is_well && said.contains("its agent does not answer"), "{said}");
    for (more, variable) in [(&["--fleet-socket", &socket][..], ""), (&[], &*socket)] {
        let (is_well, said) = top(more, variable);
        assert!(is_well && said.contains("fleet test") && said.contains("this box"), "{said}");
    }
    let (is_well, said) = top(&["--fleet-socket", "/nowhere/agent.sock"], &socket);
    let expected = "no agent of a fleet answers at /nowhere/agent.sock, which --fleet-socket names";
    assert!(!is_well && said.contains(expected), "{said}");

    let show = |socket: &str| {
        let mut command: Command = bed.shaper().command(&program);
        command.args(["show", "--fleet-socket", socket]).output().unwrap()
    };
    assert!(show(&socket).status.success());
    assert!(!show("/nowhere/agent.sock").status.success());

    let up = |page: &str, is_up: &str| {
        page.lines().any(|line| line == format!("narrows_fleet_agent_up {is_up}"))
    };
    let serve = Serve::start(bed, &["--fleet-socket", &socket]);
    metrics(bed, |page| up(page, "1"));
    drop(serve);
    let _serve = Serve::start(bed, &["--fleet-socket", "/nowhere/agent.sock"]);
    metrics(bed, |page| up(page, "0"));
    let (_, body) = get(bed, "/api/snapshot").unwrap();
    let latest: Value = serde_json::from_str(&body).unwrap();
    let findings = latest["snapshot"]["findings"].as_array().unwrap();
    let says = |it: &Value| it["what"].as_str().is_some_and(|what| what.contains(expected));
    assert!(findings.iter().any(says), "{findings:#?}");
}
