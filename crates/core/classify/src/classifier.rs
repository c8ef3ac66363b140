//! All filters of a qdisc, evaluated once per packet.

use crate::ahead::{AHEAD, Found};
use crate::block::Block;
use crate::table::Rank;
use crate::{ActionId, Control, Filter, Filters, PersistentMap, Running, Subject};
use narrows_units::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The filters of a qdisc by the class to which they are attached; 0 for the qdisc itself. A class
/// with an empty list takes no packets: those assigned to it have no class.
pub type Blocks = BTreeMap<u32, Filters>;

/// Running actions, by their [keys](ActionId::key).
pub type Actions = PersistentMap<Arc<Running>>;

/// How often a packet may be reclassified, as in the kernel.
const RECLASSIFIED_MAX: u32 = 16;

/// The most jumps between the actions of a filter (`TCA_ACT_MAX_PRIO`).
const JUMPS_MAX: u32 = 32;

/// The filters of a qdisc; see the crate's documentation.
#[derive(Clone, Default)]
pub struct Classifier {
    root: Block,
    /// The filters attached to classes. They run after a filter has assigned their class.
    inner: BTreeMap<u32, Block>,
    actions: Actions,
    /// The qdisc's major number. An action may already have named one of its classes.
    major: u32,
}

/// The result of the filters for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet has this class; 0 for none.
    Class(u32),
    /// The packet is dropped.
    Drop,
}

/// How actions run.
#[derive(Clone, Copy)]
enum Run {
    /// They count, and keep rates, at this time.
    Counted(Nanos),
    /// They ran before.
    Again,
}

impl Classifier {
    /// Compiles the `filters` of a qdisc.
    pub fn new(filters: Filters) -> Self {
        Self { root: Block::new(filters), ..Self::default() }
    }

    /// Compiles `blocks` and the actions that they refer to, sharing unchanged parts with this
    /// classifier. The cost depends on the size of the difference.
    #[must_use]
    pub fn with(&self, blocks: &Blocks, actions: &Actions) -> Self {
        let root = blocks.get(&0).cloned().unwrap_or_default();
        let inner = blocks.iter().filter(|(class, _)| **class != 0);
        let inner = inner.map(|(class, filters)| {
            let block = self.inner.get(class).map(|block| block.with(filters));
            (*class, block.unwrap_or_else(|| Block::new(filters.clone())))
        });
        let (root, actions) = (self.root.with(&root), actions.clone());
        Self { root, inner: inner.collect(), actions, major: self.major }
    }

    /// This classifier for the qdisc `major`: a packet whose priority names one of its classes has
    /// that class.
    #[must_use]
    pub fn of_qdisc(self, major: u32) -> Self {
        Self { major, ..self }
    }

    /// Whether it has no effect on any packet.
    pub fn is_empty(&self) -> bool {
        self.root.filters().is_empty() && self.inner.is_empty()
    }

    /// Whether it has more filters than the near caches hold, so that [`Self::look_ahead`] helps.
    #[inline]
    pub fn is_far(&self) -> bool {
        self.root.is_far()
    }

    /// Whether a filter asks for the route that packets take.
    #[inline]
    pub fn asks_route(&self) -> bool {
        self.root.asks_route() || self.inner.values().any(Block::asks_route)
    }

