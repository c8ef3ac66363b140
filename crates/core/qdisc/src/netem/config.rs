//! The parameters of `netem`, as an operator states them: `tc-netem(8)`.

use crate::bucket::Shape;
use narrows_packet::Reading;
use narrows_units::{Bytes, Nanos, Rate};

/// How probable something is, in 1/4294967295, as the kernel keeps it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Probability(pub u32);

impl Probability {
    /// It never happens.
    pub const NEVER: Self = Self(0);
    /// It always does.
    pub const ALWAYS: Self = Self(u32::MAX);
}

/// Something that happens to packets by chance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Happening {
    /// Its probability.
    pub probability: Probability,
    /// The correlation: how much more probable a hit makes the next one.
    pub correlation: Probability,
}

/// The distribution of delays around their mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Distribution {
    /// Evenly, up to the jitter on both sides.
    #[default]
    Uniform,
    /// Normal, with the jitter as standard deviation, and at most four of them.
    Normal,
    /// Pareto with the exponent 3: mostly slightly less, sometimes much more, at most four jitters.
    Pareto,
    /// Three quarters of a Pareto and a quarter of a normal distribution.
    ParetoNormal,
}

/// Which packets are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Any.
    Random(Happening),
    /// By the Markov chain of four states of Salsano et al.: good (1), good within a burst (2),
    /// lost in a burst (3), lost alone (4); from which to which, how probably.
    State {
        /// From good to lost in a burst.
        p13: Probability,
        /// And back.
        p31: Probability,
        /// From lost in a burst to good within it.
        p32: Probability,
        /// And back.
        p23: Probability,
        /// From good to lost alone.
        p14: Probability,
    },
    /// By Gilbert and Elliott: a good and a bad state.
    Gilbert {
        /// From good to bad.
        p: Probability,
        /// From bad to good.
        r: Probability,
        /// Loss in the bad state, 1 - h.
        bad: Probability,
        /// Loss in the good state, 1 - k.
        good: Probability,
    },
}

/// Packets that do not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reorder {
    /// Which.
    pub happening: Happening,
    /// At most one in this many packets in a row; at least 1.
    pub gap: u32,
}

/// The rate of the path, and what a frame takes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// More than zero.
    pub rate: Rate,
    /// Bytes that are added to each frame.
    pub overhead: i32,
    /// The size of cells, in bytes; zero for none.
    pub cell: u32,
    /// Bytes that are added to each cell.
    pub cell_overhead: i32,
}

/// The lateness that workers make up for at a shared rate: 1 ms,
const CATCH_UP: Nanos = Nanos::from_millis(1);
/// and no more than this,
const CATCH_UP_MOST: Bytes = Bytes(256 << 10);
/// but one frame that is being sent and one that waits must both fit.
const CATCH_UP_FRAMES: u64 = 2;

impl RateLimit {
    /// The charge of a frame of `len` bytes.
    #[inline]
    pub fn cost(&self, len: Bytes) -> Bytes {
        let len = len.0.saturating_add_signed(i64::from(self.overhead));
        if self.cell == 0 {
            return Bytes(len);
        }
        let cell = u64::from(self.cell).saturating_add_signed(i64::from(self.cell_overhead));
        Bytes(len.div_ceil(u64::from(self.cell)) * cell)
    }

    /// How long a frame of `len` bytes takes.
    #[inline]
    pub(super) fn time(&self, len: Bytes) -> Nanos {
        self.rate.time_for(self.cost(len))
    }

    /// The bucket for several queues of a port with frames of up to `frame` bytes: a millisecond's
    /// worth, and at least two frames, may leave together.
    pub fn shape(&self, frame: u32) -> Shape {
        let least = Bytes(self.cost(Bytes(u64::from(frame))).0 * CATCH_UP_FRAMES);
        let burst = self.rate.bytes_in(CATCH_UP).min(CATCH_UP_MOST).max(least);
        Shape { rate: self.rate, burst, peak: None }
    }
}

/// How far apart slots are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotDelay {
    /// From the one to the other, evenly.
    Between(Nanos, Nanos),
    /// About the first, by as much as the second.
    Spread(Nanos, Nanos, Distribution),
}

