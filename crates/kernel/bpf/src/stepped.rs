//! The tree's meter, compiled for the host and asked at any time one likes.
//!
//! The program's own C (`programs/meter.h`, `programs/share_out.h`, and by FlowValve's rules
//! `programs/valve.h`) over memory instead of maps. So a simulation runs what the driver runs, and
//! a test holds one against the other.
//!
//! Non-goals: filters, frames, and CPUs that are at it at the same time: they take turns.
#![allow(unsafe_code)]

use crate::tree::layout::{CLASS_WORDS, CLASSES_MAX, Class, LABEL_WORDS, Label};
use narrows_units::Nanos;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr::NonNull;

pub mod departures;

/// The verdict on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is sent.
    Send,
    /// The AQM marks it, or drops it if it is not ECN-capable.
    MarkOrDrop,
    /// The virtual queue is full.
    Full,
}

impl Answer {
    /// `enum answer` of `programs/way.h`.
    fn of(answer: c_int) -> Self {
        match answer {
            0 => Self::Send,
            1 => Self::MarkOrDrop,
            _ => Self::Full,
        }
    }
}

/// `struct stepped` of `stepped/stepped.c`.
#[repr(C)]
struct Raw {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn stepped_new(cpus: u32) -> *mut Raw;
    fn stepped_free(of: *mut Raw);
    fn stepped_class(of: *mut Raw, number: u32, class: *const [u64; CLASS_WORDS]);
    fn stepped_label(of: *mut Raw, number: u32, label: *const [u64; LABEL_WORDS]);
    fn stepped_meter(
        of: *mut Raw,
        now: u64,
        cpu: u32,
        leaf: u32,
        cost: u64,
        asked: *mut c_int,
    ) -> c_int;
}

/// A tree of classes.
pub struct Stepped {
    raw: NonNull<Raw>,
    cpus: u32,
}

// SAFETY: the memory is this tree's own, and each call sets the current tree of its thread.
unsafe impl Send for Stepped {}

impl Stepped {
    /// With these classes by their numbers, which are below [`CLASSES_MAX`], and slots of `cpus`
    /// CPUs.
    ///
    /// # Panics
    /// If there is no memory, or a number is too large.
    pub fn new(cpus: u32, classes: &BTreeMap<u32, Class>) -> Self {
        // SAFETY: allocates, and nothing else.
        let raw = NonNull::new(unsafe { stepped_new(cpus) });
        let raw = raw.expect("there is memory for a tree");
        for (number, class) in classes {
            assert!(*number < CLASSES_MAX, "there is no class {number}");
            // SAFETY: `raw` is a tree, the number is one of its classes, and the words are as many
            // as `struct class` has.
            unsafe { stepped_class(raw.as_ptr(), *number, &class.words()) };
        }
        Self { raw, cpus }
    }

    /// Gives classes under FlowValve's rules these labels.
    ///
    /// # Panics
    /// If a number is too large, or a label names a class whose number is.
    #[must_use]
    pub fn labelled(self, labels: &BTreeMap<u32, Label>) -> Self {
        for (number, label) in labels {
            let named = label.path.iter().chain(&label.lenders).copied().map(u32::from);
            let mut all = named.chain([*number]);
            assert!(all.all(|class| class < CLASSES_MAX), "{number}: {label:?}");
            // SAFETY: `raw` is a tree, the number is one of its classes, and the words are as many
            // as `struct label` has.
            unsafe { stepped_label(self.raw.as_ptr(), *number, &label.words()) };
        }
        self
    }

