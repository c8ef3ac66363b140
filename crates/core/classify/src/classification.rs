//! A packet's path through all classful qdiscs, found once, before the first of them.
//!
//! A classful qdisc has filters, and a default for packets that none of them matches. Another such
//! qdisc, with filters of its own, may stand below one of its classes. A [`Classification`] is this
//! tree of rules. It is evaluated while the frame is at hand, and yields a [`Path`]: the class at
//! the outermost of these qdiscs, at the one below that class, and so on. Each qdisc finds its
//! class in the packet's metadata, so no qdisc needs to read a frame.
//!
//! [`Rules`] are its input, as data. Two versions share the parts that are equal.
//!
//! Cost: the filters at each qdisc on the path. If no rule depends on the frame, the frame is not
//! read.

use crate::{AHEAD, Actions, Blocks, Classifier, Found, PRIORITY_MASK, Subject, Verdict, priority};
use narrows_packet::{INNER_LEVELS, Meta, RouteTaken};
use narrows_units::Nanos;
use std::collections::BTreeMap;

/// The class of packets that no filter matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Otherwise {
    /// This class; 0 for none.
    Class(u32),
    /// The class for the packet's priority.
    Priority([u32; PRIORITY_MASK as usize + 1]),
}

/// The input of a [`Classification`]: plain data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The major number of the outermost classful qdisc. An action may name one of its classes.
    pub major: u32,
    /// The filters of that qdisc.
    pub filters: Blocks,
    /// The default for packets that they do not match.
    pub otherwise: Otherwise,
    /// The rules below each class.
    pub below: BTreeMap<u32, Self>,
}

/// The filters of a classful qdisc and of those below its classes: finds a packet's [`Path`].
#[derive(Clone)]
pub struct Classification {
    classifier: Classifier,
    otherwise: Otherwise,
    below: BTreeMap<u32, Self>,
    asks_route: bool,
}

/// The classes of a packet, from the outermost classful qdisc inwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Path {
    /// The class at the outermost qdisc; 0 for none.
    pub class: u32,
    /// The class at the qdisc below that class, and so on; 0 for none.
    pub inner: [u16; INNER_LEVELS],
}

impl Path {
    /// Writes the path into the packet's metadata.
    #[inline]
    pub fn write(self, meta: &mut Meta) {
        (meta.class, meta.inner) = (self.class, self.inner);
    }
}

impl Classification {
    /// Compiles `rules` and the actions that they refer to, sharing unchanged parts with `before`.
    pub fn of(rules: &Rules, actions: &Actions, before: Option<&Self>) -> Self {
        let none = Classifier::default();
        let classifier = before.map_or(&none, |before| &before.classifier);
        let below = rules.below.iter().map(|(class, rules)| {
            let before = before.and_then(|before| before.below.get(class));
            (*class, Self::of(rules, actions, before))
        });
        let below: BTreeMap<u32, Self> = below.collect();
        let classifier = classifier.with(&rules.filters, actions).of_qdisc(rules.major);
        let asks_route = classifier.asks_route() || below.values().any(Self::asks_route);
        Self { classifier, otherwise: rules.otherwise, below, asks_route }
    }

    /// Whether it has more filters than the near caches hold, so that [`Self::look_ahead`] helps.
    #[inline]
    pub fn is_far(&self) -> bool {
        self.classifier.is_far()
    }

    /// Whether a filter asks for the route that packets take.
    #[inline]
    pub fn asks_route(&self) -> bool {
        self.asks_route
    }

