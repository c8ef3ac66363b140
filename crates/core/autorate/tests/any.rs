//! Whatever is seen, and a small line that is seen.

use narrows_autorate::{
    Bounds, Controller, Decision, Found, GLANCE, Reason, Side, TURN, Trip, Turn,
};
use narrows_units::{Bytes, Nanos, Rate};
use proptest::prelude::*;

fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_sec(mbit * 1_000_000)
}

fn bounds() -> Bounds {
    Bounds::new(mbit(2), mbit(20), mbit(40)).unwrap()
}

proptest! {
    #[test]
    fn the_rate_is_within_its_bounds_whatever_is_seen(
        rates in proptest::array::uniform3(1..=u64::MAX),
        is_before: bool,
        turns in proptest::collection::vec(
            (any::<u64>(), any::<[u64; 5]>(), proptest::collection::vec(any::<(u64, u64)>(), 0..4),
             any::<bool>(), 0..4_u32),
            0..60,
        ),
    ) {
        let mut rates = rates;
        rates.sort_unstable();
        let [least, usual, most] = rates.map(Rate::from_bits_per_sec);
        let bounds = Bounds::new(least, usual, most).unwrap();
        let side = if is_before { Side::Before } else { Side::Behind };
        let mut controller = Controller::new(side, bounds);
        let mut now = Nanos::ZERO;
        for (span, numbers, trips, other_is_held_back, scale) in turns {
            // Spans and amounts as they come, and others as they can be.
            let span = [span, span % 1_000_000_000, 50_000_000, 0][scale as usize];
            let small = |number: u64| if scale == 0 { number } else { number % 10_000_000 };
            let [arrived, sent, backlog, segments, lost] = numbers.map(small);
            now += Nanos(span);
            let trips: Vec<Trip> = trips
                .into_iter()
                .map(|(path, time)| Trip { path: path % 8, flow: path as u32, time: Nanos(small(time)) })
                .collect();
            let turn = Turn {
                now,
                arrived: Bytes(arrived),
                sent: Bytes(sent),
                backlog: Bytes(backlog),
                trips: &trips,
                segments,
                lost,
                other_is_held_back,
            };
            let Decision { rate, .. } = controller.turn(&turn);
            prop_assert!(least <= rate && rate <= most, "{rate:?}");
            prop_assert_eq!(rate, controller.rate());
        }
    }
}

/// A line of one rate with an endless queue, a path of 30 ms, and a load that always has more.
/// Steps are of a millisecond.
struct Model {
    side: Side,
    controller: Controller,
    now: Nanos,
    path: Nanos,
    /// In bits.
    queue: f64,
    /// What was sent in each step.
    sent: Vec<f64>,
    /// Trips under way, with the time at which they are over, and those of this turn.
    coming: Vec<(Nanos, Trip)>,
    trips: Vec<Trip>,
    /// Since the last turn, in bits.
    passed: f64,
    arrived: f64,
    ended: Nanos,
}

const PATH: Nanos = Nanos::from_millis(30);
const STEP: Nanos = Nanos::from_millis(1);

impl Model {
    fn new(side: Side) -> Self {
        Self {
            side,
            controller: Controller::new(side, bounds()),
            now: Nanos::ZERO,
            path: PATH,
            queue: 0.0,
            sent: vec![0.0; PATH.0 as usize / STEP.0 as usize],
            coming: Vec::new(),
            trips: Vec::new(),
            passed: 0.0,
            arrived: 0.0,
            ended: Nanos::ZERO,
        }
    }

    /// Lets `turns` of full length pass with a line of `line` and a load of `load`. Returns the
    /// last decision and the reasons on the way.
    fn pass(&mut self, turns: u32, line: Rate, load: Rate) -> (Decision, Vec<Reason>) {
        let (mut reasons, mut last) = (Vec::new(), None);
        for _ in 0..u64::from(turns) * TURN.0 / STEP.0 {
            self.step(line, load);
            let is_glance = self.now.0.is_multiple_of(GLANCE.0);
            let is_urgent = is_glance && self.controller.is_urgent(&self.trips, self.now);
            if is_urgent || self.now >= self.ended + TURN {
                let decision = self.turn(load);
                reasons.push(decision.reason);
                last = Some(decision);
            }
        }
        (last.unwrap(), reasons)
    }

    fn step(&mut self, line: Rate, load: Rate) {
        self.now += STEP;
        let rate = load.min(self.controller.rate()).bits_per_sec() as f64;
        self.sent.push(rate * STEP.as_secs_f64());
        // Behind the line senders follow the limit a round trip later.
        let ago = if self.side == Side::Before { 1 } else { PATH.0 / STEP.0 };
        let enters = self.sent[self.sent.len() - ago as usize];
        let carries = line.bits_per_sec() as f64 * STEP.as_secs_f64();
        let before = self.queue;
        self.queue = (before + enters - carries).max(0.0);
        let leaves = before + enters - self.queue;
        self.arrived += if self.side == Side::Before { enters } else { leaves };
        self.passed += if self.side == Side::Before { enters } else { leaves };
        let waits = Nanos((self.queue / carries * STEP.0 as f64) as u64);
        let time = self.path + waits;
        let over = self.now + if self.side == Side::Before { time } else { waits };
        let path = self.now.0 / STEP.0 % 4;
        self.coming.push((over, Trip { path, flow: path as u32, time }));
        let now = self.now;
        let is_over = |coming: &mut (Nanos, Trip)| coming.0 <= now;
        self.trips.extend(self.coming.extract_if(.., is_over).map(|(_, trip)| trip));
    }

