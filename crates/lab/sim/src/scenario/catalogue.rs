//! The scenarios that are built in.

use std::cmp::Reverse;

/// Name and text of each.
macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*]
    };
}

/// In the order in which they are listed.
const SCENARIOS: &[(&str, &str)] = scenarios![
    "mqcake-accuracy",
    "mqcake-scaling",
    "mqcake-lock",
    "mqcake-switch",
    "mqcake-induced",
    "mqcake-sync-cost",
    "mqcake-tcp",
    "mqcake-imbalance",
    "mqcake-imbalance-sync",
    "mqcake-skew",
    "mqcake-linux",
    "fair-elephant",
    "fair-dirichlet",
    "fair-shifting",
    "fair-share",
    "fair-weights",
    "fair-wake",
    "fair-stall",
    "fair-death",
    "fair-clocks",
    "fair-sync",
    "fair-churn",
    "fair-dctcp",
    "fair-smoltcp",
    "line-costs",
    "trace",
    "cake-law",
    "cake-codel",
    "cake-standing",
    "cake-mq-tcp",
    "cake-flood",
    "cake-ecn",
    "cake-flows",
    "cake-hosts",
    "cake-hosts-tcp",
    "cake-hosts-far",
    "cake-tins",
    "cake-rrul",
    "cake-light",
    "cake-call",
    "cake-wake",
    "cake-change",
    "cake-stall",
    "cake-memlimit",
    "flowbundler-conformance",
    "flowbundler-conformance-kernel",
    "flowbundler-batches",
    "flowbundler-cpu",
    "flowbundler-batch-size",
    "flowbundler-connections",
    "flowbundler-max-rate",
    "flowbundler-slot-by-slot",
    "flowbundler-scalability",
    "flowbundler-gaps",
    "flowbundler-gaps-mixed",
];

/// Those of other kinds, behind the others.
const OTHERS: &[(&str, &str)] = scenarios![
    "autorate-halves",
    "autorate-many",
    "autorate-one",
    "autorate-quarter",
    "autorate-trace",
    "fleet-faults",
    "fleet-flows",
    "fleet-move",
    "fleet-wake",
    "flowbundler-fabric",
    "flowbundler-batching",
    "flowbundler-estimator",
    "flowbundler-safeguard",
    "flowvalve-3",
    "flowvalve-11a",
    "flowvalve-11b",
    "flowvalve-11c",
    "flowvalve-12",
    "flowvalve-13",
    "tree-scaling",
    "tree-line-costs",
    "flowvalve-xdp-12",
    "flowvalve-xdp-13",
    "flowvalve-departures-12",
    "departures-scaling",
];

/// All names of scenarios of one shaper.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|(name, _)| *name)
}

/// All names, those of other kinds included.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().chain(OTHERS).map(|(name, _)| *name)
}

/// The text of the scenario `name`, of whichever kind.
pub fn embedded(name: &str) -> Option<&'static str> {
    SCENARIOS.iter().chain(OTHERS).find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The names that `name` may have meant, the nearest first.
pub fn near(name: &str) -> Vec<&'static str> {
    /// Below this similarity two names have nothing in common.
    const SIMILAR: f64 = 0.75;
    /// All start alike; a name that is so much less similar than the best was not meant.
    const MARGIN: f64 = 0.03;
    let mut found: Vec<(f64, &str)> = all_names()
        .map(|known| {
            let part = name.len() >= 3 && known.contains(name);
            (if part { 1.0 } else { strsim::jaro_winkler(name, known) }, known)
        })
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .collect();
    // Similarities are between 0 and 1, and so in the order of their bits.
    found.sort_by_key(|(similarity, _)| Reverse(similarity.to_bits()));
    let best = found.first().map_or(0.0, |(similarity, _)| *similarity);
    found.retain(|(similarity, _)| *similarity > best - MARGIN);
    found.into_iter().map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_gets_a_suggestion() {
        assert_eq!(near("mqcake-swich"), ["mqcake-switch"]);
        assert!(near("skew").contains(&"mqcake-skew"));
        assert_eq!(near("flowbundler-fabrik"), ["flowbundler-fabric"]);
        assert!(near("xyzzy").is_empty());
    }
}
