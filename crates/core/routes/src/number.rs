//! Numbers of next hops, as an image has them.

/// The number of a next hop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Number(pub u16);

impl Number {
    /// That of the default route, whatever its next hop is; also where there is no route.
    pub const DEFAULT: Self = Self(0);
    /// The default route of IPv6, in the array of next hops. In an image it is
    /// [`DEFAULT`](Self::DEFAULT).
    pub const DEFAULT_V6: Self = Self(1);
    /// The kernel has to be asked.
    pub const ASK: Self = Self(2);
    /// The first one that is a next hop's own.
    pub const FIRST: Self = Self(3);
    /// How many there are.
    pub const COUNT: usize = 1 << 16;

    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
