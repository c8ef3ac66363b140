//! One system under one load with one number of threads, measured over a window.
//!
//! All threads count by one clock and within the same window, which opens when all of them
//! have warmed up; no thread ends before it has closed, so contention lasts to the end.
//!
//! *The cost of a packet* is the time spent in turns, from one reading of the clock to the next;
//! waiting for the next departure does not count. It includes the time for which a turn waits for
//! other threads and, on a busy machine, for other work.

use super::cores::Cores;
use super::lane::{Books, Contender, Lane, LockedLane};
use super::load::Load;
use super::system::System;
use anyhow::{Context, Result, ensure};
use narrows_coordination::{Coordination, jain};
use narrows_qdisc::{Contact, Contacts, Meter, Next, Probe};
use narrows_units::Nanos;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long threads run before the window opens: buckets are empty, caches are full and
/// strategies have converged.
const WARM_UP: Nanos = Nanos::from_millis(20);

/// How often it is looked whether all threads are ready.
const POLL: Duration = Duration::from_millis(1);

/// The start of the clock, so that no time is the epoch itself, which means "never".
const EPOCH: Nanos = Nanos::from_secs(1);

/// The measurement.
pub(super) struct Trial {
    pub(super) system: System,
    pub(super) load: Load,
    pub(super) threads: usize,
    pub(super) window: Duration,
    /// Count contacts, at the price of a call more whenever a meter is asked.
    pub(super) watched: bool,
}

/// The measurements.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    load: Load,
    window: Nanos,
    /// By thread, within the window.
    threads: Vec<Work>,
    /// Of the whole trial, if recorded.
    contact: Contact,
    /// Packets that left in the whole trial.
    left: u64,
}

/// A thread's counts within the window.
#[derive(Clone, Copy, Default, Debug)]
struct Work {
    packets: u64,
    busy: Nanos,
}

/// The clock of a trial.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    #[inline]
    fn now(self) -> Nanos {
        EPOCH + nanos(self.0.elapsed())
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// Holds threads until all are ready, and then opens the window.
#[derive(Default)]
struct Gate {
    ready: AtomicUsize,
    /// When the window opens; 0 while that is not known.
    opens: AtomicU64,
}

impl Gate {
    /// The value of `opens` if not all threads could be started.
    const NEVER: u64 = u64::MAX;

    /// Waits for the others; when the window opens, if ever.
    fn pass(&self) -> Option<Nanos> {
        // Relaxed: a number of threads and a time, and nothing is read in their wake.
        self.ready.fetch_add(1, Ordering::Relaxed);
        loop {
            match self.opens.load(Ordering::Relaxed) {
                0 => thread::yield_now(),
                Self::NEVER => return None,
                opens => return Some(Nanos(opens)),
            }
        }
    }

    fn wait_for(&self, threads: usize) {
        while self.ready.load(Ordering::Relaxed) < threads {
            thread::sleep(POLL);
        }
    }
}

/// How a thread passes packets on.
enum Way<'a> {
    /// Through a queue of its own.
    Own(Box<Lane>),
    /// Through the queue of all threads.
    Common(Contender<'a>),
}

impl Way<'_> {
    #[inline]
    fn turn(&mut self, now: Nanos) -> (u64, Next) {
        match self {
            Self::Own(lane) => lane.turn(now),
            Self::Common(contender) => contender.turn(now),
        }
    }
}

impl Trial {
    /// Measures. Fails where threads cannot be started or pinned, and where packets got lost.
    pub(super) fn run(&self, cores: &Cores) -> Result<Outcome> {
        let window = nanos(self.window);
        let contacts = Arc::new(Contacts::default());
        let coordination = match self.system {
            System::Strategy(strategy) => {
                Some(Coordination::new(strategy, self.load.limit(), self.threads))
            }
            System::QdiscLock => None,
        };
        let common = LockedLane::new(self.load, self.threads);
        let way = |number: usize| {
            let Some(coordination) = &coordination else { return Way::Common(common.contender()) };
            let meter = coordination.meter(number);
            let meter: Box<dyn Meter> = if self.watched {
                Box::new(Probe::new(meter, Arc::clone(&contacts)))
            } else {
                meter
            };
            Way::Own(Box::new(Lane::new(self.load, meter)))
        };
        let clock = Clock(Instant::now());
        let gate = Gate::default();
        let shares_cores = self.threads > cores.len();
        let work = |number: usize| -> Result<Done> {
            let pinned = cores.pin(number);
            let mut way = way(number);
            let opens = gate.pass().context("not all threads were started")?;
            pinned.context("cannot keep a thread on its core")?;
            let work = work(&mut way, clock, opens..opens + window, shares_cores);
            Ok(match way {
                Way::Own(lane) => Done { work, books: Some(lane.books()), sections: 0 },
                Way::Common(contender) => Done { work, books: None, sections: contender.sections },
            })
        };
        let done: Result<Vec<Done>> = thread::scope(|scope| {
            let mut threads = Vec::with_capacity(self.threads);
            for number in 0..self.threads {
                let name = format!("bench-{number}");
                let work = &work;
                match thread::Builder::new().name(name).spawn_scoped(scope, move || work(number)) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        gate.opens.store(Gate::NEVER, Ordering::Relaxed);
                        let number = number + 1;
                        return Err(error).context(format!("cannot start thread {number}"));
                    }
                }
            }
            gate.wait_for(self.threads);
            gate.opens.store((clock.now() + WARM_UP).0, Ordering::Relaxed);
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| anyhow::bail!("a thread has panicked"))
                })
                .collect()
        });
        let done = done?;
        let books: Vec<Books> = if coordination.is_some() {
            done.iter().filter_map(|done| done.books).collect()
        } else {
            vec![common.books()]
        };
        for books in &books {
            ensure!(books.balance(), "packets got lost or doubled: {books:?}");
        }
        let sections = done.iter().map(|done| done.sections).sum();
        let contact = match self.system {
            System::Strategy(_) => contacts.read(),
            System::QdiscLock => Contact { reads: 0, updates: sections, locked: sections },
        };
        Ok(Outcome {
            load: self.load,
            window,
            threads: done.iter().map(|done| done.work).collect(),
            contact,
            left: books.iter().map(|books| books.left).sum(),
        })
    }
}

