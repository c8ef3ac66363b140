//! The specification of a qdisc: its kind and parameters, and its meters.

use crate::inner::Inner;
use crate::{
    Census, Feedback, Meter, NodeId, Qdisc, bands, cake, codel, fifo, fq, fq_codel, htb, netem,
    pacing, red, sfq, stab, tbf,
};
use narrows_classify::{Classification, Classifier};
use narrows_packet::{Paces, Reading};
use narrows_units::wire::Overhead;
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
    /// Classes in an order, or by turns (`prio`, `drr`, `ets`).
    Bands(bands::Config),
    /// Common applications kept enhanced (`cake`).
    Cake(cake::Config),
    /// Fair queue with pacing (`fq`).
    Fq(fq::Config),
    /// One queue, kept short (`codel`).
    Codel(codel::Config),
    /// A queue for each flow that does not stay long (`fq_codel`).
    FqCodel(fq_codel::Config),
    /// Flows that take turns (`sfq`).
    Sfq(sfq::Config),
    /// Delay, loss and other trouble (`netem`).
    Netem(netem::Config),
    /// A rate for each flow (`carousel`, `eiffel`, `flowbundler`).
    Pacing(pacing::Config),
    /// Random early detection (`red`).
    Red(red::Config),
    /// The length of packets, for the qdisc below (`stab`).
    Stab(Overhead),
}

impl Config {
    /// Whether a qdisc with these parameters carries on with those of `next` while packets are
    /// queued: it is of the same kind and sorts packets in the same way. Otherwise a new one
    /// replaces it.
    pub fn carries_on(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Noqueue, Self::Noqueue)
            | (Self::Fifo(_), Self::Fifo(_))
            | (Self::Tbf(_), Self::Tbf(_))
            | (Self::Htb(_), Self::Htb(_))
            | (Self::Codel(_), Self::Codel(_))
            | (Self::Red(_), Self::Red(_))
            | (Self::Stab(_), Self::Stab(_))
            | (Self::Netem(_), Self::Netem(_)) => true,
            (Self::FqCodel(one), Self::FqCodel(other)) => one.sorting() == other.sorting(),
            (Self::Sfq(one), Self::Sfq(other)) => one.sorting() == other.sorting(),
            (Self::Bands(one), Self::Bands(other)) => one.discipline == other.discipline,
            (Self::Cake(one), Self::Cake(other)) => one.sorting() == other.sorting(),
            (Self::Fq(one), Self::Fq(other)) => one.sorting() == other.sorting(),
            (Self::Pacing(one), Self::Pacing(other)) => one.shape() == other.shape(),
            (
                Self::Noqueue
                | Self::Fifo(_)
                | Self::Tbf(_)
                | Self::Htb(_)
                | Self::Bands(_)
                | Self::Cake(_)
                | Self::Fq(_)
                | Self::Codel(_)
                | Self::FqCodel(_)
                | Self::Sfq(_)
                | Self::Netem(_)
                | Self::Pacing(_)
                | Self::Red(_)
                | Self::Stab(_),
                _,
            ) => false,
        }
    }
}

impl Config {
    /// The packet fields that a qdisc with these parameters reads: known before it is built, and
    /// never less than it asks for afterwards. Without those of the qdiscs below it.
    pub fn reading(&self) -> Reading {
        let headers = Reading { headers: true, ..Reading::NOTHING };
        match self {
            Self::Noqueue | Self::Fifo(_) | Self::Tbf(_) | Self::Htb(_) => Reading::NOTHING,
            Self::Bands(_) => Reading { class: true, ..Reading::NOTHING },
            Self::Cake(config) => config.reading(),
            Self::Codel(config) => config.reading(),
            Self::Netem(config) => config.reading(),
            Self::Red(config) => config.reading(),
            Self::Stab(_) => Reading { sizes: true, ..Reading::NOTHING },
            Self::Fq(_) | Self::FqCodel(_) | Self::Sfq(_) => headers,
            Self::Pacing(pacing::Config { safeguard: echoes, .. }) => {
                Reading { acknowledgements: *echoes, echoes: *echoes, ..headers }
            }
        }
    }
}

