//! A program, loaded, with the frames that are put through it.

use super::object::{map, with_maps};
use super::prefixes::{SOURCE, bytes, prefixes, sources};
use super::shape::{LEAVES, LookUp as By, Members, Shape, Sharing, Subject};
use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use narrows_bpf::test_run;
use narrows_bpf::tree::layout::{Class, Hosts, Key, Label, Mask, PRIORITIES, Rule, Rules};
use narrows_bpf::tree::term::{Comparison, Layer, Next, Number, Relation, Term as Filter, Test};
use narrows_bpf::tree::{self, HostAddresses, Image, Scope, Tree};
use narrows_bpf::{
    self as bpf, Does, Entry, Field, Front, FrontMaps, FrontPort, Hook, SetTables, SlowPath, Step,
    Term, Then, TripsBeyond, XdpMode,
};
use narrows_sets::{Host, Named, Sets};
use narrows_units::Nanos;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The objects that are compiled for this.
const EMPTY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/empty.bpf.o"));
const EMPTY_TCX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/empty_tcx.bpf.o"));
const PERCPU: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bucket_percpu.bpf.o"));
const SHARED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bucket_shared.bpf.o"));
const LOCKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bucket_locked.bpf.o"));
pub(super) const EMPTY_LIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/empty_live.bpf.o"));
const PERCPU_LIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bucket_percpu_live.bpf.o"));
const SHARED_LIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bucket_shared_live.bpf.o"));
const LOCKED_LIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bucket_locked_live.bpf.o"));
const SPREAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/spread.bpf.o"));
const TRIE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trie.bpf.o"));

/// The frame's length in bytes, and what its classes look at.
const FRAME: usize = 64;
const TOS: usize = 15;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DESTINATION_PORT: usize = 36;
/// TOS bytes that are different priorities, by CPU, and these priorities.
const PRIORITY_OF: [(u8, usize); LEAVES] = [(0x00, 0), (0x08, 2), (0x10, 6), (0x18, 4)];

/// A rate that no CPU reaches with such frames, for each CPU, and one that each exceeds: 20 Gbit/s
/// and 500 Mbit/s, in bytes per second.
const FREE: u64 = 2_500_000_000;
const BOUND: u64 = 62_500_000;

/// The number of a qdisc, and of its class that a filter names.
const NAMED: u32 = 1;

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
    /// The program of a tree at egress, and what holds its maps.
    Stamp {
        stamp: SlowPath,
        _tree: Box<Tree>,
    },
    /// The program that changes each frame's source. The kernel empties the map that leads to the
    /// program under test when no descriptor holds it.
    Spread {
        program: OwnedFd,
        _maps: Vec<MapHandle>,
    },
}

