//! How many flows each host has backlogged on all queues: a count-min sketch.
//!
//! Each host has one cell in each of [`ROWS`] rows, chosen by different bits of its key, and its
//! flows are added to all of them. A cell holds the flows of every host that maps to it. So the
//! minimum over a host's cells is never too small, and is exact unless the host shares all of its
//! cells.
//!
//! *Error.* With `H` other hosts with backlogged flows, a host shares its cell of one row with
//! probability 1 - (1 - 1/[`PORT_CELLS`])^H, about H/4096, and of both rows with the square of
//! that: 0.06 % of hosts are overestimated with 100 others, 0.9 % with 400, 5 % with 1,024. One row
//! with as many cells as both would be wrong for 1.2 %, 4.8 % and 12 %. An overestimated host gets
//! less than its share until one of them is done. The hash's key decides which hosts share cells.
//!
//! *Subtraction.* Each handle remembers in its own memory what it has added to each cell. So this
//! can be subtracted however the qdisc ends, and no mistake of one handle can bring a cell below
//! what the others have added.
//!
//! Source: Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and
//! its applications", Journal of Algorithms 55 (2005).

use crate::sync::{AtomicU32, Ordering};
use narrows_qdisc::HostKey;
use std::array;

/// With two rows an error needs two coincidences; each further row costs a cache line per look-up.
const ROWS: usize = 2;

/// Cells of a row, for a port: four times the 1,024 flows that a tin of cake tells apart on a
/// queue, and with both rows no more than a first-level cache.
#[cfg(not(loom))]
pub(super) const PORT_CELLS: usize = 4_096;
#[cfg(loom)]
pub(super) const PORT_CELLS: usize = 2;

/// Bits of the key between one row's and the next one's.
const ROW_BITS: u32 = u64::BITS / ROWS as u32;

const _: () = assert!(PORT_CELLS as u64 <= 1 << ROW_BITS, "rows take different bits of the key");

/// The host's cell in `row`, which has `CELLS` cells.
#[inline]
fn cell<const CELLS: usize>(host: HostKey, row: usize) -> usize {
    (host.0 >> (ROW_BITS * row as u32)) as usize % CELLS
}

/// The counts of all handles.
pub(super) struct Sketch<const CELLS: usize>([[AtomicU32; CELLS]; ROWS]);

impl<const CELLS: usize> Sketch<CELLS> {
    pub(super) fn new() -> Self {
        Self(array::from_fn(|_| array::from_fn(|_| AtomicU32::new(0))))
    }

    /// How many flows of `host` are backlogged: at least as many as were counted.
    #[inline]
    pub(super) fn flows(&self, host: HostKey) -> u32 {
        let counts = self.0.iter().enumerate().map(|(row, cells)| {
            // Relaxed: a sum on its own, see `census`.
            cells[cell::<CELLS>(host, row)].load(Ordering::Relaxed)
        });
        counts.min().unwrap_or(0)
    }

    /// Replaces what a handle has in a cell.
    #[inline]
    fn replace(&self, row: usize, cell: usize, old: u16, new: u16) {
        let difference = u32::from(new).wrapping_sub(u32::from(old));
        // Relaxed: a sum on its own, see `census`. Wrapping: adds what is negative, too.
        self.0[row][cell].fetch_add(difference, Ordering::Relaxed);
    }
}

/// What one handle has added to each cell. Allocated when it first counts.
///
/// 16 bits: a queue of cake has at most 8 x 1,024 flows, each counted for its source and its
/// destination.
#[derive(Default)]
pub(super) struct Part<const CELLS: usize>(Option<Box<[[u16; CELLS]; ROWS]>>);

impl<const CELLS: usize> Part<CELLS> {
    /// Counts `change` more flows of `host`. Subtracts no more than it has added.
    pub(super) fn count(&mut self, sketch: &Sketch<CELLS>, host: HostKey, change: i32) {
        let rows = self.0.get_or_insert_with(|| Box::new([[0; CELLS]; ROWS]));
        for (row, cells) in rows.iter_mut().enumerate() {
            let cell = cell::<CELLS>(host, row);
            let old = cells[cell];
            let new = i32::from(old).saturating_add(change).clamp(0, i32::from(u16::MAX)) as u16;
            cells[cell] = new;
            sketch.replace(row, cell, old, new);
        }
    }