    /// The first filter for each of the first [`AHEAD`] of `subjects`.
    #[inline]
    pub fn look_ahead(&self, subjects: &[Option<Subject<'_>>]) -> [Found; AHEAD] {
        self.root.find_all(subjects)
    }

    /// The class of `frame`, ignoring actions; 0 if no filter matches.
    #[inline]
    pub fn class(&self, frame: &[u8]) -> u32 {
        if self.root.filters().is_empty() {
            return 0;
        }
        Subject::new(frame).map_or(0, |subject| self.class_of(Found::default(), &subject))
    }

    /// The class of a packet whose headers have been parsed, ignoring actions; 0 if no filter
    /// matches. `found` is the result of a look-up ahead.
    #[inline]
    pub fn class_of(&self, found: Found, subject: &Subject<'_>) -> u32 {
        let rank = found.rank_or(|| self.root.find(subject, Rank::FIRST));
        let mut class = class_at(&self.root, rank);
        while !self.inner.is_empty()
            && let Some(block) = self.inner.get(&class)
        {
            class = class_at(block, block.find(subject, Rank::FIRST));
        }
        class
    }

    /// Classifies `subject` at `now`, by filters and their actions. `found` is the result of a
    /// look-up ahead, which does not count if an action has changed the packet since.
    #[inline]
    pub fn classify(&self, found: Found, subject: &mut Subject<'_>, now: Nanos) -> Verdict {
        self.decide(found, subject, Run::Counted(now))
    }

    /// Classifies `subject` again, without counting: its actions have run in another process. The
    /// result is that of a packet which exceeds no rate and is not selected at random.
    pub fn retrace(&self, subject: &mut Subject<'_>) -> Verdict {
        self.decide(Found::default(), subject, Run::Again)
    }

    #[inline(always)]
    fn decide(&self, found: Found, subject: &mut Subject<'_>, run: Run) -> Verdict {
        let mut verdict = match subject.class_of_qdisc(self.major) {
            0 => {
                let found = if subject.is_untouched() { found } else { Found::default() };
                let rank = found.rank_or(|| self.root.find(subject, Rank::FIRST));
                self.follow(&self.root, rank, subject, run)
            }
            class => Verdict::Class(class),
        };
        // Terminates: each filter assigns a class below its own.
        while let Verdict::Class(class) = verdict
            && !self.inner.is_empty()
            && let Some(block) = self.inner.get(&class)
        {
            verdict = self.follow(block, block.find(subject, Rank::FIRST), subject, run);
        }
        verdict
    }

    /// The result of the filters of one block, from the filter at `rank` on.
    #[inline]
    fn follow(
        &self,
        block: &Block,
        rank: Option<Rank>,
        subject: &mut Subject<'_>,
        run: Run,
    ) -> Verdict {
        let Some(rank) = rank else { return Verdict::Class(0) };
        match rank.class() {
            Some(class) => Verdict::Class(class),
            None => self.act(block, rank, subject, run),
        }
    }

    /// The result of the filters of one block from the filter at `rank` on, with their actions.
    #[inline(never)]
    fn act(&self, block: &Block, rank: Rank, subject: &mut Subject<'_>, run: Run) -> Verdict {
        let mut found = Some(rank);
        let mut reclassified = 0;
        while let Some(rank) = found {
            let Some(filter) = block.filters().get(rank.order()) else { break };
            match self.acted(&filter.actions, subject, run) {
                Control::Pass | Control::Pipe | Control::Jump(_) => {
                    return Verdict::Class(filter.class);
                }
                Control::Drop => return Verdict::Drop,
                Control::Continue => found = block.find(subject, behind(filter)),
                Control::Reclassify if reclassified < RECLASSIFIED_MAX => {
                    reclassified += 1;
                    found = block.find(subject, Rank::FIRST);
                }
                Control::Reclassify => return Verdict::Drop,
            }
        }
        Verdict::Class(0)
    }

    fn acted(&self, actions: &[ActionId], subject: &mut Subject<'_>, run: Run) -> Control {
        let (mut at, mut jumps) = (0, 0);
        while let Some(id) = actions.get(at) {
            let Some(action) = self.actions.get(id.key()) else {
                at += 1;
                continue;
            };
            let control = match run {
                Run::Counted(now) => action.act(*id, subject, now),
                Run::Again => action.apply(*id, subject),
            };
            match control {
                Control::Pipe => at += 1,
                // As in the kernel, a circle ends after as many jumps as a filter can have actions.
                Control::Jump(to) if to > 0 && jumps + 1 < JUMPS_MAX => {
                    jumps += 1;
                    at = usize::from(to);
                }
                Control::Jump(_) => return Control::Pass,
                control => return control,
            }
        }
        Control::Pipe
    }

    /// The first filter of the qdisc that matches `subject`, after `after` if given.
    pub fn find(&self, subject: &Subject<'_>, after: Option<&Filter>) -> Option<&Arc<Filter>> {
        let rank = self.root.find(subject, after.map_or(Rank::FIRST, behind))?;
        self.root.filters().get(rank.order())
    }

    /// The memory of its tables in bytes. The filters themselves belong to the policy.
    pub fn bytes(&self) -> usize {
        self.root.bytes() + self.inner.values().map(Block::bytes).sum::<usize>()
    }
}

/// The class of the filter of `block` at `rank`; 0 without one.
#[inline]
fn class_at(block: &Block, rank: Option<Rank>) -> u32 {
    let Some(rank) = rank else { return 0 };
    let looked_up = || block.filters().get(rank.order()).map_or(0, |filter| filter.class);
    rank.class().unwrap_or_else(looked_up)
}

/// The last rank that `filter` can have, for any class.
fn behind(filter: &Filter) -> Rank {
    Rank::behind(filter.order())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ANY_PROTOCOL, Flower, Matches, Prefix, Selector};
    use etherparse::PacketBuilder;

