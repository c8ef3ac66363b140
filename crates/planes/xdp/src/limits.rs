//! The limits of a plan's classes, which become contents of maps again whenever rates change.
//!
//! *Idea.* Of a class only a few words depend on rates: its own, those of the classes above, and
//! the length of its virtual queue, which is a time. They are computed in one pass from above, for
//! a compilation as for a change. After a change the pass visits those classes alone whose own rate
//! changes, or what those above leave of it.
//!
//! *Non-goals.* FlowValve's labels: such a tree is compiled anew.

use crate::changes::{Change, To};
use crate::flatten::{Class, Queue, is_outermost};
use crate::rates::{Own, Rates};
use crate::virtual_queue::{self, VirtualQueue};
use crate::{Enforcement, Name, Numbers};
use narrows_bpf::tree::assured::let_pass;
use narrows_bpf::tree::layout;
use narrows_units::Nanos;
use narrows_units::wire::Framing;
use std::collections::BTreeMap;

/// The classes of a plan that have rates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    enforcement: Enforcement,
    /// Each after the one above it.
    classes: Vec<Limited>,
    places: BTreeMap<Name, usize>,
    /// The limit of the virtual queues of those with others below them.
    inner_limit: Nanos,
}

/// A class that has rates.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Limited {
    number: u32,
    /// The place of the class above it, and whether that is of another qdisc.
    above: Option<usize>,
    is_outermost: bool,
    /// Whether the assured rate is lowered to what those above let pass.
    is_fitted: bool,
    own: Own,
    queue: Option<Queue>,
    quantum: u32,
    /// What all above it let pass, in bytes per second.
    most: u64,
    rates: Rates,
    /// The limit of its virtual queue, if it is a leaf.
    limit: Option<Nanos>,
    entry: layout::Class,
}

impl Limits {
    /// Those of `classes`, which have `numbers`. Sets them in their `entries` of maps.
    pub(crate) fn of(
        classes: &BTreeMap<Name, Class>,
        entries: &mut BTreeMap<u32, layout::Class>,
        numbers: &Numbers,
        enforcement: Enforcement,
    ) -> Self {
        let up = |name: &Name| classes.get(name).and_then(|class| class.parent);
        let mut names: Vec<Name> = classes.keys().copied().collect();
        names.sort_by_cached_key(|name| std::iter::successors(Some(*name), up).count());
        let (inner_limit, places) = Default::default();
        let mut limits = Self { enforcement, classes: Vec::new(), places, inner_limit };
        for name in names {
            let class = &classes[&name];
            if let (Some(own), Some(rates)) = (class.own, class.rates)
                && let Some(number) = numbers.get(name)
                && let Some(entry) = entries.get(&number)
            {
                limits.places.insert(name, limits.classes.len());
                limits.classes.push(Limited {
                    number,
                    above: class.parent.and_then(|above| limits.places.get(&above).copied()),
                    is_outermost: is_outermost(name, class.parent),
                    is_fitted: class.valve.is_none(),
                    own,
                    queue: class.queue,
                    quantum: class.quantum,
                    most: u64::MAX,
                    rates,
                    limit: None,
                    entry: *entry,
                });
            }
        }
        let all = vec![true; limits.classes.len()];
        entries.extend(limits.settle(all));
        limits
    }

    /// The highest rate of a class that has none above it, in bytes per second; none if there is no
    /// such class.
    pub fn outermost_rate(&self) -> Option<u64> {
        let outermost = self.classes.iter().filter(|class| class.above.is_none());
        outermost.map(|class| class.rates.ceil.bytes_per_sec()).max()
    }

    /// How they hold.
    pub fn enforcement(&self) -> Enforcement {
        self.enforcement
    }

    /// Takes `changes`. Returns the classes whose entries in maps change, by their numbers, with
    /// what these are from now on.
    pub fn follow(&mut self, changes: &[Change]) -> Vec<(u32, layout::Class)> {
        let mut touched = vec![false; self.classes.len()];
        for Change { name, to } in changes {
            // The rate of a `tbf` around bands is that of their class.
            let Some(&place) = self.places.get(name) else { continue };
            self.classes[place].take(to);
            touched[place] = true;
        }
        self.settle(touched)
    }

