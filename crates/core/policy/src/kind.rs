//! The kinds of qdiscs, and the rules of each.
//!
//! A kind's parameters are data. Its module defines how they are created and changed. [`Rules`] is
//! the interface for the rest of the policy. *To add a kind:* a module with its `Rules`, a variant
//! of [`Kind`] and one of [`Params`]; the compiler names the places.

use crate::mq::Mq;
use crate::plan::SharedLimit;
use crate::{
    Cake, CakeOptions, CodelQueueOptions, Drr, Ets, EtsOptions, Fifo, FifoUnit, Fleet,
    FqCodelOptions, FqOptions, FqParams, Hfsc, Htb, HtbOptions, Node, PacingOptions, Parent,
    PolicyError, PortFacts, Prio, PrioParams, SfqOptions, TbfParams,
};
use narrows_coordination::Strategy;
use narrows_qdisc::pacing::{self, Structure};
use narrows_qdisc::{Config, codel, fifo, fq_codel, netem, red, sfq};

/// The names of all kinds, in the order of the documentation.
pub const KINDS: &str = "pfifo, bfifo, pfifo_fast, tbf, htb, hfsc, prio, drr, ets, cake, cake_mq, fq, fq_codel, codel, sfq, netem, red, carousel, eiffel, flowbundler, mq and noqueue";

/// The kind of a qdisc, with its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No queue: a packet that cannot leave at once is dropped.
    Noqueue,
    /// First in, first out.
    Fifo(Fifo),
    /// A token bucket filter.
    Tbf(TbfParams),
    /// CAKE: `cake`, `cake_mq`.
    Cake(Cake),
    /// A queue per flow, with pacing.
    Fq(FqParams),
    /// One queue with CoDel.
    Codel(codel::Config),
    /// A queue per flow, each with CoDel.
    FqCodel(fq_codel::Config),
    /// Flows that take turns.
    Sfq(sfq::Config),
    /// Network emulation: delay, loss and other impairments.
    Netem(netem::Config),
    /// A rate per flow: `carousel`, `eiffel`, `flowbundler`.
    Pacing(pacing::Config),
    /// Random early detection.
    Red(red::Config),
    /// A tree of classes with rates and ceilings.
    Htb(Htb),
    /// A tree of classes with service curves.
    Hfsc(Hfsc),
    /// Strict bands: `prio`, `pfifo_fast`.
    Prio(Prio),
    /// Classes that take turns.
    Drr(Drr),
    /// Strict bands, and others that take turns.
    Ets(Ets),
    /// One child for each queue of the port.
    Mq,
}

/// The children that a qdisc may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Classes {
    /// Nothing.
    None,
    /// One qdisc, with any class number. By default that FIFO, or nothing: packets go on at once.
    One(Option<Fifo>),
    /// One qdisc for each queue of the port. A queue without one sends at once.
    Queues,
    /// One for each class that the operator creates. The default is a `pfifo`.
    Made,
    /// One for each class that the qdisc's parameters define. The default is a `pfifo`.
    Bands,
    /// One for each queue of the port. All are alike; they are created and deleted with the parent.
    Alike,
    /// Nothing: only the qdisc itself knows its classes.
    Hidden,
}

impl Classes {
    /// The key of the child at class `minor`, as in [`Node::children`].
    pub(crate) fn key(self, minor: u32) -> u32 {
        if let Self::One(_) = self { 1 } else { minor }
    }

    /// The kind of the default child.
    pub(crate) fn default(self) -> Option<&'static str> {
        match self {
            Self::None | Self::Hidden => None,
            Self::One(fifo) => Some(fifo.map_or("noqueue", |fifo| fifo.unit.kind_name())),
            Self::Made | Self::Bands => Some("pfifo"),
            Self::Queues => Some("noqueue"),
            Self::Alike => Some("cake"),
        }
    }
}

/// The place of a qdisc.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) facts: &'a PortFacts,
    pub(crate) parent: Parent,
    /// Whether it is below an `mq`, and so belongs to a single queue.
    pub(crate) own_queue: bool,
}

/// When a qdisc writes departure times into packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stamps {
    /// Never.
    Never,
    /// When a packet arrives, also for the qdiscs below.
    OnArrival,
    /// When it enqueues a packet; it depends on finding its own times there.
    Relies,
}

/// The rules of a kind, for the rest of the policy.
pub(crate) trait Rules {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The children that it may have.
    fn classes(&self) -> Classes {
        Classes::None
    }