/// What a thread has to tell.
struct Done {
    work: Work,
    /// If its queue is its own.
    books: Option<Books>,
    /// How often it had the lock of the queue of all.
    sections: u64,
}

/// Works until the window closes.
fn work(way: &mut Way<'_>, clock: Clock, window: Range<Nanos>, shares_core: bool) -> Work {
    let mut work = Work::default();
    let mut now = clock.now();
    while now < window.end {
        let (left, next) = way.turn(now);
        let after = clock.now();
        if now >= window.start {
            work.packets += left;
            work.busy += after - now;
        }
        now = after;
        if let Next::At(at) = next {
            while now < at.min(window.end) {
                if shares_core {
                    thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
                now = clock.now();
            }
        }
    }
    work
}

impl Outcome {
    fn packets(&self) -> u64 {
        self.threads.iter().map(|work| work.packets).sum()
    }

    /// Million packets per second, all threads together.
    pub(super) fn mpps(&self) -> f64 {
        self.packets() as f64 / self.window.0 as f64 * 1e3
    }

    /// Time in turns per packet; NaN without departures.
    pub(super) fn ns_per_packet(&self) -> f64 {
        let busy: u64 = self.threads.iter().map(|work| work.busy.0).sum();
        busy as f64 / self.packets() as f64
    }

    /// The deviation of the departures in the window from the limit, in percent of it.
    pub(super) fn deviation_percent(&self) -> f64 {
        let sent = self.packets() as f64 * f64::from(self.load.packet_bytes());
        let rate = self.load.limit().rate.bits_per_sec() as f64 / 8.0;
        (sent / (rate * self.window.as_secs_f64()) - 1.0) * 100.0
    }

    /// Jain's index over the threads' packets: 1 if all sent the same, 1/n if one sent all.
    pub(super) fn jain(&self) -> f64 {
        let packets = self.threads.iter().map(|work| work.packets as f64);
        jain(&packets.collect::<Vec<_>>())
    }

    /// Lines read that another meter writes, and updates of lines that all write, a packet.
    pub(super) fn contact_per_packet(&self) -> (f64, f64) {
        let per_packet = |contacts: u64| contacts as f64 / self.left as f64;
        (per_packet(self.contact.reads), per_packet(self.contact.updates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(load: Load, packets: &[u64]) -> Outcome {
        let busy = Nanos::from_millis(500);
        Outcome {
            load,
            window: Nanos::from_secs(1),
            threads: packets.iter().map(|&packets| Work { packets, busy }).collect(),
            contact: Contact { reads: 50, updates: 200, locked: 0 },
            left: 100,
        }
    }

    #[test]
    fn a_deviation_is_relative_to_the_limit() {
        // 10 Gbit/s are 833,333 packets of 1500 bytes.
        let kept = outcome(Load::Bound, &[400_000, 433_333]);
        assert!(kept.deviation_percent().abs() < 0.001, "{}", kept.deviation_percent());
        let short = outcome(Load::Bound, &[750_000]);
        assert!((short.deviation_percent() + 10.0).abs() < 0.001);
    }

    #[test]
    fn a_packet_costs_the_time_in_turns() {
        let outcome = outcome(Load::Unbound, &[10_000_000, 10_000_000]);
        assert_eq!((outcome.mpps(), outcome.ns_per_packet()), (20.0, 50.0));
        assert_eq!(outcome.contact_per_packet(), (0.5, 2.0));
    }
}
