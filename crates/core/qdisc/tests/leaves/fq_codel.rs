//! A queue for each flow, beside RFC 8290 written down naively.

use crate::port::{Port, capable, flow, ms};
use narrows_packet::DropReason;
use narrows_qdisc::codel::{CeThreshold, Selector};
use narrows_qdisc::fq_codel::{Config, Figures};
use narrows_qdisc::{Config as AnyConfig, Detail, Next, Verdict};
use narrows_units::{Bytes, Nanos};
use proptest::prelude::*;
use std::collections::VecDeque;

fn port(config: Config) -> Port {
    Port::new(AnyConfig::FqCodel(config))
}

fn figures(port: &Port) -> Figures {
    *port.stats().detail.as_ref().and_then(Detail::fq_codel).expect("an fq_codel has figures")
}

/// No queue persists for so long.
fn without_codel() -> Config {
    Config { target: Nanos::from_secs(1000), flows: 256, ..Config::default() }
}

#[test]
fn flows_share_evenly_at_any_load() {
    let mut port = port(without_codel());
    for round in 0..4000u32 {
        port.arrive_all((0..3).map(|_| flow(1)), 1500);
        port.arrive(flow(2), 1500);
        port.arrive_all((0..8).map(|_| flow(3)), 200);
        port.leave(1 + round as usize % 2);
    }
    let sent = |number| -> u64 {
        port.left.iter().filter(|left| left.flow == number).map(|left| u64::from(left.len)).sum()
    };
    let sent = [sent(1), sent(2), sent(3)];
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least <= 2 * 1514, "{sent:?}");
}

#[test]
fn a_sparse_flow_goes_before_backlogged_ones() {
    let mut port = port(without_codel());
    for _ in 0..100 {
        port.arrive_all((1..5).map(flow), 1500);
    }
    port.leave(10);
    port.arrive(flow(9), 100);
    // The current flow is an old one.
    port.leave(1);
    assert_eq!(port.left.last().unwrap().flow, 9);
    let figures = figures(&port);
    assert_eq!((figures.new_flow_count, figures.new_flows_len + figures.old_flows_len), (5, 5));
}

#[test]
fn only_flows_that_build_a_queue_are_signalled() {
    let mut port = port(Config { flows: 256, ecn: false, ..Config::default() });
    for step in 0..4000 {
        port.arrive_all((0..2).map(|_| flow(1)), 1500);
        if step % 10 == 0 {
            port.arrive(flow(2), 200);
        }
        port.now += ms(1);
        port.leave(1);
    }
    assert!(port.drops(DropReason::Aqm) > 50);
    let sparse = port.left.iter().filter(|left| left.flow == 2);
    assert!(sparse.clone().count() >= 399);
    for left in sparse {
        assert!(left.at - left.came <= ms(3), "{left:?}");
    }
}

#[test]
fn marks_are_signals_and_a_threshold_marks_those_that_are_selected() {
    let mut marking = port(Config { flows: 256, ..Config::default() });
    for _ in 0..2000 {
        marking.arrive_all((0..2).map(|_| capable(1)), 1500);
        marking.now += ms(1);
        marking.leave(1);
    }
    let marked = marking.left.iter().filter(|left| left.is_marked).count() as u64;
    assert!(marked > 10 && marking.drops(DropReason::Aqm) == 0);
    assert_eq!(figures(&marking).signals.ecn_mark, marked);

    let selector = Selector { value: 1, mask: 3 };
    let ce_threshold = Some(CeThreshold { sojourn: ms(1), selector });
    let mut shallow = port(Config { flows: 256, ce_threshold, ..Config::default() });
    let ect1 = narrows_packet::Headers { ecn: narrows_packet::Ecn::Capable1, ..flow(2) };
    for headers in [capable(1), ect1] {
        shallow.arrive(headers, 100);
    }
    shallow.now += ms(2);
    shallow.leave_all();
    let marked: Vec<_> = shallow.left.iter().map(|left| (left.flow, left.is_marked)).collect();
    assert_eq!(marked, [(1, false), (2, true)]);
    assert_eq!(figures(&shallow).signals.ce_mark, 1);
}

#[test]
fn over_the_limit_the_longest_flow_loses_from_its_head() {
    let config = Config { limit: 100, drop_batch: 8, ..without_codel() };
    let mut port = port(config);
    port.arrive_all((0..90).map(|_| flow(1)), 1500);
    (0..10).for_each(|_| assert_eq!(port.arrive(flow(2), 1500), Verdict::Queued));
    assert_eq!(port.arrive(flow(2), 1500), Verdict::Dropped);
    assert_eq!(port.dropped, (0..8).collect::<Vec<u64>>());
    assert_eq!((figures(&port).drop_overlimit, figures(&port).drop_overmemory), (8, 0));
    assert_eq!(port.drops(DropReason::Limit), 8);
}

