//! DPDK's hierarchical scheduler, `rte_sched`, of release 22.11 as Debian 12 ships it.
//!
//! One port, one subport, and any number of pipes, all in the best-effort class and all at the full
//! rate of the port: *unthrottled*. Credits are checked for every packet on every level. They
//! always suffice, because the port's time advances at least as fast as packets are sent. Queues of
//! served pipes share equally; that is `rte_sched`'s fairness. *Limited*, the subport and each pipe
//! have a part of the port's rate, and no more leaves than that.
//!
//! *Packets* are `rte_mbuf`s, contiguous in memory and without a pool. Each has so high a reference
//! count that the library cannot bring it down to one. So the library never frees a packet that it
//! drops, and the count reveals the drop.
//!
//! *Time* is the processor's time-stamp counter, read once per call of `dequeue`. Unthrottled, it
//! has no effect.
//!
//! *Memory*: DPDK's own huge pages would need a reservation, so it starts without (`--no-huge`) and
//! gets a heap for each port (`rte_malloc_heap_memory_add`), in transparent huge pages like the
//! `rte_mbuf`s. The kernel must have them (`transparent_hugepage` is `madvise` or `always`);
//! otherwise these are ordinary pages, which with many thousands of pipes costs TLB misses.
//!
//! Source: DPDK's Programmer's Guide, "Traffic Management", and the headers of the package
//! `libdpdk-dev`.
//!
//! Non-goals: different rates of pipes, traffic classes, congestion management, statistics.

mod abi;

use abi::{Mbufs, Port};
use std::sync::OnceLock;

/// The package to install if it is absent.
pub const PACKAGE: &str = "librte-sched23";

/// The capacity of a queue, in packets.
const QUEUE: u16 = 64;

/// The most pipes of a port. With more the library's count of bytes, of 32 bits, runs over, and it
/// writes behind its memory.
pub const PIPES_MOST: u32 = 1 << 19;

/// Why `rte_sched` is not available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The library could not be loaded.
    #[error("DPDK 22.11 is not installed (`apt install {PACKAGE}` on Debian 12): {0}")]
    Absent(String),
    /// The environment abstraction layer did not start.
    #[error("DPDK's environment did not start (rte_eal_init gave {0})")]
    Start(i32),
    /// The library refused a configuration.
    #[error("rte_sched refused to configure {0}")]
    Refused(&'static str),
}

/// Whether `rte_sched` is available. Loads and starts DPDK on the first call.
pub fn available() -> Result<(), Error> {
    library().map(drop)
}

fn library() -> Result<&'static abi::Library, Error> {
    static LIBRARY: OnceLock<Result<abi::Library, Error>> = OnceLock::new();
    LIBRARY.get_or_init(abi::Library::start).as_ref().map_err(Clone::clone)
}

/// A port with its packets, numbered from 0.
pub struct RteSched {
    port: Port,
    mbufs: Mbufs,
    /// The packets of the present call.
    batch: Vec<abi::Handle>,
}

impl RteSched {
    /// A port of `rate` bytes per second with `pipes` pipes (a power of two up to [`PIPES_MOST`])
    /// for `packets` packets, of which at most `batch` move per call.
    pub fn new(pipes: u32, rate: u64, packets: u32, batch: usize) -> Result<Self, Error> {
        Self::limited(pipes, [rate; 2], packets, batch)
    }

    /// The same, of which the pipes together, and each, have the second of `rates`, and the port
    /// the first, which should be many times that.
    pub fn limited(pipes: u32, rates: [u64; 2], packets: u32, batch: usize) -> Result<Self, Error> {
        if pipes > PIPES_MOST {
            return Err(Error::Refused("so many pipes"));
        }
        let [line, rate] = rates;
        let port = Port::new(library()?, pipes, line, rate, QUEUE)?;
        let batch = Vec::with_capacity(batch);
        Ok(Self { port, mbufs: Mbufs::new(packets), batch })
    }

    /// Offers packets of `len` bytes, each with its pipe: `rte_sched_port_pkt_write` for each and
    /// `rte_sched_port_enqueue` for all. Calls `dropped` for each packet that was dropped.
    ///
    /// # Panics
    /// If there is no such packet or pipe.
    #[inline]
    pub fn enqueue(
        &mut self,
        arrivals: impl Iterator<Item = (u32, u32)>,
        len: u16,
        mut dropped: impl FnMut(u32),
    ) {
        self.batch.clear();
        for (packet, pipe) in arrivals {
            let handle = self.mbufs.arrive(packet, len);
            self.port.classify(handle, pipe);
            self.batch.push(handle);
        }
        if self.port.enqueue(&mut self.batch) < self.batch.len() {
            for handle in &self.batch {
                if self.mbufs.was_dropped(*handle) {
                    dropped(self.mbufs.number(*handle));
                }
            }
        }
    }

