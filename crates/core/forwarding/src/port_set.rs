//! A set of ports, in a word.

use crate::PortId;

/// Some of an instance's ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortSet(u64);

impl PortSet {
    /// None.
    pub const NONE: Self = Self(0);
    /// Every port that an instance can have.
    pub const ALL: Self = Self(u64::MAX);

    /// Whether it has `port`.
    #[inline(always)]
    pub const fn has(self, port: PortId) -> bool {
        self.0 >> port.index() & 1 == 1
    }

    /// Takes `port` out.
    #[inline(always)]
    pub const fn remove(&mut self, port: PortId) {
        self.0 &= !(1 << port.index());
    }

    /// These and `others`.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether `others` has all of these.
    #[inline(always)]
    pub const fn is_within(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }

    /// Puts `port` in.
    #[inline(always)]
    pub const fn insert(&mut self, port: PortId) {
        self.0 |= 1 << port.index();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_and_not_taken_out() {
        let [one, last] = [PortId::SECOND, PortId::from(63)];
        let mut set = PortSet::NONE;
        set.insert(last);
        assert!(set.has(last) && !set.has(one));
        let mut set = PortSet::ALL;
        set.remove(one);
        assert!(set.has(last) && !set.has(one));
    }

    #[test]
    fn two_sets_together_have_what_one_of_them_has() {
        let [mut one, mut other] = [PortSet::NONE; 2];
        one.insert(PortId::FIRST);
        other.insert(PortId::SECOND);
        let both = one.and(other);
        assert!(both.has(PortId::FIRST) && both.has(PortId::SECOND));
        assert!(one.is_within(both) && other.is_within(both) && PortSet::NONE.is_within(one));
        assert!(!both.is_within(one) && !one.is_within(other));
    }
}
