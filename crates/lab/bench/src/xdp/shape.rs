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
    /// The same while somebody follows the line where the frame, a segment of TCP, leaves.
    Followed,
    /// The tree by FlowValve's rules.
    Valve,
    /// Does nothing, at tcx.
    EmptyTcx,
    /// What gives departure times to what a host sends, at tcx, by a tree without filters, whose
    /// classes share among hosts, or not.
    Stamp(Sharing),
    /// The tree with filters, of which the frame fits one.
    Filter {
        /// Whether each byte that filters ask for fits some filter of each mask.
        crowded: bool,
    },
    /// The tree with terms: filters that no mask can say. The frame fits the last one.
    Terms,
    /// The tree behind a filter that names the class of each frame.
    Edited,
    /// A filter in front that finds the source in a set of prefixes. Test frames are dropped, live
    /// frames continue.
    Set(Members),
    /// Each frame has another source, and a program looks it up.
    Spread {
        /// Which.
        by: LookUp,
        /// Whether sources are of IPv6.
        is_six: bool,
    },
}

/// Among whom a class shares its rate first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Flows.
    Flows,
    /// Hosts.
    Hosts,
    /// Hosts behind network address translation. The packets are of no connection, so the kernel
    /// looks for both directions.
    HostsInside,
}

/// What a set knows of each member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Members {
    /// Nothing else.
    Plain,
    /// Packets and bytes.
    Counted,
    /// When it ends.
    Timed,
}

impl Members {
    /// How `narrows set create` says so.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Counted => " counters",
            Self::Timed => " timeout 86400",
        }
    }
}

/// Where the source of a frame is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookUp {
    /// Nowhere: what such rows are compared with.
    Nowhere,
    /// Nowhere, but behind a filter that asks for the protocol instead: what the filter of a set
    /// costs besides the look-up.
    Protocol,
    /// In a set, as [`Subject::Set`].
    Set(Members),
    /// In the kernel's trie of prefixes.
    Trie,
}

