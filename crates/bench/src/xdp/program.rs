//! A program, loaded, with the frames that are put through it.

use super::shape::{LEAVES, Shape, Subject};
use anyhow::{Context, Result, ensure};
use libbpf_rs::ObjectBuilder;
use narrows_bpf::test_run;
use narrows_bpf::tree::layout::{Class, Key, Mask, PRIORITIES, Rule};
use narrows_bpf::tree::{Image, Tree};
use narrows_bpf::{By, Does, Front, FrontMaps, FrontPort, LookUp, SetTables, Step, Term, Then};
use narrows_sets::{Host, Named, Sets};
use narrows_units::Nanos;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The objects that are compiled for this.
const EMPTY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/empty.bpf.o"));
const PERCPU: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bucket_percpu.bpf.o"));
const SHARED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bucket_shared.bpf.o"));
const LOCKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bucket_locked.bpf.o"));

/// The frame's length in bytes, and what its classes look at.
const FRAME: usize = 64;
const TOS: usize = 15;
const DESTINATION_PORT: usize = 36;
/// TOS bytes that are different priorities, by CPU, and these priorities.
const PRIORITY_OF: [(u8, usize); LEAVES] = [(0x00, 0), (0x08, 2), (0x10, 6), (0x18, 4)];

/// A rate that no CPU reaches with such frames, for each CPU, and one that each exceeds: 20 Gbit/s
/// and 500 Mbit/s, in bytes a second.
const FREE: u64 = 2_500_000_000;
const BOUND: u64 = 62_500_000;

/// As the XDP plane sets classes up.
const MS: u64 = 1_000_000;
const BURST: u64 = MS;
const LIMIT: u64 = 5 * MS;
const INTERVAL: u64 = 100 * MS;
const INNER_LIMIT: u64 = 100 * MS;
const BATCH: u32 = 50_000;

/// A program in the kernel.
pub(super) struct Program {
    shape: Shape,
    loaded: Loaded,
}

enum Loaded {
    /// With the program's own descriptor.
    Bucket(OwnedFd),
    Tree(Box<Tree>),
}

impl Program {
    /// Loads the one of `shape`.
    pub(super) fn load(shape: Shape) -> Result<Self> {
        let loaded = match shape.subject {
            Subject::Empty => Loaded::Bucket(object(EMPTY, None)?),
            Subject::BucketPercpu => Loaded::Bucket(object(PERCPU, Some(rate(shape)))?),
            Subject::BucketShared => Loaded::Bucket(object(SHARED, Some(rate(shape)))?),
            Subject::BucketLocked => Loaded::Bucket(object(LOCKED, Some(rate(shape)))?),
            Subject::Set => {
                let set = set(shape.entries)?;
                let mut tree = Tree::load([2; 6], false)?;
                tree.put_in_front(Some(set))?;
                Loaded::Tree(Box::new(tree))
            }
            Subject::Tree | Subject::Filter { .. } => {
                let mut tree = Tree::load([2; 6], false)?;
                // Nothing is sent in a test run: the loopback device will do.
                tree.connect(1)?;
                let image = image(shape);
                let new: Vec<u32> = image.classes.keys().copied().collect();
                tree.install(image, &new)?;
                Loaded::Tree(Box::new(tree))
            }
        };
        Ok(Self { shape, loaded })
    }

    /// What it is.
    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Its descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.loaded {
            Loaded::Bucket(program) => program.as_fd(),
            Loaded::Tree(tree) => tree.program(),
        }
    }

    /// What the CPU with this number, from 0 on, puts through it.
    pub(super) fn frame(&self, cpu: usize) -> Vec<u8> {
        let own = if self.shape.contended { 0 } else { cpu };
        let mut frame = vec![0; FRAME];
        frame[..6].fill(4);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[TOS] = PRIORITY_OF[own % LEAVES].0;
        frame[16..18].copy_from_slice(&((FRAME - 14) as u16).to_be_bytes());
        frame[22..24].copy_from_slice(&[64, 17]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[DESTINATION_PORT..][..2].copy_from_slice(&(own as u16).to_be_bytes());
        frame
    }

    /// Demands a verdict that this program gives under its load.
    pub(super) fn judge(&self, verdict: u32) -> Result<()> {
        let passes = match self.shape.subject {
            Subject::Tree | Subject::Filter { .. } => test_run::REDIRECT,
            Subject::Set => test_run::DROP,
            _ => test_run::PASS,
        };
        let is_right = verdict == passes || self.shape.bound && verdict == test_run::DROP;
        ensure!(is_right, "{} says {verdict}", self.shape);
        Ok(())
    }
}

fn rate(shape: Shape) -> u64 {
    if shape.bound { BOUND } else { FREE * shape.cpus as u64 }
}

/// Loads the one program of an object. Its maps live as long as it does.
fn object(bytes: &[u8], rate: Option<u64>) -> Result<OwnedFd> {
    let mut open = ObjectBuilder::default().open_memory(bytes)?;
    if let Some(rate) = rate {
        let mut maps = open.maps_mut();
        let constants = maps.find(|map| map.name().to_string_lossy().ends_with(".rodata"));
        constants.context("no constants")?.set_initial_value(&rate.to_ne_bytes())?;
    }
    let loaded = open.load()?;
    let program = loaded.progs().next().context("no program")?;
    Ok(program.as_fd().try_clone_to_owned()?)
}

