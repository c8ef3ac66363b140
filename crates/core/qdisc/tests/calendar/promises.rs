//! The promises. That nothing is early, lost, taken twice, or before its predecessor is checked by
//! the [`Bed`] wherever something leaves.

use crate::bed::{Bed, FLOWS, Kind};
use narrows_packet::PacketId;
use narrows_units::Nanos;
use proptest::prelude::*;

const A_YEAR: u64 = 366 * 24 * 3600 * 1_000_000_000;

/// A test for each of them.
macro_rules! kept_by {
    ($kind:expr) => {
        promises::kept_by! { $kind;
            all_leave_on_time_and_in_order_through_any_events
            all_waiting_packets_can_be_taken_out_after_any_events
            an_earlier_packet_does_not_wait_for_the_first_into_an_empty_one
            packets_of_one_slot_leave_as_they_came
            departures_are_rounded_up
            a_time_of_more_than_32_bits_is_kept
            a_backlog_of_many_slots_leaves_at_once
            a_pause_of_any_length_leaves_no_trace
            a_pause_with_a_packet_waiting_leaves_no_trace
            overdue_packets_leave_now
            late_packets_do_not_overtake_due_ones
            distant_packets_are_not_overtaken_by_later_near_ones
            distant_packets_stay_in_order
            packets_that_never_leave_can_be_taken_out
        }
    };
    ($kind:expr; $($promise:ident)*) => {
        $(#[test]
        fn $promise() {
            promises::$promise(&|| $kind);
        })*
    };
}
pub(crate) use kept_by;

fn bed(kind: &dyn Fn() -> Kind) -> Bed {
    Bed::new(kind(), Nanos(12_345_678))
}

#[derive(Clone, Debug)]
enum Step {
    /// A packet of a flow that may leave so long after now, or should have so long ago.
    Insert {
        flow: usize,
        ahead: u64,
        ago: u64,
        spacing: u32,
    },
    Wait {
        span: u64,
    },
    /// Advances to the calendar's next poll, and polls.
    Follow,
    Pop {
        count: usize,
    },
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..40_u64, 0..2_500_u64, 0..300_000_u64, 0..10_u64.pow(10), 0..A_YEAR / 10]
}

fn step() -> impl Strategy<Value = Step> {
    let insert = |(flow, ahead, ago, spacing)| Step::Insert { flow, ahead, ago, spacing };
    prop_oneof![
        8 => (0..FLOWS, span(), Just(0), 0..16_u32).prop_map(insert),
        1 => (0..FLOWS, Just(0), span(), 0..16_u32).prop_map(insert),
        2 => span().prop_map(|span| Step::Wait { span }),
        3 => Just(Step::Follow),
        3 => (0..6_usize).prop_map(|count| Step::Pop { count }),
    ]
}

fn live_through(bed: &mut Bed, steps: &[Step]) {
    for step in steps {
        match *step {
            Step::Insert { flow, ahead, ago, spacing } => {
                bed.insert_spaced(flow, bed.now + Nanos(ahead) - Nanos(ago), spacing);
            }
            Step::Wait { span } => bed.now += Nanos(span),
            Step::Follow => {
                bed.follow();
                bed.pop_all();
            }
            Step::Pop { count } => {
                (0..count).take_while(|_| bed.pop().is_some()).count();
            }
        }
    }
}

pub fn all_leave_on_time_and_in_order_through_any_events(kind: &dyn Fn() -> Kind) {
    proptest!(|(start in span(), steps in prop::collection::vec(step(), 1..100))| {
        let mut bed = Bed::new(kind(), Nanos(start));
        live_through(&mut bed, &steps);
        let waiting = bed.waiting();
        prop_assert_eq!(bed.run().len(), waiting);
    });
}

pub fn all_waiting_packets_can_be_taken_out_after_any_events(kind: &dyn Fn() -> Kind) {
    proptest!(|(start in span(), steps in prop::collection::vec(step(), 1..100))| {
        let mut bed = Bed::new(kind(), Nanos(start));
        live_through(&mut bed, &steps);
        let waiting = bed.waiting();
        prop_assert_eq!(bed.drain().len(), waiting);
    });
}

pub fn an_earlier_packet_does_not_wait_for_the_first_into_an_empty_one(kind: &dyn Fn() -> Kind) {
    let mut bed = bed(kind);
    let first = bed.insert(0, bed.after(12));
    let earlier = bed.insert(1, bed.after(2));
    let between = bed.insert(2, bed.after(7));
    assert_eq!(bed.run(), [earlier, between, first]);
}

pub fn packets_of_one_slot_leave_as_they_came(kind: &dyn Fn() -> Kind) {
    let mut bed = bed(kind);
    let came: Vec<PacketId> = (0..20).map(|_| bed.insert(3, bed.after(5))).collect();
    assert_eq!(bed.run(), came);
}

pub fn departures_are_rounded_up(kind: &dyn Fn() -> Kind) {
    let (mut bed, start) = (bed(kind), bed(kind));
    for part in 0..100 {
        let slot = start.after(1) - start.now;
        let at = start.after(10 + 3 * part) + Nanos(slot.0 * part / 100);
        let id = bed.insert(0, at);
        bed.now = at - Nanos(1);
        assert_eq!(bed.pop(), None);
        bed.now = at + slot;
        assert_eq!(bed.pop_all(), [id]);
    }
}

