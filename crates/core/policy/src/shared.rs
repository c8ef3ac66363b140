//! Bands below a shared rate: planned as the classes of one tree.
//!
//! Each queue has its own packets in each band. If the queues share the rate of a `tbf`, the strict
//! order must hold between them, too: a packet of a better band on one queue goes before packets of
//! worse bands on all others. A tree of classes does this by its priorities. So a `tbf` with a
//! `prio`, `drr` or `ets` as its child is planned as an `htb`: the root class has the rate of the
//! `tbf`, with one class below it per band. A band's class has next to no assured rate and borrows
//! the rest, by its priority and its quantum.
//!
//! The `tbf` keeps its limit, and on each queue a bucket that a queue allowed to send never
//! exhausts.
//!
//! *Exceptions:* another `coordination` than `fair`, `peakrate`, more strict bands than a tree has
//! priorities, or a qdisc in a band at which queues share state (one with a rate, an `htb`): below
//! a class of a tree there are none. Then each queue gets a share of the rate and orders only its
//! own bands.

use crate::{Kind, TbfParams};
use narrows_coordination::Strategy;
use narrows_qdisc::Config;
use narrows_qdisc::bands;
use narrows_qdisc::htb::{self, Class, PRIORITIES, Unclassified};
use narrows_units::{Bytes, Rate};
use std::collections::BTreeMap;

/// The class above all bands; no band has this number.
const ROOT: u32 = 1 << 16;

/// The assured rate of a band: negligible.
const NOTHING: Rate = Rate::from_bits_per_sec(8);

/// Bands as classes of a tree.
pub(crate) struct Shared {
    /// What each queue runs in place of the qdisc with the bands.
    pub(crate) config: Config,
    /// The classes, by their numbers.
    pub(crate) classes: BTreeMap<u32, Class>,
}

impl Shared {
    /// The tree for `below`, a child of `above`, on `queues` queues, if they can share its bands.
    pub(crate) fn of(above: &Kind, below: &Kind, queues: usize) -> Option<Self> {
        let Kind::Tbf(tbf) = above else { return None };
        let (Config::Bands(bands), None) = below.rules().plan(queues) else { return None };
        let strict = bands.classes.partition_point(|class| class.quantum.is_none());
        // Bands that take turns share one priority.
        let needed = strict + usize::from(strict < bands.classes.len());
        let is_fair = tbf.strategy() == Strategy::FAIR;
        (queues > 1 && is_fair && tbf.peak.is_none() && needed <= PRIORITIES)
            .then(|| Self::new(tbf, &bands, strict))
    }

    fn new(tbf: &TbfParams, bands: &bands::Config, strict: usize) -> Self {
        let TbfParams { rate, burst, overhead, .. } = *tbf;
        let root = Class {
            parent: None,
            rate,
            ceil: rate,
            burst,
            cburst: burst,
            prio: 0,
            quantum: bands::QUANTUM_MAX,
            overhead,
        };
        let band = |(place, class): (usize, &bands::Class)| {
            let class = Class {
                parent: Some(ROOT),
                rate: NOTHING,
                burst: Bytes::ZERO,
                prio: place.min(strict) as u8,
                quantum: class.quantum.unwrap_or(bands::QUANTUM_MAX),
                ..root
            };
            (u32::from(bands.classes[place].id), class)
        };
        let bands_of = bands.classes.iter().enumerate().map(band);
        let classes = bands_of.chain([(ROOT, root)]).collect();
        let default = bands.otherwise.map_or(0, u32::from);
        let unclassified = Unclassified::Dropped;
        Self { config: Config::Htb(htb::Config { default, unclassified }), classes }
    }
}
