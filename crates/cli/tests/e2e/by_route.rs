//! Class by route: packets have the class of the realm and of the metric of the route that they
//! take through a router.

use crate::front::by_class;
use crate::router::{network, ping, router, to_router};
use crate::setup::{NARROWS, assert_refused, show, tc, turn_to_count};
use crate::slow_path::with_options;
use narrows_testbed::bed::{CLIENT, SERVER};
use narrows_testbed::capture::Capture;
use narrows_testbed::narrows::Instance;
use narrows_testbed::raw::RawSocket;
use narrows_testbed::{Testbed, frames};
use std::collections::BTreeMap;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);
/// Where a route or a filter that was just made is not everywhere yet.
const MOMENT: Duration = Duration::from_millis(300);
/// How many frames are sent of each sort.
const EACH: usize = 20;

const PLANES: [&[&str]; 3] = [&[], &["--plane", "xdp"], &["--plane", "xdp", "--xdp", "tcx"]];

/// The realms 10 and 11 of destinations, and 2 of a source; none; metrics.
const ROUTES: [&str; 7] = [
    "route add 10.20.10.0/24 via 10.2.0.2 realm 10",
    "route add 10.20.11.0/24 via 10.2.0.2 realm 11",
    "route add 10.20.12.0/24 via 10.2.0.2",
    "route add 10.20.13.0/24 via 10.2.0.2 metric 300",
    "route add 10.9.0.0/16 via 10.1.0.2 realm 2",
    "route add fd20:1::/64 via fd02::2 metric 100",
    "route add fd20:2::/64 via fd02::2 metric 200",
];

const POLICY: [&str; 17] = [
    "qdisc add dev port-b root handle 1: htb default 40",
    "class add dev port-b parent 1: classid 1:10 htb rate 100mbit",
    "class add dev port-b parent 1: classid 1:11 htb rate 100mbit",
    "class add dev port-b parent 1: classid 1:12 htb rate 100mbit",
    "class add dev port-b parent 1: classid 1:20 htb rate 100mbit",
    "class add dev port-b parent 1: classid 1:30 htb rate 100mbit",
    "class add dev port-b parent 1: classid 1:31 htb rate 100mbit",
    "class add dev port-b parent 1: classid 1:39 htb rate 100mbit",
    "class add dev port-b parent 1: classid 1:40 htb rate 100mbit",
    "filter add dev port-b parent 1: protocol ip prio 10 route to 10 classid 1:10",
    "filter add dev port-b parent 1: protocol ip prio 10 route to 11 classid 1:11",
    "filter add dev port-b parent 1: protocol ip prio 10 route from 2 to 11 classid 1:12",
    "filter add dev port-b parent 1: protocol ip prio 10 route from 2 classid 1:20",
    "filter add dev port-b parent 1: prio 20 route metric 100 classid 1:30",
    "filter add dev port-b parent 1: prio 20 route metric 300 classid 1:31",
    "filter add dev port-b parent 1: protocol ip prio 30 flower ip_proto udp classid 1:39",
    "filter add dev port-b parent 1: protocol ipv6 prio 40 flower ip_proto udp classid 1:39",
];

fn ip(bed: &Testbed, words: &str) {
    let words: Vec<&str> = words.split_whitespace().collect();
    bed.shaper().run("ip", &words).unwrap_or_else(|error| panic!("ip {words:?}: {error}"));
}

/// A router with these routes and filters.
fn start(bed: &Testbed, plane: &[&str]) -> Instance {
    ROUTES.iter().for_each(|words| ip(bed, words));
    let instance = router(bed, plane);
    POLICY.iter().for_each(|words| drop(instance.tc(words).unwrap()));
    // The kernel finds the neighbours.
    ping(bed, "10.2.0.2", &[]);
    ping(bed, "fd02::2", &[]);
    sleep(MOMENT);
    instance
}

/// A frame for the router between these addresses.
fn frame(bed: &Testbed, from: &str, to: &str) -> Vec<u8> {
    let macs = to_router(bed);
    let frame = match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) => frames::udp4(frames::port(0), macs, [from, to], 300),
        _ => {
            let ips = [from, to].map(|address| address.parse().unwrap());
            frames::udp6(frames::port(0), macs, ips, 300)
        }
    };
    frame.unwrap()
}

/// How many packets more than `before` each class has sent, or how many since its counters began
/// anew. The default class has what the kernel sends by itself.
fn more(instance: &Instance, before: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let now = by_class(instance).into_iter();
    let more = now.map(|(class, packets)| {
        let before = before.get(&class).copied().unwrap_or(0);
        (class, packets.checked_sub(before).unwrap_or(packets))
    });
    more.filter(|(class, packets)| *packets > 0 && class != "1:40").collect()
}

fn counts(of: &[(&str, usize)]) -> Vec<(String, u64)> {
    of.iter().map(|(class, packets)| ((*class).to_owned(), *packets as u64)).collect()
}

fn names(of: &[(String, u64)]) -> Vec<&str> {
    of.iter().map(|(class, _)| class.as_str()).collect()
}

#[test]
fn packets_have_the_class_of_the_route_that_they_take() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(routes_give_classes_on);
}

