//! The numbers of qdiscs and classes: `1:`, `1:2`, `root`.
//!
//! Difference from the kernel: major and minor numbers have up to 32 bits; the kernel has 16 for
//! each. So a port can have a million classes, and a qdisc in each.

use std::fmt;

/// The number of a qdisc, the `1` in `1:`. Never 0, which means "none" on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(u32);

impl Handle {
    /// The first handle for qdiscs that are created without one.
    pub const FIRST_AUTOMATIC: Self = Self(0x8001);

    /// The first number beyond the kernel's range.
    pub const FIRST_WIDE: Self = Self(0x1_0000);

    /// The handle of `ingress` and `clsact` in the kernel.
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
    /// Where the kernel attaches `ingress` and `clsact`. No qdisc with a queue can be there.
    pub const INGRESS: Self = Self { major: 0xffff, minor: 0xfff1 };

    /// The parent of filters at ingress.
    pub const END_INGRESS: Self = Self { major: 0xffff, minor: 0xfff2 };

    /// The parent of filters at egress.
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

/// The place of a qdisc.
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
