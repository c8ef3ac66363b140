//! What filters may ask of the route that a packet takes.

/// The realms and the metric of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouteTaken {
    /// The realms in two halves, as the kernel's classifier has them: above that of the source,
    /// below that of the destination; 0 for none.
    pub realms: u32,
    /// The metric of the route to the destination.
    pub metric: u32,
}

impl RouteTaken {
    /// The realm of the destination; 0 for none.
    pub const fn to(self) -> u16 {
        self.realms as u16
    }

    /// That of the source, likewise.
    pub const fn from(self) -> u16 {
        (self.realms >> 16) as u16
    }
}
