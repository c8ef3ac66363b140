//! The measured qdiscs, in the words of `narrows tc`.

use narrows_units::Rate;

/// The slot of a single wheel: what Carousel and Eiffel are run with at 10 Gbit/s, by the paper.
const SLOT: &str = "1us";

/// How many flows `fq` may distinguish.
const FQ_FLOWS: u32 = (1 << 20) - 1;

/// A qdisc that paces, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum System {
    /// No qdisc: packets leave as they arrive.
    None,
    FlowBundler,
    Carousel,
    Eiffel,
    Fq,
}

impl System {
    /// All of them, in the order in which they are measured.
    pub(super) const ALL: [Self; 5] =
        [Self::None, Self::FlowBundler, Self::Carousel, Self::Eiffel, Self::Fq];

    /// Those that pace.
    pub(super) const PACING: [Self; 4] =
        [Self::FlowBundler, Self::Carousel, Self::Eiffel, Self::Fq];

    /// Its name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::FlowBundler => "flowbundler",
            Self::Carousel => "carousel",
            Self::Eiffel => "eiffel",
            Self::Fq => "fq",
        }
    }

    /// Kind and parameters for flows of `rate`, of which each may have `flow_limit` packets
    /// queued, and all together twice what they need.
    pub(super) fn words(self, rate: Rate, flow_limit: u32, flows: u32) -> String {
        let limit = 2 * flow_limit * flows;
        let bits = rate.bits_per_sec();
        let common = format!("limit {limit} flow_limit {flow_limit} maxrate {bits}bit");
        match self {
            Self::None => "noqueue".to_owned(),
            Self::FlowBundler => format!("flowbundler {common}"),
            Self::Carousel => format!("carousel {common} granularity {SLOT}"),
            Self::Eiffel => format!("eiffel {common} granularity {SLOT}"),
            // Its default is at most 1024 flows, and flows with the same hash bits would share a
            // rate.
            Self::Fq => format!("fq {common} orphan_mask {FQ_FLOWS}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_get_the_same_rate_and_the_same_room() {
        let rate = Rate::from_bits_per_sec(600_000);
        for system in System::PACING {
            let words = system.words(rate, 4, 1024);
            assert!(words.starts_with(system.name()), "{words}");
            for common in [" limit 8192 ", " flow_limit 4 ", " maxrate 600000bit"] {
                assert!(words.contains(common), "{words}");
            }
        }
    }
}
