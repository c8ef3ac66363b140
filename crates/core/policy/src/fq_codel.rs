//! `fq_codel`: defaults, and refused combinations.
//!
//! As in the kernel (`fq_codel_change()`), a command sets only what it names, and `flows` is fixed
//! once there are queues. Every queue of a port runs an instance of its own with these limits, as
//! under `mq` in Linux.
//!
//! *Non-goals.* The meaning of the parameters: see `narrows_qdisc::fq_codel`.

use crate::kind::{Rules, Site};
use crate::plan::SharedLimit;
use crate::{CodelQueueOptions, Params, PolicyError};
use narrows_qdisc::codel::{CeThreshold, Selector};
use narrows_qdisc::fq_codel::{Config, FLOWS_MAX, Hosts, QUANTUM_MAX, QUANTUM_MIN};
use narrows_units::{Bytes, Nanos};

/// The largest memory limit, as in the kernel.
const MEMORY_MAX: Bytes = Bytes(1 << 31);

/// The options that a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FqCodelOptions {
    /// `limit`
    pub limit: Option<u32>,
    /// `flows`
    pub flows: Option<u32>,
    /// `memory_limit`
    pub memory_limit: Option<Bytes>,
    /// `target`
    pub target: Option<Nanos>,
    /// `interval`
    pub interval: Option<Nanos>,
    /// `quantum`
    pub quantum: Option<u32>,
    /// `ecn`, `noecn`
    pub ecn: Option<bool>,
    /// `ce_threshold`; [`CodelQueueOptions::NEVER`] disables it.
    pub ce_threshold: Option<Nanos>,
    /// `ce_threshold_selector`
    pub ce_threshold_selector: Option<Selector>,
    /// `drop_batch`
    pub drop_batch: Option<u32>,
    /// `hosts`
    pub hosts: Option<Hosts>,
}

impl FqCodelOptions {
    /// The configuration before these options apply, for frames of up to `frame` bytes.
    pub(crate) fn made(&self, frame: u32) -> Config {
        let default = Config::for_frames_of(frame);
        Config { flows: self.flows.unwrap_or(default.flows), ..default }
    }

    /// Refuses what the kernel refuses. `flows` is the number of flows.
    fn check(&self, flows: u32) -> Result<(), PolicyError> {
        let refuse = |why: String| Err(PolicyError::Leaf { kind: "fq_codel", why });
        if let Some(wanted) = self.flows {
            if !(1..=FLOWS_MAX).contains(&wanted) {
                return refuse(format!("flows {wanted}: give 1 to {FLOWS_MAX}."));
            }
            if flows != wanted {
                return refuse(format!(
                    "flows {wanted}: it was made with {flows}, which cannot be changed while it has packets: delete it, and add one with flows {wanted}."
                ));
            }
        }
        if let Some(quantum) = self.quantum.filter(|quantum| *quantum > QUANTUM_MAX) {
            return refuse(format!(
                "Invalid quantum. Not {quantum}: give {QUANTUM_MAX} bytes at most."
            ));
        }
        Ok(())
    }

    /// The threshold after these options; `before` is the present one.
    fn threshold(&self, before: Option<CeThreshold>) -> Option<CeThreshold> {
        let sojourn = match self.ce_threshold {
            Some(CodelQueueOptions::NEVER) => None,
            named => named.or(before.map(|before| before.sojourn)),
        };
        let selector = self.ce_threshold_selector.or(before.map(|before| before.selector));
        sojourn.map(|sojourn| CeThreshold { sojourn, selector: selector.unwrap_or_default() })
    }
}

