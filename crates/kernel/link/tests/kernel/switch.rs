//! A bridge as a switch: what it does is read as it is, its changes are announced, and it remembers
//! who was heard.

use crate::bed::Bed;
use narrows_link::bridge::Origin;
use narrows_link::switch::{check, prepare, remove, repair};
use narrows_link::switching::{
    Entry, EntryKind, SwitchEvent, SwitchFacts, SwitchMonitor, Table, refresh,
};
use narrows_link::{Link, netfilter};
use std::time::{Duration, Instant};

const STATION: &str = "02:00:00:00:00:05";
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 5];

/// A bed whose ports are in a bridge.
fn bed(settings: &str) -> Option<Bed> {
    let bed = Bed::new()?;
    bed.shaper.ip(&format!("link add br0 up type bridge {settings}"));
    bed.shaper.ip("link set sa master br0");
    bed.shaper.ip("link set sb master br0");
    // Only then the kernel takes entries for them.
    wait_until("the ports forward", || facts(&bed).ports.iter().all(|port| port.forwards));
    Some(bed)
}

fn index(bed: &Bed, name: &str) -> u32 {
    bed.shaper.inside(|| Link::by_name(name)).unwrap().status.ifindex
}

fn facts(bed: &Bed) -> SwitchFacts {
    let devices = ["sa", "sb"].map(|name| index(bed, name));
    bed.shaper.inside(|| SwitchFacts::read(&devices)).unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The table of the bridge.
fn table(bed: &Bed) -> Table {
    let bridge = index(bed, "br0");
    bed.shaper.inside(|| SwitchMonitor::open()?.table(bridge)).unwrap()
}

/// Adds so many stations to the table, behind the port sa.
fn add_stations(bed: &Bed, count: u32) {
    let path = format!("/tmp/nrw-fdb-{}-{count}", std::process::id());
    let line = |number: u32| {
        let [_, _, a, b] = number.to_be_bytes();
        format!("fdb add 02:01:00:00:{a:02x}:{b:02x} dev sa master static\n")
    };
    std::fs::write(&path, (0..count).map(line).collect::<String>()).unwrap();
    bed.shaper.must(&format!("bridge -batch {path}"));
    std::fs::remove_file(&path).unwrap();
}

/// How many of these stations are in the table. The ports' own addresses, which are random, are in
/// it, too.
fn added(table: &Table) -> usize {
    table.iter().filter(|entry| entry.mac.starts_with(&[2, 1, 0, 0])).count()
}

/// The entry of the station in the table of the bridge.
fn entry(bed: &Bed, vid: u16) -> Option<Entry> {
    let table = table(bed);
    table.into_iter().find(|entry| entry.mac == MAC && entry.vid == vid)
}

#[test]
fn ports_become_those_of_a_bridge_that_goes_again_and_one_that_is_there_stays_as_it_is() {
    let Some(bed) = Bed::new() else { return };
    let ports = ["sa", "sb"].map(str::to_owned);
    let made = bed.shaper.inside(|| prepare(&ports)).unwrap();
    assert_eq!((made.origin, &made.name[..5]), (Origin::Created, "nrwsw"));
    let ails = || bed.shaper.inside(|| check(&made, &ports)).unwrap();
    assert_eq!(ails(), None);
    bed.shaper.ip("link set sb nomaster");
    assert_eq!(ails().unwrap(), format!("sb is no longer a port of the bridge {}", made.name));
    let again = bed.shaper.inside(|| prepare(&ports)).unwrap();
    assert_eq!((again.origin, again.ifindex), (Origin::Reused, made.ifindex));
    bed.shaper.ip(&format!("link set {} down", made.name));
    assert!(ails().unwrap().ends_with("is down"));
    bed.shaper.inside(|| remove(&made)).unwrap();
    bed.shaper.inside(|| remove(&made)).unwrap();
    assert!(ails().unwrap().ends_with("is gone"));

    bed.shaper.ip("link add br0 type bridge ageing_time 1234");
    bed.shaper.ip("link set sa master br0");
    let error = bed.shaper.inside(|| prepare(&ports)).unwrap_err().to_string();
    assert!(error.contains("ip link set dev sb master br0"), "{error}");
    bed.shaper.ip("link set sb master br0");
    let adopted = bed.shaper.inside(|| prepare(&ports)).unwrap();
    assert_eq!((adopted.origin, &*adopted.name), (Origin::Foreign, "br0"));
    bed.shaper.inside(|| remove(&adopted)).unwrap();
    assert_eq!(facts(&bed).bridge.unwrap().ageing, Duration::from_millis(12_340));

    // Nothing takes the place of an operator's bridge but another one of theirs.
    bed.shaper.ip("link del br0");
    let mend = || bed.shaper.inside(|| repair(&adopted, &ports));
    let error = mend().unwrap_err().to_string();
    assert!(error.starts_with("br0 is gone"), "{error}");
    bed.shaper.ip("link add br0 type bridge");
    bed.shaper.ip("link set sa master br0");
    assert!(mend().unwrap_err().to_string().contains("sb is no port of br0"));
    bed.shaper.ip("link set sb master br0");
    assert_eq!(mend().unwrap().origin, Origin::Foreign);
}

#[test]
fn ports_are_as_the_bridge_has_them() {
    let Some(bed) = bed("ageing_time 30000") else { return };
    let seen = facts(&bed);
    let bridge = seen.bridge.unwrap();
    assert_eq!((bridge.ifindex, bridge.ageing), (index(&bed, "br0"), Duration::from_secs(300)));
    assert_eq!((bridge.ageing_in_change, bridge.tag_type), (None, None));
    let plain = |port: &narrows_link::switching::SwitchPort| {
        port.learns && !port.isolated && !port.special && port.mtu == 1500 && port.vlans.is_empty()
    };
    assert!(seen.ports.iter().all(plain), "{seen:?}");
    bed.shaper.must("bridge link set dev sa learning off");
    bed.shaper.must("bridge link set dev sa isolated on");
    bed.shaper.must("bridge link set dev sb neigh_suppress on");
    bed.shaper.must("bridge link set dev sb state 0");
    let seen = facts(&bed);
    assert!(!seen.ports[0].learns && seen.ports[0].isolated && !seen.ports[0].special);
    assert!(seen.ports[1].special && !seen.ports[1].forwards, "{seen:?}");
    bed.shaper.ip("link set br0 type bridge stp_state 1 forward_delay 400");
    assert_eq!(facts(&bed).bridge.unwrap().ageing_in_change, Some(Duration::from_secs(4)));
    bed.shaper.ip("link set sa nomaster");
    let seen = facts(&bed);
    assert!(!seen.ports[0].forwards && seen.bridge.is_some(), "{seen:?}");
    bed.shaper.ip("link del br0");
    let seen = facts(&bed);
    assert!(seen.bridge.is_none() && seen.ports.iter().all(|port| !port.forwards), "{seen:?}");
}

#[test]
fn vlans_are_those_of_the_ports() {
    let Some(bed) = Bed::new() else { return };
    let probe = "ip link add br0 up type bridge vlan_filtering 1 vlan_default_pvid 0";
    if !bed.shaper.exec(probe).status.success() {
        return eprintln!("SKIPPED: this kernel's bridges know no VLANs");
    }
    bed.shaper.ip("link set sa master br0");
    bed.shaper.ip("link set sb master br0");
    bed.shaper.must("bridge vlan add dev sa vid 10-12");
    bed.shaper.must("bridge vlan add dev sa vid 20");
    bed.shaper.must("bridge vlan add dev sb vid 11 pvid untagged");
    let of = |port: usize| -> Vec<(u16, u16, bool, bool, bool)> {
        let seen = facts(&bed);
        assert_eq!(seen.bridge.unwrap().tag_type, Some(0x8100));
        let vlans = seen.ports[port].vlans.iter();
        vlans.map(|it| (it.first, it.last, it.is_pvid, it.untagged, it.forwards)).collect()
    };
    assert_eq!(of(0), [(10, 12, false, false, true), (20, 20, false, false, true)]);
    assert_eq!(of(1), [(11, 11, true, true, true)]);
    bed.shaper.must(&format!("bridge fdb add {STATION} dev sb master static vlan 11"));
    let fixed = entry(&bed, 11).unwrap();
    assert_eq!((fixed.kind, fixed.ifindex), (EntryKind::Fixed, index(&bed, "sb")));
    bed.shaper.ip("link set br0 type bridge vlan_protocol 802.1ad");
    assert_eq!(facts(&bed).bridge.unwrap().tag_type, Some(0x88a8));
}

#[test]
fn changes_of_the_table_and_of_ports_are_announced() {
    let Some(bed) = bed("") else { return };
    let bridge = Some(index(&bed, "br0"));
    let mut monitor = bed.shaper.inside(SwitchMonitor::open).unwrap();
    let mut next = |what: &str, is_it: &dyn Fn(&SwitchEvent) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !monitor.events(bridge).iter().any(is_it) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let is_at = |event: &SwitchEvent, name: &str| match event {
        SwitchEvent::Put(entry) => entry.mac == MAC && entry.ifindex == index(&bed, name),
        _ => false,
    };
    bed.shaper.must(&format!("bridge fdb add {STATION} dev sa master dynamic"));
    next("a new station", &|event| is_at(event, "sa"));
    bed.shaper.must(&format!("bridge fdb replace {STATION} dev sb master dynamic"));
    next("one that moved", &|event| is_at(event, "sb"));
    bed.shaper.must(&format!("bridge fdb del {STATION} dev sb master"));
    next("one that went", &|event| matches!(event, SwitchEvent::Gone(entry) if entry.mac == MAC));
    bed.shaper.must("bridge link set dev sa isolated on");
    next("a setting of a port", &|event| *event == SwitchEvent::Ports);
    bed.shaper.ip("link set br0 type bridge ageing_time 1000");
    next("a setting of the bridge", &|event| *event == SwitchEvent::Ports);
    bed.shaper.must("bridge link set dev sa state 0");
    next("a state", &|event| *event == SwitchEvent::Ports);
}

#[test]
fn who_is_too_slow_for_all_changes_is_told_so() {
    let Some(bed) = bed("") else { return };
    let bridge = index(&bed, "br0");
    let mut monitor = bed.shaper.inside(SwitchMonitor::open).unwrap();
    add_stations(&bed, 20_000);
    assert_eq!(monitor.events(Some(bridge)), [SwitchEvent::Overrun]);
    assert_eq!(added(&table(&bed)), 20_000);
    let mut left = 0;
    loop {
        match monitor.events(Some(bridge)).len() {
            0 => break,
            more => left += more,
        }
    }
    assert!(left > 0, "those that the kernel did not discard");
}

/// The kernel lists a table in parts, by number, so the next part moves with the table.
#[test]
fn a_table_that_others_leave_while_it_is_listed_is_listed_as_it_is() {
    const COUNT: usize = 5_000;
    let Some(bed) = bed("") else { return };
    let bridge = index(&bed, "br0");
    add_stations(&bed, COUNT as u32);
    let path = format!("/tmp/nrw-fdb-{}-leave", std::process::id());
    let lines = |what: &str| {
        let line = |number: u32| format!("fdb {what} 02:02:00:00:00:{number:02x} dev sa master\n");
        (0..200).map(line).collect::<String>()
    };
    // New ones stand in front of the others.
    std::fs::write(&path, [lines("add"), lines("del")].concat()).unwrap();
    let mut monitor = bed.shaper.inside(SwitchMonitor::open).unwrap();
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                bed.shaper.must(&format!("bridge -batch {path}"));
            }
        });
        let counts: Vec<usize> = (0..100)
            .map(|_| added(&bed.shaper.inside(|| monitor.table(bridge)).unwrap()))
            .collect();
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(counts, [COUNT; 100]);
    });
    std::fs::remove_file(&path).unwrap();
    assert!(monitor.events(Some(bridge)).len() < 10_000);
}

