//! `fq`: defaults, and refused combinations.
//!
//! As in the kernel (`fq_change()`), a command sets only what it names: a new qdisc starts from the
//! defaults, a changed one from its present parameters. Every queue of a port runs an instance of
//! its own with these limits, as under `mq` in Linux.
//!
//! *Non-goals.* The meaning of the parameters: see `narrows_qdisc::fq`.

use crate::kind::{Rules, Site};
use crate::plan::SharedLimit;
use crate::{Params, PolicyError};
use narrows_qdisc::fq::{BANDS, BUCKETS_MAX, Beyond, Config, PRIORITIES, QUANTUM_MAX, WEIGHT_MIN};
use narrows_units::{Nanos, Rate};

/// A fair queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FqParams {
    /// The configuration of an instance.
    pub config: Config,
    /// Kept only for `show`: it applies to sockets, and frames at a port have none.
    pub default_rate: Rate,
}

/// The options that a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FqOptions {
    /// `limit`
    pub limit: Option<u32>,
    /// `flow_limit`
    pub flow_limit: Option<u32>,
    /// `quantum`
    pub quantum: Option<u32>,
    /// `initial_quantum`
    pub initial_quantum: Option<u32>,
    /// `maxrate`; zero is unlimited.
    pub max_rate: Option<Rate>,
    /// `defrate`
    pub default_rate: Option<Rate>,
    /// `low_rate_threshold`
    pub low_rate_threshold: Option<Rate>,
    /// `pacing`, `nopacing`
    pub pacing: Option<bool>,
    /// `refill_delay`
    pub refill_delay: Option<Nanos>,
    /// `buckets`; rounded up to a power of two.
    pub buckets: Option<u32>,
    /// `orphan_mask`
    pub orphan_mask: Option<u32>,
    /// `ce_threshold`; [`FqOptions::NEVER`] disables it.
    pub ce_threshold: Option<Nanos>,
    /// `timer_slack`
    pub timer_slack: Option<Nanos>,
    /// `horizon`
    pub horizon: Option<Nanos>,
    /// `horizon_cap`, `horizon_drop`
    pub beyond: Option<Beyond>,
    /// `offload_horizon`; only 0 is possible, as no port offloads pacing.
    pub offload_horizon: Option<Nanos>,
    /// `bands 3 priomap`
    pub priomap: Option<[u8; PRIORITIES]>,
    /// `weights`
    pub weights: Option<[u32; BANDS]>,
}

impl FqOptions {
    /// The `ce_threshold` that marks nothing: as in the kernel, the largest value.
    pub const NEVER: Nanos = Nanos::from_micros(u32::MAX as u64);
}

impl FqParams {
    /// The defaults for frames of up to `frame` bytes.
    pub fn new(frame: u32) -> Self {
        Self { config: Config::for_frames_of(frame), default_rate: Rate::default() }
    }

    /// These parameters, changed by `options`.
    ///
    /// # Errors
    /// If the result is invalid.
    pub(crate) fn changed(mut self, options: &FqOptions) -> Result<Self, PolicyError> {
        fn set<T: Copy>(at: &mut T, given: Option<T>) {
            *at = given.unwrap_or(*at);
        }
        options.check()?;
        let config = &mut self.config;
        set(&mut config.limit, options.limit);
        set(&mut config.flow_limit, options.flow_limit);
        set(&mut config.quantum, options.quantum);
        set(&mut config.initial_quantum, options.initial_quantum);
        if let Some(rate) = options.max_rate {
            config.max_rate = (!rate.is_zero()).then_some(rate);
        }
        set(&mut config.low_rate_threshold, options.low_rate_threshold);
        set(&mut config.pacing, options.pacing);
        set(&mut config.refill_delay, options.refill_delay);
        set(&mut config.buckets, options.buckets.map(u32::next_power_of_two));
        set(&mut config.orphan_mask, options.orphan_mask);
        if let Some(threshold) = options.ce_threshold {
            config.ce_threshold = (threshold != FqOptions::NEVER).then_some(threshold);
        }
        set(&mut config.timer_slack, options.timer_slack);
        set(&mut config.horizon, options.horizon);
        set(&mut config.beyond, options.beyond);
        set(&mut config.priomap, options.priomap);
        set(&mut config.weights, options.weights);
        set(&mut self.default_rate, options.default_rate);
        Ok(self)
    }
}

