//! `cake` and `cake_mq`: defaults, and the effect of a change.
//!
//! As in the kernel (`cake_change()`), a command sets only what it names: a new qdisc starts from
//! the defaults of `tc-cake(8)`, a changed one from its present parameters. Both kinds have the
//! same parameters and, here, the same effect: one rate for all queues that run it. They differ in
//! how `show` lists them.
//!
//! *Non-goals.* The meaning of the parameters: see `narrows_qdisc::cake`.

use crate::kind::{Classes, Rules, Site, strategy};
use crate::plan::SharedLimit;
use crate::{Autorate, Fleet, Params, Parent, PolicyError};
use narrows_coordination::{Limit, Strategy};
use narrows_qdisc::cake::{AckFilter, Config, Diffserv, Isolation};
use narrows_units::wire::Framing;
use narrows_units::{Bytes, Nanos, Rate};

/// A `cake`, or a `cake_mq` with the `cake`s of all queues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cake {
    /// Whether each queue is listed as a class with a `cake` of its own.
    pub multi: bool,
    /// The parameters, the same for all queues.
    pub params: CakeParams,
}

/// Every parameter that a command can set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CakeParams {
    /// The configuration of an instance.
    pub config: Config,
    /// Kept only for `show`: frames arrive at a port already segmented.
    pub split_gso: bool,
    /// How the queues divide the rate; `None` for the default.
    pub strategy: Option<Strategy>,
    /// What makes the rate that of several boxes.
    pub fleet: Option<Box<Fleet>>,
    /// What makes the rate follow a line.
    pub autorate: Option<Box<Autorate>>,
}

/// The options that a command names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CakeOptions {
    /// The rate; zero is unlimited.
    pub rate: Option<Rate>,
    /// `autorate-ingress`
    pub autorate: Option<bool>,
    /// `ingress`, `egress`
    pub ingress: Option<bool>,
    /// Bytes added to the length of a packet.
    pub per_frame: Option<i32>,
    /// `raw`: the length of a packet is that of its frame, without additions.
    pub raw: bool,
    /// The minimum length of a packet, before framing.
    pub minimum: Option<u32>,
    /// `atm`, `ptm`, `noatm`
    pub framing: Option<Framing>,
    /// The round-trip time; CoDel's target is a fraction of it.
    pub interval: Option<Nanos>,
    /// `flowblind` to `triple-isolate`
    pub isolation: Option<Isolation>,
    /// `nat`, `nonat`
    pub nat: Option<bool>,
    /// `inner`, `noinner`
    pub inner: Option<bool>,
    /// `besteffort` to `diffserv8`
    pub diffserv: Option<Diffserv>,
    /// `fwmark`
    pub mark_mask: Option<u32>,
    /// `wash`, `nowash`
    pub wash: Option<bool>,
    /// `ack-filter` and its like
    pub ack_filter: Option<AckFilter>,
    /// `memlimit`
    pub memory: Option<Bytes>,
    /// `split-gso`, `no-split-gso`
    pub split_gso: Option<bool>,
    /// How the queues divide the rate.
    pub strategy: Option<Strategy>,
    /// `fleet`, or nothing by `nofleet`
    pub fleet: Option<Option<Box<Fleet>>>,
    /// `autorate MIN MAX`, or nothing by `noautorate`
    pub follows: Option<Option<Box<Autorate>>>,
}

/// CoDel's target is this fraction of its interval, in all presets.
const INTERVAL_PER_TARGET: u64 = 20;
/// `tc` counts in microseconds, and a target of 0 would drop every packet.
const LEAST_TARGET_US: u64 = 1;

/// The target for a round-trip time.
fn target(interval: Nanos) -> Nanos {
    let micros = interval.0 / 1_000 / INTERVAL_PER_TARGET;
    Nanos::from_micros(micros.max(LEAST_TARGET_US))
}

impl CakeParams {
    /// The defaults for frames of up to `frame` bytes.
    pub fn new(frame: u32) -> Self {
        let config = Config { frame, ..Config::default() };
        Self { config, split_gso: true, strategy: None, fleet: None, autorate: None }
    }