/// Packets leave in slots only, as on media that are shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slotting {
    /// How far apart slots are.
    pub delay: SlotDelay,
    /// How many packets leave in a slot; zero is any number.
    pub packets: u32,
    /// How many bytes do, at least a packet; zero is any number.
    pub bytes: u32,
}

/// The parameters of an instance. Plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// How many packets may be queued (`limit`).
    pub limit: u32,
    /// The delay (`delay`),
    pub delay: Nanos,
    /// its jitter,
    pub jitter: Nanos,
    /// its correlation with the delay of the previous packet,
    pub delay_correlation: Probability,
    /// and its distribution (`distribution`).
    pub distribution: Distribution,
    /// Which packets are lost (`loss`).
    pub loss: Loss,
    /// Whether those that can be marked are, instead of lost (`ecn`).
    pub ecn: bool,
    /// Packets of which a copy is sent, too (`duplicate`).
    pub duplicate: Happening,
    /// Packets in which a bit is wrong (`corrupt`).
    pub corrupt: Happening,
    /// Packets that do not wait (`reorder`, `gap`).
    pub reorder: Option<Reorder>,
    /// The rate of the path (`rate`).
    pub rate: Option<RateLimit>,
    /// When packets leave at all (`slot`).
    pub slots: Option<Slotting>,
    /// The seed of random numbers (`seed`),
    pub seed: u64,
    /// and which of its streams: the queue.
    pub stream: u64,
    /// The longest frame of the port, in bytes.
    pub frame: u32,
}

impl Config {
    /// `netem` without any word, for frames of up to `frame` bytes.
    pub const fn for_frames_of(frame: u32) -> Self {
        const NEVER: Happening =
            Happening { probability: Probability::NEVER, correlation: Probability::NEVER };
        Self {
            limit: 1000,
            delay: Nanos::ZERO,
            jitter: Nanos::ZERO,
            delay_correlation: Probability::NEVER,
            distribution: Distribution::Uniform,
            loss: Loss::None,
            ecn: false,
            duplicate: NEVER,
            corrupt: NEVER,
            reorder: None,
            rate: None,
            slots: None,
            seed: 0,
            stream: 0,
            frame,
        }
    }

    /// The packet fields that it reads.
    pub(crate) fn reading(&self) -> Reading {
        let copies = self.duplicate.probability != Probability::NEVER;
        Reading { headers: self.ecn, copies, ..Reading::NOTHING }
    }
}

impl Default for Config {
    /// `netem` without any word, on Ethernet.
    fn default() -> Self {
        Self::for_frames_of(1514)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_charged_for_its_cells() {
        let rate = Rate::from_bits_per_sec(8_000_000);
        let atm = RateLimit { rate, overhead: 0, cell: 48, cell_overhead: 5 };
        // tc-netem(8): 50 bytes take two cells of 53.
        assert_eq!(atm.cost(Bytes(50)), Bytes(106));
        assert_eq!(atm.cost(Bytes(48)), Bytes(53));
        let bare = RateLimit { overhead: -14, cell: 0, ..atm };
        assert_eq!([10, 114].map(|len| bare.cost(Bytes(len)).0), [0, 100]);
        assert_eq!(bare.time(Bytes(1014)), Nanos::from_millis(1));
        let shrunk = RateLimit { cell_overhead: -100, ..atm };
        assert_eq!(shrunk.cost(Bytes(1000)), Bytes(0));
    }

    #[test]
    fn a_millisecond_or_two_frames_may_leave_together() {
        let limit = |rate| RateLimit {
            rate: Rate::from_bits_per_sec(rate),
            overhead: 20,
            cell: 0,
            cell_overhead: 0,
        };
        assert_eq!(limit(1_000_000).shape(1514).burst, Bytes(3068));
        assert_eq!(limit(1_000_000_000).shape(1514).burst, Bytes(125_000));
        assert_eq!(limit(100_000_000_000).shape(1514).burst, CATCH_UP_MOST);
    }
}