    /// Computes the rates of the classes that are `touched`, and of those that depend on them.
    /// Returns the entries in maps that change.
    fn settle(&mut self, mut touched: Vec<bool>) -> Vec<(u32, layout::Class)> {
        // Whether it leaves other rates to those below it.
        let mut leaves_others = vec![false; self.classes.len()];
        for place in 0..self.classes.len() {
            let above = self.classes[place].above;
            touched[place] |= above.is_some_and(|above| leaves_others[above]);
            if touched[place] {
                let above = above.map(|above| &self.classes[above]);
                let (rates, most) =
                    (above.map(|it| it.rates), above.map_or(u64::MAX, Limited::below));
                leaves_others[place] = self.classes[place].settle(rates, most, self.enforcement);
            }
        }
        let leaves = self.classes.iter().filter_map(|class| class.limit);
        let inner_limit = virtual_queue::inner_limit(leaves, self.enforcement);
        let is_other = std::mem::replace(&mut self.inner_limit, inner_limit) != inner_limit;
        let mut entries = Vec::new();
        for (class, is_touched) in self.classes.iter_mut().zip(touched) {
            if is_touched || is_other && class.queue.is_none() {
                let entry = class.entry_now(inner_limit, self.enforcement);
                if std::mem::replace(&mut class.entry, entry) != entry {
                    entries.push((class.number, entry));
                }
            }
        }
        entries
    }
}

impl Limited {
    /// Has what its qdisc says from now on.
    fn take(&mut self, to: &To) {
        if let Own::Says(rates) = &mut self.own {
            *rates = to.rates(rates.overhead);
        }
        self.quantum = to.quantum().unwrap_or(self.quantum);
    }

    /// Computes its rates below a class with the rates `above`, where all above let `most` pass.
    /// Returns whether that is new for those below it.
    fn settle(&mut self, above: Option<Rates>, most: u64, enforcement: Enforcement) -> bool {
        let rates = self.own.below(above, self.is_outermost).unwrap_or(self.rates);
        let is_new = (rates, most) != (self.rates, self.most);
        (self.rates, self.most) = (rates, most);
        self.limit = self.virtual_queue_of_leaf(enforcement).map(|queue| queue.limit);
        is_new
    }

    fn virtual_queue_of_leaf(&self, enforcement: Enforcement) -> Option<VirtualQueue> {
        let queue = self.queue.as_ref()?;
        Some(virtual_queue::of_leaf(queue, &self.rates, enforcement))
    }

    /// What it and all above it let pass of what is below it.
    fn below(&self) -> u64 {
        self.most.min(let_pass(&self.with_rates()))
    }

    /// Its entry with its rates, of which the assured one is not lowered.
    fn with_rates(&self) -> layout::Class {
        let Rates { rate, ceil, .. } = self.rates;
        // 0 would be no limit.
        let [rate, ceil] = [rate, ceil].map(|rate| rate.bytes_per_sec().max(1));
        layout::Class { rate, ceil, ..self.entry }
    }

    /// Its entry in maps, where the virtual queues of classes with others below have this limit.
    fn entry_now(&self, inner_limit: Nanos, enforcement: Enforcement) -> layout::Class {
        let entry = self.with_rates();
        let most = if self.is_fitted { self.most } else { u64::MAX };
        let inner = || virtual_queue::of_inner(inner_limit, &self.rates, enforcement);
        let VirtualQueue { limit, target, interval, burst } =
            self.virtual_queue_of_leaf(enforcement).unwrap_or_else(inner);
        let overhead = self.rates.overhead;
        layout::Class {
            rate: entry.rate.min(most),
            burst: burst.0,
            limit: limit.0,
            target: target.0,
            interval: interval.0,
            quantum: self.quantum.max(1),
            per_frame: overhead.per_frame,
            // No frame is longer.
            minimum: u16::try_from(overhead.minimum).unwrap_or(u16::MAX),
            framing: match overhead.framing {
                Framing::Whole => layout::Framing::Whole,
                Framing::Atm => layout::Framing::Atm,
                Framing::Ptm => layout::Framing::Ptm,
            },
            ..entry
        }
    }
}
