//! From the tree of a port to what each of its workers builds.

use crate::{
    Cake, CakeParams, Fifo, FifoUnit, Handle, Kind, Mq, Node, Parent, PolicyError, PortPolicy,
    TbfParams,
};
use narrows_coordination::{Coordination, Destinations, Limit, Strategy};
use narrows_qdisc::{Census, Config, Hearsay, Meter, Spec, cake, fifo, fq, pacing, tbf};
use narrows_units::{Bytes, Nanos, Rate};
use std::sync::Arc;

/// What one worker is to do with the qdisc of its queue.
pub enum Update {
    /// The same kinds in the same places: hand it to `Qdisc::retune`. It brings no meters, the
    /// present ones stay; and what listens gets its port's hearsay, which is the present one if it
    /// listened.
    Retune(Spec),
    /// Another shape: build it, and let it adopt what the present one holds.
    Replace(Spec),
}

/// The policy of one port as it runs on a number of queues: which limits its workers share, and
/// which of their qdiscs is which of the tree's.
///
/// The order of a change, so that a bad one changes nothing: compile the new policy of every
/// port with the present [`Installed`] as `previous`; if all went well [`Installed::commit`]
/// each, send queue `i`'s worker its update `i`, and keep the new value for the next time.
pub struct Installed {
    /// The handle of the root where that is an `mq` or a `cake_mq`, which is no worker's.
    pub(crate) mq: Option<Handle>,
    /// What runs on each queue, depth first.
    pub(crate) queues: Vec<Vec<Running>>,
    /// What its queues hear of destinations, once any of them has listened. It stays the port's
    /// whatever runs there next: what is congested is so for any qdisc, and is forgotten by its
    /// time.
    destinations: Option<Arc<Destinations>>,
    /// Limits of the previous policy that carry on, with their new figures.
    retuned: Vec<(Arc<Coordination>, Limit)>,
}

/// One qdisc on one queue.
pub(crate) struct Running {
    pub(crate) place: Place,
    limit: Option<(Terms, Arc<Coordination>)>,
}

/// What must stay the same for a qdisc to carry on with other parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: Parent,
    /// `None` for what nobody put there: the `bfifo` in a `tbf`, `noqueue` on an idle port.
    pub(crate) handle: Option<Handle>,
    kind: &'static str,
    /// With another one, packets that are queued would stand elsewhere.
    sorting: Option<Sorting>,
}

/// By what a qdisc sorts packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sorting {
    /// Into which tins and flows a `cake` does.
    Cake(cake::Diffserv, cake::Isolation),
    /// Into which flows and bands an `fq` does, by its mask and its priorities.
    Fq(u32, [u8; fq::PRIORITIES]),
    /// Into which flows and slots a pacing qdisc does.
    Pacing(pacing::Shape),
}

/// The same for a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Terms {
    strategy: Strategy,
    seats: usize,
}

/// One qdisc of a queue that is being laid out, depth first.
struct Level {
    place: Place,
    config: Config,
    children: usize,
    limit: Option<(Terms, Limit)>,
}

impl Installed {
    /// Lays the tree of `port` out over `queues` queues, each served by its own worker.
    ///
    /// A queue whose qdiscs are, apart from parameters, those of `previous` is retuned and
    /// keeps its seats and the shared state behind them; other queues get everything new. A
    /// port without a policy runs `noqueue`.
    ///
    /// # Errors
    /// A port without queues, an `mq` or a `cake_mq` on a port with one, an `mq` with a child for
    /// a queue that the port does not have, a `cake` whose rate follows what comes in on several
    /// queues. Nothing has changed then; nor has it before [`Installed::commit`].
    pub fn compile(
        port: &PortPolicy,
        queues: usize,
        previous: Option<&Self>,
    ) -> Result<(Self, Vec<Update>), PolicyError> {
        let spread = Spread::of(port);
        check(port, &spread, queues)?;
        let mq = spread.handle();
        let destinations = previous.and_then(|previous| previous.destinations.clone());
        let mut installed = Self { mq, queues: Vec::new(), destinations, retuned: Vec::new() };
        let mut updates = Vec::with_capacity(queues);
        for queue in 0..queues {
            // Queues beyond the numbers that a class can have run the default.
            let class = u16::try_from(queue + 1).unwrap_or(0);
            let levels = match spread {
                Spread::Same(root) => lay_out(root, Parent::Root, queues),
                Spread::Mq(handle, mq) => {
                    lay_out(mq.children.get(&class), Parent::Class(handle.class(class)), 1)
                }
                Spread::CakeMq(handle, params) => {
                    let parent = Parent::Class(handle.class(class));
                    let place = Place { parent, handle: None, kind: "cake", sorting: None };
                    vec![cake_level(place, params, queues)]
                }
            };
            let before = previous.and_then(|previous| previous.queues.get(queue));
            updates.push(installed.take_in(levels, queue, before));
        }
        Ok((installed, updates))
    }

