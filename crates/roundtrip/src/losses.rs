//! What became of segments that left through a port.

/// Segments with data, and what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Those looked at.
    pub segments: u64,
    /// Lost before they left through the port: on their way here, or here.
    pub before: u64,
    /// Lost beyond the port.
    pub beyond: u64,
}

impl Losses {
    /// Adds others.
    pub fn merge(&mut self, other: &Self) {
        self.segments += other.segments;
        self.before += other.before;
        self.beyond += other.beyond;
    }
}
