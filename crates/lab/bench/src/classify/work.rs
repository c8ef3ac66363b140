//! One structure with its filters and its packets.

use super::rules::{Flow, Rules};
use narrows_classify::{AHEAD, Classifier, Filter, Flower, Matches, Subject as Packet};
use prefix_trie::PrefixMap;
use std::collections::HashMap;
use std::sync::Arc;

/// Packets in a cycle; a power of two.
const PACKETS: usize = 1 << 12;
/// The most look-ups of a walk in one repeat, times the filters that it walks.
const STEPS: u64 = 500_000;

/// By what filters are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// [`Classifier`], from the packet's keys on.
    Tables,
    /// [`Classifier`], from the packet's bytes on.
    TablesFromBytes,
    /// One filter after the other.
    Walk,
    /// A hash map of the standard library, by the destination alone.
    HashMap,
    /// `prefix-trie`, by the destination alone.
    Trie,
}

impl Subject {
    /// The structures that support `rules`.
    pub fn of(rules: Rules) -> Vec<Self> {
        let ours = [Self::Tables, Self::TablesFromBytes, Self::Walk];
        let peers: &[Self] = match rules {
            Rules::Addresses => &[Self::HashMap, Self::Trie],
            Rules::Prefixes | Rules::PrefixesV6 => &[Self::Trie],
            Rules::Mixed => &[],
        };
        [&ours, peers].concat()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::TablesFromBytes => "tables, from bytes",
            Self::Walk => "walk",
            Self::HashMap => "HashMap",
            Self::Trie => "prefix-trie",
        }
    }
}

/// A classifier under measurement, with its filters and its packets.
pub struct Work {
    frames: Vec<[u8; 64]>,
    destinations: Vec<u128>,
    structure: Structure,
    filters: u64,
    next: usize,
}

enum Structure {
    Tables(Classifier, Vec<Option<Packet<'static>>>),
    FromBytes(Classifier),
    Walk(Vec<Arc<Filter>>),
    HashMap(HashMap<u32, u32>),
    Trie(Box<PrefixMap<(u32, u8), u32>>),
    TrieV6(Box<PrefixMap<(u128, u8), u32>>),
}

impl Work {
    /// The work of `subject` with `rules`.
    pub fn new(subject: Subject, rules: Rules) -> Self {
        let flows = rules.flows(PACKETS);
        let frames: Vec<[u8; 64]> = flows.iter().map(Flow::frame).collect();
        let filters = rules.filters();
        let destinations = |filter: &Arc<Filter>| match &filter.matches {
            Matches::Flower(Flower { destination: Some(prefix), .. }) => {
                Some((prefix.bits().0, prefix.mask().count_ones() as u8, filter.class))
            }
            _ => None,
        };
        // The last one stays there, and of two filters the first one decides.
        let listed: Vec<_> = filters.iter().map(|(_, filter)| Arc::clone(filter)).collect();
        let peers = listed.iter().rev().filter_map(destinations);
        let structure = match subject {
            Subject::Tables => {
                // They outlive the work: as many bytes as there are, once.
                let frames: &'static [[u8; 64]] = Box::leak(frames.clone().into_boxed_slice());
                let packets = frames.iter().map(|frame| Packet::new(frame)).collect();
                Structure::Tables(Classifier::new(filters.clone()), packets)
            }
            Subject::TablesFromBytes => Structure::FromBytes(Classifier::new(filters.clone())),
            Subject::Walk => {
                Structure::Walk(filters.iter().map(|(_, filter)| Arc::clone(filter)).collect())
            }
            Subject::HashMap => {
                let all = peers.map(|(address, _, class)| (address as u32, class));
                Structure::HashMap(all.collect())
            }
            Subject::Trie if rules == Rules::PrefixesV6 => Structure::TrieV6(Box::new(
                peers.map(|(address, len, class)| ((address, len), class)).collect(),
            )),
            Subject::Trie => Structure::Trie(Box::new(
                peers.map(|(address, len, class)| ((address as u32, len), class)).collect(),
            )),
        };
        let destinations = flows.iter().map(|flow| flow.destination).collect();
        Self { frames, destinations, structure, filters: filters.len() as u64, next: 0 }
    }

    /// As many of `packets` as fit into a reasonable time.
    pub fn at_most(&self, packets: u64) -> u64 {
        match self.structure {
            Structure::Walk(_) => packets.min(STEPS / self.filters),
            _ => packets,
        }
    }

    /// Looks up this many packets. Returns the sum of their classes.
    pub fn run(&mut self, packets: u64) -> u64 {
        let start = self.next;
        self.next = (start + packets as usize) % PACKETS;
        let end = start + packets as usize;
        let places = (start..end).map(|at| at % PACKETS);
        let mut next = start;
        let batches = std::iter::from_fn(|| {
            // A batch does not go over the end of the cycle.
            let at = next % PACKETS;
            let len = AHEAD.min(end - next).min(PACKETS - at);
            next += len;
            (len > 0).then_some(at..at + len)
        });
        match &self.structure {
            Structure::Tables(classifier, all) => {
                batches.map(|batch| classes(classifier, &all[batch])).sum()
            }
            Structure::FromBytes(classifier) => {
                let mut subjects = [const { None }; AHEAD];
                let sum = batches.map(|batch| {
                    let frames = &self.frames[batch];
                    // As a worker does.
                    frames.iter().for_each(narrows_cpu::prefetch);
                    for (subject, frame) in subjects.iter_mut().zip(frames) {
                        Packet::read(frame, subject);
                    }
                    classes(classifier, &subjects[..frames.len()])
                });
                sum.sum()
            }
            Structure::Walk(filters) => places
                .filter_map(|at| {
                    let packet = Packet::new(&self.frames[at])?;
                    filters.iter().find(|filter| filter.matches(&packet))
                })
                .map(|filter| u64::from(filter.class))
                .sum(),
            Structure::HashMap(map) => places
                .filter_map(|at| map.get(&(self.destinations[at] as u32)))
                .map(|class| u64::from(*class))
                .sum(),
            Structure::Trie(trie) => places
                .filter_map(|at| trie.get_lpm(&(self.destinations[at] as u32, 32)))
                .map(|(_, class)| u64::from(*class))
                .sum(),
            Structure::TrieV6(trie) => places
                .filter_map(|at| trie.get_lpm(&(self.destinations[at], 128)))
                .map(|(_, class)| u64::from(*class))
                .sum(),
        }
    }
}

/// The sum of the classes of `subjects`, at most [`AHEAD`].
#[inline]
fn classes(classifier: &Classifier, subjects: &[Option<Packet<'_>>]) -> u64 {
    let found = classifier.look_ahead(subjects).into_iter().zip(subjects);
    let class = |(found, subject): (_, &Option<_>)| {
        let class = classifier.class_of(found, subject.as_ref()?);
        Some(u64::from(class))
    };
    found.filter_map(class).sum()
}