    /// The first filter of the outermost qdisc for each of the first [`AHEAD`] of `subjects`.
    #[inline]
    pub fn look_ahead(&self, subjects: &[Option<Subject<'_>>]) -> [Found; AHEAD] {
        self.classifier.look_ahead(subjects)
    }

    /// The path of `subject` at `now`, by filters and their actions; `None` if the packet is
    /// dropped. `found` is the result of a look-up ahead.
    #[inline]
    pub fn classify(
        &self,
        mut found: Found,
        subject: &mut Subject<'_>,
        now: Nanos,
    ) -> Option<Path> {
        // Only the outermost qdisc's filters were looked up ahead.
        let mut found = || std::mem::take(&mut found);
        self.walk(|rules| match rules.classifier.classify(found(), subject, now) {
            Verdict::Drop => None,
            Verdict::Class(0) => Some(rules.otherwise.class(subject.skb_priority())),
            Verdict::Class(class) => Some(class),
        })
    }

    /// Classifies `subject` again, without counting; see [`Classifier::retrace`].
    pub fn retrace(&self, subject: &mut Subject<'_>) -> Option<Path> {
        self.walk(|rules| match rules.classifier.retrace(subject) {
            Verdict::Drop => None,
            Verdict::Class(0) => Some(rules.otherwise.class(subject.skb_priority())),
            Verdict::Class(class) => Some(class),
        })
    }

    /// The path of `frame`, which takes `route` if that is known, without running actions: they
    /// must not run a second time.
    #[inline]
    pub fn path(&self, frame: &[u8], route: Option<RouteTaken>) -> Path {
        let mut subject = Subject::new(frame);
        if let (Some(subject), Some(route)) = (&mut subject, route) {
            subject.set_route(route);
        }
        let path = self.walk(|rules| {
            let class = subject
                .as_ref()
                .map_or(0, |subject| rules.classifier.class_of(Found::default(), subject));
            Some(match class {
                0 => rules.otherwise.class(priority(frame)),
                class => class,
            })
        });
        path.unwrap_or_default()
    }

    /// The path whose classes `class` finds, from the outermost qdisc inwards.
    #[inline]
    fn walk(&self, mut class: impl FnMut(&Self) -> Option<u32>) -> Option<Path> {
        let outermost = class(self)?;
        let mut path = Path { class: outermost, ..Path::default() };
        let mut at = self.below.get(&outermost);
        for inner in &mut path.inner {
            let Some(below) = at else { break };
            let class = class(below)?;
            *inner = u16::try_from(class).unwrap_or(0);
            at = below.below.get(&class);
        }
        Some(path)
    }
}

impl Otherwise {
    /// The class for packets of this priority.
    #[inline]
    fn class(&self, priority: u8) -> u32 {
        match self {
            Self::Class(class) => *class,
            Self::Priority(map) => map[usize::from(priority & PRIORITY_MASK)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ANY_PROTOCOL, Filter, Flower, Matches, PortRange};
    use etherparse::PacketBuilder;
    use std::sync::Arc;

    fn frame(port: u16, tos: u8) -> Vec<u8> {
        let builder =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        let mut frame = Vec::new();
        builder.udp(999, port).write(&mut frame, &[0; 20]).unwrap();
        frame[15] = tos;
        frame
    }

    fn to_port(port: u16, class: u32) -> Blocks {
        let ports = Some(PortRange { first: port, last: port });
        let matches = Matches::Flower(Flower { destination_port: ports, ..Flower::default() });
        let filter = Filter::new(1, 1, ANY_PROTOCOL, matches, class);
        Blocks::from([(0, [(filter.order(), Arc::new(filter))].into_iter().collect())])
    }

    fn bands() -> Otherwise {
        // Interactive first, bulk last.
        let mut map = [2; 16];
        (map[6], map[2]) = (1, 3);
        Otherwise::Priority(map)
    }

    fn rules(major: u32, filters: Blocks, otherwise: Otherwise) -> Rules {
        Rules { major, filters, otherwise, below: BTreeMap::new() }
    }

    fn installed(rules: &Rules) -> Classification {
        Classification::of(rules, &Actions::default(), None)
    }

    #[test]
    fn filters_come_before_the_priority() {
        let bands = installed(&rules(1, to_port(53, 1), bands()));
        let class = |port, tos| bands.path(&frame(port, tos), None).class;
        assert_eq!([class(53, 0), class(53, 8), class(80, 0)], [1, 1, 2]);
        assert_eq!([class(80, 0x10), class(80, 8)], [1, 3]);
        assert_eq!(bands.path(&[], None), Path { class: 2, inner: [0; 2] }, "not even a frame");
    }

    #[test]
    fn each_qdisc_on_the_way_has_filters_of_its_own() {
        let mut root = rules(1, to_port(53, 0x10), Otherwise::Class(0x30));
        let mut middle = rules(2, Blocks::new(), bands());
        middle.below.insert(1, rules(3, to_port(80, 7), Otherwise::Class(0)));
        root.below.insert(0x30, middle);
        let root = installed(&root);
        let path = |port, tos| root.path(&frame(port, tos), None);
        assert_eq!(path(53, 0x10), Path { class: 0x10, inner: [0, 0] });
        assert_eq!(path(80, 0x10), Path { class: 0x30, inner: [1, 7] });
        assert_eq!(path(81, 0x10), Path { class: 0x30, inner: [1, 0] });
        assert_eq!(path(80, 0x08), Path { class: 0x30, inner: [3, 0] });
    }

    #[test]
    fn an_explicit_priority_is_a_class_or_chooses_a_band() {
        let bands = installed(&rules(1, to_port(53, 1), bands()));
        let class = |port, tos, priority| {
            let frame = frame(port, tos);
            let mut subject = Subject::new(&frame).unwrap();
            subject.priority = priority;
            bands.classify(Found::default(), &mut subject, Nanos::ZERO).unwrap().class
        };
        assert_eq!([class(80, 0, 0), class(80, 0, 6), class(80, 8, 6)], [2, 1, 1]);
        assert_eq!(class(53, 0, 0x1_0003), 3, "a class of its own, before any filter");
        assert_eq!(class(80, 8, 0x9_0003), 2, "a class of another qdisc is no priority");
        assert_eq!(class(53, 8, 0x9_0003), 1);
    }
}
