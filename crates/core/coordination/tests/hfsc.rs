//! `hfsc` against the kernel's algorithm on one queue, packet by packet, and against its service
//! curves on several.

mod hfsc {
    pub mod bed;
    pub mod kernel;
}

use hfsc::bed::{Bed, Load, MBIT, MILLI, Run, class, curve, line};
use hfsc::kernel::{Kernel, Next};
use narrows_qdisc::hfsc::{Class, Curve};
use narrows_units::Nanos;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// How long `len` bytes take at `rate` bits a second.
fn time(len: u32, rate: u64) -> u64 {
    u64::from(len) * 8_000_000_000 / rate
}

/// Packets that come, in order of time: after the last one, for which leaf, and how long.
type Arrivals = Vec<(u64, u32, u32)>;

/// Sends `arrivals` over a link of `rate` with the kernel's algorithm as the oracle.
fn is_as_in_the_kernel(classes: &[(u32, Class)], arrivals: &Arrivals, rate: u64) {
    let mut bed = Bed::new(1, classes);
    let mut kernel = Kernel::new(classes);
    let mut arrivals = arrivals.iter().scan(bed.now.0, |at, (gap, class, len)| {
        *at += gap;
        Some((*at, *class, *len))
    });
    let mut coming = arrivals.next();
    let mut sent = 0;
    loop {
        while let Some((at, class, len)) = coming.filter(|(at, ..)| *at <= bed.now.0) {
            let now = bed.now;
            bed.now = Nanos(at);
            bed.enqueue(0, class, len);
            bed.now = now;
            kernel.enqueue(class, len, at as f64);
            coming = arrivals.next();
        }
        let now = bed.now.0 as f64;
        let next = kernel.next(now);
        let before = bed.services(0, classes);
        match bed.dequeue(0) {
            Ok(packet) => {
                let after = bed.services(0, classes);
                let in_real_time = before.get(&packet.class).map(|service| service.real_time)
                    != after.get(&packet.class).map(|service| service.real_time);
                let choice = (packet.class, in_real_time);
                match &next {
                    Next::Any(any) if any.contains(&choice) => {}
                    other => panic!("after {sent} at {now}: {choice:?} instead of {other:?}"),
                }
                kernel.dequeue(packet.class, in_real_time);
                let service = after[&packet.class];
                let ours = (service.work.0, service.real_time.0, service.period);
                assert_eq!(ours, kernel.service(packet.class), "class {}", packet.class);
                sent += 1;
                bed.now += Nanos(time(packet.len, rate).max(1));
            }
            Err(until) => {
                let due = match next {
                    Next::Later(due) => due,
                    Next::Any(any) => {
                        // It may be so only for the model.
                        let until = until.expect("something is left").0;
                        assert!(until <= bed.now.0 + 8, "at {now}: {any:?}, not {until}");
                        until as f64
                    }
                };
                match until {
                    Some(until) => {
                        assert!((until.0 as f64 - due).abs() <= 8.0, "{until:?} and {due}");
                    }
                    None => assert_eq!(due, f64::MAX),
                }
                let next = [until.map(|at| at.0), coming.map(|(at, ..)| at)];
                match next.into_iter().flatten().min() {
                    Some(next) => bed.now = Nanos(next.max(bed.now.0 + 1)),
                    None => break,
                }
            }
        }
    }
}

fn some_curve() -> impl Strategy<Value = Curve> {
    let mbit = || prop::sample::select(vec![0u64, 1, 2, 4, 5, 8, 16, 40]);
    let d = prop::sample::select(vec![0u64, 1, 5, 10, 30]);
    (mbit(), d, mbit()).prop_filter_map("no slope", |(m1, d, m2)| {
        // Without a second slope it would stop for good.
        (m2 > 0).then(|| curve(m1 * MBIT, d * MILLI, m2 * MBIT))
    })
}

