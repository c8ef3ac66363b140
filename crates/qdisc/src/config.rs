//! What a qdisc is to be: its kind and parameters, and the meters it is to use.

use crate::{Census, Hearsay, Meter, NodeId, Qdisc, cake, fifo, fq, htb, pacing, tbf};
use narrows_classify::Classifier;
use narrows_packet::Reading;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kind and parameters of one qdisc, as an operator states them. Plain data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Config {
    /// No queue: what cannot leave at once is dropped (`noqueue`).
    Noqueue,
    /// First in, first out, with a limit in packets or bytes (`pfifo`, `bfifo`).
    Fifo(fifo::Config),
    /// Token bucket filter (`tbf`).
    Tbf(tbf::Config),
    /// Classes in a tree, with the classes in [`Spec::tree`] (`htb`).
    Htb(htb::Config),
    /// Common applications kept enhanced (`cake`).
    Cake(cake::Config),
    /// Fair queue with pacing (`fq`).
    Fq(fq::Config),
    /// A rate for each flow (`carousel`, `eiffel`, `flowbundler`).
    Pacing(pacing::Config),
}

impl Config {
    /// Whether a qdisc with these parameters carries on with those of `next` while packets are
    /// queued: it is of the same kind and sorts packets in the same way. Where it does not, another
    /// one takes its place.
    pub fn carries_on(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Noqueue, Self::Noqueue)
            | (Self::Fifo(_), Self::Fifo(_))
            | (Self::Tbf(_), Self::Tbf(_))
            | (Self::Htb(_), Self::Htb(_)) => true,
            (Self::Cake(one), Self::Cake(other)) => one.sorting() == other.sorting(),
            (Self::Fq(one), Self::Fq(other)) => one.sorting() == other.sorting(),
            (Self::Pacing(one), Self::Pacing(other)) => one.shape() == other.shape(),
            (
                Self::Noqueue
                | Self::Fifo(_)
                | Self::Tbf(_)
                | Self::Htb(_)
                | Self::Cake(_)
                | Self::Fq(_)
                | Self::Pacing(_),
                _,
            ) => false,
        }
    }
}

impl Config {
    /// What a qdisc with these parameters wants to know of packets, before it is built: never less
    /// than it asks for then. What those below it want is not in it.
    pub fn reading(&self) -> Reading {
        let headers = Reading { headers: true, ..Reading::NOTHING };
        match self {
            Self::Noqueue | Self::Fifo(_) | Self::Tbf(_) | Self::Htb(_) => Reading::NOTHING,
            Self::Cake(config) => config.reading(),
            Self::Fq(_) => headers,
            Self::Pacing(pacing::Config { safeguard: echoes, .. }) => {
                Reading { acknowledgements: *echoes, echoes: *echoes, ..headers }
            }
        }
    }
}

/// By whom a qdisc that keeps a rate is metered.
#[derive(Default)]
pub enum Metering {
    /// By a bucket or a clock of its own: it shares its rate with no other queue.
    #[default]
    Own,
    /// By the meter that it has. For a qdisc that carries on.
    Kept,
    /// By its seat at a limit that it shares.
    Shared(Box<dyn Meter>),
}

impl From<Option<Box<dyn Meter>>> for Metering {
    /// By `meter`, or by a bucket of its own where there is none.
    fn from(meter: Option<Box<dyn Meter>>) -> Self {
        meter.map_or(Self::Own, Self::Shared)
    }
}

/// A qdisc to be built on one worker, or to be retuned there, with the qdiscs below it.
pub struct Spec {
    /// Its name. A qdisc that runs under the same name is retuned.
    pub id: NodeId,
    /// Its kind and parameters.
    pub config: Config,
    /// By whom it is metered, for kinds that keep a rate.
    pub metering: Metering,
    /// Its seat at what the queues of its limit count together, for kinds that share out by host
    /// or tin. `None` in [`Qdisc::retune`] keeps the present one.
    pub census: Option<Box<dyn Census>>,
    /// Its view of what the queues of its port hear of destinations, for kinds that listen. `None`
    /// in [`Qdisc::retune`] keeps the present one.
    pub hearsay: Option<Box<dyn Hearsay>>,
    /// Its seat at a tree of classes, for `htb`. `None` in [`Qdisc::retune`] keeps the present one.
    pub tree: Option<Box<dyn htb::TreeMeter>>,
    /// What assigns packets to its classes before they come to it, for `htb` at the root.
    pub classifier: Option<Arc<Classifier>>,
    /// The qdiscs below it: for `tbf` exactly one.
    pub children: Vec<Spec>,
}

