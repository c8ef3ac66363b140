//! What a qdisc is to be: its kind and parameters, and the meters it is to use.

use crate::{Census, Hearsay, Meter, Qdisc, cake, fifo, fq, pacing, tbf};

/// Kind and parameters of one qdisc, as an operator states them. Plain data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Config {
    /// No queue: what cannot leave at once is dropped (`noqueue`).
    Noqueue,
    /// First in, first out, with a limit in packets or bytes (`pfifo`, `bfifo`).
    Fifo(fifo::Config),
    /// Token bucket filter (`tbf`).
    Tbf(tbf::Config),
    /// Common applications kept enhanced (`cake`).
    Cake(cake::Config),
    /// Fair queue with pacing (`fq`).
    Fq(fq::Config),
    /// A rate for each flow (`carousel`, `eiffel`, `flowbundler`).
    Pacing(pacing::Config),
}

/// A qdisc to be built on one worker, with the qdiscs below it.
pub struct Spec {
    /// Its kind and parameters.
    pub config: Config,
    /// Its seat at its limit, for kinds that have one. `None` in [`Qdisc::retune`] keeps the
    /// present one.
    pub meter: Option<Box<dyn Meter>>,
    /// Its seat at what the queues of its limit count together, for kinds that share out by host
    /// or tin. `None` in [`Qdisc::retune`] keeps the present one.
    pub census: Option<Box<dyn Census>>,
    /// Its view of what the queues of its port hear of destinations, for kinds that listen. `None`
    /// in [`Qdisc::retune`] keeps the present one.
    pub hearsay: Option<Box<dyn Hearsay>>,
    /// The qdiscs below it: for `tbf` exactly one.
    pub children: Vec<Spec>,
}

impl Spec {
    /// A qdisc that shares nothing with other queues, and has none below it.
    pub const fn new(config: Config) -> Self {
        Self { config, meter: None, census: None, hearsay: None, children: Vec::new() }
    }

    /// Makes the qdisc, empty, with the qdiscs below it. Memory is allocated here, but for what
    /// grows with the flows that come, and what a wheel needs for packets, with the first of them.
    /// A `tbf` without a meter keeps a bucket of its own, and who is to listen without a `hearsay`
    /// hears what comes in on its own queue.
    ///
    /// # Panics
    /// Where the number of children is not the kind's own: one for `tbf`, else none.
    pub fn build(self) -> Box<dyn Qdisc> {
        let Self { config, meter, census, hearsay, mut children } = self;
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
}
