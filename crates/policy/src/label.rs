//! FlowValve's words of a class, `weight` and `borrow`, beside HTB's.
//!
//! They are kept with any tree and count in one that FlowValve's rules keep. Lenders may be named
//! before they exist, as those that lend to each other have to; one that does not exist lends
//! nothing.

use crate::{ClassId, Handle, PolicyError};
use narrows_coordination::{LENDERS_MAX, Label, Lenders};

/// What is said of a class; see [`Label`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HtbLabel {
    /// See [`Label::weight`].
    pub weight: Option<u32>,
    /// From whom it borrows, the first before the others; `None` for those beside it and those
    /// beside classes above it.
    pub borrow: Option<Box<[Option<ClassId>; LENDERS_MAX]>>,
}

impl HtbLabel {
    /// Whether anything is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The lenders that are named.
    pub fn lenders(&self) -> impl Iterator<Item = ClassId> + use<'_> {
        self.borrow.iter().flat_map(|all| all.iter()).flatten().copied()
    }

    /// That of the class `minor` of `handle`, with the qdisc's number before each lender's.
    pub(crate) fn of(mut self, handle: Handle, minor: u32) -> Result<Self, PolicyError> {
        for lender in self.borrow.iter_mut().flat_map(|all| all.iter_mut()).flatten() {
            if ![0, handle.major()].contains(&lender.major) || lender.minor == 0 {
                return Err(PolicyError::Htb(format!(
                    "a class of {handle} borrows from other classes of {handle}, not from {lender}."
                )));
            }
            if lender.minor == minor {
                return Err(PolicyError::Htb(format!(
                    "{} has what it would borrow from itself: leave it out of \"borrow\".",
                    handle.class(minor)
                )));
            }
            lender.major = handle.major();
        }
        Ok(self)
    }

    /// As a tree takes it; `None` where nothing is said.
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
