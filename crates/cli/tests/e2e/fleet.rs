//! A limit that several boxes share: what is in force on this one follows an agent's orders, and
//! falls back by itself when they run out.

use crate::host_plane;
use crate::limits::assert_near;
use crate::policing::XDP;
use crate::setup::{
    NARROWS, Scratch, assert_balanced, assert_refused, flood, hang_up, run, show, tc,
    turn_to_count, turn_to_measure, wait_for,
};
use narrows_control::place::{RUN_DIR, SOCKET};
use narrows_control::{Answer, Client, Request};
use narrows_snapshot::{FLEET_HOLD_NS, FleetFacts, FleetOrder, FleetShare, SharedLimit};
use narrows_testbed::accounting::Books;
use narrows_testbed::bed::PORT_B;
use narrows_testbed::narrows::Instance;
use narrows_testbed::window::{Delivered, Meter};
use narrows_testbed::{Testbed, frames};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

const HOLD: Duration = Duration::from_nanos(FLEET_HOLD_NS);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);
/// A flood's frames.
const FRAME: usize = 1000;
/// The allowed deviation of a rate in a window in which bursts count.
const TOLERANCE: f64 = 0.06;

/// A part in Mbit/s: what is lent, and what is borrowed.
type Part = (&'static str, u64, u64);

/// The agent's side of the control socket.
struct Agent(Client);

impl Agent {
    fn of(bed: &Testbed) -> Self {
        // The client finds instances of the namespace of its process, and this is a thread's.
        let namespace = || Ok(fs::metadata("/proc/thread-self/ns/net")?.ino());
        let folder = format!("{RUN_DIR}/net-{}", bed.shaper().enter(namespace).unwrap());
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == SOCKET);
        Self(Client::at({ files }.find(is_socket).unwrap()))
    }

    fn ask(&self, order: FleetOrder) -> FleetFacts {
        match self.0.ask(&Request::Fleet(order)).unwrap() {
            Answer::Fleet(facts) => *facts,
            other => panic!("{other:?}"),
        }
    }

    /// All limits.
    fn look(&self) -> FleetFacts {
        self.ask(FleetOrder::default())
    }

    fn limit(&self, name: &str) -> SharedLimit {
        self.look().limits.into_iter().find(|limit| limit.name == name).unwrap()
    }

    /// Orders `parts` for the time from now on, and returns what has changed since `since`.
    fn order(&self, parts: &[Part], time: Duration, since: u64) -> FleetFacts {
        let share = |&(name, lent, borrowed): &Part| FleetShare {
            name: name.into(),
            lent_bps: lent * 1_000_000,
            borrowed_bps: borrowed * 1_000_000,
        };
        let deadline_ns = self.look().now_ns + time.as_nanos() as u64;
        self.ask(FleetOrder { shares: parts.iter().map(share).collect(), deadline_ns, since })
    }
}

/// The rate at the server in a window of `time`, in Mbit/s.
fn mbit(bed: &Testbed, time: Duration) -> f64 {
    let [_, server] = bed.ends();
    let mut meter = Meter::at(server).unwrap();
    let before = meter.read().unwrap();
    sleep(time);
    let after = meter.read().unwrap();
    let frames = Delivered::between(&before, &after).packets_per_second();
    frames * (8 * FRAME) as f64 / 1e6
}

/// Asserts that `due` Mbit/s arrive in a window of a second. A busy machine gets another try.
#[track_caller]
fn assert_rate(bed: &Testbed, due: f64, what: &str) {
    // Bursts of another rate end.
    sleep(Duration::from_millis(200));
    let mut measured = 0.0;
    for _ in 0..3 {
        measured = mbit(bed, Duration::from_millis(600));
        if (measured / due - 1.0).abs() < TOLERANCE {
            return;
        }
    }
    assert_near(measured * 1e6, due * 1e6, TOLERANCE, what);
}

