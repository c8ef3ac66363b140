//! What a qdisc is, and the rules of each kind.
//!
//! A kind's parameters are data, its module says how they are made and changed, and [`Rules`] is
//! all that the rest of the policy asks. *To add a kind:* a module with its `Rules`, a variant of
//! [`Kind`] and one of [`Params`]; the compiler names the places.

use crate::mq::Mq;
use crate::plan::SharedLimit;
use crate::{
    Cake, CakeOptions, CodelQueueOptions, Drr, Ets, EtsOptions, Fifo, FifoUnit, FqCodelOptions,
    FqOptions, FqParams, Htb, HtbOptions, Node, PacingOptions, Parent, PolicyError, PortFacts,
    Prio, PrioParams, SfqOptions, TbfParams,
};
use narrows_coordination::Strategy;
use narrows_qdisc::pacing::{self, Structure};
use narrows_qdisc::{Config, codel, fifo, fq_codel, netem, sfq};

/// What a qdisc is, with its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No queue: what cannot leave at once is dropped.
    Noqueue,
    /// First in, first out.
    Fifo(Fifo),
    /// A token bucket filter.
    Tbf(TbfParams),
    /// Common applications kept enhanced: `cake`, `cake_mq`.
    Cake(Cake),
    /// A queue for each flow, and a pace.
    Fq(FqParams),
    /// One queue that does not stay long.
    Codel(codel::Config),
    /// A queue for each flow that does not stay long.
    FqCodel(fq_codel::Config),
    /// Flows that take turns.
    Sfq(sfq::Config),
    /// Delay, loss and other trouble.
    Netem(netem::Config),
    /// A rate for each flow: `carousel`, `eiffel`, `flowbundler`.
    Pacing(pacing::Config),
    /// Classes in a tree.
    Htb(Htb),
    /// Bands in an order.
    Prio(Prio),
    /// Classes by turns.
    Drr(Drr),
    /// Bands in an order, and others by turns.
    Ets(Ets),
    /// One child for each queue of the port.
    Mq,
}

/// What may stand below a qdisc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Classes {
    /// Nothing.
    None,
    /// One qdisc, whatever number it is given. Until somebody puts one there it is a FIFO with the
    /// limit of the qdisc above it.
    One(Fifo),
    /// One qdisc for each queue of the port. A queue without one sends at once what it has.
    Queues,
    /// As many as somebody makes. One without a qdisc has a `pfifo`.
    Made,
    /// As many as the qdisc's parameters say. One without a qdisc has a `pfifo`.
    Bands,
    /// One for each queue of the port, all alike, which come and go with the qdisc above them.
    Alike,
}

impl Classes {
    /// The key of the child at class `minor`, as [`Node::children`] has it.
    pub(crate) fn key(self, minor: u32) -> u32 {
        if let Self::One(_) = self { 1 } else { minor }
    }

    /// The kind of what stands where nobody put anything.
    pub(crate) fn default(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::One(fifo) => Some(fifo.unit.kind_name()),
            Self::Made | Self::Bands => Some("pfifo"),
            Self::Queues => Some("noqueue"),
            Self::Alike => Some("cake"),
        }
    }
}

/// Where a qdisc stands, or is to stand.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) facts: &'a PortFacts,
    pub(crate) parent: Parent,
    /// Whether it is below an `mq`, and so one queue's alone.
    pub(crate) own_queue: bool,
}

/// When a qdisc writes departure times into packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stamps {
    /// Never.
    Never,
    /// On arrival, for all that is below it as well.
    OnArrival,
    /// When it takes a packet in, and relies on them.
    Relies,
}

/// What the rest of the policy asks of a kind.
pub(crate) trait Rules {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What may stand below it.
    fn classes(&self) -> Classes {
        Classes::None
    }

    /// Sets what `params` name, which are of this kind.
    ///
    /// # Errors
    /// Where that cannot be had at `site`.
    fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError>;

    /// What its new parameters do to the qdisc below it, as in the kernel.
    fn changed_above(&self, _child: &mut Node) {}

    /// Refuses parameters that do not go together.
    ///
    /// # Errors
    /// Why they do not.
    fn check(&self) -> Result<(), PolicyError> {
        Ok(())
    }

    /// When it writes departure times.
    fn stamps(&self) -> Stamps {
        Stamps::Never
    }

    /// Whether its rate follows what comes in, of which a queue sees its own part only.
    fn follows_arrivals(&self) -> bool {
        false
    }

    /// What each queue runs where `queues` run it, and the limit that they share then.
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
    /// The rules of its kind.
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
            Self::Htb(htb) => htb,
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

