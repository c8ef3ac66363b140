//! What routing depends on is read as it is, and its changes are noticed.

use crate::bed::Bed;
use crate::monitor::expect;
use narrows_link::routing::{RoutingFacts, RpFilter, Rule};
use narrows_link::{Link, LinkEvent, LinkMonitor};
use std::net::IpAddr;

fn facts(bed: &Bed, names: &[&str]) -> RoutingFacts {
    bed.shaper.inside(|| {
        let index = |name: &&str| Link::by_name(name).unwrap().status.ifindex;
        let devices: Vec<u32> = names.iter().map(index).collect();
        RoutingFacts::read(&devices).unwrap()
    })
}

#[test]
fn forwarding_and_rp_filter_read_as_they_were_set_whatever_the_name() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link set sa down");
    bed.shaper.ip("link set sa name s.a.100 up");
    bed.shaper.must("sysctl -qw net.ipv4.conf.all.rp_filter=0");
    let set = |words: &str| bed.shaper.must(&format!("sysctl -qw {words}"));
    set("net/ipv4/conf/s.a.100/forwarding=1 net/ipv6/conf/s.a.100/forwarding=1");
    set("net/ipv4/conf/sb/forwarding=0 net/ipv4/conf/sb/rp_filter=2");
    set("net/ipv4/conf/s.a.100/rp_filter=1");
    let seen = facts(&bed, &["s.a.100", "sb"]);
    let [sa, sb] = &seen.devices[..] else { panic!("{seen:?}") };
    assert_eq!((sa.ipv4_forwarding, sb.ipv4_forwarding), (Some(true), Some(false)));
    assert_eq!((sa.ipv6_forwarding, sb.ipv6_forwarding), (Some(true), Some(false)));
    assert_eq!((sa.rp_filter, sb.rp_filter), (RpFilter::Strict, RpFilter::Loose));
    assert_eq!(seen.ipv6_forwarding, Some(false), "of all");
    set("net.ipv4.conf.all.rp_filter=2 net.ipv6.conf.all.forwarding=1");
    let seen = facts(&bed, &["s.a.100"]);
    assert_eq!(seen.devices[0].rp_filter, RpFilter::Loose, "the larger number");
    assert_eq!(seen.ipv6_forwarding, Some(true));
}

#[test]
fn all_addresses_of_the_host_are_its_own() {
    let Some(bed) = Bed::new() else { return };
    for words in ["192.0.2.1/24 dev sa", "192.0.2.1/32 dev lo", "2001:db8::1/128 dev lo"] {
        bed.shaper.ip(&format!("addr add {words}"));
    }
    bed.shaper.ip("link set lo up");
    let local = facts(&bed, &["sb"]).local;
    for ip in ["192.0.2.1", "2001:db8::1", "127.0.0.1", "::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        assert_eq!(local.iter().filter(|own| **own == ip).count(), 1, "{ip} in {local:?}");
    }
}

#[test]
fn the_short_way_is_taken_until_a_rule_or_a_vrf_and_never_again() {
    let Some(bed) = Bed::new() else { return };
    assert!(!facts(&bed, &["sa"]).ipv4_direct, "without any route nothing is proven");
    bed.shaper.ip("addr add 192.0.2.1/24 dev sa");
    bed.shaper.ip("route add default via 192.0.2.2 dev sa");
    let seen = facts(&bed, &["sa"]);
    assert!(seen.ipv4_direct && seen.rules.is_empty(), "{seen:?}");
    bed.shaper.ip("route add 198.51.100.0/24 via 192.0.2.2 table default");
    assert!(!facts(&bed, &["sa"]).ipv4_direct, "the kernel looks into `default`, too");
    bed.shaper.ip("route flush table default");
    assert!(facts(&bed, &["sa"]).ipv4_direct);
    bed.shaper.ip("-6 rule add from 2001:db8::/32 lookup 100 pref 99");
    let seen = facts(&bed, &["sa"]);
    assert_eq!(seen.rules, [Rule { ipv6: true, priority: 99, marked: false }]);
    assert!(seen.ipv4_direct, "an IPv6 rule");
    bed.shaper.ip("rule add fwmark 7 lookup 100 pref 98");
    let seen = facts(&bed, &["sa"]);
    assert!(seen.rules.contains(&Rule { ipv6: false, priority: 98, marked: true }));
    assert!(!seen.ipv4_direct);
    bed.shaper.ip("rule del pref 98");
    let seen = facts(&bed, &["sa"]);
    assert!(seen.rules.iter().all(|rule| rule.ipv6), "{seen:?}");
    assert!(!seen.ipv4_direct, "the tables stay apart");
}

#[test]
fn the_rule_that_is_deleted_counts_like_one_that_is_added() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("addr add 192.0.2.1/24 dev sa");
    bed.shaper.ip("rule del pref 32767");
    let seen = facts(&bed, &["sa"]);
    assert!(seen.rules.is_empty() && !seen.ipv4_direct, "{seen:?}");
}

#[test]
fn a_part_of_a_bridge_is_not_one_of_a_vrf() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link add name br9 type bridge");
    bed.shaper.ip("link set sa master br9");
    let bridge = bed.shaper.inside(|| Link::by_name("br9").unwrap().status.ifindex);
    let masters = |bed: &Bed| {
        let devices = facts(bed, &["sa", "sb"]).devices;
        devices.into_iter().map(|device| device.master).collect::<Vec<_>>()
    };
    assert_eq!(masters(&bed), [Some(bridge), None]);
    // Not every kernel has VRFs.
    if bed.shaper.exec("ip link add name blue type vrf table 10").status.success() {
        bed.shaper.ip("link set sb master blue");
        assert_eq!(masters(&bed), [Some(bridge), None]);
        bed.shaper.ip("addr add 192.0.2.1/24 dev sa");
        assert!(!facts(&bed, &["sa"]).ipv4_direct);
    }
}

#[test]
fn a_device_that_is_gone_has_no_settings() {
    let Some(bed) = Bed::new() else { return };
    let seen = bed.shaper.inside(|| RoutingFacts::read(&[999_999])).unwrap();
    assert_eq!((seen.devices[0].ifindex, seen.devices[0].ipv4_forwarding), (999_999, None));
}

#[test]
fn rules_forwarding_and_rp_filter_are_noticed() {
    let Some(bed) = Bed::new() else { return };
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    let mut noticed = |words: &str| {
        while monitor.next_event().is_some() {}
        bed.shaper.must(words);
        expect(&mut monitor, |event| (*event == LinkEvent::Routing).then_some(()));
    };
    noticed("ip rule add from 192.0.2.0/24 lookup 100");
    noticed("ip -6 rule add from 2001:db8::/32 lookup 100");
    noticed("ip rule del from 192.0.2.0/24 lookup 100");
    noticed("sysctl -qw net.ipv4.conf.sa.forwarding=1");
    noticed("sysctl -qw net.ipv6.conf.sa.forwarding=1");
    noticed("sysctl -qw net.ipv4.conf.all.rp_filter=2");
}

#[test]
fn one_setting_of_all_interfaces_is_one_event() {
    let Some(bed) = Bed::new() else { return };
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    while monitor.next_event().is_some() {}
    bed.shaper.must("sysctl -qw net.ipv4.ip_forward=1");
    let mut events = 0;
    while let Some(event) = monitor.next_event() {
        events += usize::from(event == LinkEvent::Routing);
    }
    assert_eq!(events, 1);
}
