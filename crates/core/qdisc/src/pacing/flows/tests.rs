//! Flows that come, leave and are forgotten, beside a map.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A packet of the flow comes, and the next one may leave so much later than it.
    Come(u32, u64),
    /// The packet that came first leaves.
    Leave,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![0u32..40, 0u32..3000, any::<u32>()];
    prop_oneof![
        6 => (key, 0u64..2000).prop_map(|(key, apart)| Step::Come(key, apart)),
        5 => Just(Step::Leave),
        1 => (0u64..3000).prop_map(Step::Wait),
    ]
}

/// The state of a flow.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Known {
    next: Moment,
    slot: Nanos,
    queued: u32,
}

proptest! {
    /// The oracle is a map that forgets nothing.
    #[test]
    fn required_flows_are_remembered(
        steps in prop::collection::vec(step(), 1..4000),
    ) {
        let mut flows = Flows::new();
        let mut model: HashMap<u32, Known> = HashMap::new();
        let mut queue = std::collections::VecDeque::new();
        let mut now = Nanos(1);
        for step in steps {
            match step {
                Step::Come(key, apart) => {
                    flows.prefetch(key);
                    let known = model.entry(key).or_default();
                    let flow = flows.get(key, now);
                    prop_assert_eq!(flow.queued(), known.queued);
                    if known.queued > 0 || known.next.nanos >= now.0 {
                        prop_assert_eq!(flow.next(), known.next);
                        prop_assert_eq!(flow.slot, known.slot);
                    }
                    let next = Moment { nanos: now.0 + apart, fraction: key };
                    (flow.slot, known.slot) = (now, now);
                    flow.set_next(next);
                    let first = flow.push();
                    prop_assert_eq!(first, known.queued == 0);
                    flows.stands(first);
                    known.next = next;
                    known.queued += 1;
                    queue.push_back(key);
                }
                Step::Leave => {
                    let Some(key) = queue.pop_front() else { continue };
                    flows.left(key);
                    model.get_mut(&key).unwrap().queued -= 1;
                }
                Step::Wait(time) => now += Nanos(time),
            }
            let standing = model.values().filter(|known| known.queued > 0).count();
            prop_assert_eq!(flows.standing() as usize, standing);
            prop_assert!(flows.remembered() >= flows.standing());
            prop_assert!(flows.remembered() as usize <= model.len());
            prop_assert!(flows.taken < flows.table.places.len());
        }
    }
}

/// Flows that come for the first time and send one packet each.
fn pass(flows: &mut Flows, keys: std::ops::Range<u32>, apart: u64, now: u64) {
    for key in keys {
        let flow = flows.get(key, Nanos(now));
        flow.set_next(Moment::at(Nanos(now + apart)));
        let first = flow.push();
        flows.stands(first);
        flows.left(key);
    }
}

#[test]
fn flows_that_come_and_go_need_no_more_places() {
    let mut flows = Flows::new();
    for turn in 0..100 {
        pass(&mut flows, turn * 1000..(turn + 1) * 1000, 0, u64::from(turn) * 10);
    }
    assert!(flows.memory() <= 4 * 4096 * size_of::<Flow>(), "{}", flows.memory());
    assert!(flows.remembered() < 4096);
}

#[test]
fn a_million_flows_with_packets_are_all_remembered() {
    let mut flows = Flows::new();
    for key in 0..1_000_000 {
        let flow = flows.get(key, Nanos(1));
        flow.set_next(Moment::at(Nanos(1 + (1 << 40))));
        let first = flow.push();
        flows.stands(first);
    }
    assert_eq!((flows.remembered(), flows.standing()), (1_000_000, 1_000_000));
    assert!((0..1_000_000).all(|key| flows.get(key, Nanos(2)).next().nanos == 1 + (1 << 40)));
    assert_eq!(flows.memory(), (1 << 21) * size_of::<Flow>());
}

#[test]
fn a_flow_is_half_a_cache_line() {
    assert_eq!((size_of::<Flow>(), align_of::<Flow>()), (32, 32));
}

#[test]
fn a_flood_of_flows_takes_no_more_memory_than_stated() {
    let mut flows = Flows::new();
    let far = Moment::at(Nanos::from_secs(1_000));
    for packet in 0..1_000_000u32 {
        let key = crate::flow_table::scattered(packet);
        let flow = flows.get(key, Nanos(u64::from(packet)));
        flow.set_next(far);
        // Some have packets, and all of them would have to wait.
        if packet.is_multiple_of(100) {
            let first = flow.push();
            flows.stands(first);
        }
        assert!(flows.taken * 4 <= flows.table.places.len() * 3);
    }
    assert_eq!(flows.standing(), 10_000);
    assert!(flows.memory() <= 2 * PLACES_MAX * size_of::<Flow>(), "{}", flows.memory());
    for packet in (0..1_000_000u32).step_by(100) {
        flows.left(crate::flow_table::scattered(packet));
    }
    assert_eq!(flows.standing(), 0, "no flow with packets was forgotten");
}
