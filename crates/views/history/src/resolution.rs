//! The four resolutions, how points of each are packed, and how many are kept.

/// How far apart the points of a series are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resolution {
    /// A second, kept for an hour.
    Second,
    /// Ten seconds, kept for a day.
    TenSeconds,
    /// A minute, kept for a week.
    Minute,
    /// An hour, kept for 400 days.
    Hour,
}

impl Resolution {
    /// All, the finest first.
    pub const ALL: [Self; 4] = [Self::Second, Self::TenSeconds, Self::Minute, Self::Hour];

    /// The time between two points, in seconds.
    pub const fn step_s(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// The points of a block: 60, or the 24 hours of a day.
    pub const fn points(self) -> u64 {
        match self {
            Self::Second | Self::TenSeconds | Self::Minute => 60,
            Self::Hour => 24,
        }
    }

    /// The time of a block, in seconds.
    pub const fn block_s(self) -> u64 {
        self.step_s() * self.points()
    }

    /// How many blocks of each series are kept, the one that is being filled among them.
    pub const fn blocks_kept(self) -> u64 {
        match self {
            Self::Second => 61,
            Self::TenSeconds => 145,
            Self::Minute => 169,
            Self::Hour => 401,
        }
    }

    /// The finest resolution whose step is at least so many seconds.
    pub fn of_step(seconds: u64) -> Self {
        Self::ALL.into_iter().find(|one| one.step_s() >= seconds).unwrap_or(Self::Hour)
    }

    /// The number by which the file knows it.
    pub(crate) const fn in_file(self) -> i64 {
        self as i64
    }

    /// Its place in [`Self::ALL`].
    pub(crate) const fn number(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_kept_for_as_long_as_it_says() {
        let kept = Resolution::ALL.map(|one| (one.blocks_kept() - 1) * one.block_s());
        assert_eq!(kept, [3600, 24 * 3600, 7 * 24 * 3600, 400 * 24 * 3600]);
        assert!(Resolution::ALL.iter().all(|one| one.points() <= 64), "masks have 64 bits");
    }

    #[test]
    fn a_point_of_a_coarser_one_is_made_of_whole_points() {
        for pair in Resolution::ALL.windows(2) {
            assert_eq!(pair[1].step_s() % pair[0].step_s(), 0);
        }
    }
}