pub fn a_time_of_more_than_32_bits_is_kept(kind: &dyn Fn() -> Kind) {
    let mut bed = bed(kind);
    let far = [33, 40, 55].map(|bits| bed.insert(0, bed.now + Nanos(1 << bits)));
    let near = bed.insert(1, bed.after(50));
    assert_eq!(bed.run(), [&[near], far.as_slice()].concat());
}

pub fn a_backlog_of_many_slots_leaves_at_once(kind: &dyn Fn() -> Kind) {
    let mut bed = bed(kind);
    for slot in 0..1000 {
        bed.insert(slot as usize % FLOWS, bed.after(slot));
    }
    bed.now = bed.after(1000);
    assert_eq!(bed.pop_all().len(), 1000);
}

/// Packets that leave soon, and when each left.
fn some_traffic(bed: &mut Bed) -> Vec<(u64, Vec<PacketId>)> {
    let offsets = [5, 9, 3, 120, 0, 77, 78, 3000];
    for (flow, offset) in offsets.into_iter().enumerate() {
        bed.insert(flow, bed.after(offset));
    }
    let left = std::iter::from_fn(|| bed.follow().then(|| (bed.now.0, bed.pop_all())));
    left.filter(|(_, gone)| !gone.is_empty()).collect()
}

pub fn a_pause_of_any_length_leaves_no_trace(kind: &dyn Fn() -> Kind) {
    for pause in [1, 1_200_000_000, 1 << 32, 10_u64.pow(15), 100 * A_YEAR] {
        let mut aged = bed(kind);
        some_traffic(&mut aged);
        aged.now += Nanos(pause);
        let mut fresh = Bed::new(kind(), aged.now);
        let by_time = |left: Vec<(u64, Vec<PacketId>)>| -> Vec<(u64, usize)> {
            left.into_iter().map(|(at, gone)| (at, gone.len())).collect()
        };
        let left = by_time(some_traffic(&mut aged));
        assert_eq!(left, by_time(some_traffic(&mut fresh)), "after {pause} ns");
    }
}

pub fn a_pause_with_a_packet_waiting_leaves_no_trace(kind: &dyn Fn() -> Kind) {
    for pause in [1_000_000_000, 1 << 32, 10_u64.pow(15), 100 * A_YEAR] {
        let mut bed = bed(kind);
        let before = [bed.insert(0, bed.after(10)), bed.insert(0, bed.after(2000))];
        bed.now += Nanos(pause);
        let after = [bed.insert(0, bed.after(5)), bed.insert(0, bed.after(500))];
        assert_eq!(bed.pop_all(), before, "after {pause} ns");
        assert_eq!(bed.run(), after);
    }
}

pub fn overdue_packets_leave_now(kind: &dyn Fn() -> Kind) {
    let mut bed = bed(kind);
    for (flow, ago) in [1, 0, 1000, u64::MAX].into_iter().enumerate() {
        let id = bed.insert(flow, bed.now - Nanos(ago));
        assert_eq!(bed.pop_all(), [id], "{ago} ns late");
        bed.now += Nanos(777);
    }
    let waiting = bed.insert(5, bed.after(9));
    let overdue = bed.insert(6, Nanos::ZERO);
    assert_eq!(bed.pop_all(), [overdue]);
    assert_eq!(bed.run(), [waiting]);
}

pub fn late_packets_do_not_overtake_due_ones(kind: &dyn Fn() -> Kind) {
    let mut bed = bed(kind);
    let due = [1, 1, 1, 2].map(|slots| bed.insert(0, bed.after(slots)));
    bed.now = bed.after(3);
    let mut gone = vec![bed.pop().map(|left| left.id)];
    let late = [bed.insert(0, Nanos::ZERO), bed.insert(0, bed.now)];
    gone.extend(bed.run().into_iter().map(Some));
    assert_eq!(gone, [due.as_slice(), &late].concat().into_iter().map(Some).collect::<Vec<_>>());
}

pub fn distant_packets_are_not_overtaken_by_later_near_ones(kind: &dyn Fn() -> Kind) {
    let turns = 200_000;
    for later in (0..turns).step_by(1009) {
        let mut bed = bed(kind);
        let at = bed.after(turns);
        let far = bed.insert(0, at);
        let others = [later, later + 10].map(|slots| bed.insert(1, bed.after(slots)));
        bed.now = bed.after(later + 5);
        let mut gone = bed.pop_all();
        let near = bed.insert(0, at);
        gone.extend(bed.run());
        gone.retain(|id| !others.contains(id));
        assert_eq!(gone, [far, near], "the second came {later} slots later");
    }
}

pub fn distant_packets_stay_in_order(kind: &dyn Fn() -> Kind) {
    let mut bed = bed(kind);
    let came = |bed: &mut Bed, flow: usize| -> Vec<PacketId> {
        (0..300_u64).map(|turn| bed.insert(flow, bed.after(turn / 3 * 1_003))).collect()
    };
    let mut all = came(&mut bed, 0);
    all.extend(came(&mut bed, 1));
    let gone = bed.run();
    let of_first = |ids: &[PacketId]| -> Vec<PacketId> {
        ids.iter().copied().filter(|id| all[..300].contains(id)).collect()
    };
    assert_eq!(of_first(&gone), of_first(&all));
}

pub fn packets_that_never_leave_can_be_taken_out(kind: &dyn Fn() -> Kind) {
    let mut bed = bed(kind);
    let soon = bed.insert(0, bed.after(4));
    let never = bed.insert(0, Nanos(1 << 61));
    bed.now = Nanos(1 << 60);
    assert_eq!(bed.pop_all(), [soon]);
    assert_eq!(bed.drain(), [never]);
}