/// The life of the shared limit `site`, of 40 Mbit/s, with a safe share of 16, under load.
#[track_caller]
fn assert_follows(bed: &Testbed, agent: &Agent) {
    agent.order(&[("site", 10, 0)], LONG, 0);
    assert_rate(bed, 6.0, "10 of 16 are lent");
    agent.order(&[("site", 0, 14)], LONG, 0);
    assert_rate(bed, 30.0, "14 are borrowed");
    // What was earned at the higher rate does not count: no more than a burst comes at once.
    agent.order(&[("site", 12, 0)], LONG, 0);
    let least = mbit(bed, Duration::from_millis(500));
    assert!(least < 4.0 * 1.1 + 0.5, "{least} Mbit/s at once after a cut to 4");
    agent.order(&[("site", 6, 10)], LONG, 0);
    assert_rate(bed, 20.0, "6 of 16 are lent, and 10 are borrowed");
    let time = Duration::from_millis(600);
    let begin = Instant::now();
    agent.order(&[], time, 0);
    sleep(time);
    assert_rate(bed, 10.0, "the deadline has passed: nothing is borrowed");
    let limit = agent.limit("site");
    assert_eq!([limit.lent_bps, limit.borrowed_bps], [6_000_000, 0], "{limit:?}");
    sleep((begin + time + HOLD).saturating_duration_since(Instant::now()));
    assert_rate(bed, 16.0, "nothing is lent any more");
    let shown = show(bed);
    assert_eq!(shown["fleet"][0]["because"], "alone", "{shown:#}");
}

/// The flows of a flood.
fn flows() -> Vec<u16> {
    (0..32).map(frames::port).collect()
}

#[test]
fn a_class_has_its_share_on_a_wire_and_a_new_process_goes_on_with_it() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(4).unwrap();
    let mut instance = run(&bed, &[]);
    let mut books = Books::open(&bed).unwrap();
    let load = flood(&bed, &flows(), FRAME, 60e6);
    let lines = "qdisc add dev port-b root handle 1: htb default 10\n\
                 class add dev port-b parent 1: classid 1:1 htb rate 90mbit\n\
                 class add dev port-b parent 1:1 classid 1:10 htb rate 20mbit ceil 40mbit \
                 burst 20k cburst 20k fleet site safe 16mbit\n";
    instance.tc_batch(lines).unwrap();
    let agent = Agent::of(&bed);
    let first = agent.limit("site");
    assert_eq!((first.in_force_bps, &*first.at), (125_000, "1:10"), "{first:?}");
    assert!(first.unset_since_ns.is_some());
    let floor = mbit(&bed, Duration::from_secs(1));
    assert!(floor < 0.5, "{floor} Mbit/s at the floor");
    assert_follows(&bed, &agent);

    agent.order(&[("site", 0, 14)], LONG, 0);
    instance.upgrade().unwrap();
    let agent = Agent::of(&bed);
    assert_eq!(agent.limit("site").in_force_bps, 30_000_000);
    assert_rate(&bed, 30.0, "after the upgrade");
    load.stop().unwrap();
    assert_balanced(&mut books, &instance);
}

#[test]
fn a_tbf_and_a_cake_have_their_shares_on_a_wire() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let instance = run(&bed, &[]);
    let mut books = Books::open(&bed).unwrap();
    let load = flood(&bed, &flows(), FRAME, 60e6);
    for words in ["1: tbf rate 40mbit burst 20k limit 100k", "2: cake bandwidth 40mbit raw"] {
        let words = format!("qdisc replace dev port-b root handle {words} fleet site safe 16mbit");
        instance.tc(&words).unwrap();
        assert_follows(&bed, &Agent::of(&bed));
    }
    load.stop().unwrap();
    assert_balanced(&mut books, &instance);
}

#[test]
fn a_share_holds_in_the_driver() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = Testbed::up(2).unwrap();
    let mut instance = run(&bed, &XDP);
    let load = flood(&bed, &flows(), FRAME, 60e6);
    instance
        .tc("qdisc add dev port-b root tbf rate 40mbit burst 20k limit 10k fleet site boxes 2")
        .unwrap();
    instance.tc("qdisc change dev port-b root tbf rate 40mbit burst 20k limit 10k fleet site safe 16mbit").unwrap();
    let agent = Agent::of(&bed);
    assert_follows(&bed, &agent);
    agent.order(&[("site", 0, 14)], LONG, 0);
    instance.upgrade().unwrap();
    assert_rate(&bed, 30.0, "after the upgrade");
    load.stop().unwrap();
}

