//! The options of an `fq`: how much it holds, and for how long.

use crate::netlink::attach;
use crate::status::{each, u32_at};
use std::fmt;
use std::time::Duration;

const TCA_FQ_PLIMIT: u16 = 1;
const TCA_FQ_FLOW_PLIMIT: u16 = 2;
const TCA_FQ_BUCKETS_LOG: u16 = 8;
const TCA_FQ_ORPHAN_MASK: u16 = 10;
const TCA_FQ_TIMER_SLACK: u16 = 13;
const TCA_FQ_HORIZON: u16 = 14;

/// Buckets of the table of flows that Narrows asks for, as a power of two: 256 KiB for each queue.
const BUCKETS_LOG: u32 = 15;

/// What an `fq` holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Options {
    /// The most packets in all; since Linux 6.7 of each of three priorities.
    limit: u32,
    /// The most packets of a flow.
    flow_limit: u32,
    /// The number of flows of packets without a socket, minus one. Flows that share a number wait
    /// for each other.
    orphan_mask: u32,
    /// A packet that departs later than that is dropped; none for no such bound.
    horizon: Option<Duration>,
}

impl Options {
    /// What shaping needs. A host forwards packets, or takes them from containers, without their
    /// sockets: by its own defaults `fq` drops the 101st of them that waits, and each of 1024
    /// numbers stands for many flows. No class lets packets wait longer than the horizon.
    pub(super) const NEEDED: Self = Self {
        limit: 100_000,
        flow_limit: 10_000,
        orphan_mask: 32_767,
        horizon: Some(Duration::from_secs(2)),
    };

    /// The attributes that ask for what shaping needs. The horizon stays the kernel's own, 10 s:
    /// programs may ask for departures up to that (`SO_TXTIME`).
    pub(super) fn request() -> Vec<u8> {
        let Self { limit, flow_limit, orphan_mask, horizon: _ } = Self::NEEDED;
        attributes(&[
            (TCA_FQ_PLIMIT, limit),
            (TCA_FQ_FLOW_PLIMIT, flow_limit),
            (TCA_FQ_BUCKETS_LOG, BUCKETS_LOG),
            (TCA_FQ_ORPHAN_MASK, orphan_mask),
        ])
    }

    /// The attributes that change only the timer's slack, at most 4 s.
    pub(super) fn with_slack(slack: Duration) -> Vec<u8> {
        let nanos = u32::try_from(slack.as_nanos()).unwrap_or(u32::MAX);
        attributes(&[(TCA_FQ_TIMER_SLACK, nanos)])
    }

    /// Attributes that `fq` refuses: a table of one bucket.
    pub(super) fn impossible() -> Vec<u8> {
        attributes(&[(TCA_FQ_BUCKETS_LOG, 0)])
    }

    /// Parses the attributes of an `fq`; none if one is missing.
    pub(super) fn parse(attributes: &[u8]) -> Option<Self> {
        let (mut limit, mut flow_limit, mut orphan_mask, mut horizon) = (None, None, None, None);
        each(attributes, |kind, value| match kind {
            TCA_FQ_PLIMIT => limit = u32_at(value, 0),
            TCA_FQ_FLOW_PLIMIT => flow_limit = u32_at(value, 0),
            TCA_FQ_ORPHAN_MASK => orphan_mask = u32_at(value, 0),
            TCA_FQ_HORIZON => horizon = u32_at(value, 0),
            _ => {}
        });
        let horizon = horizon.map(|micros| Duration::from_micros(micros.into()));
        Some(Self { limit: limit?, flow_limit: flow_limit?, orphan_mask: orphan_mask?, horizon })
    }

    /// Whether it holds at least as much as is needed.
    pub(super) fn suffice(&self) -> bool {
        let needed = Self::NEEDED;
        self.limit >= needed.limit
            && self.flow_limit >= needed.flow_limit
            && self.orphan_mask >= needed.orphan_mask
            && self.horizon.is_none_or(|horizon| Some(horizon) >= needed.horizon)
    }
}

/// As `tc` has them.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, flow_limit, orphan_mask, horizon } = self;
        write!(f, "limit {limit} flow_limit {flow_limit} orphan_mask {orphan_mask}")?;
        horizon.map_or(Ok(()), |horizon| write!(f, " horizon {}ms", horizon.as_millis()))
    }
}

fn attributes(numbers: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, number) in numbers {
        attach(&mut bytes, *kind, &number.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_narrows_asks_for_suffices_with_the_kernels_horizon_and_without_one() {
        let asked = Options::parse(&Options::request()).unwrap();
        assert!(asked.suffice());
        assert!(Options { horizon: Some(Duration::from_secs(10)), ..asked }.suffice());
    }

    #[test]
    fn each_option_may_be_too_small() {
        let needed = Options::NEEDED;
        assert!(needed.suffice());
        for small in [
            Options { limit: 10_000, ..needed },
            Options { flow_limit: 100, ..needed },
            Options { orphan_mask: 1023, ..needed },
            Options { horizon: Some(Duration::from_millis(1999)), ..needed },
        ] {
            assert!(!small.suffice(), "{small}");
        }
    }

    #[test]
    fn options_are_said_as_tc_says_them() {
        let said = "limit 100000 flow_limit 10000 orphan_mask 32767 horizon 2000ms";
        assert_eq!(Options::NEEDED.to_string(), said);
    }

    #[test]
    fn an_fq_without_its_options_is_none() {
        assert_eq!(Options::parse(&[]), None);
        assert_eq!(Options::parse(&Options::impossible()), None);
    }
}
