//! Parts of policies, and what becomes of them.

use narrows_policy::{Plan, Policy, PolicyError, TbfParams};
use narrows_qdisc::{Metering, Spec};
use narrows_shaper::Installation;
use narrows_units::{Bytes, Rate, wire::Overhead};

/// A `tbf` of this many Mbit/s.
pub fn tbf_params(mbit: u64) -> TbfParams {
    TbfParams {
        rate: Rate::from_bits_per_sec(mbit * 1_000_000),
        burst: Bytes(32_768),
        limit: Bytes(100_000),
        peak: None,
        overhead: Overhead::NONE,
        strategy: None,
        fleet: None,
        autorate: None,
    }
}

/// The specifications for `queues` queues of the port `eth0`, after `previous`.
pub fn install(
    policy: &Policy,
    queues: usize,
    previous: Option<&Installation>,
) -> (Installation, Vec<Spec>) {
    Installation::reconcile(Plan::of(policy.port("eth0"), queues).unwrap(), previous)
}

/// Why `queues` queues of the port `eth0` cannot run `policy`, if so.
pub fn fits(policy: &Policy, queues: usize) -> Result<(), PolicyError> {
    Plan::of(policy.port("eth0"), queues).map(drop)
}

/// Whether the root of each queue carries on.
pub fn kept(before: &[Spec], after: &[Spec]) -> Vec<bool> {
    before.iter().zip(after).map(|(before, after)| before.id == after.id).collect()
}

/// Whether it is given a meter at a limit.
pub fn has_meter(spec: &Spec) -> bool {
    matches!(spec.metering, Metering::Shared(_))
}
