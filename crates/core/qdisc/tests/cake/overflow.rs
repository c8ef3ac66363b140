//! Who pays when memory ends.

use super::world::{World, flow};
use super::{MBIT, limited};
use narrows_qdisc::cake::Config;
use narrows_units::{Bytes, Nanos};
use proptest::prelude::*;
use std::collections::HashMap;

const LEN: u32 = 1000;

/// The set and the tag of a flow's hash: flows that have both in common share a queue.
const fn queue(flow: u32) -> (u32, u32) {
    (flow % 128, flow >> 16)
}

/// Packets that are queued, by queue.
fn queued(world: &World) -> HashMap<(u32, u32), u64> {
    let mut queues = HashMap::new();
    for (&flow, packets) in world.queues() {
        *queues.entry(queue(flow)).or_default() += packets;
    }
    queues
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Flows come and go all the while, so that their places are used again while memory is short.
    /// The oracle counts what each queue holds: a drop is always from one of the longest. It ends
    /// with the first flow for which no way of its set is left.
    #[test]
    fn the_longest_queue_takes_the_drop_after_any_history(
        bursts in prop::collection::vec((2u32..1 << 30, 1u64..60, 0u64..4), 1..600),
    ) {
        let config = Config { memory: Some(Bytes(2048 * 100)), ..limited(1000 * MBIT) };
        let mut world = World::new(config);
        world.arrive(flow(1), LEN);
        for (id, packets, time) in bursts {
            // Most are gone at once, and a few are longer than the lasting ones.
            let packets = if packets < 40 { 1 } else { packets };
            let standing = 70 - world.queues()[&flow(1).flow].min(70);
            for id in (0..standing).map(|_| 1).chain((0..packets).map(|_| id)) {
                world.arrive(flow(id), LEN);
                if world.figures().tins[0].way_collisions > 0 {
                    return Ok(());
                }
                if world.just_dropped().is_empty() {
                    continue;
                }
                let mut queues = queued(&world);
                for dropped in world.just_dropped() {
                    *queues.entry(queue(*dropped)).or_default() += 1;
                }
                for dropped in world.just_dropped() {
                    let longest = queues.values().copied().max();
                    prop_assert_eq!(queues.get(&queue(*dropped)).copied(), longest);
                    queues.entry(queue(*dropped)).and_modify(|queued| *queued -= 1);
                }
            }
            // A packet takes 8 us.
            world.run(Nanos::from_micros(packets * time * 4), |_, _| {});
        }
        world.check();
        world.leave_all();
        world.check();
    }
}
