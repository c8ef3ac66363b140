//! What tables of both families have in common.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};
use std::fmt::{Display, Write as _};

/// The length of a prefix, by a number below 100. `lengths` says how many of a hundred are that
/// long.
pub(super) fn length(lengths: &[(u8, u32)], mut of_hundred: u32) -> u8 {
    for (length, share) in lengths {
        match of_hundred.checked_sub(*share) {
            Some(left) => of_hundred = left,
            None => return *length,
        }
    }
    unreachable!("the shares are a hundred together")
}

/// What `ip -batch` reads, to route prefixes, a network and a length each, by all `gateways`, at
/// random.
pub(super) fn commands<A: Display + Copy>(
    prefixes: impl IntoIterator<Item = (A, u8)>,
    gateways: &[A],
    seed: u64,
) -> String {
    let mut lines = String::new();
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for (network, length) in prefixes {
        let gateway = gateways[random.next_u32() as usize % gateways.len()];
        let _ = writeln!(lines, "route add {network}/{length} via {gateway}");
    }
    lines
}