    /// How the queues divide the rate.
    pub fn strategy(&self) -> Strategy {
        self.strategy.unwrap_or_default()
    }

    /// These parameters, changed by `options`.
    pub fn with(mut self, options: &CakeOptions) -> Self {
        fn set<T: Copy>(at: &mut T, given: Option<T>) {
            *at = given.unwrap_or(*at);
        }
        let config = &mut self.config;
        if let Some(rate) = options.rate {
            config.rate = (!rate.is_zero()).then_some(rate);
        }
        set(&mut config.autorate, options.autorate);
        set(&mut config.ingress, options.ingress);
        if let Some(per_frame) = options.per_frame {
            config.overhead.per_frame = per_frame;
            config.network_length = true;
        }
        config.network_length &= !options.raw;
        set(&mut config.overhead.minimum, options.minimum);
        set(&mut config.overhead.framing, options.framing);
        if let Some(interval) = options.interval {
            config.interval = interval;
            config.target = target(interval);
        }
        set(&mut config.isolation, options.isolation);
        set(&mut config.nat, options.nat);
        set(&mut config.inner, options.inner);
        set(&mut config.diffserv, options.diffserv);
        set(&mut config.mark_mask, options.mark_mask);
        set(&mut config.wash, options.wash);
        set(&mut config.ack_filter, options.ack_filter);
        config.memory = options.memory.or(config.memory);
        set(&mut self.split_gso, options.split_gso);
        self.strategy = options.strategy.or(self.strategy);
        if let Some(fleet) = &options.fleet {
            self.fleet.clone_from(fleet);
        }
        if let Some(autorate) = &options.follows {
            self.autorate.clone_from(autorate);
        }
        self
    }
}

impl CakeParams {
    /// Refuses what a fleet cannot share.
    fn check_fleet(&self) -> Result<(), PolicyError> {
        let Some(fleet) = &self.fleet else { return Ok(()) };
        let refuse = |what: &str| {
            let name = &fleet.name;
            let why = format!("{name}: {what}: give bandwidth RATE, or nofleet.");
            Err(PolicyError::Fleet(why))
        };
        match self.config.rate {
            _ if self.config.autorate => {
                refuse("autorate-ingress follows what arrives at this box alone")
            }
            None => refuse("without a bandwidth there is nothing to share"),
            Some(rate) => fleet.check("bandwidth", rate),
        }
    }
}

impl CakeParams {
    /// Refuses what cannot follow a line, at `parent`.
    fn check_autorate(&self, parent: Parent) -> Result<(), PolicyError> {
        let Some(autorate) = &self.autorate else { return Ok(()) };
        let refuse = |why: &str| Err(PolicyError::Autorate(format!("{why}, or noautorate.")));
        match self.config.rate {
            _ if self.config.autorate => {
                refuse("autorate-ingress finds a rate by other rules: give bandwidth RATE")
            }
            _ if self.fleet.is_some() => {
                refuse("a rate that follows a line is not a fleet's: give nofleet")
            }
            None => {
                refuse("without a bandwidth there is nothing to begin with: give bandwidth RATE")
            }
            Some(rate) => autorate.check("bandwidth", rate, parent),
        }
    }
}

impl Cake {
    /// A `cake` with the defaults, at `site`.
    ///
    /// # Errors
    /// If this place does not allow it.
    pub(crate) fn new(multi: bool, site: &Site<'_>) -> Result<Self, PolicyError> {
        match (multi, site.parent, site.facts.queues) {
            (true, Parent::Class(_), _) => Err(PolicyError::CakeMqNotRoot),
            (true, Parent::Root, Some(0 | 1)) => Err(PolicyError::CakeMqNeedsQueues),
            _ => Ok(Self { multi, params: CakeParams::new(site.facts.frame()) }),
        }
    }

    /// Its name on the command line.
    pub(crate) const fn kind_name(multi: bool) -> &'static str {
        if multi { "cake_mq" } else { "cake" }
    }
}

