//! Small runs, compared with results known in advance.

use super::*;
use narrows_coordination::TreeStrategy;
use narrows_units::{Bytes, Nanos, Rate};

const POLICY: &str = "qdisc add dev eth1 root handle 1: htb
class add dev eth1 parent 1: classid 1:1 htb rate 100mbit
class add dev eth1 parent 1:1 classid 1:10 htb rate 30mbit ceil 100mbit
class add dev eth1 parent 1:1 classid 1:20 htb rate 70mbit ceil 100mbit
";

fn setup() -> Setup {
    let app = |name: &str, class| App { name: name.to_owned(), class, flows: 2 };
    let phase = |one, other| Phase { length: Nanos::from_millis(400), sends: vec![one, other] };
    Setup {
        line: Rate::from_bits_per_sec(1_000_000_000),
        buffer: Bytes(200_000),
        round_trip: Nanos::from_millis(2),
        time_out: Nanos::from_millis(10),
        frame: Bytes(1500),
        settle: Nanos::from_millis(200),
        window: Nanos::from_millis(10),
        apps: vec![app("one", 0x10), app("other", 0x20)],
        phases: vec![phase(true, true), phase(true, false)],
        seed: 1,
    }
}

fn scheduler(coordination: TreeStrategy, drops: bool) -> Scheduler {
    let (name, policy) = ("test".to_owned(), POLICY.to_owned());
    let keeper = Keeper::Workers(coordination);
    Scheduler { name, policy, keeper, drops, before: vec![false; 2], line: None }
}

fn near(rate: f64, mbit: f64) -> bool {
    (rate * 1e3 / mbit - 1.0).abs() < 0.06
}

#[test]
fn each_strategy_keeps_and_lends_the_tree_s_rates() {
    for coordination in TreeStrategy::ALL {
        let setup = setup();
        let outcome = run(&setup, &scheduler(coordination, false), &mut |_| {}).unwrap();
        let rate = |phase, app| outcome.rate(&setup, phase, app);
        let rates = [rate(0, 0), rate(0, 1), rate(1, 0), rate(1, 1)];
        let what = format!("{}: {rates:?}", coordination.name());
        assert!(near(rates[0], 30.0) && near(rates[1], 70.0), "{what}");
        assert!(near(rates[2], 100.0) && rates[3] < 0.001, "{what}");
    }
}

#[test]
fn packets_without_a_token_are_dropped_where_nothing_queues() {
    let setup = setup();
    let outcome = run(&setup, &scheduler(TreeStrategy::FlowValve, true), &mut |_| {}).unwrap();
    assert!(outcome.books.dropped > 0 && outcome.books.under_way == 0, "{:?}", outcome.books);
    // The rate of TCP under a policer.
    let sum = outcome.sum(&setup, 0);
    assert!((0.06..=0.103).contains(&sum), "{sum}");
}

#[test]
fn the_driver_s_program_keeps_the_tree_and_is_kind_to_tcp() {
    let setup = setup();
    let driver = Scheduler {
        keeper: Keeper::Driver(TreeStrategy::Fair),
        ..scheduler(TreeStrategy::Fair, true)
    };
    let outcome = run(&setup, &driver, &mut |_| {}).unwrap();
    let rates = [(0, 0), (0, 1), (1, 0)].map(|(phase, app)| outcome.rate(&setup, phase, app));
    assert!(near(rates[0], 30.0) && near(rates[1], 70.0) && near(rates[2], 100.0), "{rates:?}");
    let waits = Scheduler { drops: false, ..driver };
    assert!(check(&waits, 2).unwrap_err().contains("drops = true"));
}

#[test]
fn departure_times_keep_the_tree_and_no_connection_loses_much() {
    let setup = setup();
    let departs = Scheduler { keeper: Keeper::Departures, ..scheduler(TreeStrategy::Fair, false) };
    let outcome = run(&setup, &departs, &mut |_| {}).unwrap();
    let rates = [(0, 0), (0, 1), (1, 0)].map(|(phase, app)| outcome.rate(&setup, phase, app));
    // What a connection has booked departs, though another class has woken since: windows here are
    // bounded by drops alone.
    let near = |rate: f64, mbit: f64| (rate * 1e3 / mbit - 1.0).abs() < 0.1;
    assert!(near(rates[0], 30.0) && near(rates[1], 70.0) && near(rates[2], 100.0), "{rates:?}");
    // A fifth of a second may have some of what was booked before it: a few milliseconds.
    assert!((rates[0] + rates[1] - 0.1).abs() < 0.002, "{rates:?}");
    let drops = Scheduler { drops: true, ..departs };
    assert!(check(&drops, 2).unwrap_err().contains("wait"));
}