#[test]
fn an_entry_that_is_refreshed_stays_and_then_ages_as_any() {
    let Some(bed) = bed("ageing_time 200") else { return };
    bed.shaper.must(&format!("bridge fdb add {STATION} dev sa master dynamic"));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(6) {
        let now = entry(&bed, 0).unwrap_or_else(|| panic!("{:?}", begin.elapsed()));
        assert_eq!(now.kind, EntryKind::Learned);
        bed.shaper.inside(|| refresh(&[now])).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    wait_until("it ages", || entry(&bed, 0).is_none());
    // In VLANs that the kernel has put it, too.
    wait_until("it ages in all VLANs", || entry(&bed, 1).is_none());
    let gone = Entry { mac: MAC, vid: 0, ifindex: 999_999, kind: EntryKind::Learned };
    assert!(bed.shaper.inside(|| refresh(&[gone])).is_err());
    assert!(bed.shaper.inside(|| refresh(&[])).is_ok());
}

#[test]
fn only_what_a_bridged_frame_passes_counts_as_its_firewall() {
    let Some(bed) = bed("") else { return };
    let hooks = || bed.shaper.inside(|| netfilter::bridge_hooks(&["sa", "sb"])).unwrap();
    assert_eq!(hooks().found, [""; 0]);
    let nft = |words: &str| bed.shaper.exec(&format!("nft {words}")).status.success();
    if !nft("add table bridge t") {
        return eprintln!("SKIPPED: this kernel has no nftables for bridges");
    }
    assert!(nft("add chain bridge t c { type filter hook forward priority 0 ; policy drop ; }"));
    assert_eq!(hooks().found, ["bridge t c (nf_tables chain)"]);
    assert!(nft("delete table bridge t") && nft("add table ip t"));
    assert!(nft("add chain ip t c { type filter hook forward priority 0 ; policy drop ; }"));
    let calls = bed.shaper.exec("sysctl -n net.bridge.bridge-nf-call-iptables");
    if calls.stdout.starts_with(b"1") {
        assert!(hooks().found.contains(&"ip t c (nf_tables chain)".to_owned()));
        bed.shaper.must(
            "sysctl -qw net.bridge.bridge-nf-call-iptables=0 \
             net.bridge.bridge-nf-call-ip6tables=0 net.bridge.bridge-nf-call-arptables=0",
        );
    }
    assert_eq!(hooks().found, [""; 0]);
}
