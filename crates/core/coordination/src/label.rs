//! FlowValve's parameters of a class, in addition to HTB's.

/// The most classes that a label names. FlowValve carries a label in a packet's metadata.
pub const LENDERS_MAX: usize = 8;

/// A class's weight among its siblings, and its lenders.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Label {
    /// The proportion in which siblings of the same priority share their parent's rate; `None` for
    /// [`Label::WEIGHT`].
    pub weight: Option<u32>,
    /// The classes that it borrows from.
    pub lenders: Lenders,
}

/// The classes that a class borrows from, by number, in the order in which they are asked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Lenders {
    /// Siblings of its own or a worse priority, and then the siblings of each class above it.
    #[default]
    Beside,
    /// These classes; 0 is no class. A class that does not exist lends nothing.
    Only([u32; LENDERS_MAX]),
}

impl Label {
    /// A class's default weight.
    pub const WEIGHT: u32 = 1;

    /// The weight, with its default.
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or(Self::WEIGHT).max(1)
    }
}

impl Lenders {
    /// The classes that are named.
    pub fn named(&self) -> impl Iterator<Item = u32> {
        let all = match self {
            Self::Beside => &[][..],
            Self::Only(all) => all,
        };
        all.iter().copied().filter(|id| *id != 0)
    }
}