impl Rules for FqParams {
    fn name(&self) -> &'static str {
        "fq"
    }

    fn change(&mut self, params: &Params, _: &Site<'_>) -> Result<(), PolicyError> {
        if let Params::Fq(options) = params {
            *self = self.changed(options)?;
        }
        Ok(())
    }

    fn plan(&self, _: usize) -> (narrows_qdisc::Config, Option<SharedLimit>) {
        (narrows_qdisc::Config::Fq(self.config), None)
    }
}

impl FqOptions {
    /// Refuses what the kernel refuses.
    fn check(&self) -> Result<(), PolicyError> {
        let refuse = |why: String| Err(PolicyError::Fq(why));
        if let Some(quantum) = self.quantum.filter(|quantum| !(1..=QUANTUM_MAX).contains(quantum)) {
            return refuse(format!("a quantum of {quantum}: give 1 to {QUANTUM_MAX} bytes."));
        }
        let most = i32::MAX as u32;
        if let Some(quantum) = self.initial_quantum.filter(|quantum| *quantum > most) {
            return refuse(format!("an initial_quantum of {quantum}: give {most} bytes at most."));
        }
        if let Some(buckets) = self.buckets.filter(|buckets| !(2..=BUCKETS_MAX).contains(buckets)) {
            return refuse(format!("buckets {buckets}: give 2 to {BUCKETS_MAX}."));
        }
        if self.offload_horizon.is_some_and(|horizon| horizon != Nanos::ZERO) {
            return refuse("offload_horizon: no port here can hold packets itself: give 0.".into());
        }
        if self.priomap.is_some_and(|map| map.iter().any(|band| usize::from(*band) >= BANDS)) {
            return refuse(format!("priomap: there are {BANDS} bands, from 0 on."));
        }
        if self.weights.is_some_and(|weights| weights.iter().any(|weight| *weight < WEIGHT_MIN)) {
            return refuse(format!("weights: give {WEIGHT_MIN} or more for each band."));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(options: FqOptions) -> Result<FqParams, PolicyError> {
        FqParams::new(1514).changed(&options)
    }

    #[test]
    fn quanta_follow_the_frames_of_the_port() {
        let config = FqParams::new(9014).config;
        assert_eq!((config.quantum, config.initial_quantum), (18_028, 90_140));
    }

    #[test]
    fn nothing_named_changes_nothing() {
        let some = FqOptions {
            max_rate: Some(Rate::from_bits_per_sec(8_000_000)),
            ce_threshold: Some(Nanos::from_millis(4)),
            buckets: Some(1000),
            weights: Some([20_000; BANDS]),
            ..FqOptions::default()
        };
        let params = changed(some).unwrap();
        assert_eq!(params.config.buckets, 1024);
        assert_eq!(params.changed(&FqOptions::default()), Ok(params));
        let back = FqOptions {
            max_rate: Some(Rate::default()),
            ce_threshold: Some(FqOptions::NEVER),
            ..FqOptions::default()
        };
        let config = params.changed(&back).unwrap().config;
        assert_eq!((config.max_rate, config.ce_threshold), (None, None));
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let nothing = FqOptions::default();
        for options in [
            FqOptions { quantum: Some(0), ..nothing },
            FqOptions { quantum: Some(QUANTUM_MAX + 1), ..nothing },
            FqOptions { initial_quantum: Some(u32::MAX), ..nothing },
            FqOptions { buckets: Some(1), ..nothing },
            FqOptions { buckets: Some(BUCKETS_MAX + 1), ..nothing },
            FqOptions { offload_horizon: Some(Nanos(1)), ..nothing },
            FqOptions { priomap: Some([3; PRIORITIES]), ..nothing },
            FqOptions { weights: Some([WEIGHT_MIN, WEIGHT_MIN, 1]), ..nothing },
        ] {
            assert!(matches!(changed(options), Err(PolicyError::Fq(_))), "{options:?}");
        }
    }
}
