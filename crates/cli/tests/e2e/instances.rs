//! Two instances in one network namespace, addressed as if they were one.

use crate::setup::{Scratch, complaint, ip, narrows, run, tc, turn_to_count};
use narrows_testbed::Testbed;
use narrows_testbed::bed::{PORT_A, PORT_B};
use narrows_testbed::narrows::Instance;
use serde_json::Value;
use std::path::Path;

/// Starts a second instance between two more veths.
fn second(bed: &Testbed) -> Instance {
    for port in ["port-c", "port-d"] {
        let peer = port.replace("port", "peer");
        ip(bed.shaper(), &format!("link add name {port} type veth peer name {peer}"));
        for device in [port, &peer] {
            bed.shaper().run("ethtool", &["-K", device, "tx", "off", "txvlan", "off"]).unwrap();
            ip(bed.shaper(), &format!("link set dev {device} up"));
        }
    }
    let arguments = ["run", "--ports", "port-c,port-d"];
    Instance::start_command(bed, Path::new(crate::setup::NARROWS), &arguments).unwrap()
}

#[test]
fn one_batch_may_be_for_two_instances_and_one_list_shows_both() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let _first = run(&bed, &[]);
    let _second = second(&bed);
    let batch = Scratch::new(
        "two-instances",
        "# not for dev nobody\n\
         qdisc replace dev port-c \\\n root pfifo limit 3\n\
         qdisc replace 'dev' \"port-a\" root pfifo limit 1\n\
         qdisc replace dev port-b root pfifo limit 2\n\
         class show dev port-a\n\
         filter show dev port-c\n\
         qdisc replace dev port-d root pfifo limit 4\n",
    );
    let output = tc(&bed, &format!("-batch {}", batch.path()));
    assert!(output.status.success(), "{}", complaint(&output));

    let output = tc(&bed, "-j qdisc show");
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let limits: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|qdisc| (qdisc["dev"].as_str().unwrap(), qdisc["options"]["limit"].as_u64().unwrap()))
        .collect();
    assert_eq!(limits, [(PORT_A, 1), (PORT_B, 2), ("port-c", 3), ("port-d", 4)]);
}

#[test]
fn a_batch_stops_at_its_first_mistake_whichever_instance_it_is_for() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let _first = run(&bed, &[]);
    let _second = second(&bed);
    let batch = Scratch::new(
        "two-instances-mistake",
        "qdisc replace dev port-c root pfifo limit 3\n\
         qdisc replace dev port-x root pfifo limit 1\n\
         qdisc replace dev port-a root pfifo limit 2\n",
    );
    let output = tc(&bed, &format!("-batch {}", batch.path()));
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    let wanted = "Cannot find device \"port-x\". Ports here are port-a, port-b, port-c, port-d.\n";
    assert_eq!(said, format!("{wanted}Command failed {}:2\n", batch.path()));
    let shown = String::from_utf8(tc(&bed, "qdisc show").stdout).unwrap();
    assert!(shown.contains("limit 3p") && !shown.contains("limit 2p"), "{shown}");
}

#[test]
fn tc_looks_into_another_namespace_when_asked_to() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let _instance = run(&bed, &[]);
    let name = bed.shaper().name();
    let tc = |name: &str| {
        let words = ["tc", "-n", name, "qdisc", "show", "dev", PORT_A];
        bed.client().command(crate::setup::NARROWS).args(words).output().unwrap()
    };
    let output = tc(name);
    assert!(output.status.success(), "{}", complaint(&output));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown, "qdisc noqueue 0: root refcnt 2 \n");
    let output = tc("nowhere");
    assert_eq!(output.status.code(), Some(255));
    assert!(complaint(&output).starts_with("Cannot open network namespace \"nowhere\": No such"));
}

#[test]
fn a_fifo_without_a_limit_has_the_device_s_queue_length() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let _instance = run(&bed, &[]);
    ip(bed.shaper(), &format!("link set dev {PORT_A} txqueuelen 77"));
    ip(bed.shaper(), &format!("link set dev {PORT_B} txqueuelen 5"));
    assert!(tc(&bed, &format!("qdisc add dev {PORT_A} root pfifo")).status.success());
    assert!(tc(&bed, &format!("qdisc add dev {PORT_B} root bfifo")).status.success());
    let shown = String::from_utf8(narrows(&bed, &["tc", "qdisc", "show"]).stdout).unwrap();
    assert!(shown.contains("limit 77p") && shown.contains("limit 7570b"), "{shown}");
}