impl Rules for Config {
    fn name(&self) -> &'static str {
        "fq_codel"
    }

    fn change(&mut self, params: &Params, site: &Site<'_>) -> Result<(), PolicyError> {
        let Params::FqCodel(options) = params else { return Ok(()) };
        options.check(self.flows)?;
        *self = Self {
            limit: options.limit.unwrap_or(self.limit),
            flows: self.flows,
            memory_limit: options.memory_limit.unwrap_or(self.memory_limit).min(MEMORY_MAX),
            target: options.target.unwrap_or(self.target),
            interval: options.interval.unwrap_or(self.interval),
            quantum: options.quantum.unwrap_or(self.quantum).max(QUANTUM_MIN),
            ecn: options.ecn.unwrap_or(self.ecn),
            ce_threshold: options.threshold(self.ce_threshold),
            drop_batch: options.drop_batch.unwrap_or(self.drop_batch).max(1),
            hosts: options.hosts.unwrap_or(self.hosts),
            frame: site.facts.frame(),
        };
        Ok(())
    }

    fn plan(&self, _: usize) -> (narrows_qdisc::Config, Option<SharedLimit>) {
        (narrows_qdisc::Config::FqCodel(*self), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parent, PortFacts};

    fn changed(mut config: Config, options: FqCodelOptions) -> Result<Config, PolicyError> {
        let facts = &PortFacts::ETHERNET;
        let site = Site { facts, parent: Parent::Root, own_queue: false };
        config.change(&Params::FqCodel(options), &site)?;
        Ok(config)
    }

    fn made(options: FqCodelOptions) -> Result<Config, PolicyError> {
        changed(options.made(1514), options)
    }

    const NOTHING: FqCodelOptions = FqCodelOptions {
        limit: None,
        flows: None,
        memory_limit: None,
        target: None,
        interval: None,
        quantum: None,
        ecn: None,
        ce_threshold: None,
        ce_threshold_selector: None,
        drop_batch: None,
        hosts: None,
    };

    #[test]
    fn nothing_named_changes_nothing() {
        let selector = Selector { value: 1, mask: 3 };
        let config = made(FqCodelOptions {
            flows: Some(16),
            ce_threshold: Some(Nanos::from_millis(1)),
            ce_threshold_selector: Some(selector),
            ..NOTHING
        })
        .unwrap();
        assert_eq!(changed(config, NOTHING), Ok(config));
        let expected = CeThreshold { sojourn: Nanos::from_millis(1), selector };
        assert_eq!(config.ce_threshold, Some(expected));
        let never = FqCodelOptions { ce_threshold: Some(CodelQueueOptions::NEVER), ..NOTHING };
        assert_eq!(changed(config, never).unwrap().ce_threshold, None);
    }

    #[test]
    fn hosts_stay_until_another_command_names_them() {
        let of = |hosts| FqCodelOptions { hosts: Some(hosts), ..NOTHING };
        let config = made(of(Hosts::Destinations)).unwrap();
        assert_eq!(changed(config, NOTHING).unwrap().hosts, Hosts::Destinations);
        assert_eq!(changed(config, of(Hosts::None)).unwrap().hosts, Hosts::None);
    }

    #[test]
    fn hosts_inside_are_those_hosts_and_no_hosts_have_no_inside() {
        for (hosts, inside) in [
            (Hosts::Sources, Hosts::SourcesInside),
            (Hosts::Destinations, Hosts::DestinationsInside),
        ] {
            assert_eq!((hosts.inside(), inside.inside()), (Some(inside), Some(inside)));
            assert!(inside.is_inside() && !hosts.is_inside());
        }
        assert!(Hosts::None.inside().is_none() && !Hosts::None.is_inside());
    }

    #[test]
    fn flows_are_fixed_once_it_is_made() {
        let config = made(FqCodelOptions { flows: Some(16), ..NOTHING }).unwrap();
        assert_eq!(config.flows, 16);
        assert!(changed(config, FqCodelOptions { flows: Some(16), ..NOTHING }).is_ok());
        assert!(changed(config, FqCodelOptions { flows: Some(17), ..NOTHING }).is_err());
    }

    #[test]
    fn what_the_kernel_refuses_is_refused_and_what_it_corrects_is_corrected() {
        for options in [
            FqCodelOptions { flows: Some(0), ..NOTHING },
            FqCodelOptions { flows: Some(FLOWS_MAX + 1), ..NOTHING },
            FqCodelOptions { quantum: Some(QUANTUM_MAX + 1), ..NOTHING },
        ] {
            assert!(matches!(made(options), Err(PolicyError::Leaf { .. })), "{options:?}");
        }
        let small = FqCodelOptions {
            quantum: Some(1),
            drop_batch: Some(0),
            memory_limit: Some(Bytes(u64::MAX)),
            ..NOTHING
        };
        let config = made(small).unwrap();
        assert_eq!((config.quantum, config.drop_batch), (256, 1));
        assert_eq!(config.memory_limit, MEMORY_MAX);
    }
}
