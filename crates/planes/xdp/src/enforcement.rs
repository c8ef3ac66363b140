//! How limits hold.

/// Where a plan runs, and so what happens to packets for which a class has no room yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enforcement {
    /// The XDP plane: they are dropped.
    Policing,
    /// The host plane: they get a later departure time.
    Shaping,
    /// The host plane at a device where nothing holds packets until a departure time: they are
    /// dropped there, too.
    PolicingAtHost,
}

impl Enforcement {
    /// Whether it is the host plane.
    pub fn is_at_host(self) -> bool {
        self != Self::Policing
    }

    /// Whether packets wait.
    pub fn is_shaping(self) -> bool {
        self == Self::Shaping
    }
}
