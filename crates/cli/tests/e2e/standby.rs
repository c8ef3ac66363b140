//! The standby bridge works when it is needed, after any change to it.

use crate::setup::{assert_refused, flood, ip, links, narrows, run, show, turn_to_count, wait_for};
use narrows_testbed::bed::SERVER;
use narrows_testbed::counters::Counters;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;

fn says(show: &Value, words: &str) -> bool {
    let events = show["events"].as_array().unwrap();
    events.iter().any(|event| event.as_str().unwrap().contains(words))
}

/// Whether frames arrive at the server.
fn flows(bed: &Testbed) -> bool {
    let mut server = Counters::of(bed.server(), SERVER).unwrap();
    let before = server.read().unwrap().rx_packets;
    sleep(Duration::from_millis(300));
    server.read().unwrap().rx_packets > before
}

/// The name of the standby bridge.
fn bridge(bed: &Testbed) -> String {
    let show = show(bed);
    let fail = show["fail"].as_str().unwrap().to_owned();
    let name = fail.strip_prefix("open (bridge ").and_then(|rest| rest.strip_suffix(')'));
    name.unwrap_or_else(|| panic!("{fail}")).to_owned()
}

#[test]
fn a_bridge_that_is_taken_away_is_back_before_the_process_dies() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let name = {
        let _instance = run(&bed, &[]);
        bridge(&bed)
    };
    let set = |words: &str| ip(bed.shaper(), words);
    let ways: [(&str, String); 5] = [
        ("is gone", format!("link del {name}")),
        ("is no longer a port of", "link set dev port-a nomaster".into()),
        ("is down", format!("link set dev {name} down")),
        ("other than a wire", format!("link set dev {name} type bridge stp_state 1")),
        ("other than a wire", format!("link set dev {name} type bridge mcast_snooping 1")),
    ];
    let ports: Vec<u16> = (0..32).map(frames::port).collect();
    for (words, way) in ways {
        let instance = run(&bed, &[]);
        let load = flood(&bed, &ports, 500, 4e6);
        let joined = |show: &Value| {
            let events = show["events"].as_array().unwrap();
            events.iter().filter(|event| event.as_str().unwrap().starts_with("joined")).count()
        };
        let before = joined(&show(&bed));
        set(&way);
        let now = wait_for(&bed, "mended", |show| says(show, "repaired"));
        assert!(says(&now, words), "{way}: {now:#}");
        assert_eq!(now["fail"], format!("open (bridge {name})"), "{way}");
        // Narrows' own forwarding is not affected.
        assert_eq!((joined(&now), &now["state"]), (before, &Value::from("running")), "{way}");
        instance.kill().unwrap();
        sleep(Duration::from_millis(200));
        assert!(flows(&bed), "{way}: nothing is forwarded after the end");
        load.stop().unwrap();
    }
}

#[test]
fn a_bridge_that_cannot_be_had_back_is_said_and_tried_again() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let _instance = run(&bed, &[]);
    let name = bridge(&bed);
    ip(bed.shaper(), "link add name br9 type bridge");
    ip(bed.shaper(), "link set dev port-a master br9");
    let now = wait_for(&bed, "said", |show| show["fail"].as_str().unwrap().contains("NOT NOW"));
    assert!(now["fail"].as_str().unwrap().contains("port-a is a port of br9"), "{now:#}");
    assert_eq!(now["state"], "running");
    ip(bed.shaper(), "link set dev port-a nomaster");
    wait_for(&bed, "mended", |show| show["fail"] == format!("open (bridge {name})"));
}

#[test]
fn a_master_that_would_forward_in_spite_of_fail_closed_is_said() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let _instance = run(&bed, &["--fail-closed"]);
    ip(bed.shaper(), "link add name br9 type bridge");
    ip(bed.shaper(), "link set dev port-a master br9");
    wait_for(&bed, "said", |show| show["fail"].as_str().unwrap().contains("port of br9"));
    ip(bed.shaper(), "link set dev port-a nomaster");
    wait_for(&bed, "well again", |show| show["fail"] == "closed");
}

#[test]
fn a_foreign_bridge_that_is_no_wire_is_refused_also_later() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let set = |words: &str| ip(bed.shaper(), words);
    set("link add name br9 type bridge stp_state 1");
    set("link set dev br9 up");
    set("link set dev port-a master br9");
    set("link set dev port-b master br9");
    let before = links(&bed);
    let start = || narrows(&bed, &["run", "--ports", "port-a,port-b"]);
    assert_refused(&start(), 1, &["br9", "spanning tree", "type bridge stp_state 0"]);
    set("link set dev br9 type bridge stp_state 0");
    set("link add name third type veth peer name fourth");
    set("link set dev third master br9");
    assert_refused(&start(), 1, &["br9", "third", "ip link set dev third nomaster"]);
    set("link del third");
    assert_eq!(links(&bed), before, "a refusal changed something");

    let _instance = run(&bed, &[]);
    assert_eq!(show(&bed)["fail"], "open (bridge br9)");
    set("link set dev br9 type bridge stp_state 1");
    let now = wait_for(&bed, "let go", |show| show["state"] == "waiting");
    assert!(now["waiting_for"].as_str().unwrap().contains("spanning tree"), "{now:#}");
    let port = ip(bed.shaper(), "-d link show dev port-a");
    assert!(!port.contains("xdp"), "{port}");
    set("link set dev br9 type bridge stp_state 0");
    wait_for(&bed, "joined again", |show| show["state"] == "running");
}