    /// Applies `params`, which are of this kind.
    ///
    /// # Errors
    /// If the result is not possible at `site`.
    fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError>;

    /// Adjusts the child to the new parameters, as the kernel does.
    fn changed_above(&self, _child: &mut Node) {}

    /// Refuses parameters that contradict each other.
    ///
    /// # Errors
    /// The contradiction.
    fn check(&self) -> Result<(), PolicyError> {
        Ok(())
    }

    /// When it writes departure times.
    fn stamps(&self) -> Stamps {
        Stamps::Never
    }

    /// Whether its rate follows the arrivals, of which each queue sees only a part.
    fn follows_arrivals(&self) -> bool {
        false
    }

    /// What each of `queues` queues runs, and the limit that they share.
    fn plan(&self, queues: usize) -> (Config, Option<SharedLimit>);
}

/// `noqueue`.
struct Noqueue;

impl Rules for Noqueue {
    fn name(&self) -> &'static str {
        "noqueue"
    }

    fn change(&mut self, _: &Params, _: &Site<'_>) -> Result<(), PolicyError> {
        Ok(())
    }

    fn plan(&self, _: usize) -> (Config, Option<SharedLimit>) {
        (Config::Noqueue, None)
    }
}

impl Kind {
    /// The rules of this kind.
    pub(crate) fn rules(&self) -> &dyn Rules {
        match self {
            Self::Noqueue => &Noqueue,
            Self::Fifo(fifo) => fifo,
            Self::Tbf(tbf) => tbf,
            Self::Cake(cake) => cake,
            Self::Fq(fq) => fq,
            Self::Codel(config) => config,
            Self::FqCodel(config) => config,
            Self::Sfq(config) => config,
            Self::Netem(config) => config,
            Self::Pacing(config) => config,
            Self::Red(config) => config,
            Self::Htb(htb) => htb,
            Self::Hfsc(hfsc) => hfsc,
            Self::Prio(prio) => prio,
            Self::Drr(drr) => drr,
            Self::Ets(ets) => ets,
            Self::Mq => &Mq,
        }
    }

    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        self.rules().name()
    }

    /// The children that it may have.
    pub fn classes(&self) -> Classes {
        self.rules().classes()
    }

    /// A new qdisc with these `params`, at `site`.
    ///
    /// # Errors
    /// If there is no such kind, or it is not possible there.
    pub(crate) fn new(params: &Params, site: &Site<'_>) -> Result<Self, PolicyError> {
        let mut kind = match params {
            Params::Noqueue => Self::Noqueue,
            Params::Fifo(unit, _) => Self::Fifo(Fifo::new(*unit, site.facts)),
            Params::Tbf(params) => Self::Tbf(params.clone()),
            Params::Cake { multi, .. } => Self::Cake(Cake::new(*multi, site)?),
            Params::Fq(_) => Self::Fq(FqParams::new(site.facts.frame())),
            Params::Codel(_) => Self::Codel(codel::Config::for_frames_of(site.facts.frame())),
            Params::FqCodel(options) => Self::FqCodel(options.made(site.facts.frame())),
            Params::Sfq(options) => Self::Sfq(options.made(site.facts.frame())),
            Params::Netem(_) => Self::Netem(netem::Config::for_frames_of(site.facts.frame())),
            Params::Pacing { structure, .. } => {
                Self::Pacing(pacing::Config::new(*structure, site.facts.frame()))
            }
            Params::Red(config) => Self::Red(**config),
            Params::Htb(_) => Self::Htb(Htb::new(site)),
            Params::Hfsc { .. } => Self::Hfsc(Hfsc::new(site)),
            Params::Prio(_) => Self::Prio(Prio::new(site)),
            Params::PfifoFast => Self::Prio(Prio::fast(site)),
            Params::Drr => Self::Drr(Drr::new(site)),
            Params::Ets(_) => Self::Ets(Ets::new(site)),
            Params::Mq => Self::Mq,
            Params::Unknown(name) => return Err(PolicyError::UnknownKind(Some(name.clone()))),
        };
        kind.change(params, site)?;
        Ok(kind)
    }

    /// Applies `params`, which are of this kind.
    ///
    /// # Errors
    /// If the result is not possible at `site`.
    pub(crate) fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError> {
        match self {
            Self::Noqueue => Noqueue.change(params, site),
            Self::Fifo(fifo) => fifo.change(params, site),
            Self::Tbf(tbf) => tbf.change(params, site),
            Self::Cake(cake) => cake.change(params, site),
            Self::Fq(fq) => fq.change(params, site),
            Self::Codel(config) => config.change(params, site),
            Self::FqCodel(config) => config.change(params, site),
            Self::Sfq(config) => config.change(params, site),
            Self::Netem(config) => config.change(params, site),
            Self::Pacing(config) => config.change(params, site),
            Self::Red(config) => config.change(params, site),
            Self::Htb(htb) => htb.change(params, site),
            Self::Hfsc(hfsc) => hfsc.change(params, site),
            Self::Prio(prio) => prio.change(params, site),
            Self::Drr(drr) => drr.change(params, site),
            Self::Ets(ets) => ets.change(params, site),
            Self::Mq => Mq.change(params, site),
        }
    }
}

