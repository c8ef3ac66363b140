//! Counts the shared cache lines that coordination touches.
//!
//! A core pays for every cache line that it shares. The meter itself knows how many it has touched
//! ([`Meter::contact`]), but it is deep inside a qdisc. So each meter is wrapped in a [`Probe`]
//! that only passes calls on and publishes that figure: to the simulator, which charges a core for
//! it, and to benchmarks.

use crate::{Contact, Meter, Share, Take, Weight};
use narrows_packet::Backlog;
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The accesses of some meters so far, all together.
#[derive(Debug, Default)]
pub struct Contacts {
    reads: AtomicU64,
    updates: AtomicU64,
    locked: AtomicU64,
}

impl Contacts {
    /// The figures.
    pub fn read(&self) -> Contact {
        // Relaxed, here and below: sums that guard no other memory. A reader of other threads' sums
        // joins the threads first.
        Contact {
            reads: self.reads.load(Ordering::Relaxed),
            updates: self.updates.load(Ordering::Relaxed),
            locked: self.locked.load(Ordering::Relaxed),
        }
    }

    fn add(&self, more: Contact) {
        self.reads.fetch_add(more.reads, Ordering::Relaxed);
        self.updates.fetch_add(more.updates, Ordering::Relaxed);
        self.locked.fetch_add(more.locked, Ordering::Relaxed);
    }
}

/// A meter, and the probe that records what it touches.
pub struct Probe {
    meter: Box<dyn Meter>,
    recorded: Contact,
    contacts: Arc<Contacts>,
}

impl Probe {
    /// Wraps `meter`.
    pub fn new(meter: Box<dyn Meter>, contacts: Arc<Contacts>) -> Self {
        Self { meter, recorded: Contact::default(), contacts }
    }
}

impl Meter for Probe {
    fn stamp(&mut self, cost: Bytes, now: Nanos) -> Option<Nanos> {
        self.meter.stamp(cost, now)
    }

    fn unstamp(&mut self, cost: Bytes, edt: Nanos, now: Nanos) {
        self.meter.unstamp(cost, edt, now);
    }

    fn take_over(&mut self, cost: Bytes) {
        self.meter.take_over(cost);
    }

    fn take(&mut self, cost: Bytes, edt: Nanos, now: Nanos) -> Take {
        self.meter.take(cost, edt, now)
    }

    fn owe(&mut self, bytes: Bytes, now: Nanos) {
        self.meter.owe(bytes, now);
    }

    fn report(&mut self, backlog: Backlog, now: Nanos) {
        self.meter.report(backlog, now);
        // A report ends every batch, so this is all that the batch has touched.
        let contact = self.meter.contact();
        if contact != self.recorded {
            let Contact { reads, updates, locked } = self.recorded;
            self.contacts.add(Contact {
                reads: contact.reads - reads,
                updates: contact.updates - updates,
                locked: contact.locked - locked,
            });
            self.recorded = contact;
        }
    }

    fn yields(&mut self, yields: bool) {
        self.meter.yields(yields);
    }

    fn share(&self) -> Share {
        self.meter.share()
    }

    fn part_of_burst(&self) -> Share {
        self.meter.part_of_burst()
    }

    fn longest(&self) -> Bytes {
        self.meter.longest()
    }

    fn overflowed(&mut self) {
        self.meter.overflowed();
    }

    fn weigh(&mut self, weight: Weight) {
        self.meter.weigh(weight);
    }

    fn contact(&self) -> Contact {
        self.meter.contact()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A meter that touches two lines for each packet and one for each report.
    #[derive(Default)]
    struct Toucher(Contact);

    impl Meter for Toucher {
        fn stamp(&mut self, _cost: Bytes, _now: Nanos) -> Option<Nanos> {
            self.0.updates += 1;
            Some(Nanos(7))
        }

        fn take(&mut self, _cost: Bytes, _edt: Nanos, _now: Nanos) -> Take {
            self.0.updates += 1;
            self.0.locked += 1;
            Take::Granted
        }

        fn report(&mut self, _backlog: Backlog, _now: Nanos) {
            self.0.reads += 1;
        }

        fn share(&self) -> Share {
            Share::one_of(3)
        }

        fn longest(&self) -> Bytes {
            Bytes(99)
        }

        fn overflowed(&mut self) {
            self.0.reads += 100;
        }

        fn weigh(&mut self, weight: Weight) {
            self.0.reads += u64::from(weight.0);
        }

        fn yields(&mut self, yields: bool) {
            self.0.reads += 1000 * u64::from(yields);
        }

        fn contact(&self) -> Contact {
            self.0
        }
    }

    #[test]
    fn a_probe_passes_everything_on_and_records_accesses() {
        let contacts = Arc::new(Contacts::default());
        let probes = [(); 2].map(|()| Probe::new(Box::<Toucher>::default(), Arc::clone(&contacts)));
        for mut probe in probes {
            assert_eq!(probe.stamp(Bytes(1), Nanos(1)), Some(Nanos(7)));
            assert_eq!(probe.take(Bytes(1), Nanos(1), Nanos(1)), Take::Granted);
            probe.weigh(Weight(10));
            probe.overflowed();
            probe.yields(true);
            probe.report(Backlog::default(), Nanos(1));
            assert_eq!((probe.share(), probe.longest()), (Share::one_of(3), Bytes(99)));
            assert_eq!(probe.contact(), Contact { reads: 1111, updates: 2, locked: 1 });
        }
        assert_eq!(contacts.read(), Contact { reads: 2222, updates: 4, locked: 2 });
    }
}