#[test]
fn traffic_ahead_of_the_tree_has_the_line() {
    let mut setup = setup();
    setup.line = Rate::from_bits_per_sec(100_000_000);
    let mut scheduler = scheduler(TreeStrategy::Fair, false);
    scheduler.before[0] = true;
    let outcome = run(&setup, &scheduler, &mut |_| {}).unwrap();
    assert!(near(outcome.rate(&setup, 0, 0), 100.0), "{}", outcome.rate(&setup, 0, 0));
}

#[test]
fn inner_classes_and_invalid_policies_are_refused() {
    let mut setup = setup();
    let mut scheduler = scheduler(TreeStrategy::Fair, false);
    setup.apps[0].class = 1;
    let refused =
        |setup: &Setup, scheduler: &Scheduler| run(setup, scheduler, &mut |_| {}).unwrap_err();
    assert!(refused(&setup, &scheduler).contains("no leaf class 1:1"));
    scheduler.policy =
        "qdisc add dev eth1 root handle 1: tbf rate 1mbit burst 5k limit 5k".to_owned();
    assert!(check(&scheduler, 2).is_err());
    scheduler.policy = "class add".to_owned();
    assert!(check(&scheduler, 2).unwrap_err().contains("test:1"));
}

#[test]
fn one_lock_is_the_limit_and_a_batch_at_a_time_is_none() {
    let costs = crate::setup::Costs {
        step_ns: 1.0,
        packet_ns: 100.0,
        drop_ns: 1.0,
        line_read_ns: 100.0,
        line_update_ns: 20.0,
        lock_handover_ns: 100.0,
        qdisc_handover_ns: 100.0,
    };
    let mpps = |keeper, cores| {
        let load = capacity::Load {
            classes: vec![0x10, 0x20],
            frame: Bytes(64),
            cores,
            line: Rate::from_bits_per_sec(100_000_000_000),
            length: Nanos::from_micros(500),
        };
        let mut scheduler = Scheduler { keeper, ..scheduler(TreeStrategy::Fair, true) };
        scheduler.policy = POLICY.replace("mbit", "gbit");
        capacity::run(&scheduler, &load, &costs).unwrap()
    };
    // Two classes below each other, 40 ns under the lock, and 100 until another core has it.
    let locked = mpps(Keeper::Workers(TreeStrategy::Lock), 16);
    assert!((6.8..=7.2).contains(&locked), "{locked}");
    let fair = [1, 8].map(|cores| mpps(Keeper::Workers(TreeStrategy::Fair), cores));
    assert!(fair[1] > 7.5 * fair[0], "{fair:?}");
    assert!(mpps(Keeper::Workers(TreeStrategy::FlowValve), 1) < fair[0]);
    // So does a CPU's credit.
    let driver = [1, 8].map(|cores| mpps(Keeper::Driver(TreeStrategy::Fair), cores));
    assert!(driver[1] > 7.0 * driver[0], "{driver:?}");
}

#[test]
fn forty_cores_pass_95_percent_of_forty_times_one_core_through_a_tree_of_depth_4() {
    let costs = crate::setup::Costs {
        step_ns: 1.0,
        packet_ns: 187.0,
        drop_ns: 1.0,
        line_read_ns: 225.0,
        line_update_ns: 25.0,
        lock_handover_ns: 135.0,
        qdisc_handover_ns: 135.0,
    };
    let policy = include_str!("../../scenarios/four-levels.tc").to_owned();
    let scheduler = Scheduler { policy, ..scheduler(TreeStrategy::Fair, false) };
    let mpps = |cores| {
        let load = capacity::Load {
            classes: (0x10..0x20).collect(),
            frame: Bytes(64),
            cores,
            line: Rate::from_bits_per_sec(1_000_000_000_000),
            length: Nanos::from_millis(1),
        };
        capacity::run(&scheduler, &load, &costs).unwrap()
    };
    let (one, forty) = (mpps(1), mpps(40));
    assert!(forty >= 0.95 * 40.0 * one, "{forty} with 40 cores, {one} with one");
}
