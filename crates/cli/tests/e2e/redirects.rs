//! Lines about an `ifb`, with real packets: what comes in at a port is shaped as it leaves at the
//! other.

use crate::setup::{assert_balanced, flood, hang_up, run, show, turn_to_count, wait_for};
use narrows_testbed::accounting::Books;
use narrows_testbed::window::{Delivered, Meter};
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;

/// The rate that arrives at the server of `bed`, in Mbit/s.
fn delivered(bed: &Testbed) -> f64 {
    let [_, server] = bed.ends();
    let mut meter = Meter::at(server).unwrap();
    let before = meter.read().unwrap();
    sleep(Duration::from_millis(1000));
    let after = meter.read().unwrap();
    Delivered::between(&before, &after).rate().bits_per_sec() as f64 / 1e6
}

#[test]
fn an_ifb_shapes_the_ingress_of_a_port_while_a_filter_redirects_to_it() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    let mut books = Books::open(&bed).unwrap();
    instance.tc("qdisc add dev ifb0 root handle 1: tbf rate 4mbit burst 20k latency 50ms").unwrap();
    let ports: Vec<u16> = (0..8).map(frames::port).collect();
    let load = flood(&bed, &ports, 1000, 16e6);
    sleep(Duration::from_millis(300));
    assert!(delivered(&bed) > 8.0, "nothing redirects yet");
    instance.tc("qdisc add dev port-a ingress").unwrap();
    let all = "filter add dev port-a parent ffff: protocol all u32 match u32 0 0";
    instance.tc(&format!("{all} action mirred egress redirect dev ifb0")).unwrap();
    sleep(Duration::from_millis(500));
    let rate = delivered(&bed);
    assert!((1.0..4.3).contains(&rate), "{rate} Mbit/s by a limit of 4");
    // Views show what is in force at the port.
    let now = show(&bed);
    let port = &now["ports"][1];
    assert_eq!((&port["name"], &port["qdisc"]), (&"port-b".into(), &"tbf".into()));
    let shown = instance.tc("-s -j qdisc show dev ifb0").unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown[0]["handle"], "1:");
    assert!(shown[0]["packets"].as_u64().unwrap() > 100, "{shown:#}");
    let refused = instance.tc("qdisc add dev port-b root pfifo").unwrap_err().to_string();
    assert!(refused.contains("only one of them can shape it"), "{refused}");
    instance.tc("qdisc del dev port-a ingress").unwrap();
    sleep(Duration::from_millis(500));
    assert!(delivered(&bed) > 8.0, "nothing redirects any more");
    load.stop().unwrap();
    assert_balanced(&mut books, &instance);
}

#[test]
fn an_ifb_in_a_policy_file_is_in_force_and_survives_a_reload() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let file = std::env::temp_dir().join(format!("nrw-ifb-{}.tc", std::process::id()));
    let write = |rate: &str| {
        let text = format!(
            "qdisc add dev ifb0 root handle 1: htb default 1\n\
             class add dev ifb0 parent 1: classid 1:1 htb rate {rate}\n\
             qdisc add dev port-a ingress\n\
             filter add dev port-a ingress matchall action mirred egress redirect dev ifb0\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    write("4mbit");
    let instance = run(&bed, &["-b", file.to_str().unwrap()]);
    let saved = instance.tc("save").unwrap();
    assert!(saved.contains("qdisc replace dev ifb0 root handle 1: htb"), "{saved}");
    let rate = || instance.tc("class show dev ifb0").unwrap();
    assert!(rate().contains("rate 4Mbit"), "{}", rate());
    assert_eq!(show(&bed)["ports"][1]["qdisc"], "htb");
    write("8mbit");
    hang_up(&instance);
    wait_for(&bed, "read", |now| now["events"].to_string().contains("reloaded"));
    assert!(rate().contains("rate 8Mbit"), "{}", rate());
    std::fs::remove_file(&file).unwrap();
}