impl Config {
    /// Whether it shares by host or class, and must count these together with its siblings on other
    /// queues.
    pub(crate) fn counts_together(&self) -> bool {
        match self {
            Self::Cake(_) => true,
            Self::Bands(bands) => bands.classes.iter().any(|class| class.quantum.is_some()),
            _ => false,
        }
    }

    /// Whether it has bands in an order: whether its [`Qdisc::ranking`] is ever another.
    pub(crate) fn has_ranks(&self) -> bool {
        // Of a stab, it is what is below that has them.
        let Self::Bands(bands) = self else { return matches!(self, Self::Stab(_)) };
        bands.classes.len() > 1 && bands.classes.iter().any(|class| class.quantum.is_none())
    }

    /// Whether its [`Qdisc::weight`] is ever another than one.
    pub(crate) fn has_weight(&self) -> bool {
        matches!(
            self,
            Self::Bands(_)
                | Self::Cake(_)
                | Self::Fq(_)
                | Self::FqCodel(_)
                | Self::Netem(_)
                | Self::Pacing(_)
                | Self::Red(_)
                | Self::Sfq(_)
                | Self::Stab(_)
        )
    }

    /// Whether it tells flows apart itself, not only what is below it.
    pub(crate) fn counts_flows(&self) -> bool {
        matches!(
            self,
            Self::Cake(_) | Self::Fq(_) | Self::FqCodel(_) | Self::Pacing(_) | Self::Sfq(_)
        )
    }
}

/// The meter of a qdisc that keeps a rate.
#[derive(Default)]
pub enum Metering {
    /// By a bucket or a clock of its own: it shares its rate with no other queue.
    #[default]
    Own,
    /// By the meter that it has. For a qdisc that carries on.
    Kept,
    /// By its meter at a shared limit.
    Shared(Box<dyn Meter>),
}

impl From<Option<Box<dyn Meter>>> for Metering {
    /// By `meter`, or by a bucket of its own where there is none.
    fn from(meter: Option<Box<dyn Meter>>) -> Self {
        meter.map_or(Self::Own, Self::Shared)
    }
}

/// The filters at the two ends of a port: for packets that arrive there, and for packets that
/// leave.
pub type Ends = [Option<Arc<Classifier>>; 2];