impl Program {
    /// Loads the one of `shape`. Live frames leave by the interface `port`; in a test run nothing
    /// is sent, and the loopback device will do.
    pub(super) fn load(shape: Shape, port: u32) -> Result<Self> {
        let constants: &[u64] = if shape.subject == Subject::Empty { &[] } else { &[rate(shape)] };
        let either = |ending, leaving| -> Result<Loaded> {
            if !shape.is_live {
                return Ok(Loaded::Bucket(object(ending, constants)?));
            }
            let (program, _) = leaving_by(port, leaving, constants)?;
            Ok(Loaded::Bucket(program))
        };
        let loaded = match shape.subject {
            Subject::Empty => either(EMPTY, EMPTY_LIVE)?,
            Subject::BucketPercpu => either(PERCPU, PERCPU_LIVE)?,
            Subject::BucketShared => either(SHARED, SHARED_LIVE)?,
            Subject::BucketLocked => either(LOCKED, LOCKED_LIVE)?,
            Subject::Set(members) => {
                let then = if shape.is_live { Then::Continue } else { Then::Drop };
                let set = set(&prefixes(shape.entries, false), members, then)?;
                let mut tree = Tree::load([2; 6], false, Entry::Own, Hook::Xdp(XdpMode::Native))?;
                tree.connect(port)?;
                tree.put_in_front(Some(set))?;
                Loaded::Tree(Box::new(tree))
            }
            Subject::Spread { by, is_six } => spread(by, is_six, shape.entries)?,
            Subject::EmptyTcx => Loaded::Bucket(object(EMPTY_TCX, &[])?),
            Subject::Stamp(sharing) => {
                let mut tree = Tree::load([2; 6], false, Entry::Own, Hook::Xdp(XdpMode::Native))?;
                let addresses = match sharing {
                    Sharing::Flows | Sharing::Hosts => HostAddresses::InHeaders,
                    Sharing::HostsInside => HostAddresses::Inside,
                };
                let stamp = tree.departures(&[], addresses)?.program;
                let image = image(shape);
                let new: Vec<u32> = image.classes.keys().copied().collect();
                tree.install(image, &new)?;
                Loaded::Stamp { stamp, _tree: Box::new(tree) }
            }
            Subject::Tree
            | Subject::Followed
            | Subject::Valve
            | Subject::Filter { .. }
            | Subject::Terms
            | Subject::Edited => {
                let mut tree = Tree::load([2; 6], false, Entry::Own, Hook::Xdp(XdpMode::Native))?;
                tree.connect(port)?;
                let image = image(shape);
                let new: Vec<u32> = image.classes.keys().copied().collect();
                tree.install(image, &new)?;
                if shape.subject == Subject::Edited {
                    let front = naming(&tree)?;
                    tree.put_in_front(Some(front))?;
                }
                if shape.subject == Subject::Followed {
                    // The kernel keeps it for the tree.
                    tree.time_leaving(Some(&TripsBeyond::new()?))?;
                }
                Loaded::Tree(Box::new(tree))
            }
        };
        Ok(Self { shape, loaded })
    }

    /// Its kind.
    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Its descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.loaded {
            Loaded::Bucket(program) => program.as_fd(),
            Loaded::Tree(tree) => tree.program(),
            Loaded::Stamp { stamp, .. } => stamp.program(),
            Loaded::Spread { program, .. } => program.as_fd(),
        }
    }

    /// The rate of the CPU with this number, counted from 0.
    pub(super) fn frame(&self, cpu: usize) -> Vec<u8> {
        let own = if self.shape.contended { 0 } else { cpu };
        let mut frame = vec![0; FRAME];
        frame[..6].fill(4);
        if matches!(self.shape.subject, Subject::Spread { is_six: true, .. }) {
            frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
            frame[18..22].copy_from_slice(&[0, (FRAME - 54) as u8, UDP, 64]);
            return frame;
        }
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[TOS] = PRIORITY_OF[own % LEAVES].0;
        frame[16..18].copy_from_slice(&((FRAME - 14) as u16).to_be_bytes());
        frame[22..24].copy_from_slice(&[64, UDP]);
        frame[26..30].copy_from_slice(&SOURCE.octets());
        frame[30..34].copy_from_slice(&[10, 0, 0, 2]);
        frame[DESTINATION_PORT..][..2].copy_from_slice(&(own as u16).to_be_bytes());
        if self.shape.subject == Subject::Followed {
            // A header of eight words, with time stamps.
            frame[23] = TCP;
            frame.resize(14 + 20 + 32, 0);
            frame[46] = 0x80;
            frame[54..58].copy_from_slice(&[1, 1, 8, 10]);
        }
        frame
    }

    /// Demands a verdict that this program gives under its load.
    pub(super) fn judge(&self, verdict: u32) -> Result<()> {
        let passes = match self.shape.subject {
            Subject::Tree
            | Subject::Followed
            | Subject::Valve
            | Subject::Filter { .. }
            | Subject::Terms
            | Subject::Edited => test_run::REDIRECT,
            // `TC_ACT_UNSPEC`, and `TC_ACT_SHOT` instead of a drop.
            Subject::EmptyTcx | Subject::Stamp(_) => u32::MAX,
            Subject::Set(_) => test_run::DROP,
            Subject::Spread { by: By::Protocol | By::Set(_) | By::Trie, .. } => test_run::DROP,
            _ => test_run::PASS,
        };
        let is_stamp = matches!(self.shape.subject, Subject::Stamp(_));
        let dropped = if is_stamp { 2 } else { test_run::DROP };
        let is_right = verdict == passes || self.shape.bound && verdict == dropped;
        ensure!(is_right, "{} says {verdict}", self.shape);
        Ok(())
    }
}

