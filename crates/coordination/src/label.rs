//! What FlowValve's front end says of a class beyond HTB's words.

/// The most classes that a label names. FlowValve carries a label in a packet's metadata.
pub const LENDERS_MAX: usize = 8;

/// A class's weight among those beside it, and from whom it borrows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Label {
    /// In what proportion classes of one priority below the same class share what it has; `None`
    /// for [`Label::WEIGHT`].
    pub weight: Option<u32>,
    /// From whom it borrows.
    pub lenders: Lenders,
}

/// From whom a class borrows, by the numbers of classes, those that are asked first before others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Lenders {
    /// From those of its own or a worse priority beside it, and then from those beside each class
    /// above it.
    #[default]
    Beside,
    /// From these; 0 is no class. One that does not exist lends nothing.
    Only([u32; LENDERS_MAX]),
}

impl Label {
    /// A class's weight unless somebody says so.
    pub const WEIGHT: u32 = 1;

    /// The weight that counts.
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or(Self::WEIGHT).max(1)
    }
}

impl Lenders {
    /// Those that are named.
    pub fn named(&self) -> impl Iterator<Item = u32> {
        let all = match self {
            Self::Beside => &[][..],
            Self::Only(all) => all,
        };
        all.iter().copied().filter(|id| *id != 0)
    }
}
