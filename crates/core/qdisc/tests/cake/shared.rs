//! At a limit that other queues share.

use crate::world::{World, flow};
use crate::{MBIT, limited, ms};
use narrows_packet::{Backlog, Headers};
use narrows_qdisc::cake::{Config, Diffserv};
use narrows_qdisc::{Meter, Next, Share, Take};
use narrows_units::{Bytes, Nanos};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A meter that records its requests, with preset answers.
#[derive(Default)]
struct Asked {
    /// Whether each packet that was granted yielded.
    yielded: Mutex<Vec<bool>>,
    refuses: AtomicBool,
}

/// A meter that has a quarter of the limit.
struct Quarter {
    asked: Arc<Asked>,
    yields: bool,
}

impl Meter for Quarter {
    fn stamp(&mut self, _cost: Bytes, _now: Nanos) -> Option<Nanos> {
        Some(Nanos::ZERO)
    }

    fn take(&mut self, _cost: Bytes, _edt: Nanos, now: Nanos) -> Take {
        if self.asked.refuses.load(Ordering::Relaxed) {
            return Take::Wait(now + ms(2));
        }
        self.asked.yielded.lock().unwrap().push(self.yields);
        Take::Granted
    }

    fn report(&mut self, _backlog: Backlog, _now: Nanos) {}

    fn share(&self) -> Share {
        Share::one_of(4)
    }

    fn longest(&self) -> Bytes {
        Bytes(3_000)
    }

    fn yields(&mut self, yields: bool) {
        self.yields = yields;
    }
}

fn world(config: Config) -> (World, Arc<Asked>) {
    let asked = Arc::<Asked>::default();
    let meter = Quarter { asked: Arc::clone(&asked), yields: false };
    (World::shared(config, Box::new(meter)), asked)
}

#[test]
fn bulk_flows_yield_and_sparse_ones_do_not() {
    let (mut world, asked) = world(limited(20 * MBIT));
    for _ in 0..3 {
        world.arrive(flow(1), 1_514);
    }
    world.arrive(flow(2), 200);
    world.leave_most(8);
    // The first of either flow goes first.
    assert_eq!(*asked.yielded.lock().unwrap(), [false, false, true, true]);
}

#[test]
fn sparse_flows_never_yield_after_any_traffic_of_their_tin() {
    let config = Config { diffserv: Diffserv::Diffserv3, ..limited(20 * MBIT) };
    let (mut world, asked) = world(config);
    for id in 1..=3 {
        world.arrive(flow(id), 1_514);
    }
    world.leave_most(8);
    assert_eq!(*asked.yielded.lock().unwrap(), [false; 3]);
}

#[test]
fn a_tin_within_its_threshold_never_yields() {
    let config = Config { diffserv: Diffserv::Diffserv4, ..limited(100 * MBIT) };
    let (mut world, asked) = world(config);
    let voice = Headers { dscp: 46, ..flow(1) };
    for _ in 0..20 {
        world.arrive(voice, 1_000);
    }
    // Its threshold is one packet in 0.32 ms, and the first quantum is one packet.
    for _ in 0..10 {
        asked.refuses.store(true, Ordering::Relaxed);
        world.run(ms(1), |_, _| {});
        asked.refuses.store(false, Ordering::Relaxed);
        world.leave_most(1);
    }
    assert_eq!(*asked.yielded.lock().unwrap(), [false; 10]);
}

#[test]
fn while_a_packet_waits_for_the_share_arrivals_are_looked_at_before_a_frame_could_have_left() {
    let (mut world, asked) = world(limited(20 * MBIT));
    world.arrive(flow(1), 1_514);
    world.arrive(flow(1), 1_514);
    asked.refuses.store(true, Ordering::Relaxed);
    assert!(world.leave_most(1).is_empty());
    let Next::At(when) = world.next() else { panic!("{:?}", world.next()) };
    let frame = narrows_units::Rate::from_bits_per_sec(20 * MBIT).time_for(Bytes(1_514));
    assert!(when > world.now() && when < world.now() + frame, "{when} at {}", world.now());
}

#[test]
fn control_uses_the_configured_target_at_any_share() {
    let (mut world, _) = world(limited(20 * MBIT));
    world.arrive(flow(1), 1_514);
    world.leave_most(1);
    let tin = world.figures().tins[0];
    // Four frames at a quarter of the rate would be 9.7 ms.
    assert_eq!((tin.target, tin.interval), (ms(5), ms(100)));
}