/// A qdisc to be built on one worker, or to be retuned there, with the qdiscs below it.
pub struct Spec {
    /// Its name. A qdisc that runs under the same name is retuned.
    pub id: NodeId,
    /// Its kind and parameters.
    pub config: Config,
    /// Its meter, for kinds that keep a rate.
    pub metering: Metering,
    /// Its handle at the census of its limit's queues, for kinds that share by host or tin. `None`
    /// in [`Qdisc::retune`] keeps the present one.
    pub census: Option<Box<dyn Census>>,
    /// The port's congestion feedback, for kinds that use it. `None` in [`Qdisc::retune`] keeps the
    /// present one.
    pub feedback: Option<Box<dyn Feedback>>,
    /// Its scheduler of a tree of classes, for `htb`. `None` in [`Qdisc::retune`] keeps the present
    /// one.
    pub tree: Option<Box<dyn htb::Scheduler>>,
    /// The classifier of a root qdisc, if it or a qdisc below it has classes.
    pub classification: Option<Arc<Classification>>,
    /// The number of classful qdiscs above it: the index of its class in a packet's path.
    pub level: u8,
    /// The filters of the port whose root it is: on arrival, and on departure.
    pub ends: Ends,
    /// The rates that filters give to flows, on every port of the instance; `None` if they give
    /// none.
    pub paces: Option<Paces>,
    /// The qdiscs below it: for `tbf`, `red` and `stab` exactly one, for `netem` one or none, for
    /// bands one each.
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
            feedback: None,
            tree: None,
            classification: None,
            level: 0,
            ends: [const { None }; 2],
            paces: None,
            children: Vec::new(),
        }
    }

    /// The qdisc, if it is a FIFO, which needs no memory of its own.
    pub(crate) fn fifo<C: fifo::Counting>(&self) -> Option<fifo::Fifo<C>> {
        let config = match &self.config {
            Config::Noqueue => None,
            Config::Fifo(config) => Some(*config),
            _ => return None,
        };
        assert!(self.children.is_empty(), "a FIFO has no qdisc below it");
        Some(fifo::Fifo::new(config))
    }

    /// Makes the qdisc, empty, with the qdiscs below it. Memory is allocated here, except for
    /// memory that grows with the number of flows, and a wheel's memory for packets, which comes
    /// with the first of them. A qdisc with a safeguard and without a `feedback` uses only the
    /// feedback that arrives on its own queue.
    ///
    /// # Panics
    /// If the number of children does not fit the kind: one for `tbf` and `red`, one or none for
    /// `netem`, one for each band, else
    /// none. If it should keep a meter, or an `htb` its tree: a new one has none.
    pub fn build(self) -> Box<dyn Qdisc> {
        if let Some(fifo) = self.fifo::<fifo::Counts>() {
            return Box::new(fifo);
        }
        let Self { config, metering, census, feedback, tree, level, children, .. } = self;
        let meter = match metering {
            Metering::Own => None,
            Metering::Shared(meter) => Some(meter),
            Metering::Kept => panic!("a qdisc that is new has no meter to keep: {config:?}"),
        };
        match config {
            Config::Noqueue | Config::Fifo(_) => unreachable!("those have been made"),
            Config::Tbf(config) => {
                Box::new(tbf::Tbf::new(config, meter, Inner::of(children, "tbf")))
            }
            Config::Htb(config) => {
                assert!(children.is_empty(), "children of an htb are children of its classes");
                Box::new(htb::Htb::new(config, level, tree.expect("an htb has a tree")))
            }
            Config::Bands(config) => Box::new(bands::Bands::new(config, level, children, census)),
            Config::Cake(config) => {
                assert!(children.is_empty(), "a cake has no qdisc below it");
                Box::new(cake::Cake::new(config, meter, census))
            }
            Config::Fq(config) => {
                assert!(children.is_empty(), "an fq has no qdisc below it");
                Box::new(fq::Fq::new(config))
            }
            Config::Codel(config) => {
                assert!(children.is_empty(), "a codel has no qdisc below it");
                Box::new(codel::CodelQueue::new(config))
            }
            Config::FqCodel(config) => {
                assert!(children.is_empty(), "an fq_codel has no qdisc below it");
                Box::new(fq_codel::FqCodel::new(config))
            }
            Config::Sfq(config) => {
                assert!(children.is_empty(), "an sfq has no qdisc below it");
                Box::new(sfq::Sfq::new(config))
            }
            Config::Netem(config) => {
                Box::new(netem::Netem::new(config, meter, netem::one_at_most(children)))
            }
            Config::Pacing(config) => {
                assert!(children.is_empty(), "a {} has no qdisc below it", config.structure.name());
                pacing::build(config, feedback)
            }
            Config::Red(config) => Box::new(red::Red::new(config, Inner::of(children, "red"))),
            Config::Stab(overhead) => {
                Box::new(stab::Stab::new(overhead, Inner::of(children, "stab")))
            }
        }
    }

    /// This specification, for a qdisc that has not applied `before` yet: parts that are kept here
    /// and new there are new.
    #[must_use]
    pub fn after(mut self, before: Self) -> Self {
        let mut new = BTreeMap::new();
        before.collect(&mut new);
        self.take_from(&mut new);
        self
    }

    /// Takes it apart, by field.
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
            self.feedback = self.feedback.take().or(before.feedback);
            self.tree = self.tree.take().or(before.tree);
        }
        for child in &mut self.children {
            child.take_from(new);
        }
    }
}
