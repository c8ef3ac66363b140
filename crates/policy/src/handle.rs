//! The numbers by which qdiscs and classes are named: `1:`, `1:2`, `root`.
//!
//! Difference from the kernel: a number has up to 32 bits, where the kernel has 16 before and 16
//! behind the colon. So a port can have a million classes, and a qdisc in each.

use std::fmt;

/// The number of a qdisc, the `1` in `1:`. Never 0, which means "none" on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(u32);

impl Handle {
    /// Handles from here on are given to qdiscs that were made without one.
    pub const FIRST_AUTOMATIC: Self = Self(0x8001);

    /// From here on numbers are Narrows' own: the kernel has none.
    pub const FIRST_WIDE: Self = Self(0x1_0000);

    /// What the kernel calls `ingress` and `clsact`.
    pub const ENDS: Self = Self(0xffff);

    /// The handle `major:`, or `None` for 0.
    pub const fn new(major: u32) -> Option<Self> {
        if major == 0 { None } else { Some(Self(major)) }
    }

    /// The number before the colon.
    pub const fn major(self) -> u32 {
        self.0
    }

    /// The class `minor` of this qdisc.
    pub const fn class(self, minor: u32) -> ClassId {
        ClassId { major: self.0, minor }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:", self.0)
    }
}

/// The number of a class, `major:minor`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClassId {
    /// The qdisc that the class belongs to.
    pub major: u32,
    /// The class within it.
    pub minor: u32,
}

impl ClassId {
    /// Where the kernel hangs `ingress` and `clsact`; no place for a qdisc that queues.
    pub const INGRESS: Self = Self { major: 0xffff, minor: 0xfff1 };

    /// Where filters are of what comes in at a port.
    pub const END_INGRESS: Self = Self { major: 0xffff, minor: 0xfff2 };

    /// Where filters are of what goes out of a port.
    pub const END_EGRESS: Self = Self { major: 0xffff, minor: 0xfff3 };
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.major, self.minor) {
            (0, minor) => write!(f, ":{minor:x}"),
            (major, 0) => write!(f, "{major:x}:"),
            (major, minor) => write!(f, "{major:x}:{minor:x}"),
        }
    }
}

/// Where a qdisc hangs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Parent {
    /// At the device.
    Root,
    /// At a class of another qdisc.
    Class(ClassId),
}

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::Class(id) => write!(f, "parent {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_in_hexadecimal_as_tc_prints_them() {
        let handle = Handle::new(0x8001).unwrap();
        assert_eq!(handle.to_string(), "8001:");
        assert_eq!(handle.class(10).to_string(), "8001:a");
        assert_eq!(handle.class(0).to_string(), "8001:");
        assert_eq!(ClassId { major: 0, minor: 1 }.to_string(), ":1");
        assert_eq!(handle.class(0x1_abcd).to_string(), "8001:1abcd");
    }

    #[test]
    fn there_is_no_handle_zero() {
        assert_eq!(Handle::new(0), None);
    }
}
