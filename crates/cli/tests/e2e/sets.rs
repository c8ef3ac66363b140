//! Sets of addresses: packets from a set are dropped in the driver, before any worker sees them.

use crate::setup::{
    Scratch, assert_balanced, assert_refused, narrows, run, show, tc, turn_to_count,
};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::{CLIENT, SINK_MAC};
use narrows_testbed::flood::{Flood, Pace};
use narrows_testbed::narrows::Instance;
use narrows_testbed::raw::RawSocket;
use narrows_testbed::{Testbed, frames};
use std::thread::sleep;
use std::time::Duration;

/// A frame from `source` to the server's device.
pub(crate) fn frame_from(source: [u8; 4]) -> Vec<u8> {
    from(frames::udp(frames::port(1), SINK_MAC, 100).unwrap(), source)
}

/// `frame` of UDP over IPv4, from `source`.
pub(crate) fn from(mut frame: Vec<u8>, source: [u8; 4]) -> Vec<u8> {
    frame[26..30].copy_from_slice(&source);
    // The header's checksum; UDP has none.
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[40..42].fill(0);
    frame
}

/// Sends `frame` from the client `times` times.
pub(crate) fn send(bed: &Testbed, frame: &[u8], times: usize) {
    let socket = RawSocket::open(bed.client(), CLIENT).unwrap();
    let mut left = times;
    while left > 0 {
        left -= socket.send(&vec![frame; left.min(64)]).unwrap();
    }
}

#[track_caller]
pub(crate) fn set(bed: &Testbed, words: &str) -> String {
    let output =
        narrows(bed, &[&["set"], &words.split_whitespace().collect::<Vec<_>>()[..]].concat());
    assert!(output.status.success(), "set {words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The drops on the way to the server so far; every frame is accounted for.
#[track_caller]
pub(crate) fn dropped(books: &mut Books, instance: &Instance) -> u64 {
    assert_balanced(books, instance).1[0].dropped_by_narrows
}

const BAD: [u8; 4] = [198, 51, 100, 7];
const GOOD: [u8; 4] = [203, 0, 113, 7];

#[test]
fn a_set_blocks_its_sources_and_no_others_and_stays_when_the_binary_is_replaced() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let mut instance = run(&bed, &[]);
    let mut books = Books::open(&bed).unwrap();
    let filter =
        "filter add dev port-a ingress protocol ip pref 1 basic match ipset(bad src) action drop";
    instance.tc("qdisc add dev port-a clsact").unwrap();
    assert_refused(&tc(&bed, filter), 2, &["there is no set \"bad\"", "narrows set create bad"]);
    let list = Scratch::new(
        "list",
        "create bad hash:net family inet hashsize 1024 maxelem 65536\nadd bad 198.51.100.0/24\n\
         add bad 198.51.100.9 nomatch\n",
    );
    set(&bed, &format!("restore -file {}", list.path()));
    send(&bed, &frame_from(BAD), 100);
    assert_eq!(dropped(&mut books, &instance), 0, "no filter uses the set");
    instance.tc(filter).unwrap();
    send(&bed, &frame_from(GOOD), 300);
    send(&bed, &frame_from(BAD), 200);
    send(&bed, &frame_from([198, 51, 100, 9]), 100);
    assert_eq!(dropped(&mut books, &instance), 200);
    let now = show(&bed);
    assert_eq!(now["conservation"]["dropped"]["filter"], 200);
    assert_eq!(now["conservation"]["unaccounted"], 0);
    let stats = instance.tc("-s filter show dev port-a ingress").unwrap();
    assert!(stats.contains("200 pkt (dropped 200"), "{stats}");
    assert_refused(&narrows(&bed, &["set", "destroy", "bad"]), 1, &["in use by 1 filter"]);
    let before = set(&bed, "save");
    instance.upgrade().unwrap();
    assert_eq!(set(&bed, "save"), before);
    send(&bed, &frame_from(BAD), 50);
    assert_eq!(dropped(&mut books, &instance), 250);
    instance.tc("filter del dev port-a ingress pref 1").unwrap();
    send(&bed, &frame_from(BAD), 70);
    assert_eq!(dropped(&mut books, &instance), 250);
    set(&bed, "destroy bad");
}

#[test]
fn a_member_goes_when_its_time_is_over_in_front_of_the_xdp_plane() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &["--plane", "xdp"]);
    let mut books = Books::open(&bed).unwrap();
    set(&bed, "create bad hash:ip timeout 2 counters");
    instance.tc("qdisc add dev port-a ingress").unwrap();
    instance.tc("filter add dev port-a ingress basic match ipset(bad src) action drop").unwrap();
    set(&bed, "add bad 198.51.100.7");
    set(&bed, "add bad 203.0.113.7 timeout 0");
    send(&bed, &frame_from(BAD), 10);
    send(&bed, &frame_from(GOOD), 5);
    assert_eq!(dropped(&mut books, &instance), 15);
    let listed = set(&bed, "list bad");
    assert!(listed.contains("203.0.113.7 timeout 0 packets 5 bytes 500"), "{listed}");
    sleep(Duration::from_millis(2500));
    send(&bed, &frame_from(BAD), 10);
    send(&bed, &frame_from(GOOD), 5);
    assert_eq!(dropped(&mut books, &instance), 20, "{}", set(&bed, "list bad"));
}

#[test]
fn a_set_is_swapped_under_load_without_a_gap() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    let mut books = Books::open(&bed).unwrap();
    set(&bed, "create bad hash:net");
    set(&bed, "add bad 198.51.100.0/24");
    instance.tc("qdisc add dev port-a clsact").unwrap();
    instance
        .tc("filter add dev port-a ingress pref 9 basic match ipset(bad src) action drop")
        .unwrap();
    let limit = Duration::from_secs(60);
    let flood = Flood { frames: vec![frame_from(BAD)], pace: Pace::Bits(20e6), limit, core: None };
    let load = flood.start(bed.client(), CLIENT).unwrap();
    for round in 0..8 {
        let mut list = "create next hash:net\nadd next 198.51.100.0/24\n".to_owned();
        for number in 0..2000 {
            list += &format!("add next 10.{round}.{}.{}\n", number / 256, number % 256);
        }
        let list = Scratch::new("next", &list);
        set(&bed, &format!("restore -file {}", list.path()));
        set(&bed, "swap bad next");
        set(&bed, "destroy next");
        // Other filters are another program, which replaces the first.
        let pref = 20 + round;
        let filter = "basic match ipset(bad dst) action drop";
        instance.tc(&format!("filter add dev port-a ingress pref {pref} {filter}")).unwrap();
    }
    load.stop().unwrap();
    let (_, [forth, _]) = assert_balanced(&mut books, &instance);
    assert!(forth.handed_over > 1000, "{forth:?}");
    assert_eq!(forth.dropped_by_narrows, forth.handed_over, "some came through: {forth:?}");
}
