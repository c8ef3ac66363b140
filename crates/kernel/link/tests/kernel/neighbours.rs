//! The gateways that routes name are found and kept alive.

use crate::bed::Bed;
use narrows_link::Link;
use narrows_link::neighbours::{Gateway, Gateways, KeptAlive, gateways};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A bed whose shaper has an address on each side, and is a router.
fn bed() -> Option<Bed> {
    let bed = Bed::new()?;
    bed.shaper.ip("addr add 192.0.2.254/24 dev sa");
    bed.shaper.ip("addr add 198.51.100.254/24 dev sb");
    bed.server.ip("addr add 198.51.100.2/24 dev v1");
    Some(bed)
}

fn index(bed: &Bed, name: &str) -> u32 {
    bed.shaper.inside(|| Link::by_name(name)).unwrap().status.ifindex
}

fn found(bed: &Bed, names: &[&str]) -> Gateways {
    let devices: Vec<u32> = names.iter().map(|name| index(bed, name)).collect();
    bed.shaper.inside(|| gateways(&devices)).unwrap()
}

/// The set of gateways with these devices and addresses.
fn set(bed: &Bed, all: &[(&str, &str)]) -> BTreeSet<Gateway> {
    let one =
        |&(name, ip): &(&str, &str)| Gateway { ifindex: index(bed, name), ip: ip.parse().unwrap() };
    all.iter().map(one).collect()
}

/// What `ip neigh` says about `ip`.
fn entry(bed: &Bed, ip: &str) -> String {
    String::from_utf8(bed.shaper.exec(&format!("ip neigh show {ip}")).stdout).unwrap()
}

fn is_managed(bed: &Bed, ip: &str) -> bool {
    entry(bed, ip).contains("managed")
}

fn keep(bed: &Bed, kept: &mut KeptAlive, gateways: &Gateways) {
    assert!(bed.shaper.inside(|| kept.keep(gateways)).unwrap(), "the kernel knows the mark");
}

#[test]
fn gateways_are_found_wherever_routes_name_them() {
    let Some(bed) = bed() else { return };
    assert_eq!(found(&bed, &["sa"]), Gateways { complete: true, ..Gateways::default() });
    for route in [
        "default via 192.0.2.1 dev sa",
        "203.0.113.0/26 via 192.0.2.1 dev sa",
        "203.0.113.64/26 nexthop via 192.0.2.2 dev sa nexthop via 198.51.100.2 dev sb",
        "203.0.113.128/26 via 192.0.2.3 dev sa table 77",
        "203.0.113.192/26 via inet6 fe80::7 dev sa",
        "unreachable 198.18.0.0/15",
        "198.18.1.0/24 dev sa",
    ] {
        bed.shaper.ip(&format!("route add {route}"));
    }
    bed.shaper.ip("-6 route add 2001:db8:1::/48 via fe80::8 dev sa");
    bed.shaper
        .ip("-6 route add 2001:db8:2::/48 nexthop via fe80::9 dev sa nexthop via fe80::10 dev sb");
    bed.shaper.ip("nexthop add id 5 via 192.0.2.5 dev sa");
    bed.shaper.ip("nexthop add id 6 via 198.51.100.6 dev sb");
    bed.shaper.ip("nexthop add id 7 group 5/6");
    bed.shaper.ip("route add 198.19.0.0/24 nhid 7");
    let on_sa = [
        ("sa", "192.0.2.1"),
        ("sa", "192.0.2.2"),
        ("sa", "192.0.2.3"),
        ("sa", "fe80::7"),
        ("sa", "fe80::8"),
        ("sa", "fe80::9"),
        ("sa", "192.0.2.5"),
    ];
    let on_sb = [("sb", "198.51.100.2"), ("sb", "fe80::10"), ("sb", "198.51.100.6")];
    assert_eq!(found(&bed, &["sa"]).found, set(&bed, &on_sa));
    assert_eq!(found(&bed, &["sb", "sa"]).found, set(&bed, &[&on_sa[..], &on_sb].concat()));
    bed.shaper.must("sysctl -qw net.ipv4.nexthop_compat_mode=0");
    assert_eq!(found(&bed, &["sa"]).found, set(&bed, &on_sa), "by number only");
}

