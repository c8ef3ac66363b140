//! FlowValve's parameters of a class, `weight` and `borrow`, in addition to HTB's.
//!
//! Any tree keeps them; only a tree under FlowValve's rules uses them. A lender may be named before
//! it exists, because two classes may lend to each other. A lender that does not exist lends
//! nothing.

use crate::{ClassId, Handle, PolicyError};
use narrows_coordination::{LENDERS_MAX, Label, Lenders};

/// The parameters of a class; see [`Label`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HtbLabel {
    /// See [`Label::weight`].
    pub weight: Option<u32>,
    /// The lenders, in order of preference; `None` for the siblings of the class and of its
    /// ancestors.
    pub borrow: Option<Box<[Option<ClassId>; LENDERS_MAX]>>,
}

impl HtbLabel {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The named lenders.
    pub fn lenders(&self) -> impl Iterator<Item = ClassId> + use<'_> {
        self.borrow.iter().flat_map(|all| all.iter()).flatten().copied()
    }

    /// The label of the class `minor` of `handle`, with the qdisc's number before each lender's.
    pub(crate) fn of(mut self, handle: Handle, minor: u32) -> Result<Self, PolicyError> {
        for lender in self.borrow.iter_mut().flat_map(|all| all.iter_mut()).flatten() {
            if ![0, handle.major()].contains(&lender.major) || lender.minor == 0 {
                return Err(PolicyError::Htb(format!(
                    "a class of {handle} borrows from other classes of {handle}, not from {lender}."
                )));
            }
            if lender.minor == minor {
                return Err(PolicyError::Htb(format!(
                    "{} would borrow from itself: leave it out of \"borrow\".",
                    handle.class(minor)
                )));
            }
            lender.major = handle.major();
        }
        Ok(self)
    }

    /// The form that a tree uses; `None` if nothing is set.
    pub(crate) fn label(&self) -> Option<Box<Label>> {
        if self.is_empty() {
            return None;
        }
        let minor = |lender: Option<ClassId>| lender.map_or(0, |lender| lender.minor);
        let lenders = self.borrow.as_ref();
        let lenders = lenders.map_or(Lenders::Beside, |all| Lenders::Only(all.map(minor)));
        Some(Box::new(Label { weight: self.weight, lenders }))
    }
}