#[test]
fn no_more_than_half_of_a_flow_is_dropped_at_once() {
    let mut port = port(Config { limit: 20, ..without_codel() });
    port.arrive_all((0..21).map(|_| flow(1)), 1500);
    // Half of 21 frames, plus the frame that reaches it.
    assert_eq!(port.dropped.len(), 11);
}

#[test]
fn memory_is_limited_as_well() {
    let memory_limit = Bytes(2048 * 10);
    let mut port = port(Config { memory_limit, drop_batch: 1, ..without_codel() });
    port.arrive_all((0..15).map(|_| flow(1)), 60);
    let figures = figures(&port);
    assert_eq!((figures.drop_overlimit, figures.drop_overmemory), (5, 5));
    assert_eq!(figures.memory_used, memory_limit.0);
}

#[test]
fn a_flow_gets_no_more_frames_than_are_left_for_others() {
    let mut port = port(without_codel());
    port.packets.set_spare_frames(5);
    port.arrive_all((0..10).map(|_| flow(1)), 60);
    assert_eq!(port.drops(DropReason::NoFrame), 4);
    assert_eq!(port.arrive(flow(2), 60), Verdict::Queued);
}

/// RFC 8290, sections 4.1 and 4.2, without CoDel.
#[derive(Default)]
struct Textbook {
    queues: Vec<(VecDeque<u64>, VecDeque<u32>, i64)>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
}

impl Textbook {
    const QUANTUM: i64 = 1514;

    fn enqueue(&mut self, flow: usize, number: u64, len: u32) {
        let queue = &mut self.queues[flow];
        queue.0.push_back(number);
        queue.1.push_back(len);
        if !self.new.contains(&flow) && !self.old.contains(&flow) {
            queue.2 = Self::QUANTUM;
            self.new.push_back(flow);
        }
    }

    fn dequeue(&mut self) -> Option<u64> {
        loop {
            let is_new = !self.new.is_empty();
            let flow = *self.new.front().or(self.old.front())?;
            let queue = &mut self.queues[flow];
            let mut leave_list =
                || if is_new { self.new.pop_front() } else { self.old.pop_front() };
            if queue.2 <= 0 {
                queue.2 += Self::QUANTUM;
                leave_list();
                self.old.push_back(flow);
                continue;
            }
            let Some(number) = queue.0.pop_front() else {
                leave_list();
                if is_new && !self.old.is_empty() {
                    self.old.push_back(flow);
                }
                continue;
            };
            queue.2 -= i64::from(queue.1.pop_front().unwrap());
            return Some(number);
        }
    }
}

proptest! {
    /// The oracle is the RFC's text over plain lists.
    #[test]
    fn flows_take_turns_as_in_the_textbook(
        steps in prop::collection::vec((0u32..12, 60u32..1514, prop::option::of(1usize..6)), 1..400),
    ) {
        let mut port = port(without_codel());
        let mut textbook = Textbook::default();
        textbook.queues.resize_with(12, Default::default);
        for (number, len, leave) in steps {
            textbook.enqueue(number as usize, port.came, len);
            port.arrive(flow(number), len);
            if let Some(most) = leave {
                let before = port.left.len();
                // Asked for more than there is, it looks through all its lists.
                port.leave(most);
                for left in &port.left[before..] {
                    prop_assert_eq!(Some(left.number), textbook.dequeue());
                }
                if port.next == Next::Empty && port.left.len() - before < most {
                    prop_assert_eq!(textbook.dequeue(), None);
                }
            }
        }
    }

    /// Conservation, order within flows, and limits that hold, with everything switched on.
    #[test]
    fn flows_keep_their_order_and_limits_hold(
        steps in prop::collection::vec((0u32..40, 60u32..1514, 0u64..3, any::<bool>()), 1..500),
    ) {
        let config = Config {
            limit: 60,
            memory_limit: Bytes(2048 * 50),
            target: Nanos::from_micros(500),
            interval: ms(5),
            drop_batch: 4,
            flows: 256,
            ..Config::default()
        };
        let mut port = port(config);
        for (number, len, pause, is_capable) in steps {
            let headers = if is_capable { capable(number) } else { flow(number) };
            port.arrive(headers, len);
            prop_assert!(port.qdisc.backlog().packets <= 50);
            port.now += Nanos::from_micros(700 * pause);
            port.leave(pause as usize);
        }
        port.leave_all();
        for number in 0..40 {
            let order: Vec<u64> =
                port.left.iter().filter(|left| left.flow == number).map(|left| left.number).collect();
            prop_assert!(order.is_sorted());
        }
        prop_assert_eq!(figures(&port).memory_used, 0);
    }
}
