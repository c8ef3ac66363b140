//! `ack-filter` judges a packet only by its own acknowledgement.

use super::world::{World, flow};
use super::{MBIT, limited, ms};
use narrows_packet::Acknowledgement;
use narrows_qdisc::cake::{AckFilter, Config};

/// A pure acknowledgement of so much.
fn up_to(number: u32) -> Acknowledgement {
    Acknowledgement {
        connection: 1,
        number,
        flags: 0x10,
        is_empty: true,
        has_plain_options: true,
        ..Acknowledgement::default()
    }
}

fn filtering(ack_filter: AckFilter) -> Config {
    Config { ack_filter, ..limited(MBIT) }
}

/// Leaves acknowledgements behind in all the places that packets take.
fn world_with_remains() -> World {
    let mut world = World::new(filtering(AckFilter::On));
    // Repetitions stay.
    for _ in 0..50 {
        world.acknowledge(flow(1), 60, up_to(7));
    }
    world.leave_all();
    world
}

#[test]
fn acknowledgements_are_filtered() {
    let mut world = World::new(filtering(AckFilter::On));
    for number in 0..10 {
        world.acknowledge(flow(1), 60, up_to(number));
    }
    assert_eq!(world.figures().tins[0].ack_drops, 8);
}

#[test]
fn acknowledgements_queued_unparsed_are_kept() {
    let mut world = world_with_remains();
    let before = world.figures().tins[0].ack_drops;
    world.retune(filtering(AckFilter::Off));
    for _ in 0..20 {
        world.arrive(flow(1), 1000);
    }
    world.retune(filtering(AckFilter::On));
    world.run(ms(1), |_, _| {});
    for number in 20_000..20_010 {
        world.acknowledge(flow(1), 60, up_to(number));
    }
    assert_eq!(world.figures().tins[0].ack_drops - before, 8, "of those that were read");
    world.check();
}

#[test]
fn acknowledgements_from_another_qdisc_are_kept() {
    let mut world = world_with_remains();
    world.retune(filtering(AckFilter::Off));
    for _ in 0..20 {
        world.arrive(flow(1), 1000);
    }
    // Another isolation takes another instance.
    let isolation = narrows_qdisc::cake::Isolation::Flows;
    world.change(Config { isolation, ..filtering(AckFilter::On) });
    for number in 20_000..20_010 {
        world.acknowledge(flow(1), 60, up_to(number));
    }
    assert_eq!(world.figures().tins[0].ack_drops, 8);
    world.check();
}