    fn frame(to: [u8; 4], port: u16) -> Vec<u8> {
        let builder =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], to, 64).udp(999, port);
        let mut frame = Vec::new();
        builder.write(&mut frame, &[0; 20]).unwrap();
        frame
    }

    fn filter(pref: u16, matches: Matches, class: u32) -> Filter {
        Filter::new(pref, 1, ANY_PROTOCOL, matches, class)
    }

    fn classifier(filters: Vec<Filter>) -> Classifier {
        let filters = filters.into_iter().map(|filter| (filter.order(), Arc::new(filter)));
        Classifier::new(filters.collect())
    }

    #[test]
    fn the_first_by_priority_decides() {
        let to = Flower { destination: Some(Prefix::v4([10, 9, 0, 0], 16)), ..Flower::default() };
        let classifier = classifier(vec![
            filter(9, Matches::All, 3),
            filter(1, Matches::Flower(to), 1),
            filter(2, Matches::Words(vec![Selector::network(16, 0x0a08_0000, 0xffff_0000)]), 2),
        ]);
        let class = |to| classifier.class(&frame(to, 53));
        assert_eq!([class([10, 9, 1, 2]), class([10, 8, 1, 2]), class([10, 7, 1, 2])], [1, 2, 3]);
        assert_eq!(classifier.class(&[0; 10]), 0, "not even an Ethernet header");
    }

    #[test]
    fn a_jump_leads_to_an_action_by_its_place_and_a_circle_of_them_ends() {
        use crate::{Action, ActionKind, Running};
        // The index of an action that marks a packet is its mark.
        let id = |index| ActionId { kind: ActionKind::Gact, index };
        let jump = |to| Action::Gact { control: Control::Jump(to), random: None };
        let mark = |value: u32| Action::Skbedit {
            priority: None,
            mark: Some(crate::Mark { value, mask: value }),
            idle: crate::Idle::default(),
            control: Control::Pipe,
        };
        let drop = Action::Gact { control: Control::Drop, random: None };
        let verdict = |all: &[Action]| {
            let running = (1..).zip(all).map(|(index, action)| {
                (id(index).key(), Arc::new(Running::new(*action, Arc::default(), None)))
            });
            let acting = Filter {
                actions: (1..).zip(all).map(|(index, _)| id(index)).collect(),
                ..filter(1, Matches::All, 7)
            };
            let filters = std::iter::once((acting.order(), Arc::new(acting))).collect();
            let blocks = Blocks::from_iter([(0, filters)]);
            let classifier = Classifier::default().with(&blocks, &running.collect());
            let frame = frame([10, 0, 0, 1], 53);
            let mut subject = Subject::new(&frame).unwrap();
            let verdict = classifier.classify(Found::default(), &mut subject, Nanos::ZERO);
            (verdict, subject.mark())
        };
        let passed = Verdict::Class(7);
        assert_eq!(verdict(&[jump(2), drop, mark(4)]), (passed, 4));
        assert_eq!(verdict(&[mark(1), jump(3), mark(2), mark(4), drop]), (Verdict::Drop, 5));
        // Where no action is, the packet passes.
        assert_eq!(verdict(&[jump(9), drop]), (passed, 0));
        assert_eq!(verdict(&[jump(0), drop]), (passed, 0));
        assert_eq!(verdict(&[mark(1), jump(1), drop]), (passed, 1));
    }

    #[test]
    fn thousands_of_filters_of_many_shapes_decide_alike_looked_up_ahead_or_not() {
        let filters = (0..3000u32).map(|number| {
            let [_, _, high, low] = number.to_be_bytes();
            let of = |len: u32| Some(Prefix::v4([10, high, low, 7], 8 + (len % 25) as u8));
            let to =
                Flower { destination: of(number), source: of(number / 25), ..Flower::default() };
            let handle = number;
            Filter { handle, ..filter(1 + low as u16, Matches::Flower(to), number % 9 + 1) }
        });
        let classifier = classifier(filters.collect());
        assert!(classifier.is_far());
        let frames: Vec<Vec<u8>> = (0..40).map(|at| frame([10, at, at ^ 3, 7], 9)).collect();
        for frames in frames.chunks(AHEAD) {
            let subjects: Vec<_> = frames.iter().map(|frame| Subject::new(frame)).collect();
            let found = classifier.look_ahead(&subjects);
            for ((frame, subject), found) in frames.iter().zip(subjects.iter().flatten()).zip(found)
            {
                let matching = classifier.root.filters().iter().find(|(_, it)| it.matches(subject));
                let class = matching.map_or(0, |(_, filter)| filter.class);
                assert_eq!(classifier.class_of(found, subject), class);
                assert_eq!(classifier.class(frame), class);
            }
        }
    }

    #[test]
    fn subscribers_are_found_by_address_and_by_tags_whatever_they_come_in() {
        let to = |last| Flower {
            destination: Some(Prefix::v4([10, 1, 0, last], 32)),
            ..Flower::default()
        };
        let word = Selector::network(16, 0x0a01_0002, u32::MAX);
        let tags = Flower {
            vlan_id: Some(100),
            vlan_ether_type: Some(crate::VLAN),
            inner_vlan_id: Some(7),
            ..Flower::default()
        };
        let ip = |filter: Filter| Filter { protocol: 0x0800, ..filter };
        let classifier = classifier(vec![
            ip(filter(1, Matches::Flower(to(1)), 1)),
            ip(filter(2, Matches::Words(vec![word]), 2)),
            Filter { protocol: crate::SERVICE_VLAN, ..filter(3, Matches::Flower(tags), 3) },
            Filter { protocol: 0x8864, ..filter(4, Matches::All, 4) },
            filter(9, Matches::All, 9),
        ]);
        let class = |link: &[u8], last: u8| {
            let plain = frame([10, 1, 0, last], 53);
            classifier.class(&[&plain[..12], link, &plain[14..]].concat())
        };
        let pppoe = [0x88, 0x64, 0x11, 0, 0, 1, 0, 50, 0, 0x21];
        let labels = [0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64];
        let in_tags = [&[0x88, 0xa8, 0, 100, 0x81, 0, 0, 7], &pppoe[..]].concat();
        for link in [&[8, 0][..], &pppoe, &labels, &in_tags] {
            assert_eq!([class(link, 1), class(link, 2)], [1, 2], "{link:x?}");
        }
        assert_eq!([class(&in_tags, 3), class(&pppoe, 3), class(&labels, 3)], [3, 4, 9]);
        let other = [0x88, 0xa8, 0, 100, 0x88, 0xa8, 0, 7, 8, 0];
        assert_eq!(class(&other, 3), 9, "the second tag is not of 802.1Q");
    }

    #[test]
    fn a_protocol_that_is_not_the_packets_does_not_match() {
        let six = Filter { protocol: 0x86dd, ..filter(1, Matches::All, 1) };
        let four = Filter { protocol: 0x0800, ..filter(2, Matches::All, 2) };
        assert_eq!(classifier(vec![six, four]).class(&frame([1, 2, 3, 4], 5)), 2);
    }
}