    /// Adds the next queue, which ran `before` so far.
    fn take_in(
        &mut self,
        levels: Vec<Level>,
        queue: usize,
        before: Option<&Vec<Running>>,
    ) -> Update {
        let kept = before.filter(|before| carries_on(before, &levels));
        let mut running = Vec::with_capacity(levels.len());
        let mut specs = Vec::with_capacity(levels.len());
        for (index, level) in levels.into_iter().enumerate() {
            let mut meter: Option<Box<dyn Meter>> = None;
            let mut census: Option<Box<dyn Census>> = None;
            let hearsay = self.hearsay(&level.config);
            let limit = level.limit.map(|(terms, limit)| {
                let present = kept.and_then(|kept| kept[index].coordination());
                // Where queues share, all run the same tree, and the first made what is shared.
                let first = self.queues.first().filter(|_| terms.seats > 1);
                let shared = first.and_then(|first| first[index].coordination());
                let coordination = match (present, shared) {
                    (Some(present), _) => {
                        self.retune(present, limit);
                        Arc::clone(present)
                    }
                    (None, Some(shared)) => Arc::clone(shared),
                    (None, None) => Coordination::new(terms.strategy, limit, terms.seats),
                };
                if kept.is_none() {
                    let seat = if terms.seats > 1 { queue } else { 0 };
                    meter = Some(coordination.seat(seat));
                    // Who shares a rate out by host and tin has to know those of all queues.
                    let counts = matches!(level.config, Config::Cake(_)) && terms.seats > 1;
                    census = counts.then(|| coordination.census());
                }
                (terms, coordination)
            });
            let spec = Spec { meter, census, hearsay, ..Spec::new(level.config) };
            specs.push((spec, level.children));
            running.push(Running { place: level.place, limit });
        }
        self.queues.push(running);
        let spec = nest(&mut specs.into_iter());
        if kept.is_some() { Update::Retune(spec) } else { Update::Replace(spec) }
    }

    /// The view of what the port's queues hear, for a qdisc that listens. One that is retuned may
    /// only now begin to.
    fn hearsay(&mut self, config: &Config) -> Option<Box<dyn Hearsay>> {
        let Config::Pacing(pacing::Config { safeguard: true, .. }) = config else { return None };
        Some(self.destinations.get_or_insert_with(Destinations::new).hearsay())
    }

    /// Notes that a limit gets other figures; every queue that shares it comes by.
    fn retune(&mut self, coordination: &Arc<Coordination>, limit: Limit) {
        if !self.retuned.iter().any(|(noted, _)| Arc::ptr_eq(noted, coordination)) {
            self.retuned.push((Arc::clone(coordination), limit));
        }
    }

    /// Sets the new figures of the limits that carry on. To be called once everything has been
    /// validated and before the updates are sent.
    pub fn commit(&self) {
        for (coordination, limit) in &self.retuned {
            coordination.set_limit(*limit);
        }
    }

    /// Up to when each of its limits has been used up, one after the other: what an equal policy on
    /// as many queues goes on from in another process ([`Installed::resume`]).
    pub fn spent_until(&self, now: Nanos) -> Vec<Nanos> {
        self.limits().iter().map(|limit| limit.spent_until(now)).collect()
    }

    /// Has its limits, which nobody has used yet, begin where those of another process ended: each
    /// as used up until the time of the same place in `spent`, and until `now` where there is none.
    pub fn resume(&self, spent: &[Nanos], now: Nanos) {
        let limits = self.limits();
        let known = limits.len() == spent.len();
        for (number, limit) in limits.iter().enumerate() {
            limit.resume(spent.get(number).copied().filter(|_| known).unwrap_or(now));
        }
    }