fn rate(shape: Shape) -> u64 {
    if shape.bound { BOUND } else { FREE * shape.cpus as u64 }
}

/// Loads the one program of an object, with its constants. Its maps live as long as it does.
fn object(bytes: &[u8], constants: &[u64]) -> Result<OwnedFd> {
    let (program, _) = with_maps(bytes, constants)?;
    Ok(program)
}

/// Loads a program whose frames leave by the interface `port`, and returns its maps, too.
pub(super) fn leaving_by(
    port: u32,
    bytes: &[u8],
    constants: &[u64],
) -> Result<(OwnedFd, Vec<MapHandle>)> {
    let (program, maps) = with_maps(bytes, constants)?;
    map(&maps, "port")?.update(&0_u32.to_ne_bytes(), &port.to_ne_bytes(), MapFlags::ANY)?;
    Ok((program, maps))
}

/// A program that changes each frame's source, followed by one that looks it up.
fn spread(by: By, is_six: bool, entries: u32) -> Result<Loaded> {
    let prefixes = prefixes(entries, is_six);
    let (program, maps) = with_maps(SPREAD, &[is_six.into()])?;
    let into = map(&maps, "sources")?;
    for (number, source) in sources(&prefixes) {
        into.update(&number.to_ne_bytes(), &source, MapFlags::ANY)?;
    }
    let subject = match by {
        By::Nowhere => object(EMPTY, &[])?,
        // These two drop all frames, so there need not be a plane's program behind them.
        By::Protocol => udp()?.program().try_clone_to_owned()?,
        By::Set(members) => {
            let front = set(&prefixes, members, Then::Drop)?;
            front.program().try_clone_to_owned()?
        }
        By::Trie => {
            let (program, maps) = with_maps(TRIE, &[is_six.into()])?;
            let trie = map(&maps, "prefixes")?;
            for (address, len) in &prefixes {
                let key = [&u32::from(*len).to_ne_bytes()[..], &bytes(*address)].concat();
                trie.update(&key, &[1], MapFlags::ANY)?;
            }
            program
        }
    };
    let leads_to = map(&maps, "subject")?;
    leads_to.update(&0_u32.to_ne_bytes(), &subject.as_raw_fd().to_ne_bytes(), MapFlags::ANY)?;
    Ok(Loaded::Spread { program, _maps: maps })
}

/// A filter that names the first leaf of `tree` as the class of each frame.
fn naming(tree: &Tree) -> Result<Front> {
    let does = Does::Edit { mark: None, priority: Some(NAMED << 16 | NAMED) };
    let mut term = Term::any();
    term.steps.push(Step { does, then: Then::Pass, exceed: Then::Pass, counter: None });
    let handed = tree.handed()?;
    let port = FrontPort {
        own: [2; 6].into(),
        multi_buffer: false,
        entry: Entry::Own,
        handed: Some(&handed),
    };
    Ok(Front::load(port, &[term], None, &mut FrontMaps::new()?)?)
}

/// A filter that drops all UDP.
fn udp() -> Result<Front> {
    let mut term = Term::any();
    term.headers.ask(Field::Protocol, &[UDP], &[u8::MAX]);
    deciding(term, Then::Drop, None)
}

/// The filter `term`, and the fate of what it matches.
fn deciding(mut term: Term, then: Then, tables: Option<&SetTables>) -> Result<Front> {
    term.steps.push(Step { does: Does::Decide, then, exceed: then, counter: None });
    let port =
        FrontPort { own: [2; 6].into(), multi_buffer: false, entry: Entry::Own, handed: None };
    Ok(Front::load(port, &[term], tables, &mut FrontMaps::new()?)?)
}

