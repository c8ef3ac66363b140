//! The internals of a wheel: how many slots it visits, and where it files packets.

use super::*;
use crate::pacing::{Carousel, Eiffel, carousel::Scan, eiffel::Bitmaps};

const SLOT: u64 = 100;

/// Counts the slots that are passed.
struct Counted<S> {
    search: S,
    searches: Cell<u64>,
    passed: Cell<u64>,
}

impl<S: Search> Search for Counted<S> {
    fn new(slots: usize) -> Self {
        Self { search: S::new(slots), searches: Cell::new(0), passed: Cell::new(0) }
    }

    fn filled(&mut self, index: usize) {
        self.search.filled(index);
    }

    fn emptied(&mut self, index: usize) {
        self.search.emptied(index);
    }

    fn search(&self, slots: &[u32], from: u64, until: u64) -> u64 {
        let found = self.search.search(slots, from, until);
        self.searches.set(self.searches.get() + 1);
        self.passed.set(self.passed.get() + found - from);
        found
    }

    fn memory(&self) -> usize {
        self.search.memory()
    }
}

/// A wheel of 1024 slots and its packets.
struct World<S> {
    wheel: Wheel<Counted<S>>,
    packets: Packets,
    came: u32,
}

impl<S: Search> World<S> {
    fn new() -> Self {
        let wheel = Wheel::new(Nanos(SLOT), Nanos(1022 * SLOT));
        assert_eq!(wheel.slots.len(), 1024);
        Self { wheel, packets: Packets::new(2048), came: 0 }
    }

    fn insert(&mut self, at: u64, now: u64) -> PacketId {
        let id = PacketId(self.came % 2048);
        self.came += 1;
        self.packets.arrive(id, 1500, Nanos(now));
        let slot = Slot { at: Nanos(at), behind: Nanos::ZERO, spacing: 0 };
        self.wheel.insert(&mut self.packets, id, slot, Nanos(now));
        id
    }

    fn pop(&mut self, now: u64) -> Option<PacketId> {
        self.wheel.pop(&mut self.packets, Nanos(now))
    }

    fn passed(&self) -> u64 {
        self.wheel.search.passed.get()
    }

    fn searches(&self) -> u64 {
        self.wheel.search.searches.get()
    }
}

#[test]
fn an_idle_wheel_is_not_searched_however_long_it_was_idle() {
    let mut world = World::<Scan>::new();
    let mut now = 0;
    for gap in [1_200_000_000, 10_u64.pow(15), 10_u64.pow(18)] {
        let id = world.insert(now + 3 * SLOT, now);
        assert_eq!(world.pop(now), None);
        now += 3 * SLOT;
        assert_eq!(world.pop(now), Some(id));
        now += gap;
        assert_eq!(world.pop(now), None);
    }
    assert!(world.passed() <= 3 * 4, "{} slots", world.passed());
}

#[test]
fn a_slot_is_searched_once() {
    let mut world = World::<Scan>::new();
    let id = world.insert(900 * SLOT, 0);
    for now in (0..900 * SLOT).step_by(7) {
        assert_eq!(world.pop(now), None);
        assert_eq!(world.wheel.next(), Some(Nanos(900 * SLOT)));
    }
    assert_eq!(world.pop(900 * SLOT), Some(id));
    assert!(world.passed() <= 900, "{} slots", world.passed());
}

#[test]
fn a_pause_with_a_packet_waiting_costs_a_turn_at_most() {
    let mut world = World::<Scan>::new();
    let near = world.insert(900 * SLOT, 0);
    let far = world.insert(10_u64.pow(15), 0);
    assert_eq!(world.pop(10_u64.pow(16)), Some(near));
    assert_eq!(world.pop(10_u64.pow(16)), Some(far));
    assert!(world.passed() <= 1024, "{} slots", world.passed());
}

#[test]
fn with_bitmaps_each_slot_that_holds_packets_costs_one_search() {
    let mut world = World::<Bitmaps>::new();
    let ids: Vec<PacketId> = (1..=10).map(|slot| world.insert(slot * 99 * SLOT, 0)).collect();
    let now = 10_u64.pow(15);
    let gone: Vec<PacketId> = std::iter::from_fn(|| world.pop(now)).collect();
    assert_eq!(gone, ids);
    assert!(world.searches() <= 10, "{} searches", world.searches());
}

#[test]
fn within_the_horizon_nothing_is_filed_twice() {
    let mut world = World::<Bitmaps>::new();
    for now in (0..5000 * SLOT).step_by(77) {
        world.insert(now + 1022 * SLOT, now);
        assert!(world.wheel.beyond.is_empty(), "at {now}");
        while world.pop(now).is_some() {}
    }
}

#[test]
fn the_end_of_time_is_never_and_can_be_taken_out() {
    let (mut one, mut other) =
        (Carousel::new(Nanos(1), Nanos(50)), Eiffel::new(Nanos(100), Nanos(50)));
    let wheels: [&mut dyn Calendar; 2] = [&mut one, &mut other];
    for wheel in wheels {
        let mut packets = Packets::new(1);
        packets.arrive(PacketId(0), 1500, Nanos::ZERO);
        let slot = Slot { at: Nanos::MAX, behind: Nanos::ZERO, spacing: 0 };
        wheel.insert(&mut packets, PacketId(0), slot, Nanos(5));
        assert_eq!(wheel.pop(&mut packets, Nanos::MAX), None);
        assert_eq!(wheel.next(), Some(Nanos::MAX));
        assert_eq!(wheel.drain(&mut packets), Some(PacketId(0)));
        assert_eq!(wheel.pop(&mut packets, Nanos::MAX), None);
    }
}

#[test]
fn it_takes_four_bytes_a_slot_and_an_index_an_eighth() {
    let millisecond = Nanos::from_millis(1);
    let carousel = Carousel::new(Nanos(SLOT), millisecond).memory();
    let eiffel = Eiffel::new(Nanos(SLOT), millisecond).memory();
    let slots = 1 << 14;
    assert!((4 * slots..4 * slots + 200).contains(&carousel), "{carousel} bytes");
    assert!((slots / 8..slots / 8 + 200).contains(&(eiffel - carousel)), "{eiffel} bytes");
}
