//! Which cores there are, and how threads are spread over them.
//!
//! Threads that share a physical core slow each other down, which would distort the measurement. So
//! all physical cores are used before any is used twice.

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::io;
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};

/// The cores that this process may use, in the order in which threads take them.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    order: Vec<usize>,
    physical: usize,
}

/// The identity of a physical core: the socket and the core's number there.
type Physical = (u32, u32);

impl Cores {
    /// The cores that this process may use.
    pub(crate) fn allowed() -> io::Result<Self> {
        let set = sched_getaffinity(None)?;
        let allowed = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
        Ok(Self::of(allowed.map(|core| (core, physical(core)))))
    }

    fn of(cores: impl Iterator<Item = (usize, Option<Physical>)>) -> Self {
        let mut used: BTreeMap<Physical, usize> = BTreeMap::new();
        let mut unknown = 0;
        let mut ranked: Vec<(usize, usize)> = cores
            .map(|(core, physical)| match physical {
                Some(physical) => {
                    let times = used.entry(physical).or_default();
                    *times += 1;
                    (*times, core)
                }
                None => {
                    unknown += 1;
                    (1, core)
                }
            })
            .collect();
        ranked.sort_unstable();
        let physical = used.len() + unknown;
        Self { order: ranked.into_iter().map(|(_, core)| core).collect(), physical }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// How many of them are physical; those of which the kernel does not say it count as such.
    pub(crate) fn physical(&self) -> usize {
        self.physical
    }

    /// Keeps the calling thread, number `thread` of its run, on its core. Beyond the number
    /// of cores, threads share them in turn.
    pub(crate) fn pin(&self, thread: usize) -> io::Result<()> {
        let mut set = CpuSet::new();
        if let Some(core) = self.order.get(thread % self.order.len().max(1)) {
            set.set(*core);
            sched_setaffinity(None, &set)?;
        }
        Ok(())
    }

    /// Runs `work` at once on the cores of the threads with these numbers, with their index among
    /// them. Returns their results.
    ///
    /// # Errors
    /// If a thread cannot be kept on its core, or panics.
    pub(crate) fn together<T: Send>(
        &self,
        threads: impl IntoIterator<Item = usize>,
        work: impl Fn(usize) -> T + Sync,
    ) -> Result<Vec<T>> {
        let threads: Vec<usize> = threads.into_iter().collect();
        let start = Barrier::new(threads.len());
        thread::scope(|scope| {
            let (start, work) = (&start, &work);
            let start_one = |(index, number): (usize, usize)| {
                scope.spawn(move || {
                    let pinned = self.pin(number);
                    start.wait();
                    pinned.map(|()| work(index))
                })
            };
            let running: Vec<_> = threads.into_iter().enumerate().map(start_one).collect();
            let join = |thread: ScopedJoinHandle<'_, io::Result<T>>| match thread.join() {
                Ok(done) => done.context("cannot keep a thread on its core"),
                Err(_) => bail!("a thread has panicked"),
            };
            running.into_iter().map(join).collect()
        })
    }
}

fn physical(core: usize) -> Option<Physical> {
    let number = |name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{core}/topology/{name}");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    Some((number("physical_package_id")?, number("core_id")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_physical_cores_are_used_before_any_is_used_twice() {
        let siblings = [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0)];
        let cores = Cores::of(siblings.into_iter().map(Some).enumerate());
        assert_eq!(cores.order, [0, 2, 4, 1, 3, 5]);
        assert_eq!((cores.len(), cores.physical()), (6, 3));
    }

    #[test]
    fn unknown_cores_count_as_physical() {
        let cores = Cores::of([(3, None), (7, None)].into_iter());
        assert_eq!((cores.order.as_slice(), cores.physical()), ([3, 7].as_slice(), 2));
    }

    #[test]
    fn a_thread_beyond_the_cores_shares_one() {
        let cores = Cores::allowed().unwrap();
        std::thread::spawn(move || {
            cores.pin(cores.len()).unwrap();
            let set = sched_getaffinity(None).unwrap();
            assert_eq!((set.count(), set.is_set(cores.order[0])), (1, true));
        })
        .join()
        .unwrap();
    }
}