fn routes_give_classes_on(plane: &[&str]) {
    let bed = network();
    let instance = start(&bed, plane);
    let ways = [
        ("10.1.0.2", "10.20.10.7", "1:10"),
        ("10.9.0.7", "10.20.10.7", "1:10"),
        ("10.1.0.2", "10.20.11.7", "1:11"),
        ("10.9.0.7", "10.20.11.7", "1:12"),
        ("10.9.0.7", "10.20.12.7", "1:20"),
        ("10.1.0.2", "10.20.12.7", "1:39"),
        ("10.1.0.2", "10.20.13.7", "1:31"),
        ("fd01::2", "fd20:1::7", "1:30"),
        ("fd01::2", "fd20:2::7", "1:39"),
    ];
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    for (from, to, class) in ways {
        let before = by_class(&instance);
        let capture = Capture::start(bed.server(), SERVER, "udp port 9").unwrap();
        let frame = frame(&bed, from, to);
        let all: Vec<&[u8]> = vec![&frame; EACH];
        assert_eq!(socket.send(&all).unwrap(), EACH);
        let came = capture.wait_for(EACH, PATIENCE).len();
        let counted = more(&instance, &before);
        let case = format!("{plane:?}: {from} to {to}\n{}", instance.log());
        assert_eq!((came, counted), (EACH, counts(&[(class, EACH)])), "{case}");
    }
    // What the kernel routes has its realm, too, where its packets meet the classes at all.
    if plane.contains(&"xdp") {
        let before = by_class(&instance);
        let capture = Capture::start(bed.server(), SERVER, "udp port 9").unwrap();
        let needy = with_options(&frame(&bed, "10.1.0.2", "10.20.11.7"));
        assert_eq!(socket.send(&vec![&needy[..]; EACH]).unwrap(), EACH);
        assert_eq!(capture.wait_for(EACH, PATIENCE).len(), EACH);
        assert_eq!(more(&instance, &before), counts(&[("1:11", EACH)]), "{plane:?}");
    }
    // A filter that goes is asked no more; others stay.
    let before = by_class(&instance);
    instance
        .tc("filter del dev port-b parent 1: protocol ip prio 10 handle 0x00028000 route")
        .unwrap();
    let capture = Capture::start(bed.server(), SERVER, "udp port 9").unwrap();
    for (from, to) in [("10.9.0.7", "10.20.12.7"), ("10.9.0.7", "10.20.11.7")] {
        socket.send(&vec![&frame(&bed, from, to)[..]; EACH]).unwrap();
    }
    assert_eq!(capture.wait_for(2 * EACH, PATIENCE).len(), 2 * EACH);
    assert_eq!(more(&instance, &before), counts(&[("1:12", EACH), ("1:39", EACH)]), "{plane:?}");
    assert_eq!(show(&bed)["conservation"]["unaccounted"], 0);
}

#[test]
fn a_realm_that_changes_under_traffic_changes_the_class_and_an_upgrade_keeps_it() {
    let Some(_turn) = turn_to_count() else { return };
    PLANES.into_iter().for_each(changes_are_followed_on);
}

fn changes_are_followed_on(plane: &[&str]) {
    const FRAMES: usize = 400;
    let bed = network();
    let mut instance = start(&bed, plane);
    let frame = frame(&bed, "10.1.0.2", "10.20.10.7");
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    // What each class has sent until the middle, and then, and what is done between.
    let send = |instance: &mut Instance, amid: &dyn Fn(&mut Instance)| {
        let capture = Capture::start(bed.server(), SERVER, "udp port 9").unwrap();
        let half = |instance: &Instance| {
            let before = by_class(instance);
            for _ in 0..FRAMES / 2 {
                assert_eq!(socket.send(&[&frame[..]]).unwrap(), 1);
                sleep(Duration::from_micros(500));
            }
            before
        };
        let before = half(instance);
        let first = more(instance, &before);
        amid(instance);
        let before = half(instance);
        assert_eq!(capture.wait_for(FRAMES, PATIENCE).len(), FRAMES, "{plane:?}");
        [first, more(instance, &before)]
    };
    let realm = |realm: u32| {
        ip(&bed, &format!("route change 10.20.10.0/24 via 10.2.0.2 realm {realm}"));
    };
    let [first, second] = send(&mut instance, &|_| realm(11));
    assert_eq!(names(&first), ["1:10"], "{plane:?}: {first:?}");
    // The first of them may come before the change is told.
    assert!(names(&second).contains(&"1:11"), "{plane:?}: {second:?}");
    // From a moment later on, all have the new one, in either process.
    sleep(MOMENT);
    for half in send(&mut instance, &|instance| instance.upgrade().unwrap()) {
        assert_eq!(names(&half), ["1:11"], "{plane:?}: {half:?}\n{}", instance.log());
    }
    // Several next hops: the kernel says the way, and the table the realm.
    ip(&bed, "route del 10.20.10.0/24");
    ip(
        &bed,
        "route add 10.20.10.0/24 nexthop via 10.2.0.2 realm 10 nexthop via 10.2.0.2 realm 10 \
         weight 2",
    );
    let deadline = Instant::now() + PATIENCE;
    while names(&send(&mut instance, &|_| {})[1]) != ["1:10"] {
        assert!(Instant::now() < deadline, "{plane:?}");
    }
}

#[test]
fn route_filters_are_for_routers_and_where_packets_leave() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let wire = Instance::start(&bed, Path::new(NARROWS), &[]).unwrap();
    wire.tc("qdisc add dev port-b root handle 1: prio").unwrap();
    let words = "filter add dev port-b parent 1: protocol ip prio 1 route to 10 classid 1:1";
    assert_refused(&tc(&bed, words), 2, &["is for a router"]);
    drop(wire);
    let bed = network();
    let router = router(&bed, &[]);
    router.tc("qdisc add dev port-b clsact").unwrap();
    let words = "filter add dev port-b ingress protocol ip prio 1 route to 10 action drop";
    assert_refused(&tc(&bed, words), 2, &["where it leaves"]);
}
