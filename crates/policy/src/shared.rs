//! Bands below a rate that queues share: the classes of one tree.
//!
//! Each queue has its own packets in each band. Where they share the rate of a `tbf`, whose band
//! goes first is to be decided between them, too: a packet of a good band on one queue before those
//! of worse ones on all others. That is what a tree of classes does by their priorities. So a `tbf`
//! with a `prio`, `drr` or `ets` in it is planned as an `htb`: at its root a class with the rate of
//! the `tbf`, and below that one for each band, which has next to nothing assured and borrows the
//! rest, by its place in the order and its quantum.
//!
//! What stays with the `tbf` is its limit, and a bucket of its own on each queue, which no queue
//! exhausts that may send.
//!
//! *Where it does not hold:* with another `coordination` than `fair`, with `peakrate`, or with more
//! places in the order than a tree has priorities. Then each queue gets a share of the rate, and
//! bands are in order on each of them.

use crate::{Kind, TbfParams};
use narrows_coordination::Strategy;
use narrows_qdisc::Config;
use narrows_qdisc::bands;
use narrows_qdisc::htb::{self, Class, PRIORITIES, Unclassified};
use narrows_units::{Bytes, Rate};
use std::collections::BTreeMap;

/// The class above all bands: the number of none of them.
const ROOT: u32 = 1 << 16;

/// What is assured to a band: so little that it is nothing.
const NOTHING: Rate = Rate::from_bits_per_sec(8);

/// Bands as classes of a tree.
pub(crate) struct Shared {
    /// What each queue runs in the place of the qdisc with the bands.
    pub(crate) config: Config,
    /// The classes, by their numbers.
    pub(crate) classes: BTreeMap<u32, Class>,
}

impl Shared {
    /// What `queues` queues run for `below`, which stands in `above`, where they share its bands.
    pub(crate) fn of(above: &Kind, below: &Kind, queues: usize) -> Option<Self> {
        let Kind::Tbf(tbf) = above else { return None };
        let (Config::Bands(bands), None) = below.rules().plan(queues) else { return None };
        let strict = bands.classes.partition_point(|class| class.quantum.is_none());
        // Those that take turns have one priority together.
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
