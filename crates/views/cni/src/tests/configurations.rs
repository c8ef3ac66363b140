//! What configurations ask for.

use super::{limits, refusal, words};
use crate::{Limits, unset};
use serde_json::{Value, json};

const KUBERNETES: &str = "io.kubernetes.cri.pod-annotations";

/// A configuration with these annotations, and rates as a runtime fills them in.
fn annotated(annotations: Value) -> Value {
    json!({"runtimeConfig": {"bandwidth": {"ingressRate": 20_000_000}, KUBERNETES: annotations}})
}

#[test]
fn a_pod_s_ingress_is_a_queue_and_its_egress_a_policer() {
    let bandwidth = json!({
        "ingressRate": 20_000_000, "ingressBurst": 8_000_000,
        "egressRate": 10_000_000, "egressBurst": 4_000_000,
    });
    let lines = "qdisc replace dev veth0 root handle c41: tbf rate 20000000bit burst 1000000 limit \
                 1250000\n\
                 qdisc replace dev veth0 clsact\n\
                 filter replace dev veth0 ingress protocol all pref 3137 handle 0x1 matchall \
                 action police rate 10000000bit burst 500000 mtu 65536 conform-exceed \
                 drop/continue\n";
    assert_eq!(words(json!({"runtimeConfig": {"bandwidth": bandwidth}})), lines);
    assert_eq!(words(bandwidth), lines);
}

#[test]
fn runtimes_write_the_keys_with_capitals_and_fill_in_bursts_that_nobody_chose() {
    let filled_in = [i64::from(i32::MAX), i64::from(u32::MAX), i64::from(u32::MAX) * 8 - 1];
    for burst in filled_in {
        let bandwidth = json!({
            "IngressRate": 20_000_000, "IngressBurst": burst, "EgressRate": 0, "EgressBurst": 0,
        });
        assert_eq!(
            words(json!({"runtimeConfig": {"bandwidth": bandwidth}})),
            "qdisc replace dev veth0 root handle c41: tbf rate 20000000bit burst 65536 limit \
             315536\n"
        );
    }
}

#[test]
fn nothing_is_limited_without_rates() {
    for config in [
        json!({}),
        json!({"runtimeConfig": null}),
        json!({"runtimeConfig": {"bandwidth": null}}),
        json!({"ingressRate": 0, "ingressBurst": 0, "egressRate": 0, "egressBurst": 0}),
        json!({"runtimeConfig": {KUBERNETES: {"team": "a", "other/ingress-burst": "x"}}}),
    ] {
        assert!(limits(config.clone()).unwrap().is_empty(), "{config}");
    }
}

#[test]
fn the_configuration_comes_before_the_runtime_and_that_before_annotations() {
    let config = json!({
        "ingressRate": 1_000_000,
        "runtimeConfig": {
            "bandwidth": {"ingressRate": 2_000_000, "egressRate": 3_000_000},
            KUBERNETES: {"narrows/ingress-burst": "8M", "narrows/egress-burst": "16M"},
        },
    });
    let Limits { ingress, egress } = limits(config).unwrap();
    let (ingress, egress) = (ingress.unwrap(), egress.unwrap());
    assert_eq!((ingress.rate, ingress.burst), (1_000_000, 1_000_000));
    assert_eq!((egress.rate, egress.burst), (3_000_000, 2_000_000));
}

#[test]
fn a_burst_has_room_for_a_super_packet() {
    let burst = |rate: u64, bits: Option<u64>| {
        let config = json!({"ingressRate": rate, "ingressBurst": bits, "egressRate": rate});
        let Limits { ingress, egress } = limits(config).unwrap();
        [ingress.unwrap().burst, egress.unwrap().burst]
    };
    assert_eq!(burst(1_000_000, Some(1_600)), [65_536; 2]);
    assert_eq!(burst(1_000_000_000, None), [1_250_000, 31_250_000]);
    assert_eq!(burst(1_000_000_000_000_000, None), [1 << 28; 2]);
}