    /// The verdict on a packet of `leaf` with the cost `cost` in bytes at `now` on `cpu`, and
    /// whether the CPU tried to buy for it; otherwise it was charged to the CPU's credit.
    ///
    /// # Panics
    /// If there is no such CPU or class.
    pub fn meter(&mut self, now: Nanos, cpu: u32, leaf: u32, cost: u64) -> (Answer, bool) {
        assert!(cpu < self.cpus && leaf < CLASSES_MAX, "there is no class {leaf} on CPU {cpu}");
        let mut asked = 0;
        // SAFETY: `raw` is a tree, which `&mut` keeps from others, and CPU and class are among its.
        let answer =
            unsafe { stepped_meter(self.raw.as_ptr(), now.0, cpu, leaf, cost, &mut asked) };
        (Answer::of(answer), asked != 0)
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        // SAFETY: it was made by `stepped_new`, and has no other owner.
        unsafe { stepped_free(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::layout::Rules;

    const MS: u64 = 1_000_000;

    fn leaf(rate: u64) -> Class {
        Class {
            rate,
            ceil: rate,
            burst: 5 * MS,
            limit: 50 * MS,
            target: 50 * MS,
            interval: 100 * MS,
            batch: 50_000,
            quantum: 1000,
            ..Class::default()
        }
    }

    /// The passed bytes by second, of packets of 1,000 bytes that arrive each `gap` on each of
    /// `cpus` in turn.
    fn passes(tree: &mut Stepped, cpus: u32, gap: u64, seconds: u64) -> Vec<u64> {
        let mut passed = vec![0; seconds as usize];
        for number in 0..seconds * 1_000_000_000 / gap {
            let now = Nanos(1_000_000_000 + number * gap);
            let (answer, _) = tree.meter(now, (number % u64::from(cpus)) as u32, 1, 1000);
            if answer == Answer::Send {
                passed[(number * gap / 1_000_000_000) as usize] += 1000;
            }
        }
        passed
    }

    #[test]
    fn a_rate_is_exact_over_a_second_on_any_cpus_after_the_first_burst() {
        for cpus in [1, 2, 7] {
            let mut tree = Stepped::new(cpus, &BTreeMap::from([(1, leaf(10_000_000))]));
            // Twice the rate.
            let passed = passes(&mut tree, cpus, 50_000, 4);
            let first = passed[0] as i64 - 10_550_000;
            assert!(first.abs() < 20_000, "burst and virtual queue come on top: {passed:?}");
            for second in &passed[1..] {
                assert!(second.abs_diff(10_000_000) < 50_000, "{cpus}: {passed:?}");
            }
        }
    }

    #[test]
    fn a_cpu_spends_its_credit_without_the_tree() {
        let mut tree = Stepped::new(1, &BTreeMap::from([(1, leaf(100_000_000))]));
        let asked = (0..1000u64)
            .filter(|number| tree.meter(Nanos(1_000_000_000 + number * 20_000), 0, 1, 1000).1)
            .count();
        // 50 us of the rate are five packets.
        assert!((150..=250).contains(&asked), "{asked}");
    }

    #[test]
    fn the_aqm_takes_one_packet_and_waits() {
        let class = Class { target: 10 * MS, ..leaf(10_000_000) };
        let mut tree = Stepped::new(1, &BTreeMap::from([(1, class)]));
        // A twentieth above the rate: the virtual queue fills slowly.
        let taken: Vec<u64> = (0..12_000u64)
            .map(|number| number * 95_000)
            .filter(|at| tree.meter(Nanos(1_000_000_000 + at), 0, 1, 1000).0 == Answer::MarkOrDrop)
            .collect();
        assert!(taken.len() >= 3, "{taken:?}");
        let gaps: Vec<u64> = taken.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // The senders do not slow down, so drops increase over time.
        let last = gaps.last().copied().unwrap_or_default();
        assert!(gaps[0] >= 99 * MS && last < 50 * MS && last > 15 * MS, "{gaps:?}");
    }

    #[test]
    fn no_sale_of_any_size_puts_a_class_into_debt_for_long() {
        let mut tree = Stepped::new(1, &BTreeMap::from([(1, leaf(1_000_000))]));
        let mut now = 1_000_000_000;
        for cost in (0..64).map(|bits| 1_u64 << bits).chain([u64::MAX, u64::MAX - 1]) {
            let (answer, _) = tree.meter(Nanos(now), 0, 1, cost);
            // More than any packet has on the wire is not sold, and is no demand either.
            assert!(answer == Answer::Full || cost <= 1 << 21, "{cost}");
            now += 2_200_000_000;
            assert_eq!(tree.meter(Nanos(now), 0, 1, 1000).0, Answer::Send, "after {cost}");
        }
    }

    /// The number of the class above the bands, and its rate.
    const ABOVE: u32 = 9;
    const RATE: u64 = 5_000_000;

    /// Bands of these priorities and weights, numbered from 1, below a class: with next to no rate
    /// of their own.
    fn bands(orders: &[(u8, u32)]) -> BTreeMap<u32, Class> {
        let never = Class { target: u64::MAX, ..leaf(RATE) };
        let above = Class { child: 1, limit: 200 * MS, ..never };
        let band = |(number, (prio, quantum)): (u32, &(u8, u32))| {
            let sibling = if number == orders.len() as u32 { 0 } else { number + 1 };
            let (prio, quantum) = (*prio, *quantum);
            let band = Class { rate: 1, parent: ABOVE, sibling, prio, quantum, ..never };
            (number, Class { limit: 100 * MS, ..band })
        };
        (1..).zip(orders).map(band).chain([(ABOVE, above)]).collect()
    }

    /// The bytes of each band in the last of three seconds, each on a CPU of its own, where packets
    /// of 1,000 bytes come for it: so many together, each time after so many nanoseconds.
    fn shares(bands: &BTreeMap<u32, Class>, offered: &[(u64, u64)]) -> Vec<u64> {
        passed(Stepped::new(offered.len() as u32, bands), offered)
    }

    /// As [`shares`].
    fn passed(mut tree: Stepped, offered: &[(u64, u64)]) -> Vec<u64> {
        let mut next = vec![0; offered.len()];
        let mut passed = vec![0; offered.len()];
        while let Some((&at, band)) = next.iter().zip(0..).min()
            && at < 3_000_000_000
        {
            let (together, gap) = offered[band];
            for _ in 0..together {
                let now = Nanos(1_000_000_000 + at);
                let (answer, _) = tree.meter(now, band as u32, band as u32 + 1, 1000);
                passed[band] += 1000 * u64::from(answer == Answer::Send && at >= 2_000_000_000);
            }
            next[band] += gap;
        }
        passed
    }

    /// Twice the rate of the class above.
    const FLOOD: (u64, u64) = (1, 100_000);
    /// One packet in the first second.
    const NOTHING: (u64, u64) = (1, 1 << 40);

    #[test]
    fn a_band_gets_what_those_before_it_leave() {
        let ordered = bands(&[(0, 1), (1, 1), (2, 1)]);
        for offered in [10_000, 50_000, 1_000_000, 2_500_000, 4_000_000] {
            let got = shares(&ordered, &[(1, 1_000_000_000_000 / offered), FLOOD, FLOOD]);
            assert_eq!(got[0], offered);
            // The bursts of the first second are made up for in the next ones, slowly.
            let sum: u64 = got.iter().sum();
            assert!((RATE * 97 / 100..=RATE * 101 / 100).contains(&sum), "{got:?}");
            assert!(got[2] < RATE / 50, "{got:?}");
        }
        let got = shares(&ordered, &[FLOOD, FLOOD, FLOOD]);
        assert!(got[0] > RATE * 97 / 100 && got[1] + got[2] < RATE / 100, "{got:?}");
    }

    #[test]
    fn a_band_that_comes_back_takes_a_burst_at_once() {
        for gap in [3 * MS, 50 * MS, 300 * MS] {
            let got = shares(&bands(&[(0, 1), (1, 1)]), &[(10, gap), FLOOD]);
            let arrived = (2_000_000_000..3_000_000_000).filter(|at| at % gap == 0).count();
            assert_eq!(got[0], 10_000 * arrived as u64, "every {gap} ns");
            assert!(got[0] + got[1] > RATE * 96 / 100, "{got:?}");
        }
    }

    /// Classes under FlowValve's rules below one of [`RATE`], each with a priority, a weight, an
    /// assured rate and its lenders, numbered from 1.
    fn valves(of: &[(u8, u32, u64, &[u16])]) -> (BTreeMap<u32, Class>, BTreeMap<u32, Label>) {
        let valve = Class { rules: Rules::FlowValve, ..leaf(RATE) };
        let mut classes = BTreeMap::from([(ABOVE, Class { child: 1, ..valve })]);
        let promised = of.iter().map(|(_, _, rate, _)| rate).sum();
        let above = Label { promised, path: vec![ABOVE as u16], ..Label::default() };
        let mut labels = BTreeMap::from([(ABOVE, above)]);
        for (number, (prio, weight, rate, lenders)) in (1..).zip(of) {
            let sibling = if number == of.len() as u32 { 0 } else { number + 1 };
            let class = Class { rate: *rate, parent: ABOVE, sibling, prio: *prio, ..valve };
            classes.insert(number, class);
            let (burst, weight, path) = (3028, *weight, vec![ABOVE as u16, number as u16]);
            let lenders = lenders.to_vec();
            labels.insert(number, Label { burst, weight, path, lenders, ..Label::default() });
        }
        (classes, labels)
    }

    #[test]
    fn valves_share_by_weight_what_is_not_assured_and_lend_by_label() {
        let of: [(u8, u32, u64, &[u16]); 3] =
            [(0, 1, 1, &[2]), (0, 3, 1, &[]), (1, 1, RATE / 10, &[])];
        let (classes, labels) = valves(&of);
        let got = |offered: &[(u64, u64)]| {
            let tree = Stepped::new(offered.len() as u32, &classes).labelled(&labels);
            passed(tree, offered)
        };
        let near = |got: u64, part: u64, of: u64| got.abs_diff(RATE * part / of) < RATE / 50;
        let all = got(&[FLOOD; 3]);
        assert!(near(all[0], 9, 40) && near(all[1], 27, 40) && near(all[2], 1, 10), "{all:?}");
        // The second one's part is lent to the first, and to nobody else.
        let lent = got(&[FLOOD, NOTHING, FLOOD]);
        assert!(near(lent[0], 9, 10) && near(lent[2], 1, 10), "{lent:?}");
        // What better priorities leave is the third one's without a label.
        let left = got(&[NOTHING, NOTHING, FLOOD]);
        assert!(near(left[2], 1, 1), "{left:?}");
    }

    #[test]
    fn a_valve_never_has_more_than_an_epoch_and_its_burst_at_once() {
        let (classes, labels) = valves(&[(0, 1, RATE, &[])]);
        let mut tree = Stepped::new(1, &classes).labelled(&labels);
        // 3.495 ms of the rate are 17,476 bytes, after whatever pause, and what is left of them
        // adds up.
        for (second, passes) in [(1, 17), (2, 17), (100, 18), (300, 17)] {
            let now = Nanos(second * 1_000_000_000);
            let at_once = (0..1000).filter(|_| tree.meter(now, 0, 1, 1000).0 == Answer::Send);
            assert_eq!(at_once.count(), passes, "{second}");
        }
    }

    #[test]
    fn bands_that_take_turns_share_by_weight_what_a_strict_one_leaves() {
        let got = shares(&bands(&[(0, 1), (1, 1000), (1, 3000)]), &[(1, MS), FLOOD, FLOOD]);
        assert_eq!(got[0], 1_000_000);
        let part = got[2] as f64 / (got[1] + got[2]) as f64;
        assert!((part - 0.75).abs() < 0.01, "{got:?}");
        assert!(got[1] + got[2] > RATE * 77 / 100, "{got:?}");
    }
}