/// Trees of up to three levels. The leaves are 11 and up, or 21 and up below 2.
fn some_classes() -> impl Strategy<Value = Vec<(u32, Class)>> {
    let curves = || {
        let some = || prop::option::of(some_curve());
        (some(), some(), prop::option::weighted(0.3, some_curve()))
    };
    let leaf = move || {
        curves().prop_map(|(real_time, link_share, upper_limit)| {
            // One of the two is needed, and link sharing for an upper limit.
            let none = real_time.is_none() && link_share.is_none();
            let link_share = if none { Some(line(4 * MBIT)) } else { link_share };
            [real_time, link_share, upper_limit.filter(|_| link_share.is_some())]
        })
    };
    let inner = || {
        (some_curve(), prop::option::weighted(0.5, some_curve()))
            .prop_map(|(link_share, upper_limit)| [None, Some(link_share), upper_limit])
    };
    let leaves = move || prop::collection::vec(leaf(), 1..5);
    (inner(), inner(), leaves(), leaves(), 0..3u32).prop_map(|(one, two, of_one, of_two, how)| {
        let mut all = vec![(1, class(None, one))];
        // The second class beside the first, below it, or not at all.
        let above_two = if how == 0 { None } else { Some(1) };
        if how < 2 {
            all.push((2, class(above_two, two)));
            all.extend((21..).zip(of_two).map(|(id, curves)| (id, class(Some(2), curves))));
        }
        all.extend((11..).zip(of_one).map(|(id, curves)| (id, class(Some(1), curves))));
        all
    })
}

