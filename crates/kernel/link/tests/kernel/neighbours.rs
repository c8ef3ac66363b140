//! Neighbours to which the kernel sends nothing are confirmed all the same.

use crate::bed::Bed;
use narrows_link::Link;
use narrows_link::neighbours::use_stale;
use std::time::{Duration, Instant};

const WRONG: &str = "lladdr 02:00:00:00:00:01";

/// A bed whose shaper has an address on each side, and asks soon.
fn bed() -> Option<Bed> {
    let bed = Bed::new()?;
    bed.shaper.ip("addr add 192.0.2.254/24 dev sa");
    bed.shaper.ip("addr add 198.51.100.254/24 dev sb");
    bed.server.ip("addr add 198.51.100.2/24 dev v1");
    for name in ["sa", "sb"] {
        let of_it = format!("net.ipv4.neigh.{name}");
        let fast = format!("{of_it}.delay_first_probe_time=1 {of_it}.ucast_solicit=1");
        bed.shaper.must(&format!("sysctl -qw {fast}"));
    }
    Some(bed)
}

fn used(bed: &Bed, names: &[&str]) -> usize {
    let index = |name: &&str| bed.shaper.inside(|| Link::by_name(name)).unwrap().status.ifindex;
    let devices: Vec<u32> = names.iter().map(index).collect();
    bed.shaper.inside(|| use_stale(&devices)).unwrap()
}

/// What `ip neigh` says about `ip`.
fn entry(bed: &Bed, ip: &str) -> String {
    String::from_utf8(bed.shaper.exec(&format!("ip neigh show {ip}")).stdout).unwrap()
}

fn wait_for(bed: &Bed, ip: &str, is_so: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so(&entry(bed, ip)) {
        assert!(Instant::now() < deadline, "{}", entry(bed, ip));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_neighbour_that_answers_is_confirmed_and_one_that_does_not_goes() {
    let Some(bed) = bed() else { return };
    let mac = bed.server.inside(|| Link::by_name("v1")).unwrap().status.mac;
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    bed.shaper.ip(&format!("neigh replace 198.51.100.2 lladdr {mac} dev sb nud stale"));
    // Its MAC address has changed. So programs pass it to the kernel, which finds the new one.
    bed.shaper.ip(&format!("neigh replace 198.51.100.9 {WRONG} dev sb nud stale"));
    assert_eq!(used(&bed, &["sa", "sb"]), 2);
    wait_for(&bed, "198.51.100.2", |it| it.contains("REACHABLE"));
    wait_for(&bed, "198.51.100.9", |it| it.contains("FAILED") || it.is_empty());
    assert_eq!(used(&bed, &["sa", "sb"]), 0, "nothing is stale");
}

#[test]
fn entries_of_others_and_on_other_devices_are_left_alone() {
    let Some(bed) = bed() else { return };
    for (ip, words) in [
        ("192.0.2.11", "dev sa nud permanent"),
        ("192.0.2.12", "dev sa nud noarp"),
        ("192.0.2.13", "dev sa nud stale extern_learn"),
        ("198.51.100.9", "dev sb nud stale"),
    ] {
        bed.shaper.ip(&format!("neigh replace {ip} {WRONG} {words}"));
    }
    let others =
        || ["192.0.2.11", "192.0.2.12", "192.0.2.13", "198.51.100.9"].map(|ip| entry(&bed, ip));
    let before = others();
    assert_eq!(used(&bed, &["sa"]), 0);
    assert_eq!(others(), before);
}

#[test]
fn neighbours_of_ipv6_are_used_and_stay_routers() {
    let Some(bed) = bed() else { return };
    bed.shaper.ip(&format!("-6 neigh replace fe80::7 {WRONG} dev sa nud stale router"));
    assert_eq!(used(&bed, &["sa"]), 1);
    let now = entry(&bed, "fe80::7");
    assert!(now.contains("router") && !now.contains("STALE"), "{now}");
}