/// The kind and parameters of a command. Missing parameters get the kind's defaults if the qdisc is
/// new, and keep their values if it is changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Params {
    /// `noqueue`
    Noqueue,
    /// `pfifo`, `bfifo`, with the limit if given.
    Fifo(FifoUnit, Option<u32>),
    /// `tbf`
    Tbf(TbfParams),
    /// `cake`, or with `multi` `cake_mq`. Missing parameters stay, or get the defaults.
    Cake {
        /// Which of the two.
        multi: bool,
        /// The given options.
        options: CakeOptions,
    },
    /// `fq`. Missing parameters stay, or get the defaults.
    Fq(FqOptions),
    /// `codel`. Missing parameters stay, or get the defaults.
    Codel(CodelQueueOptions),
    /// `fq_codel`. Missing parameters stay, or get the defaults.
    FqCodel(FqCodelOptions),
    /// `sfq`. Missing parameters stay, or get the defaults.
    Sfq(SfqOptions),
    /// `netem`, with all parameters.
    Netem(netem::Config),
    /// `carousel`, `eiffel`, `flowbundler`. Missing parameters stay, or get the defaults.
    Pacing {
        /// Which of them.
        structure: Structure,
        /// The given options.
        options: PacingOptions,
    },
    /// `red`, with all parameters.
    Red(Box<red::Config>),
    /// `htb`. Missing parameters stay, or get the defaults.
    Htb(HtbOptions),
    /// `hfsc`, with all parameters.
    Hfsc {
        /// See [`Hfsc::default`].
        default: u32,
    },
    /// `prio`
    Prio(PrioParams),
    /// `pfifo_fast`
    PfifoFast,
    /// `drr`
    Drr,
    /// `ets`
    Ets(EtsOptions),
    /// `mq`
    Mq,
    /// An unknown name.
    Unknown(String),
}

impl Params {
    /// What makes the rate that of a fleet.
    pub(crate) fn fleet(&self) -> Option<&Fleet> {
        match self {
            Self::Tbf(params) => params.fleet.as_deref(),
            Self::Cake { options, .. } => options.fleet.as_ref()?.as_deref(),
            _ => None,
        }
    }

    /// The name of the kind.
    pub fn kind_name(&self) -> &str {
        match self {
            Self::Noqueue => "noqueue",
            Self::Fifo(unit, _) => unit.kind_name(),
            Self::Tbf(_) => "tbf",
            Self::Cake { multi, .. } => Cake::kind_name(*multi),
            Self::Fq(_) => "fq",
            Self::Codel(_) => "codel",
            Self::FqCodel(_) => "fq_codel",
            Self::Sfq(_) => "sfq",
            Self::Netem(_) => "netem",
            Self::Pacing { structure, .. } => structure.name(),
            Self::Red(_) => "red",
            Self::Htb(_) => "htb",
            Self::Hfsc { .. } => "hfsc",
            Self::Prio(_) => "prio",
            Self::PfifoFast => "pfifo_fast",
            Self::Drr => "drr",
            Self::Ets(_) => "ets",
            Self::Mq => "mq",
            Self::Unknown(name) => name,
        }
    }
}

/// A single queue needs no lock and no shared clock, whatever the strategy: `equal` over one queue
/// is a plain bucket.
pub(crate) fn strategy(strategy: Strategy, queues: usize) -> Strategy {
    if queues > 1 { strategy } else { Strategy::EQUAL }
}

/// The configuration of a FIFO.
pub(crate) fn fifo_config(fifo: &Fifo) -> Config {
    Config::Fifo(match fifo.unit {
        FifoUnit::Packets => fifo::Config::Packets(fifo.limit),
        FifoUnit::Bytes => fifo::Config::Bytes(narrows_units::Bytes(u64::from(fifo.limit))),
    })
}
