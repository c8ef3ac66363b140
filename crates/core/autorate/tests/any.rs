//! Whatever is seen, and a small line that is seen.

use narrows_autorate::{Bounds, Controller, Decision, Reason, Side, TURN, Trip, Turn};
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
                .map(|(path, time)| Trip { path: path % 8, time: Nanos(small(time)) })
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
struct Model {
    side: Side,
    controller: Controller,
    now: Nanos,
    /// In bits.
    queue: f64,
    path: Nanos,
}

impl Model {
    fn new(side: Side) -> Self {
        let controller = Controller::new(side, bounds());
        let path = Nanos::from_millis(30);
        Self { side, controller, now: Nanos::ZERO, queue: 0.0, path }
    }

    /// Lets `turns` pass with a line of `line` and a load of `load`. Returns the last decision and
    /// the reasons on the way.
    fn pass(&mut self, turns: u32, line: Rate, load: Rate) -> (Decision, Vec<Reason>) {
        let mut reasons = Vec::new();
        let mut last = None;
        for _ in 0..turns {
            self.now += TURN;
            let seconds = TURN.as_secs_f64();
            let set = self.controller.rate().bits_per_sec() as f64;
            let sends = (load.bits_per_sec() as f64).min(set);
            let carries = line.bits_per_sec() as f64;
            let before = self.queue;
            self.queue = (before + (sends - carries) * seconds).max(0.0);
            let passes = before + sends * seconds - self.queue;
            let binds = (load.bits_per_sec() as f64) > set;
            let bytes = |bits: f64| Bytes((bits / 8.0) as u64);
            let time = self.path + Nanos((self.queue / carries * 1e9) as u64);
            let trips = [1, 2, 3].map(|path| Trip { path, time });
            let (arrived, sent) = match self.side {
                Side::Before => (sends * seconds, sends * seconds),
                Side::Behind => (passes, passes),
            };
            let decision = self.controller.turn(&Turn {
                now: self.now,
                arrived: bytes(arrived),
                sent: bytes(sent),
                backlog: if binds && self.queue < 1.0 { Bytes(10_000) } else { Bytes::ZERO },
                trips: &trips,
                segments: 0,
                lost: 0,
                other_is_held_back: false,
            });
            reasons.push(decision.reason);
            last = Some(decision);
        }
        (last.unwrap(), reasons)
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
        let trips = [Trip { path: 1, time: Nanos::from_millis(30) }];
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
        let trips = [1, 2].map(|path| Trip { path, time: Nanos::from_millis(ms) });
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