/// A filter that looks up the source in a set of `prefixes`, and the fate of members.
fn set(prefixes: &[(IpAddr, u8)], members: Members, then: Then) -> Result<Front> {
    let is_six = prefixes.first().is_some_and(|(address, _)| address.is_ipv6());
    let family = if is_six { "inet6" } else { "inet" };
    let kept = members.words();
    let create = format!("create nrw hash:net family {family} maxelem 1000000{kept}");
    let adds = prefixes.iter().map(|(address, bits)| format!("add -exist nrw {address}/{bits}"));
    let mut sets = Sets::default();
    for line in std::iter::once(create).chain(adds) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let reply = sets.run(&words, Nanos::ZERO, &Alone);
        ensure!(reply.code == 0, "{line}: {}", reply.stderr);
    }
    let mut tables = SetTables::new()?;
    tables.follow(&mut sets)?;
    let set = sets.get("nrw").context("there is no set")?.slot as u16;
    let address = bpf::Endpoint::Source;
    let look_up = bpf::LookUp { set, address, port: None, is_negated: false };
    let mut term = Term::any();
    term.look_ups.push(look_up);
    deciding(term, then, Some(&tables))
}

/// Sets for this program only.
struct Alone;

impl Host for Alone {
    fn references(&self, _: &str) -> usize {
        0
    }

    fn counted(&self, _: &Named, _: &narrows_sets::Key) -> (u64, u64) {
        (0, 0)
    }
}

/// Leaves 1 and on, below a chain of classes up to the root; with a depth of one each leaf is a
/// root.
fn image(shape: Shape) -> Image {
    let leaves = if shape.contended { 1 } else { shape.cpus.min(LEAVES) as u32 };
    let rate = rate(shape);
    let inner = shape.depth - 1;
    let is_valve = shape.subject == Subject::Valve;
    let class = |limit| Class {
        rules: if is_valve { Rules::FlowValve } else { Rules::Htb },
        rate,
        ceil: rate,
        burst: BURST,
        limit,
        target: LIMIT / 4,
        interval: INTERVAL,
        batch: BATCH,
        quantum: 1,
        hosts: match shape.subject {
            Subject::Stamp(Sharing::Hosts) => Hosts::Sources,
            Subject::Stamp(Sharing::HostsInside) => Hosts::SourcesInside,
            _ => Hosts::FlowsAlone,
        },
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
    let outermost = Scope { major: NAMED, unknown: 1, otherwise };
    let names = BTreeMap::from([(NAMED << 16 | NAMED, 1)]);
    let terms = if shape.subject == Subject::Terms { terms(shape.entries) } else { Vec::new() };
    let labels = if is_valve { labels(&classes) } else { BTreeMap::new() };
    Image { masks, rules, terms, outermost, names, classes, labels, ..Image::default() }
}

/// The labels of `classes`, which borrow from nobody: so their own buckets decide.
fn labels(classes: &BTreeMap<u32, Class>) -> BTreeMap<u32, Label> {
    let label = |number: &u32| {
        let above = |number: &u32| classes.get(number).map(|class| class.parent);
        let way = std::iter::successors(Some(*number), above).take_while(|number| *number != 0);
        let mut path: Vec<u16> = way.map(|number| number as u16).collect();
        path.reverse();
        let below = classes.values().filter(|class| class.parent == *number);
        let promised = below.map(|class| class.rate).sum();
        let burst = 2 * 1514;
        let label = Label { burst, cburst: burst, promised, weight: 1, path, ..Label::default() };
        (*number, label)
    };
    classes.keys().map(label).collect()
}

/// So many terms that compare two bytes of the frame, of which the last one fits.
fn terms(entries: u32) -> Vec<Filter> {
    let of = |order: u32| {
        // Version and length of IPv4's header, and no TOS.
        let value = if order + 1 == entries { 0x4500 } else { 0x4501 + u64::from(order) };
        let (layer, offset, size, is_little_endian) = (Layer::Network, 0, 2, false);
        let number = Number::At { layer, offset, size, is_little_endian };
        let comparison = Comparison::of(number, Relation::Equal, value);
        let test = Test { comparison, then: Next::Matches, otherwise: Next::Fails };
        let does = tree::term::Does::Assigns(1);
        let (order, first) = (order.into(), Next::Test(0));
        Filter { scope: 0, order, first, tests: vec![test], does, actions: Vec::new() }
    };
    (0..entries).map(of).collect()
}

/// Rules that nothing matches, but the last one of the last mask: a look-up asks by all of them.
/// Those of other masks are for other sources and other destinations; in a crowd some are for the
/// frame's source, and some for its destination.
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
            found.1.push(Rule { scope: 0, mask: number as u16, key, order, class: 1 });
        }
    }
    found
}