    /// Subtracts all that was added.
    pub(super) fn take_back(&mut self, sketch: &Sketch<CELLS>) {
        let Some(rows) = self.0.take() else { return };
        for (row, cells) in rows.iter().enumerate() {
            for (cell, &count) in cells.iter().enumerate().filter(|&(_, &count)| count != 0) {
                sketch.replace(row, cell, count, 0);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const HANDLES: usize = 3;
    const CELLS: usize = PORT_CELLS;

    #[derive(Clone, Debug)]
    enum Step {
        Count { handle: usize, host: HostKey, change: i32 },
        TakeBack { handle: usize },
    }

    /// Hosts that share cells in one row, in the other, in both and in none.
    fn host() -> impl Strategy<Value = HostKey> {
        let row = |bits: u32| bits % 3 + (bits / 3) * CELLS as u32;
        (0u32..6, 0u32..6).prop_map(move |(first, second)| {
            HostKey(u64::from(row(first)) | u64::from(row(second)) << ROW_BITS)
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            9 => (0..HANDLES, host(), -4i32..9)
                .prop_map(|(handle, host, change)| Step::Count { handle, host, change }),
            1 => (0..HANDLES).prop_map(|handle| Step::TakeBack { handle }),
        ]
    }

    /// The backlogged flows of each host at each handle.
    #[derive(Default)]
    struct Model(HashMap<(usize, HostKey), i32>);

    impl Model {
        /// The part of `change` that is possible for a qdisc that knows its flows.
        fn count(&mut self, handle: usize, host: HostKey, change: i32) -> i32 {
            let standing = self.0.entry((handle, host)).or_default();
            let change = change.max(-*standing);
            *standing += change;
            change
        }

        fn take_back(&mut self, handle: usize) {
            self.0.retain(|(at, _), _| *at != handle);
        }

        fn sum(&self, with: impl Fn(HostKey) -> bool) -> u32 {
            self.0.iter().filter(|((_, host), _)| with(*host)).map(|(_, &flows)| flows as u32).sum()
        }
    }

    proptest! {
        #[test]
        fn a_host_s_count_includes_hosts_that_share_all_its_cells(
            steps in prop::collection::vec(step(), 1..80),
        ) {
            let sketch = Sketch::<CELLS>::new();
            let mut parts: [Part<CELLS>; HANDLES] = array::from_fn(|_| Part::default());
            let mut model = Model::default();
            let mut hosts = Vec::new();
            for step in steps {
                match step {
                    Step::Count { handle, host, change } => {
                        hosts.push(host);
                        let change = model.count(handle, host, change);
                        parts[handle].count(&sketch, host, change);
                    }
                    Step::TakeBack { handle } => {
                        model.take_back(handle);
                        parts[handle].take_back(&sketch);
                    }
                }
                for &host in &hosts {
                    let in_row = |row: usize| {
                        model.sum(|other| cell::<CELLS>(other, row) == cell::<CELLS>(host, row))
                    };
                    prop_assert_eq!(sketch.flows(host), in_row(0).min(in_row(1)));
                    prop_assert!(sketch.flows(host) >= model.sum(|other| other == host));
                }
            }
            for part in &mut parts {
                part.take_back(&sketch);
            }
            for host in hosts {
                prop_assert_eq!(sketch.flows(host), 0);
            }
        }
    }

    #[test]
    fn hosts_that_share_one_cell_are_told_apart_by_the_other() {
        let (sketch, mut part) = (Sketch::<CELLS>::new(), Part::default());
        let hosts = [HostKey(7), HostKey(7 | 1 << ROW_BITS), HostKey(8)];
        for (host, flows) in hosts.into_iter().zip([32, 1, 5]) {
            part.count(&sketch, host, flows);
        }
        // The first two share their first cell, the first and the last their second.
        assert_eq!(hosts.map(|host| sketch.flows(host)), [33, 1, 5]);
    }

    #[test]
    fn a_handle_cannot_subtract_more_than_it_added() {
        let sketch = Sketch::<CELLS>::new();
        let (mut honest, mut mistaken) = (Part::default(), Part::default());
        honest.count(&sketch, HostKey(1), 5);
        mistaken.count(&sketch, HostKey(1), 2);
        mistaken.count(&sketch, HostKey(1), -100);
        mistaken.count(&sketch, HostKey(2), i32::MIN);
        assert_eq!(sketch.flows(HostKey(1)), 5);
        mistaken.count(&sketch, HostKey(1), i32::MAX);
        assert_eq!(sketch.flows(HostKey(1)), 5 + u32::from(u16::MAX));
        mistaken.take_back(&sketch);
        assert_eq!(sketch.flows(HostKey(1)), 5);
    }

    /// Bits as a keyed hash gives them (the finalizer of splitmix64).
    fn hashed(number: u64) -> HostKey {
        let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        HostKey(bits ^ bits >> 31)
    }

    #[test]
    fn as_many_hosts_are_overestimated_as_the_two_coincidences_make_likely() {
        const TRIALS: u64 = 40;
        for (hosts, percent) in [(101, 0.06), (401, 0.87), (1_025, 4.89)] {
            let mut wrong = 0;
            for trial in 0..TRIALS {
                let (sketch, mut part) = (Sketch::<CELLS>::new(), Part::default());
                let hosts = (0..hosts).map(|host| hashed(trial << 32 | host));
                hosts.clone().for_each(|host| part.count(&sketch, host, 1));
                wrong += hosts.filter(|&host| sketch.flows(host) != 1).count();
            }
            let share = 100.0 * wrong as f64 / (TRIALS * hosts) as f64;
            let tolerance = percent * 0.1 + 0.06;
            assert!((share - percent).abs() < tolerance, "{share} % of {hosts}, not {percent} %");
        }
    }
}