/// A filter that drops what comes from a prefix of a set. Prefixes have 24 and 28 bits, of networks all
/// over the address space; one of them is the frame's.
fn set(entries: u32) -> Result<Front> {
    let mut lines = vec!["create nrw hash:net maxelem 1000000".to_owned()];
    lines.push("add nrw 10.0.0.0/28".to_owned());
    lines.extend((1..entries).map(|entry| {
        // Knuth's multiplier spreads them; below 224.0.0.0.
        let network = entry.wrapping_mul(2_654_435_761) % 0xe000_0000;
        let bits = if entry % 2 == 0 { 24 } else { 28 };
        format!("add -exist nrw {}/{bits}", Ipv4Addr::from(network | 0x0b00_0000))
    }));
    let mut sets = Sets::default();
    for line in lines {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let reply = sets.run(&words, Nanos::ZERO, &Alone);
        ensure!(reply.code == 0, "{line}: {}", reply.stderr);
    }
    let mut tables = SetTables::new()?;
    tables.follow(&mut sets)?;
    let slot = sets.get("nrw").context("there is no set")?.slot;
    let look_up = LookUp { set: slot as u16, address: By::Source, port: None, is_negated: false };
    let step = Step { does: Does::Decide, then: Then::Drop, exceed: Then::Drop, counter: None };
    let mut term = Term::any();
    term.look_ups.push(look_up);
    term.steps.push(step);
    let port = FrontPort { mac: [2; 6], multi_buffer: false };
    Ok(Front::load(port, &[term], Some(&tables), &mut FrontMaps::new()?)?)
}

/// Sets that nothing else knows of.
struct Alone;

impl Host for Alone {
    fn references(&self, _: &str) -> usize {
        0
    }

    fn counted(&self, _: &Named, _: &narrows_sets::Key) -> (u64, u64) {
        (0, 0)
    }
}

/// Leaves 1 and on, below a chain of classes up to the root; with a depth of one each leaf is a root.
fn image(shape: Shape) -> Image {
    let leaves = if shape.contended { 1 } else { shape.cpus.min(LEAVES) as u32 };
    let rate = rate(shape);
    let inner = shape.depth - 1;
    let class = |limit| Class {
        rate,
        ceil: rate,
        burst: BURST,
        limit,
        target: LIMIT / 4,
        interval: INTERVAL,
        batch: BATCH,
        quantum: 1,
        ..Class::default()
    };
    let mut classes = BTreeMap::new();
    for leaf in 1..=leaves {
        let below = Class { rate: rate / u64::from(leaves), ..class(LIMIT) };
        let parent = if inner > 0 { leaves + 1 } else { 0 };
        let sibling = if leaf < leaves { leaf + 1 } else { 0 };
        classes.insert(leaf, Class { parent, sibling, ..below });
    }
    for level in 1..=inner {
        let number = leaves + level;
        let parent = if level < inner { number + 1 } else { 0 };
        let child = if level == 1 { 1 } else { number - 1 };
        classes.insert(number, Class { parent, child, target: u64::MAX, ..class(INNER_LIMIT) });
    }
    let mut otherwise = [1; PRIORITIES];
    for ((_, priority), leaf) in PRIORITY_OF.into_iter().zip(1..=leaves) {
        otherwise[priority] = leaf;
    }
    let (masks, rules) = filters(shape);
    Image { masks, rules, otherwise, classes }
}

/// Rules that nothing matches, but the last one of the last mask: a look-up asks by all of them. Those
/// of other masks are for other sources and other destinations; in a crowd some are for the frame's
/// source, and some for its destination.
fn filters(shape: Shape) -> (Vec<Mask>, Vec<Rule>) {
    const SOURCE: u128 = 0x0a00_0001;
    const DESTINATION: u128 = 0x0a00_0002;
    const OTHER_SOURCE: u128 = 0xc0a8_0000;
    const OTHER_DESTINATION: u128 = 0x0a00_0003;
    let is_crowded = matches!(shape.subject, Subject::Filter { crowded: true });
    let each = u64::from(shape.entries / shape.masks.max(1));
    let mut found = (Vec::new(), Vec::new());
    for number in 0..shape.masks {
        // Masks differ by how much of the source they ask for.
        let bits = Key {
            source: u128::from(u32::MAX << (number % 32)),
            destination: u128::from(u32::MAX),
            ip: u8::MAX,
            ..Key::default()
        };
        let first = u64::from(number) * each;
        found.0.push(Mask { bits, first });
        for rule in 0..each {
            let other = (OTHER_SOURCE, OTHER_DESTINATION + u128::from(rule));
            let (source, destination) = match rule {
                _ if number + 1 == shape.masks && rule + 1 == each => (SOURCE, DESTINATION),
                0 if is_crowded => (SOURCE, OTHER_DESTINATION),
                1 if is_crowded => (OTHER_SOURCE, DESTINATION),
                _ => other,
            };
            let key = Key { source, destination, ip: 4, ..Key::default() }.masked(&bits);
            let order = first + rule;
            found.1.push(Rule { mask: number as u16, key, order, class: 1 });
        }
    }
    found
}