impl Spec {
    /// A qdisc that shares nothing with other queues, and has none below it.
    pub const fn new(config: Config) -> Self {
        Self {
            id: NodeId(0),
            config,
            metering: Metering::Own,
            census: None,
            hearsay: None,
            tree: None,
            classifier: None,
            children: Vec::new(),
        }
    }

    /// Makes the qdisc, empty, with the qdiscs below it. Memory is allocated here, but for what
    /// grows with the flows that come, and what a wheel needs for packets, with the first of them.
    /// A qdisc with a safeguard and without a `hearsay` hears what comes in on its own queue.
    ///
    /// # Panics
    /// Where the number of children is not the kind's own: one for `tbf`, else none. Where it is to
    /// keep a meter, or an `htb` its tree: a new one has none.
    pub fn build(self) -> Box<dyn Qdisc> {
        let Self { id: _, config, metering, census, hearsay, tree, classifier: _, mut children } =
            self;
        let meter = match metering {
            Metering::Own => None,
            Metering::Shared(meter) => Some(meter),
            Metering::Kept => panic!("a qdisc that is new has no meter to keep: {config:?}"),
        };
        match config {
            Config::Noqueue => {
                assert!(children.is_empty(), "noqueue has no qdisc below it");
                Box::new(fifo::Fifo::noqueue())
            }
            Config::Fifo(config) => {
                assert!(children.is_empty(), "a FIFO has no qdisc below it");
                Box::new(fifo::Fifo::new(config))
            }
            Config::Tbf(config) => {
                let inner = children.pop().filter(|_| children.is_empty());
                let inner = inner.expect("a tbf has exactly one qdisc below it");
                Box::new(tbf::Tbf::new(config, meter, inner))
            }
            Config::Htb(config) => {
                assert!(children.is_empty(), "what is below an htb is below its classes");
                Box::new(htb::Htb::new(config, tree.expect("an htb has a tree")))
            }
            Config::Cake(config) => {
                assert!(children.is_empty(), "a cake has no qdisc below it");
                Box::new(cake::Cake::new(config, meter, census))
            }
            Config::Fq(config) => {
                assert!(children.is_empty(), "an fq has no qdisc below it");
                Box::new(fq::Fq::new(config))
            }
            Config::Pacing(config) => {
                assert!(children.is_empty(), "a {} has no qdisc below it", config.structure.name());
                pacing::build(config, hearsay)
            }
        }
    }

    /// This, to be taken over by somebody who has not taken over `before` yet: what is only kept
    /// here and new there is new.
    #[must_use]
    pub fn after(mut self, before: Self) -> Self {
        let mut new = BTreeMap::new();
        before.collect(&mut new);
        self.take_from(&mut new);
        self
    }

    /// Takes it apart, by name.
    fn collect(mut self, into: &mut BTreeMap<NodeId, Self>) {
        for child in std::mem::take(&mut self.children) {
            child.collect(into);
        }
        into.insert(self.id, self);
    }

    fn take_from(&mut self, new: &mut BTreeMap<NodeId, Self>) {
        if let Some(before) = new.remove(&self.id) {
            if let Metering::Kept = self.metering {
                self.metering = before.metering;
            }
            self.census = self.census.take().or(before.census);
            self.hearsay = self.hearsay.take().or(before.hearsay);
            self.tree = self.tree.take().or(before.tree);
        }
        for child in &mut self.children {
            child.take_from(new);
        }
    }
}
