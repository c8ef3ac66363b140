//! Which packets are lost: by the draw, or by a chain of states.

use super::chance::{Chances, Draw};
use super::config::{Loss, Probability};

/// The state of a chain. The numbers are those of Salsano et al.; a chain of two states has the
/// first and the third.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// 1: all is well.
    #[default]
    Good,
    /// 2: a packet in a burst of losses that is not lost.
    GoodInBurst,
    /// 3: a burst of losses, or the bad state.
    Bad,
    /// 4: a loss alone.
    LostAlone,
}

/// The losses of one instance.
#[derive(Default)]
pub(super) struct Losses {
    draw: Draw,
    state: State,
}

impl Losses {
    /// Whether this packet is lost.
    #[inline]
    pub(super) fn happens(&mut self, loss: &Loss, chances: &mut Chances) -> bool {
        match loss {
            Loss::None => false,
            Loss::Random(happening) => self.draw.happens(happening, chances),
            Loss::State { p13, p31, p32, p23, p14 } => {
                self.state = match self.state {
                    State::Good => {
                        one_of(chances, [(*p14, State::LostAlone), (*p13, State::Bad)], State::Good)
                    }
                    State::GoodInBurst => one_of(chances, [(*p23, State::Bad)], State::GoodInBurst),
                    State::Bad => {
                        let out = [(*p32, State::GoodInBurst), (*p31, State::Good)];
                        one_of(chances, out, State::Bad)
                    }
                    State::LostAlone => State::Good,
                };
                matches!(self.state, State::Bad | State::LostAlone)
            }
            Loss::Gilbert { p, r, bad, good } => {
                let (turns, lost) = match self.state {
                    State::Bad => (chances.happens(*r), *bad),
                    _ => (chances.happens(*p), *good),
                };
                if turns {
                    self.state = if self.state == State::Bad { State::Good } else { State::Bad };
                }
                chances.happens(lost)
            }
        }
    }
}

/// One of `ways`, each with its probability, or otherwise `stays`.
fn one_of<const N: usize>(
    chances: &mut Chances,
    ways: [(Probability, State); N],
    stays: State,
) -> State {
    let drawn = chances.number();
    let mut below = 0u64;
    for (Probability(probability), state) in ways {
        below += u64::from(probability);
        if u64::from(drawn) < below || below >= u64::from(u32::MAX) {
            return state;
        }
    }
    stays
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netem::Happening;

    const PACKETS: usize = 400_000;

    fn percent(percent: f64) -> Probability {
        Probability((percent / 100.0 * f64::from(u32::MAX)) as u32)
    }

    /// The share of packets lost in percent, and how many are lost in a row on average.
    fn lost(loss: Loss) -> (f64, f64) {
        let (mut losses, mut chances) = (Losses::default(), Chances::new(11, 0));
        let lost: Vec<bool> = (0..PACKETS).map(|_| losses.happens(&loss, &mut chances)).collect();
        let count = lost.iter().filter(|lost| **lost).count() as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        (100.0 * count / PACKETS as f64, count / bursts.max(1.0))
    }

    fn assert_near((share, burst): (f64, f64), expected: (f64, f64)) {
        assert!((share - expected.0).abs() < 0.03 * expected.0, "{share} % for {expected:?}");
        assert!((burst - expected.1).abs() < 0.05 * expected.1, "{burst} in a row: {expected:?}");
    }

    #[test]
    fn a_probability_of_one_percent_hits_one_in_a_hundred() {
        let probability = percent(1.0);
        let random = Loss::Random(Happening { probability, ..Happening::default() });
        assert_near(lost(random), (1.0, 1.0 / 0.99));
        assert_eq!(lost(Loss::None).0, 0.0);
    }

    #[test]
    fn a_chain_of_p13_alone_is_like_chance() {
        let p13 = percent(5.0);
        let chain = Loss::State {
            p13,
            p31: percent(95.0),
            p32: Probability::NEVER,
            p23: Probability::ALWAYS,
            p14: Probability::NEVER,
        };
        assert_near(lost(chain), (5.0, 1.0 / 0.95));
    }

    #[test]
    fn a_chain_of_four_states_loses_its_equilibrium_share() {
        let (p13, p31, p32, p23, p14) = (2.0, 20.0, 10.0, 30.0, 1.0);
        let chain = Loss::State {
            p13: percent(p13),
            p31: percent(p31),
            p32: percent(p32),
            p23: percent(p23),
            p14: percent(p14),
        };
        // In equilibrium the flows between states balance: relative to the first state, the third
        // is p13/p31, the second that times p32/p23, and the fourth p14.
        let third = p13 / p31;
        let (second, fourth) = (third * p32 / p23, p14 / 100.0);
        let expected = 100.0 * (third + fourth) / (1.0 + second + third + fourth);
        let (share, _) = lost(chain);
        assert!((share - expected).abs() < 0.03 * expected, "{share} for {expected}");
    }

    #[test]
    fn gilberts_bad_state_loses_in_a_row() {
        let gilbert = |r: f64, bad, good| Loss::Gilbert {
            p: percent(1.0),
            r: percent(r),
            bad: percent(bad),
            good: percent(good),
        };
        // Bad for p / (p + r) of the time, and 1 / r packets long.
        assert_near(lost(gilbert(20.0, 100.0, 0.0)), (100.0 / 21.0, 5.0));
        let (share, _) = lost(gilbert(20.0, 50.0, 1.0));
        let expected = (50.0 + 20.0) / 21.0;
        assert!((share - expected).abs() < 0.05 * expected, "{share} for {expected}");
    }
}
