//! Behaviour when the process, or one of its workers, hangs.

use crate::setup::{
    assert_balanced, complaint, flood, flood_from, ip, narrows, run, show, tc, turn_to_count,
    wait_for,
};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::SERVER;
use narrows_testbed::counters::Counters;
use narrows_testbed::ping::Ping;
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Traffic resumes, and commands answer, within this time.
const PROMISE: Duration = Duration::from_secs(1);

/// The duration of a hang, far beyond the guarantee.
const HANG: Duration = Duration::from_secs(3);

fn ports() -> Vec<u16> {
    (0..32).map(frames::port).collect()
}

fn total(show: &Value, key: &str) -> u64 {
    (0..2).map(|port| show["ports"][port][key].as_u64().unwrap()).sum()
}

fn stalled_drops(show: &Value) -> u64 {
    show["conservation"]["dropped"]["stalled"].as_u64().unwrap_or(0)
}

fn events(show: &Value) -> String {
    let events = show["events"].as_array().unwrap().iter();
    events.filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
}

/// The arrivals at the server in a second, in bits of frames.
fn arriving(bed: &Testbed) -> f64 {
    let mut server = Counters::of(bed.server(), SERVER).unwrap();
    let (begin, before) = (Instant::now(), server.read().unwrap().rx_bytes);
    sleep(Duration::from_secs(1));
    let bytes = server.read().unwrap().rx_bytes - before;
    bytes as f64 * 8.0 / begin.elapsed().as_secs_f64()
}

/// Runs `ask` and asserts that it is within the guarantee.
#[track_caller]
fn promptly<T>(what: &str, ask: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let answer = ask();
    assert!(begin.elapsed() <= PROMISE, "{what} took {:?}", begin.elapsed());
    answer
}

#[test]
fn traffic_goes_on_while_the_whole_process_is_stopped_and_is_shaped_again_after() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let mut instance = run(&bed, &[]);
    for port in ["port-a", "port-b"] {
        instance
            .tc(&format!("qdisc add dev {port} root tbf rate 20mbit burst 100k latency 50ms"))
            .unwrap();
    }
    let mut books = Books::open(&bed).unwrap();
    let forth = flood(&bed, &ports(), 500, 10e6);
    let back = flood_from(bed.server(), SERVER, &ports(), 500, 10e6);
    let ping = Ping::start(&bed, Duration::from_secs(30)).unwrap();
    wait_for(&bed, "forwarding", |show| total(show, "stalled") == 0 && arrived(show) > 1000);
    instance.freeze().unwrap();
    sleep(HANG);
    // Frames flow while all of user space is stopped.
    let unshaped = arriving(&bed);
    instance.thaw().unwrap();
    assert!(unshaped > 5e6, "{unshaped} bit/s arrive while the process is stopped");
    let before = arrived(&show(&bed));
    // Packets that arrived before the time-out were too old to be sent.
    let now = wait_for(&bed, "serving again", |show| {
        let is_reported = events(show).contains("back after") && stalled_drops(show) > 0;
        is_reported && arrived(show) > before + 1000
    });
    let stats = ping.stop().unwrap();
    assert!(stats.longest_gap <= PROMISE, "{stats:?}");
    assert!(stats.received > 100, "{stats:?}");

    assert!(total(&now, "stalled") > 1000, "{now:#}");
    assert!(now["conservation"]["bypassed"].as_u64() >= Some(total(&now, "stalled")), "{now:#}");

    let more = flood(&bed, &ports(), 500, 60e6);
    sleep(Duration::from_millis(500));
    let shaped = arriving(&bed);
    assert!((10e6..24e6).contains(&shaped), "{shaped} bit/s arrive of 20 Mbit/s");
    more.stop().unwrap();
    forth.stop().unwrap();
    back.stop().unwrap();
    assert_balanced(&mut books, &instance);
}

fn arrived(show: &Value) -> u64 {
    show["conservation"]["received"].as_u64().unwrap()
}

