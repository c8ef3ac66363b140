//! A flow's quantum and its weight, by the load of its hosts: how many of their flows are
//! backlogged.
//!
//! Only the proportions of quanta matter, so the least loaded host has a whole quantum; otherwise a
//! host with a thousand flows that is alone would have turns of two bytes. The least load is that
//! of a period, and its effect on other loads is computed once.
//!
//! Cost: two loads of memory per turn, no division up to 63 flows per host.

use super::flow::DEFICIT_UNIT;
use std::num::NonZeroU32;

/// The weight of a flow that is alone with its host.
pub(super) const WHOLE_HOST: u64 = 1 << 16;

/// Turns after which the least load is determined again.
const PERIOD: u32 = 256;

/// The highest load that is divided by exactly.
const LOAD_MAX: u32 = 1 << 13;

/// Loads below this need no division. A power of two.
const KNOWN: usize = 64;

/// A flow's weight by load.
const PARTS: [u32; KNOWN] = {
    let mut parts = [WHOLE_HOST as u32; KNOWN];
    let mut load = 1;
    while load < KNOWN {
        parts[load] /= load as u32;
        load += 1;
    }
    parts
};

/// `weight` after a flow's part changes from one of `before` to one of `after`. The two are not
/// compared: the branch would be unpredictable.
#[inline(always)]
pub(super) fn reweighed(weight: u64, before: u16, after: u16) -> u64 {
    let [before, after] = [before, after].map(usize::from);
    if (before | after) < KNOWN {
        let part = |load: usize| u64::from(PARTS[load % KNOWN]);
        return weight + part(after) - part(before);
    }
    weight + WHOLE_HOST / after as u64 - WHOLE_HOST / before as u64
}

/// The quanta of a tin.
pub(super) struct Quanta {
    /// By load, in 1/256 byte.
    known: [NonZeroU32; KNOWN],
    /// A whole one, in bytes.
    whole: u32,
    /// The least load of a backlogged flow, as far as seen.
    least: u32,
    coming_least: u32,
    turns: u32,
    /// The turn at which to check whether the period is over; earlier if fewer flows are
    /// backlogged.
    look: u32,
}

impl Quanta {
    /// With a whole quantum of `whole` bytes, below 2^11.
    pub(super) fn new(whole: u32) -> Self {
        let (least, coming_least) = (1, u32::MAX);
        let mut quanta = Self {
            known: [NonZeroU32::MIN; KNOWN],
            whole,
            least,
            coming_least,
            turns: 0,
            look: PERIOD,
        };
        quanta.work_out();
        quanta
    }

    /// The whole quantum is `whole` bytes from now on.
    pub(super) fn set_whole(&mut self, whole: u32) {
        self.whole = whole;
        self.work_out();
    }

    /// The quantum of a flow of a host with `load` flows, in 1/256 byte.
    #[inline]
    pub(super) fn of(&self, load: u16) -> NonZeroU32 {
        match self.known.get(usize::from(load)) {
            Some(&quantum) => quantum,
            None => self.worked_out(u32::from(load)),
        }
    }

    /// One of `standing` flows has had its turn, and has `load`.
    #[inline(always)]
    pub(super) fn turn(&mut self, load: u16, standing: u32) {
        let load = u32::from(load);
        if load < self.coming_least {
            self.coming_least = load;
            if load < self.least {
                self.set_least(load);
            }
        }
        self.turns += 1;
        if self.turns >= self.look {
            self.end_period(standing);
        }
    }

    /// Fewer flows are backlogged than before.
    #[inline]
    pub(super) fn fewer(&mut self) {
        self.look = PERIOD;
    }

    /// Ends the period if all of `standing` flows have had their turns.
    #[cold]
    fn end_period(&mut self, standing: u32) {
        self.look = PERIOD.max(2 * standing);
        if self.turns >= self.look {
            self.look = PERIOD;
            self.turns = 0;
            self.set_least(self.coming_least);
            self.coming_least = u32::MAX;
        }
    }

    fn set_least(&mut self, load: u32) {
        if load != self.least {
            self.least = load;
            self.work_out();
        }
    }

    #[inline(never)]
    fn work_out(&mut self) {
        for load in 0..KNOWN {
            self.known[load] = self.worked_out(load as u32);
        }
    }

    fn worked_out(&self, load: u32) -> NonZeroU32 {
        let whole = self.whole * DEFICIT_UNIT as u32;
        if load <= self.least {
            return NonZeroU32::new(whole).unwrap_or(NonZeroU32::MIN);
        }
        // A whole quantum has 19 bits; loads beyond 13 bits make no relevant difference.
        NonZeroU32::new(whole * self.least.min(LOAD_MAX) / load).unwrap_or(NonZeroU32::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The oracle divides.
        #[test]
        fn a_weight_follows_its_flows(before in 1u16..200, after in 1u16..200) {
            let part = |load: u16| 65_536 / u64::from(load);
            prop_assert_eq!(reweighed(part(before), before, after), part(after));
        }

        /// The oracle keeps all loads of the present period and of the last.
        #[test]
        fn the_least_load_gets_a_whole_quantum_and_others_a_part(
            loads in prop::collection::vec(2u16..150, 1..1000),
            standing in 1u32..300,
        ) {
            const WHOLE: u32 = 1514;
            let mut quanta = Quanta::new(WHOLE);
            let (mut last, mut present) = (vec![1u16], Vec::new());
            for load in loads {
                quanta.turn(load, standing);
                present.push(load);
                if present.len() as u32 >= PERIOD.max(2 * standing) {
                    last = std::mem::take(&mut present);
                }
                let least = last.iter().min().into_iter().chain(&present).min().unwrap();
                let part = u32::from(*least.min(&load)) * 256 * WHOLE / u32::from(load);
                prop_assert_eq!(quanta.of(load).get(), part);
            }
        }
    }
}
