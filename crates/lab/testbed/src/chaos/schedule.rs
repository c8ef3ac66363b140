//! Which faults strike, in which order: determined by the seed.
//!
//! Kinds are dealt like cards: each comes once, in random order, before any comes again. So a short
//! run contains every kind, and every pair of neighbours comes up in time.

use super::fault::{Fault, Kind};
use super::plane::Plane;
use super::rng::Rng;

/// An endless sequence of faults.
pub(super) struct Schedule {
    rng: Rng,
    plane: Plane,
    kinds: Vec<Kind>,
    hand: Vec<Kind>,
    /// How many rounds have been dealt.
    dealt: usize,
}

impl Schedule {
    /// Of faults of `kinds`, which `plane` has.
    pub(super) fn new(seed: u64, plane: Plane, kinds: &[Kind]) -> Self {
        Self { rng: Rng::new(seed), plane, kinds: kinds.to_vec(), hand: Vec::new(), dealt: 0 }
    }

    /// The next fault. There is always one if there is a kind.
    pub(super) fn next(&mut self) -> Option<(Kind, Box<dyn Fault>)> {
        let kind = self.rng.deal(&mut self.hand, &self.kinds)?;
        let fault = kind.draw(&mut self.rng, self.plane, self.dealt);
        self.dealt += usize::from(self.hand.is_empty());
        Some((kind, fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(seed: u64, count: usize) -> Vec<String> {
        let mut schedule = Schedule::new(seed, Plane::Xsk, &Kind::ALL);
        (0..count).map(|_| schedule.next().unwrap().1.describe()).collect()
    }

    #[test]
    fn a_seed_is_a_schedule() {
        assert_eq!(described(7, 50), described(7, 50));
        assert_ne!(described(7, 50), described(8, 50));
    }

    #[test]
    fn each_kind_occurs_once_before_any_repeats() {
        let mut schedule = Schedule::new(3, Plane::Xsk, &Kind::ALL);
        for _ in 0..3 {
            let mut round: Vec<Kind> = Kind::ALL.map(|_| schedule.next().unwrap().0).to_vec();
            round.sort();
            assert_eq!(round, Kind::ALL);
        }
    }

    #[test]
    fn queues_change_and_change_back() {
        let mut schedule = Schedule::new(3, Plane::Xsk, &[Kind::Queues, Kind::Calm]);
        let mut described = (0..8).map(|_| schedule.next().unwrap());
        let changes: Vec<_> = described
            .by_ref()
            .filter(|(kind, _)| *kind == Kind::Queues)
            .map(|(_, fault)| fault.describe().ends_with("4 queues"))
            .collect();
        assert_eq!(changes, [false, true, false, true]);
    }
}
