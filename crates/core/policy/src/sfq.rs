//! `sfq`: defaults, and refused combinations.
//!
//! As in the kernel (`sfq_change()`), a command sets what it names; it sets `perturb` and
//! `headdrop` even if it does not name them, unless it has no options at all. `divisor` is fixed
//! once there are queues. `depth`, `flows` and `limit` are kept consistent: no more flows than
//! slots, no more packets than flows times depth. Every queue of a port runs an instance of its
//! own.
//!
//! *Non-goals.* The meaning of the parameters: see `narrows_qdisc::sfq`.

use crate::kind::{Rules, Site};
use crate::plan::SharedLimit;
use crate::{Params, PolicyError};
use narrows_qdisc::sfq::{Config, DEPTH_MAX, DIVISOR_MAX};
use narrows_units::Nanos;

/// The options that a command names. As in `tc`, 0 counts as not given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SfqOptions {
    /// `limit`
    pub limit: Option<u32>,
    /// `quantum`
    pub quantum: Option<u32>,
    /// `perturb`
    pub perturb: Option<Nanos>,
    /// `depth`
    pub depth: Option<u32>,
    /// `divisor`
    pub divisor: Option<u32>,
    /// `flows`
    pub flows: Option<u32>,
    /// `headdrop`
    pub headdrop: bool,
}

impl SfqOptions {
    /// The configuration before these options apply, for frames of up to `frame` bytes.
    pub(crate) fn made(&self, frame: u32) -> Config {
        let default = Config::for_frames_of(frame);
        Config { divisor: self.divisor.unwrap_or(default.divisor), ..default }
    }

    fn check(&self, divisor: u32) -> Result<(), PolicyError> {
        let refuse = |why: String| Err(PolicyError::Leaf { kind: "sfq", why });
        if let Some(wanted) = self.divisor {
            if !wanted.is_power_of_two() || wanted > DIVISOR_MAX {
                return refuse(format!(
                    "divisor {wanted}: give a power of two up to {DIVISOR_MAX}."
                ));
            }
            if wanted != divisor {
                return refuse(format!(
                    "divisor {wanted}: it was made with {divisor}, which cannot be changed while it has packets: delete it, and add one with divisor {wanted}."
                ));
            }
        }
        if self.limit == Some(1) {
            return refuse(
                "invalid limit. With 1 no two flows could take turns: give 2 or more.".into(),
            );
        }
        let most = i32::MAX as u32;
        if let Some(quantum) = self.quantum.filter(|quantum| *quantum > most) {
            return refuse(format!("quantum {quantum}: give {most} bytes at most."));
        }
        Ok(())
    }
}

impl Rules for Config {
    fn name(&self) -> &'static str {
        "sfq"
    }

    fn change(&mut self, params: &Params, _: &Site<'_>) -> Result<(), PolicyError> {
        let Params::Sfq(options) = params else { return Ok(()) };
        options.check(self.divisor)?;
        if *options == SfqOptions::default() {
            return Ok(());
        }
        let flows = options.flows.unwrap_or(self.flows).min(self.divisor).min(DEPTH_MAX);
        let depth = options.depth.unwrap_or(self.depth).min(DEPTH_MAX);
        let limit = options.limit.unwrap_or(self.limit).min(depth.saturating_mul(flows));
        if limit == 1 {
            return Err(PolicyError::Leaf {
                kind: "sfq",
                why: format!(
                    "invalid limit. {flows} flows of {depth} packets are a limit of 1, with which no two flows could take turns: give more flows or depth."
                ),
            });
        }
        *self = Self {
            limit,
            depth,
            flows,
            divisor: self.divisor,
            quantum: options.quantum.unwrap_or(self.quantum),
            perturb: options.perturb.unwrap_or_default(),
            headdrop: options.headdrop,
        };
        Ok(())
    }

    fn plan(&self, _: usize) -> (narrows_qdisc::Config, Option<SharedLimit>) {
        (narrows_qdisc::Config::Sfq(*self), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parent, PortFacts};

    fn changed(mut config: Config, options: SfqOptions) -> Result<Config, PolicyError> {
        let facts = &PortFacts::ETHERNET;
        let site = Site { facts, parent: Parent::Root, own_queue: false };
        config.change(&Params::Sfq(options), &site)?;
        Ok(config)
    }

    #[test]
    fn limits_are_kept_within_each_other() {
        let options = SfqOptions {
            limit: Some(1_000_000),
            depth: Some(10),
            flows: Some(5000),
            divisor: Some(256),
            ..SfqOptions::default()
        };
        let config = changed(options.made(1514), options).unwrap();
        assert_eq!((config.limit, config.flows, config.depth), (2560, 256, 10));
    }

    #[test]
    fn perturb_and_headdrop_are_set_by_any_word_and_by_none_nothing_is() {
        let perturb = Some(Nanos::from_secs(10));
        let options = SfqOptions { perturb, headdrop: true, ..SfqOptions::default() };
        let config = changed(Config::default(), options).unwrap();
        assert!(config.headdrop);
        assert_eq!(changed(config, SfqOptions::default()), Ok(config));
        let other =
            changed(config, SfqOptions { limit: Some(50), ..SfqOptions::default() }).unwrap();
        assert_eq!((other.perturb, other.headdrop, other.limit), (Nanos::ZERO, false, 50));
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let nothing = SfqOptions::default();
        for options in [
            SfqOptions { divisor: Some(3), ..nothing },
            SfqOptions { divisor: Some(DIVISOR_MAX * 2), ..nothing },
            SfqOptions { divisor: Some(512), ..nothing },
            SfqOptions { limit: Some(1), ..nothing },
            SfqOptions { limit: Some(2), depth: Some(1), flows: Some(1), ..nothing },
            SfqOptions { quantum: Some(u32::MAX), ..nothing },
        ] {
            let refused = changed(Config::default(), options);
            assert!(matches!(refused, Err(PolicyError::Leaf { .. })), "{options:?}");
        }
    }
}