fn leaves(classes: &[(u32, Class)]) -> Vec<u32> {
    let ids = classes.iter().map(|(id, _)| *id);
    ids.filter(|id| classes.iter().all(|(_, class)| class.parent != Some(*id))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn on_one_queue_every_packet_is_the_kernels(
        classes in some_classes(),
        arrivals in prop::collection::vec(
            (0u64..8 * MILLI, any::<prop::sample::Index>(), 64u32..1_515, 1usize..30), 1..40),
        link in prop::sample::select(vec![4u64, 10, 100]),
    ) {
        let leaves = leaves(&classes);
        let arrivals = arrivals.into_iter().flat_map(|(gap, leaf, len, count)| {
            let leaf = *leaf.get(&leaves);
            (0..count).map(move |number| (if number == 0 { gap } else { 0 }, leaf, len))
        });
        is_as_in_the_kernel(&classes, &arrivals.collect(), link * MBIT);
    }
}

const SECOND: Nanos = Nanos::from_secs(1);

/// How late workers come at most.
const LATE: Nanos = Nanos::from_micros(50);

/// Whether `rate` is `due` within this part of it.
fn is_near(rate: f64, due: u64, part: f64) -> bool {
    (rate - due as f64).abs() <= due as f64 * part
}

/// A link of 100 Mbit/s with two leaves: 7 parts and 3.
fn two(root: u64) -> Vec<(u32, Class)> {
    vec![
        (1, class(None, [None, Some(line(root)), Some(line(root))])),
        (11, class(Some(1), [None, Some(line(7 * MBIT)), None])),
        (12, class(Some(1), [None, Some(line(3 * MBIT)), None])),
    ]
}

#[test]
fn classes_on_different_queues_share_by_their_curves() {
    for lateness in [Nanos::ZERO, LATE] {
        let mut run = Run::new(2, &two(100 * MBIT), lateness);
        run.load(0, 11, Load::Endless(1514));
        run.load(1, 12, Load::Endless(1514));
        run.pass(SECOND);
        let (one, other) = (run.rate(11, SECOND), run.rate(12, SECOND));
        assert!(is_near(one + other, 100 * MBIT, 0.001), "{one} and {other}");
        assert!(is_near(one, 70 * MBIT, 0.01), "{one} and {other}, {lateness:?} late");
    }
}

#[test]
fn a_class_has_one_share_on_any_number_of_queues() {
    for queues in [2, 4, 16] {
        let mut run = Run::new(queues, &two(100 * MBIT), LATE);
        for queue in 0..queues {
            run.load(queue, 11, Load::Endless(1514));
        }
        run.load(0, 12, Load::Endless(600));
        run.pass(SECOND);
        let (one, other) = (run.rate(11, SECOND), run.rate(12, SECOND));
        assert!(is_near(one + other, 100 * MBIT, 0.001), "{one} and {other}");
        assert!(is_near(one, 70 * MBIT, 0.02), "{one} and {other} on {queues} queues");
        let parts: Vec<u64> = (0..queues).map(|queue| run.sent_by[&(11, queue)]).collect();
        let mean = 70.0 * 1e6 / 8.0 / queues as f64;
        for part in &parts {
            assert!((*part as f64 - mean).abs() < mean * 0.05, "{parts:?}, {mean} each");
        }
    }
}

#[test]
fn each_level_shares_over_all_queues() {
    let classes = [
        (1, class(None, [None, Some(line(MBIT)), Some(line(100 * MBIT))])),
        (2, class(Some(1), [None, Some(line(6 * MBIT)), None])),
        (3, class(Some(1), [None, Some(line(4 * MBIT)), None])),
        (21, class(Some(2), [None, Some(line(MBIT)), None])),
        (22, class(Some(2), [None, Some(line(2 * MBIT)), None])),
        (31, class(Some(3), [None, Some(line(MBIT)), None])),
        (32, class(Some(3), [None, Some(line(MBIT)), None])),
    ];
    let mut run = Run::new(4, &classes, LATE);
    for (queue, class) in [(0, 21), (1, 22), (2, 31), (1, 31), (3, 32)] {
        run.load(queue, class, Load::Endless(1514));
    }
    run.pass(SECOND);
    for (class, due) in [(21, 20), (22, 40), (31, 20), (32, 20)] {
        let rate = run.rate(class, SECOND);
        assert!(is_near(rate, due * MBIT, 0.02), "{class}: {rate}, due {due} Mbit/s");
    }
    // What one leaves, those beside it have first.
    run.stop(0, 21);
    run.pass(SECOND);
    run.pass(SECOND);
    for (class, due) in [(22, 60), (31, 20), (32, 20)] {
        let rate = run.rate(class, SECOND);
        assert!(is_near(rate, due * MBIT, 0.02), "{class}: {rate}, due {due} Mbit/s");
    }
}

#[test]
fn an_upper_limit_holds_in_every_window() {
    for queues in [1, 4, 16] {
        let classes = [
            (1, class(None, [None, Some(line(MBIT)), Some(line(100 * MBIT))])),
            (11, class(Some(1), [None, Some(line(MBIT)), Some(line(20 * MBIT))])),
            (12, class(Some(1), [None, Some(line(MBIT)), None])),
        ];
        let mut run = Run::new(queues, &classes, LATE);
        for queue in 0..queues {
            run.load(queue, 11, Load::Endless(1514));
            run.load(queue, 12, Load::Endless(1514));
        }
        run.pass(SECOND);
        for (limited, rate) in [(vec![11], 20 * MBIT), (vec![11, 12], 100 * MBIT)] {
            let log = run.log.iter().filter(|(_, sent)| limited.contains(&sent.class));
            let (mut credit, mut last, mut most) = (0.0, run.log[0].0, 0.0f64);
            for (at, sent) in log {
                credit = f64::max(0.0, credit - (*at - last).0 as f64 * rate as f64 / 8e9);
                credit += f64::from(sent.len);
                (last, most) = (*at, most.max(credit));
            }
            // What workers make good that come late, and the frames that leave.
            let late = LATE.0 as f64 * rate as f64 / 8e9;
            let bound = late + 3.0 * 1514.0;
            assert!(most <= bound, "{most} bytes at once of {bound}, {queues} queues, {rate}");
        }
        assert!(is_near(run.rate(11, SECOND), 20 * MBIT, 0.001));
        assert!(is_near(run.rate(12, SECOND), 80 * MBIT, 0.001));
    }
}

/// A voice call: 160 bytes each 20 ms, due within 5 ms, beside floods that fill the line.
#[test]
fn no_deadline_is_missed_by_more_than_a_frame_and_the_lateness_of_a_worker() {
    const DUE: u64 = 5 * MILLI;
    for queues in [1, 2, 4, 16] {
        for calls in [1u32, 4] {
            let rate = u64::from(calls) * 160 * 8 * 50;
            // As `umax` and `dmax` say it: a steep first piece.
            let voice = curve(u64::from(calls) * 160 * 8 * 1_000_000_000 / DUE, DUE, rate);
            let classes = [
                (1, class(None, [None, Some(line(MBIT)), Some(line(10 * MBIT))])),
                (11, class(Some(1), [Some(voice), None, None])),
                (12, class(Some(1), [None, Some(line(MBIT)), None])),
            ];
            let mut run = Run::new(queues, &classes, LATE);
            run.link = 800;
            for queue in 0..queues {
                run.load(queue, 12, Load::Endless(1514));
            }
            for call in 0..calls as usize {
                run.load(call % queues, 11, Load::Every(160, Nanos(20 * MILLI)));
            }
            run.pass(Nanos::from_secs(5));
            // Of each other queue, a frame may be on its way.
            let frames = Nanos(time(1514, 10 * MBIT) * queues as u64);
            let longest = run.longest[&11];
            assert!(longest <= Nanos(DUE) + frames + LATE, "{longest:?}, {queues} queues");
            let span = Nanos::from_secs(5);
            assert!(is_near(run.rate(11, span), rate, 0.01));
            assert!(is_near(run.rate(11, span) + run.rate(12, span), 10 * MBIT, 0.001));
        }
    }
}

/// The service that is due `after` the beginning of a backlogged period, in bytes.
fn due(curve: &Curve, after: u64) -> u64 {
    let [m1, m2] = [curve.m1, curve.m2].map(|rate| u128::from(rate.bits_per_sec()));
    let first = u128::from(after.min(curve.d.0));
    let bits = m1 * first + m2 * (u128::from(after) - first);
    (bits / 8_000_000_000) as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Leaves that are backlogged from their beginning on have what their real-time curves say,
    /// beside others that would take the whole line by link sharing.
    #[test]
    fn service_curves_hold_over_any_number_of_queues(
        queues in prop::sample::select(vec![1usize, 2, 4, 16]),
        curves in prop::collection::vec(some_curve(), 1..4),
        lens in prop::collection::vec(64u32..1_515, 4),
        spread in 1usize..16,
        lateness in prop::sample::select(vec![Nanos::ZERO, LATE]),
    ) {
        // The line carries all of them, whichever piece they are on, and something besides.
        let slopes = curves.iter().map(|curve| curve.m1.max(curve.m2).bits_per_sec() / MBIT);
        let mbit = (slopes.sum::<u64>() * 5 / 4).next_power_of_two();
        let rate = mbit * MBIT;
        let mut classes = vec![
            (1, class(None, [None, Some(line(MBIT)), Some(line(rate))])),
            (99, class(Some(1), [None, Some(line(MBIT)), None])),
        ];
        let leaves = (11..).zip(&curves);
        classes.extend(leaves.map(|(id, curve)| (id, class(Some(1), [Some(*curve), None, None]))));
        let mut run = Run::new(queues, &classes, lateness);
        run.link = 8_000 / mbit;
        (0..queues).for_each(|queue| run.load(queue, 99, Load::Endless(1514)));
        run.pass(Nanos(50 * MILLI));
        let begins = run.bed.now;
        for (number, (id, _)) in (11..).zip(&curves).enumerate() {
            for queue in 0..spread.min(queues) {
                run.load((queue + number) % queues, id, Load::Endless(lens[number]));
            }
        }
        run.pass(Nanos(200 * MILLI));
        // A frame of each queue may be on its way, and one of each leaf; its own is not divided.
        let frames = queues as u64 + curves.len() as u64;
        let slack = lateness.0 + frames * time(1514, rate);
        for (number, (id, curve)) in (11u32..).zip(&curves).enumerate() {
            let mut had = 0;
            for (at, sent) in run.log.iter().filter(|(_, sent)| sent.class == id) {
                let after = (*at - begins).0.saturating_sub(slack);
                let needed = due(curve, after).saturating_sub(u64::from(lens[number]));
                prop_assert!(had >= needed, "{id}: {had} bytes of {needed} after {after} ns");
                had += u64::from(sent.len);
            }
            let needed = due(curve, (200 * MILLI).saturating_sub(slack)).saturating_sub(u64::from(lens[number]));
            prop_assert!(had >= needed, "{id}: {had} bytes of {needed} in all");
        }
    }
}

/// `tc-hfsc(7)`: a curve that is steep at first gets its service earlier, at the expense of one
/// that is flat at first, and both have the same in the long run.
#[test]
fn a_steep_first_piece_has_less_delay_and_no_more_service() {
    let classes = [
        (1, class(None, [None, Some(line(10 * MBIT)), Some(line(10 * MBIT))])),
        (11, class(Some(1), [None, Some(curve(9 * MBIT, 20 * MILLI, 5 * MBIT)), None])),
        (12, class(Some(1), [None, Some(curve(MBIT, 20 * MILLI, 5 * MBIT)), None])),
    ];
    for queues in [1, 2] {
        let mut run = Run::new(queues, &classes, Nanos::ZERO);
        run.load(0, 11, Load::Endless(500));
        run.load(queues - 1, 12, Load::Endless(500));
        run.pass(Nanos(20 * MILLI));
        let steep = run.rate(11, Nanos(20 * MILLI));
        assert!(is_near(steep, 9 * MBIT, 0.12), "{steep} on {queues} queues");
        run.pass(SECOND);
        assert!(is_near(run.rate(11, SECOND), 5 * MBIT, 0.01));
        assert!(is_near(run.rate(12, SECOND), 5 * MBIT, 0.01));
    }
}

/// Service by deadlines counts for link sharing: a leaf with both has its share, and no more.
#[test]
fn real_time_service_is_part_of_the_share() {
    let classes = [
        (1, class(None, [None, Some(line(10 * MBIT)), Some(line(10 * MBIT))])),
        (11, class(Some(1), [Some(line(3 * MBIT)), Some(line(5 * MBIT)), None])),
        (12, class(Some(1), [None, Some(line(5 * MBIT)), None])),
    ];
    for queues in [1, 3] {
        let mut run = Run::new(queues, &classes, LATE);
        run.load(0, 11, Load::Endless(1514));
        run.load(queues - 1, 12, Load::Endless(1514));
        run.pass(SECOND);
        let span = Nanos::from_secs(4);
        run.pass(span);
        assert!(is_near(run.rate(11, span), 5 * MBIT, 0.01), "{}", run.rate(11, span));
        assert!(is_near(run.rate(12, span), 5 * MBIT, 0.01));
    }
}

#[test]
fn other_curves_hold_at_once_and_no_packet_is_lost() {
    let mut run = Run::new(4, &two(100 * MBIT), LATE);
    for queue in 0..4 {
        run.load(queue, 11, Load::Endless(1514));
        run.load(queue, 12, Load::Endless(1514));
    }
    run.pass(SECOND);
    assert!(is_near(run.rate(11, SECOND), 70 * MBIT, 0.02), "{}", run.rate(11, SECOND));
    let mut other = two(50 * MBIT);
    other[1].1.link_share = Some(line(MBIT));
    other[2].1.link_share = Some(line(4 * MBIT));
    run.bed.change(&other);
    run.due_now();
    run.pass(Nanos(100 * MILLI));
    run.pass(SECOND);
    assert!(is_near(run.rate(11, SECOND), 10 * MBIT, 0.02), "{}", run.rate(11, SECOND));
    assert!(is_near(run.rate(12, SECOND), 40 * MBIT, 0.02), "{}", run.rate(12, SECOND));
    // A class that goes takes its packets with it, and the other one has all.
    run.bed.change(&other[..2]);
    run.due_now();
    (0..4).for_each(|queue| run.stop(queue, 12));
    run.pass(Nanos(100 * MILLI));
    run.pass(SECOND);
    assert!(is_near(run.rate(11, SECOND), 50 * MBIT, 0.01), "{}", run.rate(11, SECOND));
    assert_eq!(run.rate(12, SECOND), 0.0);
}

/// Only a limit that classes have in common is divided among them.
#[test]
fn a_class_that_waits_for_a_limit_of_its_own_keeps_nobody_waiting() {
    for limit in [64_000, MBIT, 20 * MBIT] {
        for top in [Some(line(100 * MBIT)), None] {
            let classes = [
                (1, class(None, [None, Some(line(MBIT)), top])),
                (11, class(Some(1), [None, Some(line(MBIT)), Some(line(limit))])),
                (12, class(Some(1), [None, Some(line(MBIT)), None])),
                (13, class(Some(1), [None, Some(line(MBIT)), Some(line(30 * MBIT))])),
            ];
            let mut run = Run::new(3, &classes, LATE);
            run.load(0, 11, Load::Endless(1514));
            run.load(2, 13, Load::Endless(1514));
            let mut due = vec![(11, limit), (13, 30 * MBIT)];
            if top.is_some() {
                run.load(1, 12, Load::Endless(1514));
                due.push((12, 70 * MBIT - limit));
            }
            run.pass(SECOND);
            run.pass(SECOND);
            for (id, due) in due {
                let rate = run.rate(id, SECOND);
                assert!((rate - due as f64).abs() < 0.1e6, "{id}: {rate} instead of {due}");
            }
        }
    }
}

#[test]
fn classes_below_the_qdisc_do_not_wait_for_each_other() {
    let classes = [
        (11, class(None, [None, Some(line(MBIT)), Some(line(8_000))])),
        (12, class(None, [None, Some(line(MBIT)), Some(line(10 * MBIT))])),
    ];
    let mut run = Run::new(2, &classes, LATE);
    run.load(0, 11, Load::Endless(1514));
    run.load(1, 12, Load::Endless(1514));
    run.pass(SECOND);
    run.pass(SECOND);
    assert!(is_near(run.rate(12, SECOND), 10 * MBIT, 0.01), "{}", run.rate(12, SECOND));
    // Two of them for each packet.
    assert!(run.turns < 4_000, "{} turns", run.turns);
}

/// The most that the class `id` can get.
fn most(classes: &[(u32, Class)], id: u32) -> f64 {
    let (_, class) = classes.iter().find(|(other, _)| *other == id).unwrap();
    let own = class.upper_limit.map_or(f64::MAX, |limit| limit.m2.bits_per_sec() as f64);
    let below = classes.iter().filter(|(_, class)| class.parent == Some(id));
    let below = below.map(|(id, _)| most(classes, *id)).reduce(|one, other| one + other);
    below.map_or(own, |below| own.min(below))
}

/// What each class gets of `rate` where all leaves want more than they can have: each as much in
/// proportion to its curve as the others beside it, but for those that their limits hold up.
fn shares(classes: &[(u32, Class)], above: Option<u32>, rate: f64, of: &mut BTreeMap<u32, f64>) {
    let beside = classes.iter().filter(|(_, class)| class.parent == above);
    let mut left: Vec<(u32, f64, f64)> = beside
        .map(|(id, class)| {
            (*id, class.link_share.unwrap().m2.bits_per_sec() as f64, most(classes, *id))
        })
        .collect();
    let mut rate = rate;
    while !left.is_empty() {
        let weights: f64 = left.iter().map(|(_, weight, _)| weight).sum();
        let is_held = |(_, weight, most): &(u32, f64, f64)| *most <= rate * weight / weights;
        let held = left.iter().position(is_held);
        let (id, got) = match held {
            Some(at) => {
                let (id, _, most) = left.remove(at);
                rate -= most;
                (id, most)
            }
            None => {
                let (id, weight, _) = left.remove(0);
                let got = rate * weight / weights;
                rate -= got;
                (id, got)
            }
        };
        of.insert(id, got);
        shares(classes, Some(id), got, of);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever limits there are, and on whichever queues the packets are.
    #[test]
    fn what_limits_leave_is_shared_by_curves(
        queues in 1usize..6,
        curves in prop::collection::vec(
            (1u64..5, prop::option::weighted(0.4, 1u64..60), 1usize..64), 7),
        top in prop::sample::select(vec![20u64, 100]),
        lateness in prop::sample::select(vec![0u64, 10, 50]),
    ) {
        let limited = |number: usize| {
            let (share, limit, _) = curves[number];
            [None, Some(line(share * MBIT)), limit.map(|limit| line(limit * MBIT))]
        };
        let mut classes = vec![(1, class(None, [None, Some(line(MBIT)), Some(line(top * MBIT))]))];
        classes.extend([(2, 0), (3, 1)].map(|(id, number)| (id, class(Some(1), limited(number)))));
        let of = [(21, 2, 2), (22, 2, 3), (31, 3, 4), (32, 3, 5), (41, 1, 6)];
        let leaves = of.map(|(id, above, number)| (id, class(Some(above), limited(number))));
        classes.extend(leaves);
        let mut run = Run::new(queues, &classes, Nanos::from_micros(lateness));
        for (id, _, number) in of {
            let mut any = false;
            for queue in (0..queues).filter(|queue| curves[number].2 >> queue & 1 == 1) {
                run.load(queue, id, Load::Endless(1514));
                any = true;
            }
            if !any {
                run.load(0, id, Load::Endless(1514));
            }
        }
        run.pass(SECOND);
        run.pass(SECOND);
        let mut due = BTreeMap::new();
        shares(&classes, None, f64::MAX, &mut due);
        for (id, ..) in of {
            let rate = run.rate(id, SECOND);
            let slack = due[&id] * 0.03 + top as f64 * MBIT as f64 * 0.01;
            prop_assert!((rate - due[&id]).abs() <= slack, "{id}: {rate}, due {due:?}");
        }
    }
}
