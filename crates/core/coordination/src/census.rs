//! What the queues of a port count together: the backlogged flows of each host, and the demand of
//! each tin.
//!
//! *Flows of a host* are in a sketch (`sketch`), *what a tin demands and has sent* in a line of
//! sums (`tins`). Both are sums of the handles' figures, kept by adding differences. So reading
//! costs the same however many handles there are, no handle needs a slot of its own, and a handle
//! that is given back subtracts what it added.
//!
//! *Memory ordering:* relaxed throughout. Every word is a sum on its own, and none guards other
//! memory. All changes of one word have one order, which contains each handle's changes in program
//! order. So a reader sees the sum of what each handle had published at some time: never below
//! zero, and never more than was true of each handle at some time. It sees its own changes.
//! *Different* words may be seen at different times: a flow in one row of the sketch and not yet in
//! the other, a weight without its bytes. Only fairness depends on it, for a moment; when nothing
//! is written, everything is exact.
//!
//! *Cost.* Counting costs two atomic additions, looking up a host two loads, publishing one
//! addition for each figure that has changed, all on one line. A port takes 32 KiB and 128 bytes; a
//! handle takes 16 KiB from the first flow that it counts; a class of a tree a sixteenth of that.
//! This is the only memory that a handle allocates after it is taken: most handles of a large
//! configuration never count anything.
//!
//! *Non-goals.* Which flows are backlogged and what a host's share is: the qdisc decides that. A
//! history.

use crate::line::Line;
use narrows_qdisc::{Census, HostKey, TinCensus};
use sketch::{PORT_CELLS, Part, Sketch};
use std::sync::Arc;
use tins::{Published, Tins};

mod sketch;
mod tins;

/// State that the handles share. The sketch has `CELLS` cells per row.
pub(crate) struct Shared<const CELLS: usize = PORT_CELLS> {
    tins: Line<Tins>,
    flows: Line<Sketch<CELLS>>,
}

impl<const CELLS: usize> Shared<CELLS> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { tins: Line(Tins::new()), flows: Line(Sketch::new()) })
    }

    /// One more handle.
    pub(crate) fn handle(self: Arc<Self>) -> Handle<CELLS> {
        Handle { shared: self, part: Part::default(), published: Published::default() }
    }
}

/// A handle at the census: what it has added, and where.
pub(crate) struct Handle<const CELLS: usize = PORT_CELLS> {
    shared: Arc<Shared<CELLS>>,
    part: Part<CELLS>,
    published: Published,
}

impl<const CELLS: usize> Census for Handle<CELLS> {
    fn count(&mut self, host: HostKey, change: i32) {
        self.part.count(&self.shared.flows, host, change);
    }

    fn flows(&self, host: HostKey) -> u32 {
        self.shared.flows.flows(host)
    }

    fn tell(&mut self, tins: &[TinCensus]) {
        self.published.tell(&self.shared.tins, tins);
    }

    fn sum(&self, tins: &mut [TinCensus]) {
        self.shared.tins.sum(tins);
    }
}

impl<const CELLS: usize> Drop for Handle<CELLS> {
    fn drop(&mut self) {
        self.part.take_back(&self.shared.flows);
        self.published.take_back(&self.shared.tins);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    const HOST: HostKey = HostKey(0);
    /// In the same cell as [`HOST`] in the first row only.
    const NEIGHBOUR: HostKey = HostKey(1 << 32);

    fn tin(weight: u64, sent: u64) -> TinCensus {
        TinCensus { weight, sent }
    }

    fn first_tin(handle: &Handle) -> TinCensus {
        let mut tins = [TinCensus::default()];
        handle.sum(&mut tins);
        tins[0]
    }

    /// Both add to the same cell of the first row, and subtract at the same time.
    #[test]
    fn loom_nothing_is_left_of_handles_that_are_gone() {
        loom::model(|| {
            let shared = Shared::<PORT_CELLS>::new();
            let workers = [HOST, NEIGHBOUR].map(|host| {
                let mut handle = Arc::clone(&shared).handle();
                thread::spawn(move || {
                    handle.count(host, 2);
                    handle.count(host, -1);
                })
            });
            for worker in workers {
                worker.join().unwrap();
            }
            let handle = shared.handle();
            assert_eq!((handle.flows(HOST), handle.flows(NEIGHBOUR)), (0, 0));
        });
    }

    #[test]
    fn loom_a_concurrent_reader_sees_a_published_value_of_each_handle() {
        loom::model(|| {
            let shared = Shared::<PORT_CELLS>::new();
            let mut handle = Arc::clone(&shared).handle();
            let mut other = shared.handle();
            let worker = thread::spawn(move || {
                other.count(HOST, 3);
                other.count(HOST, -1);
            });
            handle.count(HOST, 10);
            let seen = handle.flows(HOST);
            assert!([10, 12, 13].contains(&seen), "{seen}");
            // Neither writes the other's cell of the second row.
            assert_eq!(handle.flows(NEIGHBOUR), 0);
            worker.join().unwrap();
            assert_eq!(handle.flows(HOST), 10, "the other is gone");
        });
    }

    #[test]
    fn loom_sums_of_tins_are_exact_and_weights_are_subtracted() {
        loom::model(|| {
            let shared = Shared::<PORT_CELLS>::new();
            let mut handle = Arc::clone(&shared).handle();
            let mut other = shared.handle();
            let worker = thread::spawn(move || {
                other.tell(&[tin(5, 100)]);
                other.tell(&[tin(2, 300)]);
            });
            handle.tell(&[tin(10, 1_000)]);
            let TinCensus { weight, sent } = first_tin(&handle);
            assert!([10, 15, 12].contains(&weight), "{weight}");
            assert!([1_000, 1_100, 1_300].contains(&sent), "{sent}");
            worker.join().unwrap();
            assert_eq!(first_tin(&handle), tin(10, 1_300));
        });
    }
}
