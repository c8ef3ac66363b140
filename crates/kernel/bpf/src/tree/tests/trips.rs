//! Round trips of TCP, timed in the kernel.

use super::*;
use crate::test_run::{Packet, run_at_tcx_leaving};
use crate::trips::TripsBeyond;
use narrows_units::Nanos;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::time::Duration;

const HERE: [u8; 4] = [10, 0, 0, 1];
const THERE: [u8; 4] = [10, 0, 0, 2];

/// A segment of TCP with this stamp and echo, between ports of the same number.
fn segment([from, to]: [[u8; 4]; 2], port: u16, stamp: u32, echo: u32) -> Vec<u8> {
    let mut frame = frame(port, 0, 80);
    frame[23] = 6;
    frame[26..34].copy_from_slice(&[from, to].concat());
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    // A header of eight words, with an acknowledgement.
    frame[46..48].copy_from_slice(&[0x80, 0x10]);
    frame[54..58].copy_from_slice(&[1, 1, 8, 10]);
    frame[58..62].copy_from_slice(&stamp.to_be_bytes());
    frame[62..66].copy_from_slice(&echo.to_be_bytes());
    frame
}

/// A tree at the port where packets leave and one where they arrive, which is the loopback device
/// in a test run, and the line beyond.
struct Followed {
    leaving: Tree,
    arriving: Tree,
    line: TripsBeyond,
}

impl Followed {
    /// Without a permission to load programs, none.
    fn up() -> Option<Self> {
        let (mut leaving, mut arriving) = (tree()?, tree()?);
        let line = TripsBeyond::new().unwrap();
        leaving.time_leaving(Some(&line)).unwrap();
        arriving.time_arriving(OTHER, Some(&line)).unwrap();
        Some(Self { leaving, arriving, line })
    }

    fn leaves(&self, port: u16, stamp: u32) {
        let bytes = segment([HERE, THERE], port, stamp, 7);
        assert_eq!(run(&self.leaving, &bytes, 1).0, REDIRECT);
    }

    fn arrives(&self, port: u16, echo: u32) {
        let bytes = segment([THERE, HERE], port, 70, echo);
        assert_eq!(run(&self.arriving, &bytes, 1).0, REDIRECT);
    }

    /// How many trips there were since the last call.
    fn trips(&self) -> usize {
        self.line.take().len()
    }
}

#[test]
fn a_trip_takes_from_when_a_stamp_leaves_until_it_comes_back() {
    let Some(followed) = Followed::up() else { return };
    followed.leaves(80, 1);
    let before = Instant::now();
    followed.leaves(80, 2);
    let left = Instant::now();
    while left.elapsed() < Duration::from_millis(3) {}
    let least = left.elapsed();
    followed.arrives(80, 2);
    let most = before.elapsed();
    let trips = followed.line.take();
    assert_eq!(trips.len(), 1);
    let micros = |time: Duration| Nanos::from_micros(time.as_micros() as u64);
    let time = trips[0].time;
    assert!(time >= micros(least) && time <= micros(most), "{time}: {least:?} to {most:?}");
    // Each stamp counts once.
    followed.arrives(80, 2);
    assert_eq!(followed.trips(), 0);
}

#[test]
fn only_the_first_segment_of_a_stamp_is_timed() {
    let Some(followed) = Followed::up() else { return };
    // Others may have left before the first that is seen.
    followed.leaves(80, 1);
    followed.leaves(80, 1);
    followed.arrives(80, 1);
    assert_eq!(followed.trips(), 0);
    followed.leaves(80, 2);
    followed.leaves(80, 3);
    followed.arrives(80, 1);
    assert_eq!(followed.trips(), 0, "an older echo answers nothing");
    followed.arrives(80, 2);
    assert_eq!(followed.trips(), 1);
}

#[test]
fn after_a_later_echo_the_next_stamp_is_timed() {
    let Some(followed) = Followed::up() else { return };
    for stamp in [u32::MAX - 1, u32::MAX, 0] {
        followed.leaves(80, stamp);
    }
    followed.arrives(80, 0);
    assert_eq!(followed.trips(), 0, "that of the one before will not come");
    followed.leaves(80, 1);
    followed.arrives(80, 1);
    assert_eq!(followed.trips(), 1);
}

#[test]
fn connections_and_hosts_are_told_apart() {
    let Some(followed) = Followed::up() else { return };
    for stamp in [1, 2] {
        followed.leaves(80, stamp);
        followed.leaves(81, stamp);
    }
    followed.arrives(82, 2);
    assert_eq!(followed.trips(), 0);
    followed.arrives(80, 2);
    followed.arrives(81, 2);
    let trips = followed.line.take();
    assert_eq!(trips.len(), 2);
    assert_eq!(trips[0].host, trips[1].host);
    assert_ne!(trips[0].connection, trips[1].connection);
}

#[test]
fn nothing_is_timed_that_nobody_follows() {
    let Some(mut followed) = Followed::up() else { return };
    followed.leaving.install(one_class(class(1_000_000)), &[1]).unwrap();
    followed.leaves(80, 1);
    followed.leaves(80, 2);
    followed.arrives(80, 2);
    assert_eq!(followed.trips(), 1, "another plan changes nothing");
    followed.leaving.time_leaving(None).unwrap();
    followed.leaves(83, 1);
    followed.leaves(83, 2);
    followed.arrives(83, 2);
    assert_eq!(followed.trips(), 0);
}

#[test]
fn what_waits_for_its_departure_has_not_begun_its_trip() {
    let Some(mut tree) = tree() else { return };
    let line = TripsBeyond::new().unwrap();
    tree.time_leaving(Some(&line)).unwrap();
    tree.time_arriving(OTHER, Some(&line)).unwrap();
    // 50 packets of 1,000 bytes in front of it take a second.
    let slow = Class { limit: 2000 * MS, target: 4000 * MS, ..class(50_000) };
    tree.install(one_class(slow), &[1]).unwrap();
    let stamp = tree.departures(&[], HostAddresses::InHeaders).unwrap().program;
    let leaves = |number: u32| {
        let mut bytes = segment([HERE, THERE], 80, number, 7);
        bytes.resize(1000, 0);
        run_at_tcx_leaving(stamp.program(), &bytes, Packet::default()).unwrap();
    };
    (0..50).for_each(|_| leaves(1));
    leaves(2);
    let bytes = segment([THERE, HERE], 80, 70, 2);
    run(&tree, &bytes, 1);
    assert_eq!(line.take(), [], "it cannot be answered before it has left");
}

#[test]
fn any_bytes_pass_as_they_do_without() {
    // Loaded once: that takes longer than all cases.
    let Some(followed) = Followed::up() else { return };
    let any_bytes = prop::collection::vec(any::<u8>(), 14..200);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
    let checked = runner.run(&any_bytes, |mut bytes| {
        bytes[..6].fill(4);
        for tree in [&followed.leaving, &followed.arriving] {
            prop_assert_eq!(run(tree, &bytes, 2).0, REDIRECT);
        }
        prop_assert_eq!(followed.trips(), 0);
        Ok(())
    });
    checked.unwrap();
}
