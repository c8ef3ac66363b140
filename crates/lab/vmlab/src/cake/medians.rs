//! The figures over the rounds.

use super::{Figure, Load, Sample, System};
use narrows_testbed::spread::Spread;

/// Samples, by what they are of.
#[derive(Clone, Copy, Debug)]
pub struct Medians<'a>(pub &'a [Sample]);

impl Medians<'_> {
    /// The figure of a system under a load; `None` if it was not measured.
    pub fn of(
        &self,
        load: Load,
        limit: Option<u64>,
        system: System,
        figure: Figure,
    ) -> Option<Spread> {
        let of_it = self
            .0
            .iter()
            .filter(|sample| (sample.load, sample.limit, sample.system) == (load, limit, system));
        Spread::of(of_it.filter_map(|sample| sample.figures.get(&figure).copied()))
    }
}
