//! Delay, loss and a rate on a path, with real packets.

use crate::setup::{assert_balanced, flood, run, show, turn_to_count, turn_to_measure};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::SERVER;
use narrows_testbed::ping::Ping;
use narrows_testbed::window::{Delivered, Meter};
use narrows_testbed::{Testbed, frames, steering};
use std::thread::sleep;
use std::time::Duration;

/// The round trip of a ping through `bed`, in milliseconds: the median of some.
fn round_trip(bed: &Testbed) -> f64 {
    let ping = Ping::start(bed, Duration::from_secs(10)).unwrap();
    sleep(Duration::from_millis(1200));
    let stats = ping.stop().unwrap();
    assert_eq!(stats.lost, 0, "{stats:?}");
    stats.median().expect("some were answered").as_secs_f64() * 1e3
}

#[test]
fn a_ping_takes_the_delay_of_each_way() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    let without = round_trip(&bed);
    instance.tc("qdisc add dev port-b root netem delay 20ms").unwrap();
    let forth = round_trip(&bed) - without;
    instance.tc("qdisc add dev port-a root netem delay 20ms").unwrap();
    let both = round_trip(&bed) - without;
    // Never early; the lateness is that of this machine.
    assert!((19.5..24.0).contains(&forth), "{forth} ms more one way, {without} ms without");
    assert!((39.0..46.0).contains(&both), "{both} ms more both ways, {without} ms without");
    // At port B, all pings; at port A, those of the second half.
    let now = show(&bed);
    for port in &now["ports"].as_array().unwrap()[..] {
        let median = port["delays"]["p50_us"].as_f64().unwrap();
        let is_half = port["name"] == "port-a";
        assert!((20_000.0..21_000.0).contains(&median) || is_half, "{}", port["delays"]);
        assert!(port["delays"]["max_us"].as_f64().unwrap() >= 20_000.0, "{}", port["delays"]);
    }
}

#[test]
fn a_share_is_lost_and_every_packet_is_accounted_for() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(4).unwrap();
    let instance = run(&bed, &[]);
    let words = "netem delay 5ms 1ms distribution normal loss 10% corrupt 5% limit 5000 seed 1";
    instance.tc(&format!("qdisc add dev port-b root {words}")).unwrap();
    let mut books = Books::open(&bed).unwrap();
    let ports: Vec<u16> = (0..16).map(frames::port).collect();
    let load = flood(&bed, &ports, 200, 16e6);
    sleep(Duration::from_secs(2));
    load.stop().unwrap();
    assert_balanced(&mut books, &instance);
    let now = show(&bed);
    let total = &now["ports"][1]["total"];
    let (lost, sent) = (&total["drops_by_reason"]["loss"], &total["tx_packets"]);
    let (lost, sent) = (lost.as_u64().unwrap() as f64, sent.as_u64().unwrap() as f64);
    assert!(sent > 5_000.0, "{now:#}");
    let share = lost / (lost + sent);
    assert!((0.09..0.11).contains(&share), "{lost} lost, {sent} sent");
}

#[test]
fn a_rate_is_one_over_all_queues() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let flows = steering::flows(&bed, 4).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root netem delay 10ms rate 40mbit limit 200").unwrap();
    let mut books = Books::open(&bed).unwrap();
    let load = flood(&bed, &flows.concat(), 1000, 60e6);
    let [_, server] = bed.ends();
    let mut meter = Meter::at(server).unwrap();
    sleep(Duration::from_millis(500));
    let mut rates: Vec<f64> = Vec::new();
    let mut before = meter.read().unwrap();
    for _ in 0..5 {
        sleep(Duration::from_millis(500));
        let after = meter.read().unwrap();
        rates.push(Delivered::between(&before, &after).rate().bits_per_sec() as f64);
        before = after;
    }
    rates.sort_by(f64::total_cmp);
    // Never more. Less if a worker waits for its core for more than a millisecond, the most that
    // may be made up for.
    assert!((0.85 * 40e6..1.02 * 40e6).contains(&rates[2]), "{rates:?}");
    load.stop().unwrap();
    let (_, [forth, _]) = assert_balanced(&mut books, &instance);
    assert!(forth.dropped_by_narrows > 0, "{SERVER} got all of it");
}

#[test]
fn copies_are_sent_and_the_books_have_them() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root handle 1: netem delay 2ms duplicate 50%").unwrap();
    instance.tc("qdisc add dev port-b parent 1:1 handle 2: pfifo limit 10000").unwrap();
    let [_, server] = bed.ends();
    let mut meter = Meter::at(server).unwrap();
    let before = meter.read().unwrap();
    let ports: Vec<u16> = (0..16).map(frames::port).collect();
    let load = flood(&bed, &ports, 300, 6e6);
    sleep(Duration::from_secs(2));
    load.stop().unwrap();
    sleep(Duration::from_millis(200));
    let after = meter.read().unwrap();
    let now = show(&bed);
    let balance = &now["conservation"];
    let number = |key: &str| balance[key].as_u64().unwrap();
    assert_eq!((balance["unaccounted"].as_i64(), number("queued")), (Some(0), 0), "{balance}");
    let share = number("copied") as f64 / number("received") as f64;
    assert!((0.4..0.6).contains(&share), "{balance}");
    let got = after.counts.rx_packets - before.counts.rx_packets;
    // Besides a few of the machines' own.
    assert!(got.abs_diff(number("sent")) < 50, "{got} arrived: {balance}");
}

#[test]
fn a_tbf_below_a_delay_and_a_delay_below_a_tbf_keep_both_while_they_change() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    let without = round_trip(&bed);
    let mut books = Books::open(&bed).unwrap();
    for [first, second] in [
        [
            "root handle 1: netem delay 20ms",
            "parent 1:1 handle 2: tbf rate 8mbit burst 20k latency 50ms",
        ],
        [
            "root handle 3: tbf rate 8mbit burst 20k latency 50ms",
            "parent 3:1 handle 4: netem delay 20ms",
        ],
    ] {
        instance.tc(&format!("qdisc replace dev port-b {first}")).unwrap();
        instance.tc(&format!("qdisc replace dev port-b {second}")).unwrap();
        let more = round_trip(&bed) - without;
        assert!((19.0..27.0).contains(&more), "{first}, {second}: {more} ms more");
        let ports: Vec<u16> = (0..8).map(frames::port).collect();
        let load = flood(&bed, &ports, 1000, 16e6);
        let [_, server] = bed.ends();
        let mut meter = Meter::at(server).unwrap();
        sleep(Duration::from_millis(500));
        let before = meter.read().unwrap();
        for _ in 0..10 {
            sleep(Duration::from_millis(100));
            instance.tc(&format!("qdisc replace dev port-b {first}")).unwrap();
            instance.tc(&format!("qdisc replace dev port-b {second}")).unwrap();
        }
        let after = meter.read().unwrap();
        let rate = Delivered::between(&before, &after).rate().bits_per_sec() as f64;
        assert!((0.8 * 8e6..1.04 * 8e6).contains(&rate), "{first}, {second}: {rate}");
        load.stop().unwrap();
    }
    assert_balanced(&mut books, &instance);
}