impl Subject {
    /// The program that it is compared with.
    pub(super) const fn floor(self) -> Self {
        match self {
            Self::Spread { is_six, .. } => Self::Spread { by: LookUp::Nowhere, is_six },
            Self::EmptyTcx | Self::Stamp(_) => Self::EmptyTcx,
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
            Self::Followed => "tree-followed",
            Self::Valve => "tree-flowvalve",
            Self::EmptyTcx => "empty-tcx",
            Self::Stamp(Sharing::Flows) => "stamp",
            Self::Stamp(Sharing::Hosts) => "stamp-hosts",
            Self::Stamp(Sharing::HostsInside) => "stamp-hosts-nat",
            Self::Filter { crowded: false } => "filter",
            Self::Filter { crowded: true } => "filter-crowded",
            Self::Terms => "terms",
            Self::Edited => "edited",
            Self::Set(Members::Plain) => "set",
            Self::Set(Members::Counted) => "set-counters",
            Self::Set(Members::Timed) => "set-timeout",
            Self::Spread { by: LookUp::Nowhere, is_six: false } => "spread",
            Self::Spread { by: LookUp::Protocol, is_six: false } => "spread-filter",
            Self::Spread { by: LookUp::Set(Members::Plain), is_six: false } => "spread-set",
            Self::Spread { by: LookUp::Set(Members::Counted), is_six: false } => {
                "spread-set-counters"
            }
            Self::Spread { by: LookUp::Set(Members::Timed), is_six: false } => "spread-set-timeout",
            Self::Spread { by: LookUp::Trie, is_six: false } => "spread-trie",
            Self::Spread { by: LookUp::Nowhere, is_six: true } => "spread-v6",
            Self::Spread { by: LookUp::Protocol, is_six: true } => "spread-filter-v6",
            Self::Spread { by: LookUp::Set(Members::Plain), is_six: true } => "spread-set-v6",
            Self::Spread { by: LookUp::Set(Members::Counted), is_six: true } => {
                "spread-set-counters-v6"
            }
            Self::Spread { by: LookUp::Set(Members::Timed), is_six: true } => {
                "spread-set-timeout-v6"
            }
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
    /// Rules of filters, terms, or entries of the set.
    pub entries: u32,
    /// Different masks of them.
    pub masks: u32,
    /// Whether frames go where the program says, which is out of a port, or end with it.
    pub is_live: bool,
}

impl Shape {
    const fn new(subject: Subject, depth: u32, cpus: usize) -> Self {
        let (contended, bound, is_live) = (false, false, false);
        Self { subject, depth, cpus, contended, bound, entries: 0, masks: 0, is_live }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = if self.is_live { ", live frames" } else { "" };
        write!(f, "{} of depth {} on {} CPUs{frames}", self.subject.name(), self.depth, self.cpus)
    }
}

/// Those that keep a rate, and how deep they are.
const RATES: [(Subject, u32); 5] = [
    (Subject::BucketPercpu, 0),
    (Subject::BucketShared, 0),
    (Subject::BucketLocked, 0),
    (Subject::Tree, 1),
    (Subject::Tree, 4),
];

/// The programs for live frames, on one CPU and, if there are more, on `cpus`. CPUs share what they
/// can share, as the CPUs of a port do.
pub(super) fn live(cpus: usize) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for cpus in if cpus > 1 { vec![1, cpus] } else { vec![1] } {
        let of = |subject, depth| Shape { is_live: true, ..Shape::new(subject, depth, cpus) };
        shapes.push(of(Subject::Empty, 0));
        for (subject, depth) in RATES {
            for bound in [false, true] {
                shapes.push(Shape { contended: cpus > 1, bound, ..of(subject, depth) });
            }
        }
        let filter = of(Subject::Filter { crowded: false }, 1);
        shapes.push(Shape { contended: cpus > 1, entries: 1000, masks: 1, ..filter });
        shapes.push(Shape { contended: cpus > 1, ..of(Subject::Edited, 1) });
        for members in [Members::Plain, Members::Counted] {
            shapes.push(Shape { entries: 100_000, ..of(Subject::Set(members), 0) });
        }
    }
    shapes
}

/// Everything, on one CPU and, if there are more, on `cpus`.
pub(super) fn all(cpus: usize) -> Vec<Shape> {
    /// Rules, and their masks: many alike, and alike in few ways.
    const FILTERS: [(u32, u32, bool); 5] =
        [(1, 1, false), (1000, 1, false), (10_000, 1, false), (1000, 10, false), (1000, 10, true)];
    const TERMS: [u32; 3] = [1, 8, 64];
    const SETS: [u32; 2] = [1000, 100_000];
    const LARGE_SET: u32 = 1_000_000;
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
        shapes.push(Shape { contended: cpus > 1, ..Shape::new(Subject::Followed, 1, cpus) });
        for depth in [1, 4] {
            let shape = Shape::new(Subject::Valve, depth, cpus);
            for bound in [false, true] {
                shapes.push(Shape { contended: cpus > 1, bound, ..shape });
            }
        }
        shapes.push(Shape::new(Subject::EmptyTcx, 0, cpus));
        for depth in [1, 4] {
            let shape = Shape::new(Subject::Stamp(Sharing::Flows), depth, cpus);
            for bound in [false, true] {
                shapes.push(Shape { contended: cpus > 1, bound, ..shape });
            }
        }
        for sharing in [Sharing::Hosts, Sharing::HostsInside] {
            let shape = Shape::new(Subject::Stamp(sharing), 1, cpus);
            shapes.push(Shape { contended: cpus > 1, ..shape });
        }
        for (entries, masks, crowded) in FILTERS {
            let shape = Shape::new(Subject::Filter { crowded }, 1, cpus);
            shapes.push(Shape { contended: cpus > 1, entries, masks, ..shape });
        }
        for entries in TERMS {
            let shape = Shape::new(Subject::Terms, 1, cpus);
            shapes.push(Shape { contended: cpus > 1, entries, ..shape });
        }
        shapes.push(Shape { contended: cpus > 1, ..Shape::new(Subject::Edited, 1, cpus) });
        for members in [Members::Plain, Members::Counted, Members::Timed] {
            for entries in SETS {
                shapes.push(Shape { entries, ..Shape::new(Subject::Set(members), 0, cpus) });
            }
        }
        for is_six in [false, true] {
            let of = |by| Shape::new(Subject::Spread { by, is_six }, 0, cpus);
            shapes.extend([LookUp::Nowhere, LookUp::Protocol].map(of));
            for entries in SETS {
                let members = [Members::Plain, Members::Counted, Members::Timed];
                for by in members.map(LookUp::Set).into_iter().chain([LookUp::Trie]) {
                    shapes.push(Shape { entries, ..of(by) });
                }
            }
            for by in [LookUp::Set(Members::Plain), LookUp::Trie] {
                shapes.push(Shape { entries: LARGE_SET, ..of(by) });
            }
        }
    }
    shapes
}