    /// What may stand below it.
    pub fn classes(&self) -> Classes {
        self.rules().classes()
    }

    /// A new one as `params` have it, at `site`.
    ///
    /// # Errors
    /// Where there is no such kind, or it cannot be had there.
    pub(crate) fn new(params: &Params, site: &Site<'_>) -> Result<Self, PolicyError> {
        let mut kind = match params {
            Params::Noqueue => Self::Noqueue,
            Params::Fifo(unit, _) => Self::Fifo(Fifo::new(*unit, site.facts)),
            Params::Tbf(params) => Self::Tbf(*params),
            Params::Cake { multi, .. } => Self::Cake(Cake::new(*multi, site)?),
            Params::Fq(_) => Self::Fq(FqParams::new(site.facts.frame())),
            Params::Codel(_) => Self::Codel(codel::Config::for_frames_of(site.facts.frame())),
            Params::FqCodel(options) => Self::FqCodel(options.made(site.facts.frame())),
            Params::Sfq(options) => Self::Sfq(options.made(site.facts.frame())),
            Params::Netem(_) => Self::Netem(netem::Config::for_frames_of(site.facts.frame())),
            Params::Pacing { structure, .. } => {
                Self::Pacing(pacing::Config::new(*structure, site.facts.frame()))
            }
            Params::Htb(_) => Self::Htb(Htb::new(site)),
            Params::Prio(_) => Self::Prio(Prio::new(site)),
            Params::Drr => Self::Drr(Drr::new(site)),
            Params::Ets(_) => Self::Ets(Ets::new(site)),
            Params::Mq => Self::Mq,
            Params::Unknown(name) => return Err(PolicyError::UnknownKind(Some(name.clone()))),
        };
        kind.change(params, site)?;
        Ok(kind)
    }

    /// Sets what `params` name, which are of this kind.
    ///
    /// # Errors
    /// Where that cannot be had at `site`.
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
            Self::Htb(htb) => htb.change(params, site),
            Self::Prio(prio) => prio.change(params, site),
            Self::Drr(drr) => drr.change(params, site),
            Self::Ets(ets) => ets.change(params, site),
            Self::Mq => Mq.change(params, site),
        }
    }
}

/// The kind and parameters that a command line gives; what it leaves out is the kind's default
/// where the qdisc is new, and as it was where it is changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Params {
    /// `noqueue`
    Noqueue,
    /// `pfifo`, `bfifo`, with the limit if given.
    Fifo(FifoUnit, Option<u32>),
    /// `tbf`
    Tbf(TbfParams),
    /// `cake`, or with `multi` `cake_mq`; what is not given stays, or is the default.
    Cake {
        /// Which of the two.
        multi: bool,
        /// What is given.
        options: CakeOptions,
    },
    /// `fq`; what is not given stays, or is the default.
    Fq(FqOptions),
    /// `codel`; what is not given stays, or is the default.
    Codel(CodelQueueOptions),
    /// `fq_codel`; what is not given stays, or is the default.
    FqCodel(FqCodelOptions),
    /// `sfq`; what is not given stays, or is the default.
    Sfq(SfqOptions),
    /// `netem`, all at once.
    Netem(netem::Config),
    /// `carousel`, `eiffel`, `flowbundler`; what is not given stays, or is the default.
    Pacing {
        /// Which of them.
        structure: Structure,
        /// What is given.
        options: PacingOptions,
    },
    /// `htb`; what is not given stays, or is the default.
    Htb(HtbOptions),
    /// `prio`
    Prio(PrioParams),
    /// `drr`
    Drr,
    /// `ets`
    Ets(EtsOptions),
    /// `mq`
    Mq,
    /// A name that no kind has.
    Unknown(String),
}

impl Params {
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
            Self::Htb(_) => "htb",
            Self::Prio(_) => "prio",
            Self::Drr => "drr",
            Self::Ets(_) => "ets",
            Self::Mq => "mq",
            Self::Unknown(name) => name,
        }
    }
}

/// A queue alone needs nobody's lock or clock, whatever the strategy: `equal` among one is a plain
/// bucket.
pub(crate) fn strategy(strategy: Strategy, queues: usize) -> Strategy {
    if queues > 1 { strategy } else { Strategy::EQUAL }
}

/// What runs for a FIFO.
pub(crate) fn fifo_config(fifo: &Fifo) -> Config {
    Config::Fifo(match fifo.unit {
        FifoUnit::Packets => fifo::Config::Packets(fifo.limit),
        FifoUnit::Bytes => fifo::Config::Bytes(narrows_units::Bytes(u64::from(fifo.limit))),
    })
}