    /// Its limits, each once, in an order that follows from the policy and the number of queues.
    fn limits(&self) -> Vec<&Arc<Coordination>> {
        let mut limits: Vec<&Arc<Coordination>> = Vec::new();
        let runs = self.queues.iter().flatten();
        for limit in runs.filter_map(Running::coordination) {
            if !limits.iter().any(|known| Arc::ptr_eq(known, limit)) {
                limits.push(limit);
            }
        }
        limits
    }

    /// How many queues it is for.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }
}

impl Running {
    fn coordination(&self) -> Option<&Arc<Coordination>> {
        self.limit.as_ref().map(|(_, coordination)| coordination)
    }
}

/// How a tree is spread over the queues.
enum Spread<'a> {
    /// Each runs all of it.
    Same(Option<&'a Node>),
    /// Each runs its class's part of an `mq`.
    Mq(Handle, &'a Mq),
    /// Each runs a `cake`, its class's part of a `cake_mq`.
    CakeMq(Handle, &'a CakeParams),
}

impl<'a> Spread<'a> {
    fn of(port: &'a PortPolicy) -> Self {
        match &port.root {
            Some(Node { handle, kind: Kind::Mq(mq), .. }) => Self::Mq(*handle, mq),
            Some(Node { handle, kind: Kind::Cake(Cake { multi: true, params }), .. }) => {
                Self::CakeMq(*handle, params)
            }
            root => Self::Same(root.as_ref()),
        }
    }

    /// The qdisc that is on no queue.
    fn handle(&self) -> Option<Handle> {
        match self {
            Self::Same(_) => None,
            Self::Mq(handle, _) | Self::CakeMq(handle, _) => Some(*handle),
        }
    }
}

/// Refuses what this number of queues cannot run.
fn check(port: &PortPolicy, spread: &Spread, queues: usize) -> Result<(), PolicyError> {
    match (queues, spread) {
        (0, _) => Err(PolicyError::NoQueues),
        (1, Spread::Mq(..)) => Err(PolicyError::MqNeedsQueues),
        (1, Spread::CakeMq(..)) => Err(PolicyError::CakeMqNeedsQueues),
        (_, Spread::Mq(handle, mq)) => match mq.children.keys().next_back() {
            Some(&last) if usize::from(last) > queues => Err(PolicyError::NoClass(format!(
                "The port has {queues} queues, so there is no {}.",
                handle.class(last)
            ))),
            _ => Ok(()),
        },
        _ => {
            let follows =
                |node: &Node| matches!(&node.kind, Kind::Cake(cake) if cake.params.config.autorate);
            match port.nodes().into_iter().find(|node| queues > 1 && follows(node)) {
                Some(node) => Err(PolicyError::AutorateShared(node.kind.name())),
                None => Ok(()),
            }
        }
    }
}

/// Whether `levels` differ from what runs in parameters only.
fn carries_on(before: &[Running], levels: &[Level]) -> bool {
    before.len() == levels.len()
        && before.iter().zip(levels).all(|(running, level)| {
            running.place == level.place
                && running.limit.as_ref().map(|(terms, _)| *terms)
                    == level.limit.map(|(terms, _)| terms)
        })
}

/// What one queue runs at `parent`: `node` and everything below it, or the default. `seats`
/// queues share each limit.
fn lay_out(node: Option<&Node>, parent: Parent, seats: usize) -> Vec<Level> {
    let mut levels = Vec::new();
    match node {
        Some(node) => add_levels(node, seats, &mut levels),
        None => levels.push(Level {
            place: Place { parent, handle: None, kind: "noqueue", sorting: None },
            config: Config::Noqueue,
            children: 0,
            limit: None,
        }),
    }
    levels
}

fn add_levels(node: &Node, seats: usize, levels: &mut Vec<Level>) {
    let place = Place {
        parent: node.parent,
        handle: Some(node.handle),
        kind: node.kind.name(),
        sorting: None,
    };
    match &node.kind {
        Kind::Cake(cake) => levels.push(cake_level(place, &cake.params, seats)),
        Kind::Fq(fq) => {
            let (mask, priomap) = fq.config.sorting();
            let place = Place { sorting: Some(Sorting::Fq(mask, priomap)), ..place };
            levels.push(Level { place, config: Config::Fq(fq.config), children: 0, limit: None });
        }
        // An `mq` is at the root and on no queue.
        Kind::Noqueue | Kind::Mq(_) => {
            levels.push(Level { place, config: Config::Noqueue, children: 0, limit: None });
        }
        Kind::Fifo(fifo) => {
            levels.push(Level { place, config: fifo_config(fifo), children: 0, limit: None });
        }
        Kind::Pacing(config) => levels.push(Level {
            place: Place { sorting: Some(Sorting::Pacing(config.shape())), ..place },
            config: Config::Pacing(*config),
            children: 0,
            limit: None,
        }),
        Kind::Tbf(tbf) => {
            let params = &tbf.params;
            levels.push(Level {
                place,
                config: tbf_config(params),
                children: 1,
                limit: Some((terms(params.strategy(), seats), limit(params))),
            });
            match &tbf.inner {
                Some(inner) => add_levels(inner, seats, levels),
                None => levels.push(Level {
                    place: Place {
                        parent: Parent::Class(node.handle.class(1)),
                        handle: None,
                        kind: FifoUnit::Bytes.kind_name(),
                        sorting: None,
                    },
                    config: Config::Fifo(fifo::Config::Bytes(params.limit)),
                    children: 0,
                    limit: None,
                }),
            }
        }
    }
}

fn fifo_config(fifo: &Fifo) -> Config {
    Config::Fifo(match fifo.unit {
        FifoUnit::Packets => fifo::Config::Packets(fifo.limit),
        FifoUnit::Bytes => fifo::Config::Bytes(Bytes(u64::from(fifo.limit))),
    })
}

fn tbf_config(params: &TbfParams) -> Config {
    Config::Tbf(tbf::Config {
        rate: params.rate,
        burst: params.burst,
        limit: params.limit,
        peak: params.peak,
        overhead: params.overhead,
    })
}

/// A queue alone needs nobody's lock or clock, whatever the strategy: `equal` among one is a
/// plain bucket.
fn terms(strategy: Strategy, seats: usize) -> Terms {
    Terms { strategy: if seats > 1 { strategy } else { Strategy::EQUAL }, seats }
}

fn limit(params: &TbfParams) -> Limit {
    Limit { rate: params.rate, burst: params.burst, peak: params.peak, backlog: params.limit }
}

/// A `cake` that shares its rate with `seats - 1` others. Alone it keeps a clock of its own, which
/// nothing can make more exact; unlimited it has nothing to share.
fn cake_level(place: Place, params: &CakeParams, seats: usize) -> Level {
    let (diffserv, isolation) = params.config.sorting();
    let sorting = Some(Sorting::Cake(diffserv, isolation));
    let place = Place { sorting, ..place };
    let config = Config::Cake(params.config);
    let limit = params.config.rate.filter(|_| seats > 1).map(|rate| {
        let limit = Limit {
            rate,
            burst: params.config.catch_up(rate),
            peak: None,
            backlog: cake_backlog(&params.config, rate, seats),
        };
        (terms(params.strategy(), seats), limit)
    });
    Level { place, config, children: 0, limit }
}

/// `tc-cake(8)`: the memory that a limit needs is four times what passes in a round trip,
const CAKE_ROUND_TRIPS: u64 = 4;
/// and no less than this.
const CAKE_MEMORY_MIN: Bytes = Bytes(4 << 20);

/// What may be queued, all queues together: a limit that was given is each queue's.
fn cake_backlog(config: &cake::Config, rate: Rate, seats: usize) -> Bytes {
    match config.memory {
        Some(memory) => Bytes(memory.0.saturating_mul(seats as u64)),
        None => {
            let needed = rate.bytes_in(config.interval).0.saturating_mul(CAKE_ROUND_TRIPS);
            Bytes(needed).max(CAKE_MEMORY_MIN)
        }
    }
}

/// Hangs specs, given depth first with how many stand below each, into one another.
fn nest(specs: &mut impl Iterator<Item = (Spec, usize)>) -> Spec {
    // Every queue runs something, so there is a first; `lay_out` says so.
    let (mut spec, children) = specs.next().expect("a queue runs at least noqueue");
    spec.children.extend((0..children).map(|_| nest(specs)));
    spec
}