#[test]
fn a_share_holds_for_what_this_host_sends() {
    let Some(_turn) = turn_to_measure() else { return };
    let bed = host_plane::bed();
    let words = ["run", "--plane", "host", "--ports", PORT_B];
    let instance = Instance::start_command(&bed, Path::new(NARROWS), &words).unwrap();
    instance.tc("qdisc add dev port-b root tbf rate 40mbit burst 30k latency 50ms fleet site safe 16mbit").unwrap();
    let agent = Agent::of(&bed);
    let sent = |time: Duration| {
        let mut received = host_plane::Received::open(&bed);
        host_plane::send(&bed, 9, 60e6, time);
        sleep(Duration::from_millis(100));
        received.counts().rx_bytes as f64 * 8.0 / 1e6 / time.as_secs_f64()
    };
    for (part, due) in [(("site", 10, 0), 6.0), (("site", 0, 14), 30.0), (("site", 12, 0), 4.0)] {
        agent.order(&[part], LONG, 0);
        let rate = sent(Duration::from_secs(1));
        // Of a second's rate a burst and what waits come in addition.
        assert!((due * 0.85..due * 1.15 + 1.0).contains(&rate), "{rate} Mbit/s instead of {due}");
    }
    agent.order(&[], Duration::from_millis(1), 0);
    sleep(HOLD + Duration::from_millis(200));
    let rate = sent(Duration::from_secs(1));
    assert!((13.0..19.0).contains(&rate), "{rate} Mbit/s instead of 16");
}

#[test]
fn an_agent_hears_of_what_has_changed_and_of_nothing_else() {
    let Some(_turn) = turn_to_count() else { return };
    let bed = Testbed::up(2).unwrap();
    let policy = |names: &[&str]| {
        let mut text = "qdisc add dev port-b root handle 1: htb default 10\n".to_owned();
        for (number, name) in (10..).zip(names) {
            text += &format!(
                "class add dev port-b parent 1: classid 1:{number} htb rate 1mbit ceil 8mbit prio 3 \
                 fleet {name} boxes 2\n"
            );
        }
        text
    };
    let file = Scratch::new("fleet.tc", &policy(&["one", "two", "three"]));
    let instance = run(&bed, &["--batch", file.path()]);
    let agent = Agent::of(&bed);
    let all = agent.look();
    let names = |facts: &FleetFacts| -> Vec<String> {
        facts.limits.iter().map(|limit| limit.name.to_string()).collect()
    };
    assert_eq!(all.limits.len(), 3, "{all:?}");
    let one = &all.limits[0];
    assert_eq!(
        (one.limit_bps, one.safe_bps, one.assured_bps, one.prio),
        (8_000_000, 4_000_000, 1_000_000, 3)
    );
    assert!(agent.ask(FleetOrder { since: all.cursor, ..FleetOrder::default() }).limits.is_empty());

    let ordered = agent.order(&[("two", 1, 0), ("four", 1, 0)], LONG, all.cursor);
    assert_eq!((names(&ordered), ordered.gone), (vec!["two".to_owned()], vec!["four".into()]));
    assert_eq!(ordered.limits[0].in_force_bps, 3_000_000);

    // The class is the default one.
    let load = flood(&bed, &flows(), FRAME, 2e6);
    sleep(Duration::from_millis(500));
    load.stop().unwrap();
    let counted = agent.ask(FleetOrder { since: ordered.cursor, ..FleetOrder::default() });
    assert_eq!(names(&counted), ["one"]);
    let one = &counted.limits[0];
    assert!(one.sent_bytes > 0 && one.backlog_bytes > 0, "{one:?}");

    // A reload keeps the parts of names that stay, and one that is new is at its floor.
    fs::write(file.path(), policy(&["one", "two", "new"])).unwrap();
    hang_up(&instance);
    wait_for(&bed, "read again", |shown| {
        shown["fleet"].as_array().is_some_and(|all| all.iter().any(|limit| limit["name"] == "new"))
    });
    let again = agent.look();
    let since = agent.ask(FleetOrder { since: counted.cursor, ..FleetOrder::default() });
    assert_eq!(since.gone, ["three"]);
    let in_force =
        |name: &str| again.limits.iter().find(|limit| limit.name == name).unwrap().in_force_bps;
    assert_eq!([in_force("two"), in_force("new")], [3_000_000, 31_250]);
    let shown = show(&bed);
    let because = |name: &str| -> Value {
        let all = shown["fleet"].as_array().unwrap();
        all.iter().find(|limit| limit["name"] == name).unwrap()["because"].clone()
    };
    assert_eq!([because("two"), because("new")], ["agent", "start"]);
    // Of what a command that the plane does not take would have changed, nothing has.
    let same =
        tc(&bed, "class add dev port-b parent 1: classid 1:20 htb rate 1mbit fleet two boxes 2");
    assert_refused(&same, 2, &["two", "1:11", "already"]);

    drop(instance);
    let _instance = run(&bed, &["--batch", file.path()]);
    let restarted = Agent::of(&bed).limit("two");
    assert_eq!((restarted.in_force_bps, restarted.unset_since_ns.is_some()), (31_250, true));
}
