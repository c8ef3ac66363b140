//! The measured programs, and how they are loaded.

use std::fmt;

/// The most leaves of a tree of which CPUs have one each. Packets find theirs by their priority,
/// and a packet's TOS has four.
pub const LEAVES: usize = 4;

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Does nothing.
    Empty,
    /// A token bucket for each CPU.
    BucketPercpu,
    /// A token bucket of all CPUs, charged by atomic additions.
    BucketShared,
    /// A token bucket of all CPUs under a spin lock.
    BucketLocked,
    /// The XDP plane's tree, without filters.
    Tree,
    /// The tree with filters, of which the frame fits one.
    Filter {
        /// Whether each byte that filters ask for fits some filter of each mask.
        crowded: bool,
    },
    /// A filter in front that finds the source in a set of prefixes, and drops.
    Set,
    /// Each frame has another source, and a program looks it up.
    Spread {
        /// Which.
        by: LookUp,
        /// Whether sources are of IPv6.
        is_six: bool,
    },
}

/// Where the source of a frame is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookUp {
    /// Nowhere: what such rows are compared with.
    Nowhere,
    /// In a set, as [`Subject::Set`].
    Set,
    /// In the kernel's trie of prefixes.
    Trie,
}

impl Subject {
    /// The program that it is compared with.
    pub(super) const fn floor(self) -> Self {
        match self {
            Self::Spread { is_six, .. } => Self::Spread { by: LookUp::Nowhere, is_six },
            _ => Self::Empty,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::BucketPercpu => "bucket-percpu",
            Self::BucketShared => "bucket-shared",
            Self::BucketLocked => "bucket-locked",
            Self::Tree => "tree",
            Self::Filter { crowded: false } => "filter",
            Self::Filter { crowded: true } => "filter-crowded",
            Self::Set => "set",
            Self::Spread { by: LookUp::Nowhere, is_six: false } => "spread",
            Self::Spread { by: LookUp::Set, is_six: false } => "spread-set",
            Self::Spread { by: LookUp::Trie, is_six: false } => "spread-trie",
            Self::Spread { by: LookUp::Nowhere, is_six: true } => "spread-v6",
            Self::Spread { by: LookUp::Set, is_six: true } => "spread-set-v6",
            Self::Spread { by: LookUp::Trie, is_six: true } => "spread-trie-v6",
        }
    }
}

/// One program under one load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Which.
    pub subject: Subject,
    /// Classes from the leaf up to the root, both included; 0 without classes.
    pub depth: u32,
    /// CPUs at once.
    pub cpus: usize,
    /// Whether they share a bucket or a leaf.
    pub contended: bool,
    /// Whether the rate is exceeded.
    pub bound: bool,
    /// Rules of filters, or entries of the set.
    pub entries: u32,
    /// Different masks of them.
    pub masks: u32,
}

impl Shape {
    const fn new(subject: Subject, depth: u32, cpus: usize) -> Self {
        Self { subject, depth, cpus, contended: false, bound: false, entries: 0, masks: 0 }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of depth {} on {} CPUs", self.subject.name(), self.depth, self.cpus)
    }
}

/// Everything, on one CPU and, if there are more, on `cpus`.
pub(super) fn all(cpus: usize) -> Vec<Shape> {
    const RATES: [(Subject, u32); 5] = [
        (Subject::BucketPercpu, 0),
        (Subject::BucketShared, 0),
        (Subject::BucketLocked, 0),
        (Subject::Tree, 1),
        (Subject::Tree, 4),
    ];
    /// Rules, and their masks: many alike, and alike in few ways.
    const FILTERS: [(u32, u32, bool); 5] =
        [(1, 1, false), (1000, 1, false), (10_000, 1, false), (1000, 10, false), (1000, 10, true)];
    const SETS: [u32; 2] = [1000, 100_000];
    let mut shapes = Vec::new();
    let counts = if cpus > 1 { vec![1, cpus] } else { vec![1] };
    for cpus in counts {
        shapes.push(Shape::new(Subject::Empty, 0, cpus));
        for (subject, depth) in RATES {
            let shape = Shape::new(subject, depth, cpus);
            for contended in if cpus > 1 { vec![false, true] } else { vec![false] } {
                for bound in [false, true] {
                    shapes.push(Shape { contended, bound, ..shape });
                }
            }
        }
        for (entries, masks, crowded) in FILTERS {
            let shape = Shape::new(Subject::Filter { crowded }, 1, cpus);
            shapes.push(Shape { contended: cpus > 1, entries, masks, ..shape });
        }
        for entries in SETS {
            shapes.push(Shape { entries, ..Shape::new(Subject::Set, 0, cpus) });
        }
        for is_six in [false, true] {
            let of = |by| Shape::new(Subject::Spread { by, is_six }, 0, cpus);
            shapes.push(of(LookUp::Nowhere));
            for entries in SETS {
                for by in [LookUp::Set, LookUp::Trie] {
                    shapes.push(Shape { entries, ..of(by) });
                }
            }
        }
    }
    shapes
}