    /// `rte_sched_port_dequeue`: up to `most` packets leave; calls `left` for each.
    #[inline]
    pub fn dequeue(&mut self, most: usize, mut left: impl FnMut(u32)) {
        self.port.dequeue(&mut self.batch, most);
        for handle in &self.batch {
            left(self.mbufs.number(*handle));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 12_500_000_000;

    /// A port, or none if DPDK is not installed: then there is nothing to test.
    fn port(pipes: u32, packets: u32) -> Option<RteSched> {
        match RteSched::new(pipes, RATE, packets, 32) {
            Ok(port) => Some(port),
            Err(Error::Absent(why)) => {
                eprintln!("skipped: {why}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn more_pipes_than_the_library_can_count_are_refused() {
        if available().is_err() {
            return;
        }
        let refused = RteSched::new(2 * PIPES_MOST, RATE, 32, 32).map(drop);
        assert_eq!(refused, Err(Error::Refused("so many pipes")));
    }

    /// DPDK has room for 32 heaps.
    #[test]
    fn a_port_gives_its_memory_back() {
        for _ in 0..100 {
            let Some(mut port) = port(64, 32) else { return };
            assert_eq!(enqueue(&mut port, &[(0, 0)]), []);
            assert_eq!(dequeue(&mut port), [0]);
        }
    }

    fn enqueue(port: &mut RteSched, arrivals: &[(u32, u32)]) -> Vec<u32> {
        let mut dropped = Vec::new();
        port.enqueue(arrivals.iter().copied(), 1500, |packet| dropped.push(packet));
        dropped
    }

    fn dequeue(port: &mut RteSched) -> Vec<u32> {
        let mut left = Vec::new();
        port.dequeue(32, |packet| left.push(packet));
        left
    }

    #[test]
    fn packets_leave_in_order_within_a_pipe() {
        let Some(mut port) = port(64, 32) else { return };
        let arrivals: Vec<_> = (0..32).map(|packet| (packet, packet % 4)).collect();
        assert_eq!(enqueue(&mut port, &arrivals), []);
        let left = dequeue(&mut port);
        for pipe in 0..4 {
            let own: Vec<_> = left.iter().filter(|packet| *packet % 4 == pipe).copied().collect();
            assert_eq!(own, (0..8).map(|turn| turn * 4 + pipe).collect::<Vec<_>>());
        }
        assert_eq!(dequeue(&mut port), []);
    }

    #[test]
    fn no_more_leaves_than_a_limit() {
        use std::time::{Duration, Instant};
        // 10 MB/s of a gigabyte: a burst of a mebibyte, and 6,667 packets of 1,500 bytes a second.
        let rates = [1_000_000_000, 10_000_000];
        let mut port = match RteSched::limited(4, rates, 128, 32) {
            Err(Error::Absent(why)) => return eprintln!("skipped: {why}"),
            port => port.unwrap(),
        };
        let (began, mut number) = (Instant::now(), 0_u32);
        let mut free: Vec<u32> = (0..128).collect();
        while began.elapsed() < Duration::from_millis(300) {
            let arrivals: Vec<_> =
                free.drain(..free.len().min(16)).map(|it| (it, it % 4)).collect();
            port.enqueue(arrivals.into_iter(), 1500, |dropped| free.push(dropped));
            port.dequeue(32, |left| {
                number += 1;
                free.push(left);
            });
        }
        let most = began.elapsed().as_secs_f64() * 10e6 + f64::from(2 << 20);
        assert!(f64::from(number) * 1500.0 < most && number > 700, "{number} packets");
    }

    #[test]
    fn what_a_full_queue_drops_is_told_and_may_come_again() {
        let Some(mut port) = port(64, 96) else { return };
        let batch = |first: u32| (first..first + 32).map(|packet| (packet, 7)).collect::<Vec<_>>();
        assert_eq!(enqueue(&mut port, &batch(0)), []);
        assert_eq!(enqueue(&mut port, &batch(32)), []);
        assert_eq!(enqueue(&mut port, &batch(64)), (64..96).collect::<Vec<_>>());
        assert_eq!(dequeue(&mut port), (0..32).collect::<Vec<_>>());
        assert_eq!(enqueue(&mut port, &batch(64)), []);
        assert_eq!(dequeue(&mut port), (32..64).collect::<Vec<_>>());
        assert_eq!(dequeue(&mut port), (64..96).collect::<Vec<_>>());
    }
}
