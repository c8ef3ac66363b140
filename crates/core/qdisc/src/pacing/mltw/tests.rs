//! A wheel with packets of 1500 bytes, one step at a time.

use super::*;

/// A wheel with packets of 1500 bytes whose numbers are their names.
struct World {
    wheel: Mltw,
    packets: Packets,
    arrived: u32,
}

impl World {
    fn new(slots: u32) -> Self {
        Self { wheel: Mltw::new(slots), packets: Packets::new(10_000), arrived: 0 }
    }

    /// The next packet; when it will leave.
    fn insert(&mut self, at: u64, behind: u64, spacing: u32, now: u64) -> u64 {
        let id = PacketId(self.arrived);
        self.arrived += 1;
        self.packets.arrive(id, 1500, Nanos(now));
        let slot = Slot { at: Nanos(at), behind: Nanos(behind), spacing };
        self.wheel.insert(&mut self.packets, id, slot, Nanos(now)).0
    }

    fn pop_all(&mut self, now: u64) -> Vec<u32> {
        std::iter::from_fn(|| self.wheel.pop(&mut self.packets, Nanos(now)))
            .map(|id| id.0)
            .collect()
    }
}

#[test]
fn departures_are_rounded_up_to_the_flow_s_spacing() {
    let mut world = World::new(64);
    assert_eq!(world.insert(1001, 0, 10, 0), 1024);
    assert_eq!(world.insert(1024, 0, 10, 0), 1024);
    assert_eq!(world.insert(1025, 0, 10, 0), 2048);
    assert_eq!(world.pop_all(1023), []);
    assert_eq!(world.wheel.next(), Some(Nanos(1024)));
    assert_eq!(world.pop_all(1024), [0, 1]);
    assert_eq!(world.pop_all(2047), []);
    assert_eq!(world.pop_all(2048), [2]);
}

#[test]
fn flows_of_different_rates_meet_where_their_times_coincide() {
    let mut world = World::new(64);
    for spacing in [10, 11, 12] {
        assert_eq!(world.insert(4000, 0, spacing, 0), 4096);
    }
    assert_eq!(world.wheel.active.count_ones(), 1);
    assert_eq!(world.pop_all(4096).len(), 3);
}

#[test]
fn packets_of_a_flow_in_one_slot_leave_in_order_of_arrival() {
    let mut world = World::new(64);
    for at in 1000..1008 {
        world.insert(at, 0, 10, 0);
    }
    assert_eq!(world.pop_all(1024), (0..8).collect::<Vec<_>>());
}

#[test]
fn an_overdue_packet_leaves_at_once_behind_the_ready_ones() {
    let mut world = World::new(64);
    world.insert(100, 0, 0, 0);
    world.insert(100, 0, 0, 0);
    let pop = |world: &mut World| world.wheel.pop(&mut world.packets, Nanos(200));
    assert_eq!(pop(&mut world), Some(PacketId(0)));
    assert_eq!(world.insert(50, 100, 10, 200), 100);
    assert_eq!(world.pop_all(200), [1, 2]);
}

#[test]
fn nearly_a_full_turn_is_in_reach_and_later_packets_move_on_in_parts() {
    // Slots of 2 ns: wheel 0 reaches 128 ns, of which a part is 2.
    let mut world = World::new(64);
    world.insert(125, 0, 0, 0);
    assert_eq!(world.wheel.next(), Some(Nanos(125)), "in its place");
    world.insert(129, 0, 0, 0);
    assert_eq!(
        world.wheel.next(),
        Some(Nanos(2)),
        "where it rests: at the border after the first part"
    );
    assert_eq!(world.pop_all(2), []);
    assert_eq!(world.wheel.next(), Some(Nanos(125)));
    assert_eq!(world.pop_all(129), [0, 1]);
}

#[test]
fn packets_far_beyond_a_wheel_s_reach_leave_on_time_and_in_order() {
    let mut world = World::new(64);
    let times = [1_000_000_007, 1_000_000_007, 3_600_000_000_001, 1 << 60];
    for at in times {
        assert_eq!(world.insert(at, 0, 0, 0), at);
    }
    let mut left = vec![];
    while let Some(next) = world.wheel.next() {
        left.extend(world.pop_all(next.0).into_iter().map(|id| (id, next.0)));
    }
    assert_eq!(left, (0..).zip(times).collect::<Vec<_>>());
}

#[test]
fn a_late_arrival_does_not_overtake_an_early_one_of_the_same_time() {
    let at = 1_000_001;
    for later in (0..at).step_by(997) {
        let mut world = World::new(64);
        world.insert(at, 0, 0, 0);
        world.pop_all(later);
        world.insert(at, at, 0, later);
        assert_eq!(world.pop_all(at), [0, 1], "the second came at {later}");
    }
}

#[test]
fn after_a_gap_of_any_length_the_next_slot_is_one_step_away() {
    let mut world = World::new(1024);
    let now = 1_u64 << 50;
    world.insert(now + 12_345, 0, 10, now);
    assert_eq!(world.wheel.next(), Some(Nanos((now + 12_345).next_multiple_of(1024))));
    assert_eq!(world.pop_all(now + 20_000), [0]);
}

#[test]
fn it_needs_no_more_memory_than_the_paper_s() {
    assert!(Mltw::new(1024).memory() <= 1_200_000);
}

#[test]
#[should_panic(expected = "100 slots")]
fn other_numbers_of_slots_are_refused() {
    Mltw::new(100);
}
