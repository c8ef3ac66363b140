//! The parameters of a class in a tree, whatever kind of tree that is.

use crate::{hfsc, htb};

/// A class's parameters, by the kind of its tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Of an `htb`.
    Htb(htb::Class),
    /// Of an `hfsc`.
    Hfsc(hfsc::Class),
}

impl Class {
    /// The class above it; `None` at the root.
    pub const fn parent(&self) -> Option<u32> {
        match self {
            Self::Htb(class) => class.parent,
            Self::Hfsc(class) => class.parent,
        }
    }

    /// The parameters, if it is a class of an `htb`.
    pub const fn htb(&self) -> Option<&htb::Class> {
        match self {
            Self::Htb(class) => Some(class),
            Self::Hfsc(_) => None,
        }
    }

    /// The parameters, if it is a class of an `hfsc`.
    pub const fn hfsc(&self) -> Option<&hfsc::Class> {
        match self {
            Self::Htb(_) => None,
            Self::Hfsc(class) => Some(class),
        }
    }
}