#[test]
fn a_worker_that_hangs_is_passed_by_and_named_and_told_when_it_is_back() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root tbf rate 40mbit burst 100k latency 50ms").unwrap();
    let mut books = Books::open(&bed).unwrap();
    let forth = flood(&bed, &ports(), 500, 10e6);
    let back = flood_from(bed.server(), SERVER, &ports(), 500, 10e6);
    let ping = Ping::start(&bed, Duration::from_secs(30)).unwrap();
    let before = wait_for(&bed, "forwarding", |show| arrived(show) > 1000);

    let hung = instance.hang(0).unwrap();
    // At once and repeatedly: before the worker counts as silent, and after.
    let begin = Instant::now();
    let mut now = before.clone();
    while begin.elapsed() < HANG {
        let last = now;
        now = promptly("show", || show(&bed));
        assert!(arrived(&now) >= arrived(&last), "counters run backwards: {now:#}");
        assert_eq!(now["conservation"]["unaccounted"], 0, "{now:#}");
    }
    let silence = now["workers"][0]["silent_s"].as_f64().unwrap();
    assert!((1.0..10.0).contains(&silence), "{now:#}");
    // The other worker is silent only if the same thread serves it.
    let [shares, is_silent] = [
        now["workers"][1]["thread"] == now["workers"][0]["thread"],
        now["workers"][1].get("silent_s").is_some(),
    ];
    assert_eq!(is_silent, shares, "{now:#}");
    let names = if shares { "workers 0 and 1 are" } else { "worker 0 is" };
    assert!(events(&now).contains(&format!("{names} silent")), "{now:#}");
    assert!(total(&now, "stalled") > 500, "{now:#}");
    let text = narrows(&bed, &["show"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("worker 0: cpu 0, SILENT for"), "{text}");
    let asked = promptly("tc", || tc(&bed, "-s qdisc show"));
    assert_eq!(asked.status.code(), Some(0));
    assert!(complaint(&asked).contains("worker 0 has been silent for"), "{}", complaint(&asked));

    drop(hung);
    let expected = format!("{names} back after");
    let now = wait_for(&bed, "back", |show| events(show).contains(&expected));
    assert!(now["workers"][0].get("silent_s").is_none(), "{now:#}");
    assert!(stalled_drops(&now) > 0, "{now:#}");
    forth.stop().unwrap();
    back.stop().unwrap();
    let stats = ping.stop().unwrap();
    assert!(stats.longest_gap <= PROMISE, "{stats:?}");
    assert_balanced(&mut books, &instance);
}

#[test]
fn a_worker_that_hung_takes_over_the_newest_policy_before_another_packet() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let instance = run(&bed, &[]);
    instance.tc("qdisc add dev port-b root tbf rate 50mbit burst 20k latency 20ms").unwrap();
    let hung = instance.hang(0).unwrap();
    for words in [
        "qdisc replace dev port-b root pfifo limit 100",
        "qdisc replace dev port-b root handle 7: tbf rate 30mbit burst 20k latency 20ms",
        "qdisc change dev port-b root handle 7: tbf rate 2mbit burst 20k latency 20ms",
    ] {
        let output = promptly(words, || tc(&bed, words));
        assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));
        assert!(complaint(&output).contains("worker 0 has been silent"), "{}", complaint(&output));
    }
    let shown = instance.tc("qdisc show dev port-b").unwrap();
    assert!(shown.contains("rate 2Mbit"), "{shown}");
    drop(hung);
    wait_for(&bed, "back", |show| events(show).contains("back after"));
    let _load = flood(&bed, &ports(), 500, 20e6);
    sleep(Duration::from_millis(300));
    let rate = arriving(&bed);
    assert!((1e6..3e6).contains(&rate), "{rate} bit/s arrive of 2 Mbit/s");
}

#[test]
fn where_traffic_is_to_stop_with_the_process_it_stops_with_a_worker_and_is_counted() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(1).unwrap();
    let mut instance = run(&bed, &["--fail-closed"]);
    let load = flood(&bed, &ports(), 500, 10e6);
    wait_for(&bed, "forwarding", |show| arrived(show) > 1000);
    instance.freeze().unwrap();
    sleep(PROMISE);
    assert_eq!(arriving(&bed), 0.0, "frames are forwarded without a forwarder");
    instance.thaw().unwrap();
    let before = arrived(&show(&bed));
    let now = wait_for(&bed, "serving again", |show| arrived(show) > before + 1000);
    assert!(total(&now, "stalled") > 1000, "{now:#}");
    let text = String::from_utf8(narrows(&bed, &["show"]).stdout).unwrap();
    assert!(text.contains("dropped while their worker was silent"), "{text}");
    assert_eq!(ip(bed.shaper(), "-o link show type bridge"), "");
    load.stop().unwrap();
}

#[test]
fn a_worker_that_hangs_does_not_hang_the_end() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    let load = flood(&bed, &ports(), 500, 10e6);
    let ping = Ping::start(&bed, Duration::from_secs(30)).unwrap();
    wait_for(&bed, "forwarding", |show| arrived(show) > 1000);
    let hung = instance.hang(1).unwrap();
    sleep(Duration::from_millis(200));
    let begin = Instant::now();
    let (status, log) = std::thread::scope(|scope| {
        let ending = scope.spawn(|| instance.stop().unwrap());
        hung.die().unwrap();
        ending.join().unwrap()
    });
    assert!(begin.elapsed() < Duration::from_secs(3), "the end took {:?}", begin.elapsed());
    assert_eq!(status.code(), Some(0), "{log}");
    let left = ["worker 1 is abandoned", "workers 0 and 1 are abandoned"];
    assert!(left.iter().any(|words| log.contains(words)), "{log}");
    assert!(log.contains(", 0 unaccounted"), "{log}");
    assert!(arriving(&bed) > 5e6, "nothing is forwarded after the end");
    load.stop().unwrap();
    let stats = ping.stop().unwrap();
    assert!(stats.longest_gap <= PROMISE, "{stats:?}");
    let _again = run(&bed, &[]);
    wait_for(&bed, "served by the next", |show| show["state"] == "running");
}
