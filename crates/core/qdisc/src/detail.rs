//! What only one kind of qdisc counts.

use crate::{bands, cake, codel, fq, fq_codel, htb, pacing, red};

/// The figures of one kind (`tc -s` prints them below the common ones).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Detail {
    /// `cake`
    Cake(Box<cake::Figures>),
    /// `codel`
    Codel(Box<codel::Figures>),
    /// `fq_codel`
    FqCodel(Box<fq_codel::Figures>),
    /// `fq`
    Fq(Box<fq::Figures>),
    /// `htb`
    Htb(Box<htb::Figures>),
    /// `prio`, `drr`, `ets`
    Bands(Box<bands::Figures>),
    /// `carousel`, `eiffel`, `flowbundler`
    Pacing(Box<pacing::Figures>),
    /// `red`
    Red(Box<red::Figures>),
}

impl Detail {
    /// Adds the figures of the same qdisc on another queue. Figures of another kind are ignored: a
    /// queue that has not applied a new policy yet may have some.
    pub(crate) fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Cake(ours), Self::Cake(theirs)) => ours.merge(theirs),
            (Self::Codel(ours), Self::Codel(theirs)) => ours.merge(theirs),
            (Self::FqCodel(ours), Self::FqCodel(theirs)) => ours.merge(theirs),
            (Self::Fq(ours), Self::Fq(theirs)) => ours.merge(theirs),
            (Self::Htb(ours), Self::Htb(theirs)) => ours.merge(theirs),
            (Self::Bands(ours), Self::Bands(theirs)) => ours.merge(theirs),
            (Self::Pacing(ours), Self::Pacing(theirs)) => ours.merge(theirs),
            (Self::Red(ours), Self::Red(theirs)) => ours.merge(theirs),
            _ => {}
        }
    }

    /// Those of a `cake`.
    pub fn cake(&self) -> Option<&cake::Figures> {
        if let Self::Cake(figures) = self { Some(figures) } else { None }
    }

    /// Those of a `codel`.
    pub fn codel(&self) -> Option<&codel::Figures> {
        if let Self::Codel(figures) = self { Some(figures) } else { None }
    }

    /// Those of an `fq_codel`.
    pub fn fq_codel(&self) -> Option<&fq_codel::Figures> {
        if let Self::FqCodel(figures) = self { Some(figures) } else { None }
    }

    /// Those of an `fq`.
    pub fn fq(&self) -> Option<&fq::Figures> {
        if let Self::Fq(figures) = self { Some(figures) } else { None }
    }

    /// Those of an `htb`.
    pub fn htb(&self) -> Option<&htb::Figures> {
        if let Self::Htb(figures) = self { Some(figures) } else { None }
    }

    /// Those of a `prio`, a `drr` or an `ets`.
    pub fn bands(&self) -> Option<&bands::Figures> {
        if let Self::Bands(figures) = self { Some(figures) } else { None }
    }

    /// Those of a pacing qdisc.
    pub fn pacing(&self) -> Option<&pacing::Figures> {
        if let Self::Pacing(figures) = self { Some(figures) } else { None }
    }

    /// Those of a `red`.
    pub fn red(&self) -> Option<&red::Figures> {
        if let Self::Red(figures) = self { Some(figures) } else { None }
    }
}