#[test]
fn a_class_of_the_device_s_own_tree_can_have_the_rate() {
    let place = json!({
        "narrows/ingress-parent": "1:1", "narrows/ingress-class": "1:a",
        "narrows/ingress-assured": "5M", "narrows/ingress-priority": "3",
    });
    let class = "class replace dev veth0 parent 1:1 classid 1:a htb rate 5000000bit ceil \
                 20000000bit burst 65536 cburst 65536 prio 3\n";
    assert_eq!(words(annotated(place)), class);
    let keys = json!({
        "ingressRate": 20_000_000, "ingressParent": "1:1", "ingressClass": "1:a",
        "ingressAssured": 5_000_000, "ingressPriority": 3,
    });
    assert_eq!(words(keys), class);
}

#[test]
fn what_cannot_be_done_is_refused_with_what_can() {
    let class = |rate, assured, priority| {
        json!({
            "ingressRate": rate, "ingressParent": "1:1", "ingressClass": "1:10",
            "ingressAssured": assured, "ingressPriority": priority,
        })
    };
    for (config, what) in [
        (json!({"ingressRate": 999}), "from 1000 to"),
        (json!({"egressRate": 1_000_000_000_000_001_u64}), "from 1000 to"),
        (json!({"ingressBurst": 8_000}), "without ingressRate"),
        (
            json!({"ingressRate": 1_000_000, "ingressAssured": 1_000}),
            "a pod that has its device alone",
        ),
        (
            json!({"ingressRate": 1_000_000, "ingressPriority": 1}),
            "a pod that has its device alone",
        ),
        (json!({"ingressRate": 1_000_000, "ingressClass": "1:10"}), "go together"),
        (json!({"ingressRate": 1_000_000, "ingressParent": "1:1"}), "go together"),
        (class(1_000_000, 2_000_000, 0), "no more than the limit"),
        (class(1_000_000, 1_000_000, 8), "to 7"),
        (json!({"egressRate": 1_000_000, "egressAssured": 1_000}), "nothing can be assured there"),
        (json!({"egressRate": 1_000_000, "egressClass": "1:10"}), "where it leaves this host"),
        (annotated(json!({"narrows/ingress-busrt": "1M"})), "narrows/ingress-burst"),
        (annotated(json!({"narrows/rate": "1M"})), "is unknown"),
        (annotated(json!({"narrows/ingress-burst": "1.5M"})), "whole number"),
        (annotated(json!({"narrows/ingress-burst": "99999P"})), "whole number"),
        (annotated(json!({"narrows/ingress-burst": "40G"})), "less than 4 GiB"),
    ] {
        let said = refusal(config.clone());
        assert!(said.contains(what), "{config}: {said}");
    }
    for word in ["", "root", "none", "1:10 prio 1", "x\nqdisc del dev veth0 root"] {
        let mut config = class(1_000_000, 1_000_000, 0);
        config["ingressClass"] = json!(word);
        assert!(refusal(config).contains("as tc does"), "{word}");
    }
}

#[test]
fn only_what_was_set_is_taken_away() {
    let limits = limits(json!({
        "ingressRate": 1_000_000, "ingressParent": "1:1", "ingressClass": "1:10",
        "egressRate": 1_000_000,
    }))
    .unwrap();
    let others = "qdisc replace dev veth0 clsact\n\
                  qdisc replace dev veth0 root handle 1: htb default 10 r2q 10 direct_qlen 1000\n\
                  class replace dev veth0 parent 1: classid 1:10 htb rate 1000bit\n\
                  filter replace dev veth0 ingress protocol all pref 1 handle 0x1 matchall\n";
    assert_eq!(unset("veth0", &limits, others), "");
    let ours = "qdisc replace dev veth0 root handle c41: tbf rate 1000000bit burst 65536 limit 9\n\
                class replace dev veth0 parent 1:1 classid 1:10 htb rate 1000bit\n\
                filter replace dev veth0 ingress protocol all pref 3137 handle 0x1 matchall\n";
    assert_eq!(
        unset("veth0", &limits, ours),
        "qdisc del dev veth0 root\n\
         class del dev veth0 classid 1:10\n\
         filter del dev veth0 ingress protocol all pref 3137\n"
    );
}
