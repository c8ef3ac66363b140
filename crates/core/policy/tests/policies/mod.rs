//! Parts of policies.

use narrows_policy::TbfParams;
use narrows_units::{Bytes, Rate, wire::Overhead};

/// A `tbf` of so many Mbit/s.
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
