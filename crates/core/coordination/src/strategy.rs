//! The strategies by name.

use narrows_units::Nanos;

/// How long a queue relies on its last count of active siblings by default: mq-cake's 200 us, which
/// its authors found to converge fast at little cost, and which is fixed in Linux.
pub const DEFAULT_SYNC_TIME: Nanos = Nanos::from_micros(200);

/// How queues that share a limit divide it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// One bucket under a mutex.
    Lock,
    /// One departure clock advanced atomically, with a drop horizon.
    Edt,
    /// mq-cake as published.
    Equal {
        /// How long a queue relies on its last count of active siblings.
        sync_time: Nanos,
    },
    /// One ledger and max-min fair shares.
    Fair {
        /// How long shares hold; `None` to derive it from queues and rate.
        sync_time: Option<Nanos>,
    },
}

impl Strategy {
    /// `equal` as published, and as in Linux.
    pub const EQUAL: Self = Self::Equal { sync_time: DEFAULT_SYNC_TIME };

    /// `fair` with everything derived.
    pub const FAIR: Self = Self::Fair { sync_time: None };

    /// Every strategy, with its defaults.
    pub const ALL: [Self; 4] = [Self::Lock, Self::Edt, Self::EQUAL, Self::FAIR];

    /// The word for it, in policies and in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Edt => "edt",
            Self::Equal { .. } => "equal",
            Self::Fair { .. } => "fair",
        }
    }

    /// The strategy named `name`, with its defaults.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }
}

impl Default for Strategy {
    /// The strategy that keeps the limit under any load, and is fair.
    fn default() -> Self {
        Self::FAIR
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_is_found_by_its_name() {
        for strategy in Strategy::ALL {
            assert_eq!(Strategy::from_name(strategy.name()), Some(strategy));
        }
        assert_eq!(Strategy::from_name("fare"), None);
    }
}
