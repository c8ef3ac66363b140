//! Which flow each packet belongs to where few flows have most packets: the flow of rank `n` has a
//! share in proportion to `1/n` (Zipf's law).

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};

/// The flows, below `flows`, of `packets` packets. The same each time.
pub(crate) fn order(flows: usize, packets: usize) -> Vec<u16> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut sums = Vec::with_capacity(flows);
    let mut sum = 0.0;
    for rank in 1..=flows {
        sum += 1.0 / rank as f64;
        sums.push(sum);
    }
    let mut draw = || {
        let at = random.next_u32() as f64 / f64::from(u32::MAX) * sum;
        sums.partition_point(|sum| *sum < at).min(flows - 1) as u16
    };
    (0..packets).map(|_| draw()).collect()
}
