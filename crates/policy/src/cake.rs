//! `cake` and `cake_mq`: what an operator may leave out, and what becomes of it.
//!
//! As in the kernel (`cake_change()`) a command sets what it names and nothing else: a new one
//! starts from the defaults of `tc-cake(8)`, a changed one from what it was. Both kinds have the
//! same parameters, and here the same effect: one rate for all queues that run it. They differ
//! in how they are listed.
//!
//! *Non-goals.* What the parameters do is `narrows_qdisc::cake`'s.

use crate::{PolicyError, PortFacts};
use narrows_coordination::Strategy;
use narrows_qdisc::cake::{AckFilter, Config, Diffserv, Isolation};
use narrows_units::wire::Framing;
use narrows_units::{Bytes, Nanos, Rate};

/// A `cake`, or a `cake_mq` with the `cake`s of all queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cake {
    /// Whether each queue is listed as a class with a `cake` of its own.
    pub multi: bool,
    /// The parameters of all of them.
    pub params: CakeParams,
}

/// Everything that a command can set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CakeParams {
    /// What an instance runs with.
    pub config: Config,
    /// Kept to be shown: frames come to a port as segments already.
    pub split_gso: bool,
    /// How the queues divide the rate; `None` is the default one.
    pub strategy: Option<Strategy>,
}

/// What a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CakeOptions {
    /// The rate; zero is unlimited.
    pub rate: Option<Rate>,
    /// `autorate-ingress`
    pub autorate: Option<bool>,
    /// `ingress`, `egress`
    pub ingress: Option<bool>,
    /// Bytes added to a packet.
    pub per_frame: Option<i32>,
    /// Lengths are those of frames again, whatever is added (`raw`).
    pub raw: bool,
    /// The least that a packet is charged, before framing.
    pub minimum: Option<u32>,
    /// `atm`, `ptm`, `noatm`
    pub framing: Option<Framing>,
    /// The round trip; CoDel's target is a part of it.
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
}

/// CoDel's target is this part of its interval, in all presets, too.
const INTERVAL_PER_TARGET: u64 = 20;
/// `tc` counts in microseconds, and a target of none would drop everything.
const LEAST_TARGET_US: u64 = 1;

/// The target that goes with a round trip.
fn target(interval: Nanos) -> Nanos {
    let micros = interval.0 / 1_000 / INTERVAL_PER_TARGET;
    Nanos::from_micros(micros.max(LEAST_TARGET_US))
}

impl CakeParams {
    /// The defaults, for packets of up to `frame` bytes.
    pub fn new(frame: u32) -> Self {
        let config = Config { frame, ..Config::default() };
        Self { config, split_gso: true, strategy: None }
    }

    /// How the queues divide the rate.
    pub fn strategy(&self) -> Strategy {
        self.strategy.unwrap_or_default()
    }

    /// These with what `options` names.
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
        self
    }
}

impl Cake {
    /// One as `options` have it, that is new on the port of `facts`. `own_queue` is whether it
    /// stands below an `mq`.
    ///
    /// # Errors
    /// Where the parameters cannot be had there.
    pub(crate) fn new(
        multi: bool,
        options: &CakeOptions,
        facts: &PortFacts,
        own_queue: bool,
    ) -> Result<Self, PolicyError> {
        let defaults = Self { multi, params: CakeParams::new(facts.frame()) };
        defaults.changed(options, facts, own_queue)
    }

    /// This one with what `options` names.
    ///
    /// # Errors
    /// Where that cannot be had there.
    pub(crate) fn changed(
        &self,
        options: &CakeOptions,
        facts: &PortFacts,
        own_queue: bool,
    ) -> Result<Self, PolicyError> {
        let mut params = self.params.with(options);
        params.config.frame = facts.frame();
        if own_queue && options.strategy.is_some() {
            return Err(PolicyError::CoordinationUnderMq);
        }
        let several = !own_queue && facts.queues.is_some_and(|queues| queues > 1);
        match (params.config.autorate, self.multi) {
            (true, true) => Err(PolicyError::AutorateShared("cake_mq")),
            (true, false) if several => Err(PolicyError::AutorateShared("cake")),
            _ => Ok(Self { params, ..*self }),
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
        assert!(!from_defaults(raw).network_length);
        assert_eq!(from_defaults(raw).overhead.per_frame, 5);
        let framing = Some(Framing::Atm);
        assert!(!from_defaults(CakeOptions { framing, ..CakeOptions::default() }).network_length);
    }

    #[test]
    fn nothing_named_changes_nothing() {
        let rate = Some(Rate::from_bits_per_sec(8_000_000));
        let some = CakeOptions { rate, wash: Some(true), ..CakeOptions::default() };
        let params = CakeParams::new(1514).with(&some);
        assert_eq!(params.with(&CakeOptions::default()), params);
        let unlimited = CakeOptions { rate: Some(Rate::default()), ..CakeOptions::default() };
        assert_eq!(params.with(&unlimited).config.rate, None);
    }
}
