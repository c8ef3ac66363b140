//! Flows that take turns, and the longest loses.

use crate::port::{Port, flow};
use narrows_packet::DropReason;
use narrows_qdisc::sfq::Config;
use narrows_qdisc::{Config as AnyConfig, Verdict};
use narrows_units::Nanos;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

fn port(config: Config) -> Port {
    Port::new(AnyConfig::Sfq(config))
}

fn queued(port: &Port) -> BTreeMap<u32, usize> {
    let mut queued = BTreeMap::new();
    for number in 0..port.came {
        let gone =
            port.dropped.contains(&number) || port.left.iter().any(|left| left.number == number);
        *queued.entry(number as u32 % 2).or_default() += usize::from(!gone);
    }
    queued
}

#[test]
fn flows_share_evenly_at_any_load() {
    let mut port = port(Config::default());
    for _ in 0..3000 {
        port.arrive_all((0..4).map(|_| flow(1)), 1500);
        port.arrive(flow(2), 1500);
        port.arrive_all((0..6).map(|_| flow(3)), 500);
        port.leave(2);
    }
    let sent = |number| -> u64 {
        port.left.iter().filter(|left| left.flow == number).map(|left| u64::from(left.len)).sum()
    };
    let sent = [1, 2, 3].map(sent);
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least <= 2 * 1514, "{sent:?}");
}

#[test]
fn the_longest_flow_loses_its_last_packet_or_its_first() {
    for (headdrop, dropped) in [(false, 10), (true, 0)] {
        let mut port = port(Config { limit: 12, headdrop, ..Config::default() });
        (0..11).for_each(|_| assert_eq!(port.arrive(flow(1), 100), Verdict::Queued));
        assert_eq!(port.arrive(flow(2), 100), Verdict::Queued);
        assert_eq!(port.arrive(flow(2), 100), Verdict::Dropped);
        assert_eq!(port.dropped, [dropped]);
        assert_eq!(port.drops(DropReason::Limit), 1);
    }
}

#[test]
fn a_flow_is_no_longer_than_its_depth() {
    for (headdrop, dropped) in [(false, [3, 4]), (true, [0, 1])] {
        let mut port = port(Config { depth: 3, headdrop, ..Config::default() });
        port.arrive_all((0..5).map(|_| flow(1)), 100);
        assert_eq!((port.dropped.as_slice(), port.drops(DropReason::FlowLimit)), (&dropped[..], 2));
    }
}

#[test]
fn there_are_no_more_flows_at_once_than_allowed() {
    let mut port = port(Config { flows: 2, ..Config::default() });
    assert_eq!(
        [1, 2, 3].map(|number| port.arrive(flow(number), 100) == Verdict::Queued),
        [true, true, false]
    );
    port.leave_all();
    assert_eq!(port.arrive(flow(3), 100), Verdict::Queued);
}

#[test]
fn colliding_flows_separate_when_the_hash_changes() {
    // With two places some flows collide for any key, but not always the same ones.
    let perturb = Nanos::from_secs(1);
    let mut port =
        port(Config { divisor: 2, perturb, limit: 1000, depth: 1000, ..Config::default() });
    let mut together = Vec::new();
    for round in 0..40 {
        port.now = Nanos::from_secs(10 + 2 * round);
        for _ in 0..4 {
            port.arrive(flow(1), 1500);
            port.arrive(flow(2), 1500);
        }
        let before = port.left.len();
        port.leave_all();
        // One place: as they came. Two: in turns that are longer than a packet.
        let order: Vec<_> = port.left[before..].iter().map(|left| left.number).collect();
        together.push(order.is_sorted());
    }
    assert!(together.contains(&true) && together.contains(&false), "{together:?}");
}

#[test]
fn queued_packets_stay_in_order_when_the_hash_changes() {
    let mut port = port(Config { perturb: Nanos::from_secs(1), ..Config::default() });
    for number in 0..60u32 {
        port.arrive(flow(number % 2), 1500);
    }
    port.now += Nanos::from_secs(2);
    port.leave(7);
    port.now += Nanos::from_secs(2);
    assert_eq!(queued(&port).values().sum::<usize>(), 53);
    port.leave_all();
    for number in 0..2 {
        let order: Vec<_> =
            port.left.iter().filter(|left| left.flow == number).map(|left| left.number).collect();
        assert!(order.is_sorted() && order.len() == 30);
    }
}

/// Deficit round robin over plain lists.
#[derive(Default)]
struct Textbook {
    flows: BTreeMap<u32, (VecDeque<(u64, u32)>, i64)>,
    turns: VecDeque<u32>,
}

impl Textbook {
    const QUANTUM: i64 = 1514;

    fn enqueue(&mut self, flow: u32, number: u64, len: u32) {
        let entry = self.flows.entry(flow).or_default();
        if entry.0.is_empty() {
            entry.1 = Self::QUANTUM;
            self.turns.push_back(flow);
        }
        entry.0.push_back((number, len));
    }

    fn dequeue(&mut self) -> Option<u64> {
        loop {
            let flow = *self.turns.front()?;
            let (queue, allot) = self.flows.get_mut(&flow).unwrap();
            if *allot <= 0 {
                *allot += Self::QUANTUM;
                self.turns.rotate_left(1);
                continue;
            }
            let (number, len) = queue.pop_front().unwrap();
            *allot -= i64::from(len);
            if queue.is_empty() {
                self.turns.pop_front();
            }
            return Some(number);
        }
    }
}

proptest! {
    /// The oracle is round robin over plain lists.
    #[test]
    fn flows_take_turns_as_in_the_textbook(
        steps in prop::collection::vec((0u32..12, 60u32..1514, prop::option::of(1usize..6)), 1..300),
    ) {
        // Enough places that no two flows collide.
        let config = Config { divisor: 65_536, limit: 1000, depth: 1000, ..Config::default() };
        let mut port = port(config);
        let mut textbook = Textbook::default();
        for (number, len, leave) in steps {
            textbook.enqueue(number, port.came, len);
            port.arrive(flow(number), len);
            let before = port.left.len();
            port.leave(leave.unwrap_or(0));
            for left in &port.left[before..] {
                prop_assert_eq!(Some(left.number), textbook.dequeue());
            }
        }
    }

    #[test]
    fn limits_hold_and_flows_keep_their_order(
        steps in prop::collection::vec((0u32..30, 60u32..1514, 0usize..3), 1..400),
        headdrop: bool,
    ) {
        let config = Config { limit: 40, depth: 9, flows: 20, headdrop, ..Config::default() };
        let mut port = port(config);
        for (number, len, leave) in steps {
            port.arrive(flow(number), len);
            prop_assert!(port.qdisc.backlog().packets <= 40);
            port.now += Nanos::from_millis(1);
            port.leave(leave);
        }
        port.leave_all();
        for number in 0..30 {
            let order: Vec<u64> =
                port.left.iter().filter(|left| left.flow == number).map(|left| left.number).collect();
            prop_assert!(order.is_sorted());
        }
    }
}