    fn turn(&mut self, load: Rate) -> Decision {
        self.ended = self.now;
        let binds = load > self.controller.rate();
        let bytes = |bits: &mut f64| Bytes((std::mem::take(bits) / 8.0) as u64);
        let trips = std::mem::take(&mut self.trips);
        self.controller.turn(&Turn {
            now: self.now,
            arrived: bytes(&mut self.arrived),
            sent: bytes(&mut self.passed),
            backlog: if binds && self.queue < 1.0 { Bytes(10_000) } else { Bytes::ZERO },
            trips: &trips,
            segments: 0,
            lost: 0,
            other_is_held_back: false,
        })
    }
}

#[test]
fn a_line_that_halves_is_followed_within_a_second_on_both_sides() {
    for side in [Side::Before, Side::Behind] {
        let mut model = Model::new(side);
        model.pass(200, mbit(20), mbit(100));
        model.pass(20, mbit(10), mbit(100));
        let rate = model.controller.rate();
        assert!((mbit(6)..mbit(11)).contains(&rate), "{side:?}: {rate:?}");
    }
}

#[test]
fn a_line_that_falls_to_a_quarter_has_no_queue_for_long() {
    for side in [Side::Before, Side::Behind] {
        let mut model = Model::new(side);
        model.pass(200, mbit(20), mbit(100));
        let mut longest = 0.0_f64;
        for _ in 0..20 {
            model.pass(1, mbit(5), mbit(100));
            longest = longest.max(model.queue / 5e6);
        }
        // No rule is better than a third of this: see docs/autorate.md.
        assert!(longest < 0.2, "{side:?}: {longest} s");
        assert!(model.queue / 5e6 < 0.03, "{side:?}: {} s are left", model.queue / 5e6);
        assert!(model.controller.rate() < mbit(6), "{side:?}: {:?}", model.controller.rate());
    }
}

#[test]
fn another_controller_goes_on_with_what_was_found_within_its_bounds() {
    let found = Found { rate: mbit(7), full_at: Some(mbit(9)) };
    let next = Controller::new(Side::Before, bounds()).resume(found);
    assert_eq!((next.rate(), next.found()), (mbit(7), found));
    let found = Found { rate: mbit(90), full_at: None };
    let next = Controller::new(Side::Before, bounds()).resume(found);
    assert_eq!(next.rate(), mbit(40));
}

#[test]
fn a_line_that_doubles_is_used_within_three_seconds() {
    for side in [Side::Before, Side::Behind] {
        let mut model = Model::new(side);
        model.pass(200, mbit(10), mbit(100));
        let (_, reasons) = model.pass(60, mbit(20), mbit(100));
        assert!(model.controller.rate() > mbit(17), "{side:?}: {:?}", model.controller.rate());
        assert!(reasons.contains(&Reason::Rises));
    }
}

#[test]
fn a_path_that_became_longer_costs_no_rate_for_long() {
    let mut model = Model::new(Side::Before);
    // Less than the line has, so nothing queues there.
    model.pass(100, mbit(100), mbit(15));
    let before = model.controller.rate();
    model.path = Nanos::from_millis(55);
    let (_, reasons) = model.pass(60, mbit(100), mbit(15));
    assert!(reasons.contains(&Reason::Path), "{reasons:?}");
    assert!(model.controller.rate() >= before, "{:?}", model.controller.rate());
}

#[test]
fn without_load_the_rate_holds_and_then_returns() {
    let mut model = Model::new(Side::Before);
    model.pass(200, mbit(10), mbit(100));
    let full = model.controller.rate();
    model.pass(100, mbit(10), mbit(1));
    assert!(model.controller.rate() >= full.min(mbit(8)), "it holds");
    let (last, _) = model.pass(2_000, mbit(100), mbit(1));
    assert_eq!((last.rate, last.reason), (mbit(20), Reason::Idle));
}

#[test]
fn losses_before_a_line_without_a_queue_cut_to_what_it_delivers() {
    let mut controller = Controller::new(Side::Before, bounds());
    let mut now = Nanos::ZERO;
    let mut lossy = |lost| {
        now += TURN;
        let sent = controller.rate().bytes_in(TURN);
        let trips = [Trip { path: 1, flow: 1, time: Nanos::from_millis(30) }];
        controller.turn(&Turn {
            now,
            arrived: sent,
            sent,
            backlog: Bytes(1),
            trips: &trips,
            segments: 80,
            lost,
            other_is_held_back: false,
        })
    };
    lossy(0);
    let before = lossy(0).rate;
    let decisions = [lossy(20), lossy(20)];
    let cut = decisions.iter().find(|it| it.reason == Reason::Loss).unwrap();
    assert!(cut.rate < before, "{cut:?}");
}

#[test]
fn an_excess_of_the_other_direction_is_not_answered() {
    let mut controller = Controller::new(Side::Before, bounds());
    let mut now = Nanos::ZERO;
    let mut turn = |ms, other_is_held_back| {
        now += TURN;
        let sent = controller.rate().bytes_in(TURN);
        let trips =
            [1, 2].map(|path| Trip { path, flow: path as u32, time: Nanos::from_millis(ms) });
        controller.turn(&Turn {
            now,
            arrived: sent,
            sent,
            backlog: Bytes(1),
            trips: &trips,
            segments: 0,
            lost: 0,
            other_is_held_back,
        })
    };
    for _ in 0..50 {
        turn(30, false);
    }
    let held = (0..10).map(|_| turn(90, true)).all(|it| it.reason == Reason::Holds);
    assert!(held);
    assert_eq!(turn(90, false).reason, Reason::Delay);
}

#[test]
fn rates_out_of_order_are_no_bounds() {
    assert_eq!(Bounds::new(mbit(5), mbit(4), mbit(40)), None);
    assert_eq!(Bounds::new(mbit(5), mbit(20), mbit(10)), None);
    assert_eq!(Bounds::new(Rate::default(), mbit(20), mbit(40)), None);
}
