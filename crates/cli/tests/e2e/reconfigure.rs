//! `narrows reconfigure` returns the queues to the driver for the duration of a command.

use crate::setup::{NARROWS, assert_refused, complaint, devices, flood, narrows, run, show};
use crate::setup::{turn_to_count, wait_for};
use narrows_testbed::bed::SERVER;
use narrows_testbed::counters::Counters;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

const POLICY: &str = "qdisc add dev port-b root handle 1: tbf rate 30mbit burst 100k latency 20ms";

fn sent(show: &Value) -> u64 {
    show["ports"][1]["total"]["tx_packets"].as_u64().unwrap()
}

#[test]
fn queues_and_mtu_change_under_traffic_and_the_limit_is_back_afterwards() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    for (namespace, device) in [0, 1, 2, 3].map(|place| devices(&bed)[place]) {
        namespace.run("ethtool", &["-L", device, "rx", "2", "tx", "2"]).unwrap();
    }
    let instance = run(&bed, &[]);
    instance.tc(POLICY).unwrap();
    let ports: Vec<u16> = (0..32).map(frames::port).collect();
    let load = flood(&bed, &ports, 500, 10e6);
    wait_for(&bed, "forwarding", |show| sent(show) > 500);
    let change = "ethtool -L port-a rx 4 tx 4 && ethtool -L port-b rx 4 tx 4 && \
                  ip link set dev port-a mtu 1400 && ip link set dev port-b mtu 1400 && \
                  ip link show dev port-a";
    let output = narrows(&bed, &["reconfigure", "--", "sh", "-c", change]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}{}", complaint(&output));
    assert!(said.contains("the limit was off for "), "{said}");
    assert!(said.contains("joined port-a (mtu 1400"), "{said}");
    // No program was on the port while the command ran.
    assert!(!said.lines().any(|line| line.contains("prog/xdp")), "{said}");
    let before = show(&bed);
    assert_eq!((&before["state"], &before["ports"][0]["queues"]), (&"running".into(), &4.into()));
    let now = wait_for(&bed, "forwarding again", |now| sent(now) > sent(&before) + 500);
    assert_eq!(now["conservation"]["unaccounted"], 0, "{now:#}");
    assert_eq!(now["ports"][1]["qdisc"], "tbf", "{now:#}");
    load.stop().unwrap();
}

#[test]
fn the_command_s_end_is_the_end_and_a_second_one_has_to_wait() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let _instance = run(&bed, &[]);
    let output = narrows(&bed, &["reconfigure", "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", complaint(&output));
    let output = narrows(&bed, &["reconfigure", "--", "no-such-command"]);
    assert_refused(&output, 1, &["cannot run no-such-command"]);
    assert_eq!(show(&bed)["state"], "running");
    let output = narrows(&bed, &["reconfigure", "--ports", "port-a,eth9", "--", "true"]);
    assert_refused(&output, 1, &["no narrows joins these ports"]);

    let mut first = bed.shaper().command(NARROWS);
    let mut first = first.args(["reconfigure", "--", "sleep", "20"]).spawn().unwrap();
    wait_for(&bed, "let go", |show| show["state"] == "waiting");
    let second = narrows(&bed, &["reconfigure", "--", "true"]);
    assert_refused(&second, 1, &["ports released: `sleep 20`"]);
    // When it is killed, its connection closes, and that is enough.
    first.kill().unwrap();
    first.wait().unwrap();
    let killed = Instant::now();
    wait_for(&bed, "joined again", |show| show["state"] == "running");
    assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
}

#[test]
fn the_ports_are_joined_again_when_the_time_is_up() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let _instance = run(&bed, &["--fail-closed"]);
    let _load = flood(&bed, &[frames::port(0)], 500, 4e6);
    let mut server = Counters::of(bed.server(), SERVER).unwrap();
    let mut late = bed.shaper().command(NARROWS);
    let late = late
        .args(["reconfigure", "--limit", "1", "--", "sleep", "3"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&bed, "let go", |show| show["state"] == "waiting");
    sleep(Duration::from_millis(100));
    let before = server.read().unwrap().rx_packets;
    sleep(Duration::from_millis(200));
    assert_eq!(server.read().unwrap().rx_packets, before, "traffic stops with --fail-closed");
    wait_for(&bed, "joined again", |show| show["state"] == "running");
    let output = late.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("traffic stopped for 1"), "{said}");
    assert!(complaint(&output).contains("--limit"), "{}", complaint(&output));
}
