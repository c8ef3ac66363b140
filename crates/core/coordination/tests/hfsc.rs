//! `hfsc` against the kernel's algorithm on one queue, packet by packet, and against its service
//! curves on several.

mod hfsc {
    pub mod bed;
    pub mod kernel;
}

use hfsc::bed::{Bed, MBIT, MILLI, class, curve, line};
use hfsc::kernel::{Kernel, Next};
use narrows_qdisc::hfsc::{Class, Curve};
use narrows_units::Nanos;
use proptest::prelude::*;

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
    let leaf = move || curves().prop_map(|(real_time, link_share, upper_limit)| {
        // One of the two is needed, and link sharing for an upper limit.
        let none = real_time.is_none() && link_share.is_none();
        let link_share = if none { Some(line(4 * MBIT)) } else { link_share };
        [real_time, link_share, upper_limit.filter(|_| link_share.is_some())]
    });
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
