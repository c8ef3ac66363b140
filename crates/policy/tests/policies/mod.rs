//! Parts of policies, and what becomes of them.

use narrows_policy::{Installed, Policy, TbfParams, Update};
use narrows_units::{Bytes, Rate, wire::Overhead};

/// A `tbf` of so many Mbit/s.
#[allow(dead_code, reason = "each test file uses a part")]
pub fn tbf_params(mbit: u64) -> TbfParams {
    TbfParams {
        rate: Rate::from_bits_per_sec(mbit * 1_000_000),
        burst: Bytes(32_768),
        limit: Bytes(100_000),
        peak: None,
        overhead: Overhead::NONE,
        strategy: None,
    }
}

/// What `queues` queues of the port `eth0` are to build, behind `previous`.
#[allow(dead_code, reason = "each test file uses a part")]
pub fn compile(
    policy: &Policy,
    queues: usize,
    previous: Option<&Installed>,
) -> (Installed, Vec<Update>) {
    Installed::compile(policy.port("eth0"), queues, previous).unwrap()
}
