//! What an agent is told once: who it is, who the others are, and its times.

/// The shortest interval between turns, in nanoseconds: 5 ms.
pub const INTERVAL_MIN_NS: u64 = 5_000_000;

/// The longest lease, in nanoseconds. The data plane holds what is lent for 3 s after the last
/// order ([`narrows_snapshot::FLEET_HOLD_NS`]); a lease and the drift of clocks end before.
pub const LEASE_MAX_NS: u64 = 2_500_000_000;

/// A lease lasts so many intervals at least: some reports that are lost must not end it.
pub const INTERVALS_PER_LEASE: u64 = 20;

/// A box of the fleet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its weight against the others where demands exceed a limit. 0 counts as 1.
    pub weight: u32,
    /// The most that it may have of any limit, in bits per second, whatever it demands.
    pub most_bps: Option<u64>,
}

/// The settings of an agent. All agents of a fleet have the same members, in any order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The name of this box.
    pub me: String,
    /// All boxes, this one too.
    pub members: Vec<Member>,
    /// How often the agent asks the data plane, and tells the others what changed: 50 ms if
    /// nothing else is wanted.
    pub interval_ns: u64,
    /// How long a loan lasts unless it is renewed.
    pub lease_ns: u64,
}

/// Why settings are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// This box is not among the members.
    #[error("{0} is not among the members; add it, or correct `me`")]
    NotAMember(String),
    /// Two members have one name.
    #[error("two members are called {0}; give each box a name of its own")]
    Twice(String),
    /// Too short an interval.
    #[error("the interval is {0} ms; it is at least 5 ms")]
    Interval(u64),
    /// A lease that is too long, or too short for the interval.
    #[error("the lease is {0} ms; it is at least 20 intervals and at most 2500 ms")]
    Lease(u64),
}

impl Settings {
    /// Checks them.
    pub(crate) fn checked(mut self) -> Result<Self, SettingsError> {
        self.members.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = self.members.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(SettingsError::Twice(pair[0].name.clone()));
        }
        if !self.members.iter().any(|member| member.name == self.me) {
            return Err(SettingsError::NotAMember(self.me));
        }
        if self.interval_ns < INTERVAL_MIN_NS {
            return Err(SettingsError::Interval(self.interval_ns / 1_000_000));
        }
        if self.lease_ns > LEASE_MAX_NS || self.lease_ns / INTERVALS_PER_LEASE < self.interval_ns {
            return Err(SettingsError::Lease(self.lease_ns / 1_000_000));
        }
        Ok(self)
    }
}