impl Rules for Cake {
    fn name(&self) -> &'static str {
        Self::kind_name(self.multi)
    }

    fn classes(&self) -> Classes {
        if self.multi { Classes::Alike } else { Classes::None }
    }

    fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError> {
        let Params::Cake { options, .. } = params else { return Ok(()) };
        let mut params = self.params.clone().with(options);
        params.config.frame = site.facts.frame();
        if site.own_queue && options.strategy.is_some() {
            return Err(PolicyError::CoordinationUnderMq);
        }
        let several = !site.own_queue && site.facts.queues.is_some_and(|queues| queues > 1);
        if params.config.autorate && (self.multi || several) {
            return Err(PolicyError::AutorateShared(self.name()));
        }
        params.check_fleet()?;
        params.check_autorate(site.parent)?;
        self.params = params;
        Ok(())
    }

    fn follows_arrivals(&self) -> bool {
        self.params.config.autorate
    }

    /// A single queue keeps the rate with its own clock, exactly. Without a rate there is nothing
    /// to share. A `cake` that divides the rate by host and tin needs the counts of all queues.
    fn plan(&self, queues: usize) -> (narrows_qdisc::Config, Option<SharedLimit>) {
        let config = self.params.config;
        let limit = config.rate.filter(|_| queues > 1).map(|rate| {
            let (burst, backlog) = (config.catch_up(rate), backlog(&config, rate, queues));
            let limit = Limit { rate, burst, peak: None, backlog };
            let strategy = strategy(self.params.strategy(), queues);
            SharedLimit { strategy, limit, counts_hosts: true }
        });
        (narrows_qdisc::Config::Cake(config), limit)
    }
}

/// `tc-cake(8)`: the memory limit is four times the data of a round trip,
const MEMORY_ROUND_TRIPS: u64 = 4;
/// but at least this.
const MEMORY_MIN: Bytes = Bytes(4 << 20);

/// The most bytes queued over all queues. An explicit limit applies to each queue.
fn backlog(config: &Config, rate: Rate, queues: usize) -> Bytes {
    match config.memory {
        Some(memory) => Bytes(memory.0.saturating_mul(queues as u64)),
        None => {
            let needed = rate.bytes_in(config.interval).0.saturating_mul(MEMORY_ROUND_TRIPS);
            Bytes(needed).max(MEMORY_MIN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_defaults(options: CakeOptions) -> Config {
        CakeParams::new(1514).with(&options).config
    }

    #[test]
    fn the_target_is_a_twentieth_of_the_round_trip_and_never_nothing() {
        for (interval, expected) in
            [(100_000, 5_000), (100, 5), (19, 1), (1_000_000_000, 50_000_000)]
        {
            let interval = Some(Nanos::from_micros(interval));
            let config = from_defaults(CakeOptions { interval, ..CakeOptions::default() });
            assert_eq!(config.target, Nanos::from_micros(expected));
        }
    }

    #[test]
    fn an_overhead_counts_from_the_network_layer_unless_lengths_are_raw() {
        let per_frame = Some(0);
        assert!(from_defaults(CakeOptions { per_frame, ..CakeOptions::default() }).network_length);
        let raw = CakeOptions { per_frame: Some(5), raw: true, ..CakeOptions::default() };
        assert!(!from_defaults(raw.clone()).network_length);
        assert_eq!(from_defaults(raw).overhead.per_frame, 5);
        let framing = Some(Framing::Atm);
        assert!(!from_defaults(CakeOptions { framing, ..CakeOptions::default() }).network_length);
    }

    #[test]
    fn nothing_named_changes_nothing() {
        let rate = Some(Rate::from_bits_per_sec(8_000_000));
        let some = CakeOptions { rate, wash: Some(true), ..CakeOptions::default() };
        let params = CakeParams::new(1514).with(&some);
        assert_eq!(params.clone().with(&CakeOptions::default()), params);
        let unlimited = CakeOptions { rate: Some(Rate::default()), ..CakeOptions::default() };
        assert_eq!(params.with(&unlimited).config.rate, None);
    }
}