#[test]
fn a_gateway_is_managed_until_it_is_released() {
    let Some(bed) = bed() else { return };
    bed.shaper.ip("route add default via 192.0.2.1 dev sa");
    bed.shaper.ip("-6 route add default via fe80::7 dev sb");
    let mut kept = KeptAlive::default();
    keep(&bed, &mut kept, &found(&bed, &["sa", "sb"]));
    assert!(is_managed(&bed, "192.0.2.1"), "{}", entry(&bed, "192.0.2.1"));
    assert!(is_managed(&bed, "fe80::7"), "a new entry");
    // Somebody empties the table.
    bed.shaper.ip("neigh flush dev sa");
    assert!(!is_managed(&bed, "192.0.2.1"));
    keep(&bed, &mut kept, &found(&bed, &["sa", "sb"]));
    assert!(is_managed(&bed, "192.0.2.1"));
    // A route goes.
    bed.shaper.ip("-6 route del default");
    let one = found(&bed, &["sa", "sb"]);
    keep(&bed, &mut kept, &Gateways { complete: false, ..one.clone() });
    assert!(is_managed(&bed, "fe80::7"), "another route may name it");
    keep(&bed, &mut kept, &one);
    assert!(!is_managed(&bed, "fe80::7") && is_managed(&bed, "192.0.2.1"));
    // A later process takes over.
    let words = serde_json::to_string(&kept).unwrap();
    let mut kept: KeptAlive = serde_json::from_str(&words).unwrap();
    bed.shaper.inside(|| kept.release());
    assert!(!is_managed(&bed, "192.0.2.1"));
    assert_ne!(entry(&bed, "192.0.2.1"), "", "it stays");
    bed.shaper.inside(|| kept.release());
}

#[test]
fn entries_of_others_are_left_alone() {
    let Some(bed) = bed() else { return };
    let mac = "lladdr 02:00:00:00:00:01 dev sa";
    for (ip, words) in [
        ("192.0.2.11", format!("{mac} nud permanent")),
        ("192.0.2.12", format!("{mac} nud noarp")),
        ("192.0.2.13", format!("{mac} nud stale extern_learn")),
        ("192.0.2.14", "dev sa managed".into()),
        ("192.0.2.15", format!("{mac} nud stale")),
    ] {
        bed.shaper.ip(&format!("neigh replace {ip} {words}"));
        bed.shaper.ip(&format!("route append default via {ip} dev sa"));
    }
    let others = || ["192.0.2.11", "192.0.2.12", "192.0.2.13"].map(|ip| entry(&bed, ip));
    let before = others();
    let mut kept = KeptAlive::default();
    keep(&bed, &mut kept, &found(&bed, &["sa"]));
    assert_eq!(others(), before);
    assert!(is_managed(&bed, "192.0.2.14") && is_managed(&bed, "192.0.2.15"));
    bed.shaper.inside(|| kept.release());
    assert_eq!(others(), before);
    assert!(is_managed(&bed, "192.0.2.14"), "as before");
    assert!(!is_managed(&bed, "192.0.2.15"));
}

/// Without the mark it stays stale and wrong, as nothing is sent to it.
#[test]
fn a_gateway_whose_mac_address_changed_is_found_again() {
    let Some(bed) = bed() else { return };
    let fast = "delay_first_probe_time=1 net.ipv4.neigh.sa.ucast_solicit=1";
    bed.shaper.must(&format!("sysctl -qw net.ipv4.neigh.sa.{fast}"));
    bed.shaper.ip("route add default via 192.0.2.1 dev sa");
    bed.shaper.ip("neigh replace 192.0.2.1 lladdr 02:00:00:00:00:01 dev sa nud stale");
    let mut kept = KeptAlive::default();
    keep(&bed, &mut kept, &found(&bed, &["sa"]));
    let mac = bed.client.inside(|| Link::by_name("v0")).unwrap().status.mac;
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !entry(&bed, "192.0.2.1").contains(&mac) {
        assert!(Instant::now() < deadline, "{}", entry(&bed, "192.0.2.1"));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(is_managed(&bed, "192.0.2.1"));
}

#[test]
fn a_device_that_is_gone_has_no_gateways_and_is_no_error() {
    let Some(bed) = bed() else { return };
    bed.shaper.ip("route add default via 192.0.2.1 dev sa");
    let gateways = found(&bed, &["sa"]);
    bed.client.ip("link del v0");
    let mut kept = KeptAlive::default();
    keep(&bed, &mut kept, &gateways);
    bed.shaper.inside(|| kept.release());
    assert!(bed.shaper.inside(|| narrows_link::neighbours::gateways(&[999])).unwrap().complete);
}
