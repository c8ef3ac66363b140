//! The fate of segments that left through a port.

/// Segments with data, and losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Segments that were examined.
    pub segments: u64,
    /// Lost before they left through the port: on their way here, or here.
    pub before: u64,
    /// Lost beyond the port.
    pub beyond: u64,
}

impl Losses {
    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        self.segments += other.segments;
        self.before += other.before;
        self.beyond += other.beyond;
    }
}
