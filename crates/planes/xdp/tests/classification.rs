//! The program finds the class that the qdiscs of the other plane find, whatever their tree.
//!
//! A random tree of `htb`, `prio`, `drr`, `ets` and `tbf`, one in the other, with filters at qdiscs
//! and at classes, and random packets. The reference is the classification of the other plane, and
//! the defaults of its qdiscs where that says nothing. Against it stand the contents of the maps,
//! evaluated by their plain meaning, and, as root, the program itself in the kernel.

use narrows_bpf::test_run::test_run;
use narrows_bpf::tree::layout::{Class, Key as Fields, NOWHERE, Rule, SCOPE, SCOPES_DEEP};
use narrows_bpf::tree::{Image, Scope, Tree, TreeError};
use narrows_bpf::{
    Does, Entry, Field, Front, FrontMaps, FrontPort, Hook, LoadError, Step, Term, Then, XdpMode,
};
use narrows_classify::{Actions, Classification, Found, Path, Subject};
use narrows_policy::{Key, Plan};
use narrows_qdisc::Config;
use narrows_qdisc::htb::Unclassified;
use narrows_units::Nanos;
use narrows_xdp::{Compiled, DIRECT, Enforcement, Name, Numbers, compile};
use proptest::prelude::*;
use std::fmt::Write as _;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// The destination of frames for which a filter in front sets a priority and a mark.
const EDITED: u16 = 9000;
const EDITS: usize = 6;
/// How deep classful qdiscs may nest, and classes of an `htb`.
const CLASSFUL: usize = 3;
const LEVELS: usize = 3;

/// A generator of numbers: Knuth's.
struct Numbered(u64);

impl Numbered {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// A policy under construction, in commands of `tc`.
struct Draft {
    next: Numbered,
    lines: String,
    /// The number of the next qdisc.
    handle: u32,
    pref: u32,
    /// Whether there are filters that are no rules.
    has_terms: bool,
    /// All classes, and some that are not there: what a priority may name.
    names: Vec<u32>,
}

impl Draft {
    fn new(seed: u64, has_terms: bool) -> Self {
        let (lines, names) = Default::default();
        let next = Numbered(seed);
        let mut draft = Self { next, lines, handle: 1, pref: 1, has_terms, names };
        draft.qdisc("root", CLASSFUL, 2);
        draft
    }

    fn line(&mut self, words: &str) {
        writeln!(self.lines, "{words}").unwrap();
    }

    /// A qdisc at `place` with at most so many classful ones on a way, and of `tbf`; without any,
    /// none with rates.
    fn qdisc(&mut self, place: &str, classful: usize, tbfs: usize) {
        let handle = self.handle;
        let add = format!("qdisc add dev nrw-a {place} handle {handle:x}:");
        self.handle += 1;
        let kinds = match (classful, tbfs) {
            (0, _) => 2,
            (_, 0) => 5,
            _ => 7,
        };
        match self.next.below(kinds) {
            0 if tbfs > 0 => {
                self.line(&format!("{add} tbf rate 10mbit burst 20k latency 20ms"));
                self.qdisc(&format!("parent {handle:x}:1"), classful, tbfs - 1);
            }
            0 | 1 => self.line(&format!("{add} pfifo limit 100")),
            2 => {
                let bands = 2 + self.next.below(3);
                let map: Vec<String> =
                    (0..16).map(|_| self.next.below(bands).to_string()).collect();
                self.line(&format!("{add} prio bands {bands} priomap {}", map.join(" ")));
                self.bands(handle, bands, classful, tbfs);
            }
            3 => {
                self.line(&format!("{add} drr"));
                let bands = 1 + self.next.below(3);
                for band in 1..=bands {
                    self.line(&format!(
                        "class add dev nrw-a parent {handle:x}: classid {handle:x}:{band} drr"
                    ));
                }
                self.bands(handle, bands, classful, tbfs);
            }
            4 => {
                let (bands, strict) = (2 + self.next.below(3), self.next.below(3));
                let map: Vec<String> =
                    (0..16).map(|_| self.next.below(bands).to_string()).collect();
                let map = map.join(" ");
                self.line(&format!("{add} ets bands {bands} strict {strict} priomap {map}"));
                self.bands(handle, bands, classful, tbfs);
            }
            _ => self.htb(&add, handle, classful),
        }
    }

    /// What is in bands, and filters for them.
    fn bands(&mut self, handle: u32, bands: u64, classful: usize, tbfs: usize) {
        let leaves: Vec<u32> = (1..=bands as u32).collect();
        self.inside(handle, &leaves, classful, tbfs);
        self.filters(handle, 0, &leaves);
    }

    fn inside(&mut self, handle: u32, leaves: &[u32], classful: usize, tbfs: usize) {
        self.names.push(handle << 16 | 0x77);
        for leaf in leaves {
            self.names.push(handle << 16 | leaf);
            if !self.next.one_in(3) {
                self.qdisc(&format!("parent {handle:x}:{leaf:x}"), classful - 1, tbfs);
            }
        }
    }

    /// No other rates are below its classes.
    fn htb(&mut self, add: &str, handle: u32, classful: usize) {
        let default = self.next.below(7);
        self.line(&format!("{add} htb default {default:x}"));
        // By class, the one above it.
        let mut parents: Vec<Option<u32>> = vec![];
        for id in 1..=self.next.below(7) as u32 {
            let above = self.next.below(u64::from(id)) as u32;
            let up = |id: &u32| parents[*id as usize - 1];
            let depth = std::iter::successors(Some(above).filter(|id| *id != 0), up).count();
            let above = if depth < LEVELS { above } else { 0 };
            parents.push(Some(above).filter(|above| *above != 0));
            let parent = if above == 0 { String::new() } else { format!("{above:x}") };
            self.line(&format!(
                "class add dev nrw-a parent {handle:x}:{parent} classid {handle:x}:{id:x} htb rate \
                 {id}mbit ceil 9mbit"
            ));
        }
        let all = 1..=parents.len() as u32;
        let is_inner = |id: u32| parents.contains(&Some(id));
        let leaves: Vec<u32> = all.clone().filter(|id| !is_inner(*id)).collect();
        self.inside(handle, &leaves, classful, 0);
        // Inner classes, some without filters of their own.
        for id in all.clone().filter(|id| is_inner(*id)) {
            self.names.push(handle << 16 | id);
            let is_below = |below: &u32| {
                let mut above = std::iter::successors(parents[*below as usize - 1], |id| {
                    parents[*id as usize - 1]
                });
                above.any(|above| above == id)
            };
            let to: Vec<u32> = all.clone().filter(is_below).collect();
            if !self.next.one_in(3) {
                self.filters(handle, id, &to);
            }
        }
        let to: Vec<u32> = all.collect();
        self.filters(handle, 0, &to);
    }

    /// Filters at the class `at` for classes of `to`.
    fn filters(&mut self, handle: u32, at: u32, to: &[u32]) {
        let count = if to.is_empty() { 0 } else { self.next.below(4) };
        let at = if at == 0 { String::new() } else { format!("{at:x}") };
        for _ in 0..count {
            let class = to[self.next.below(to.len() as u64) as usize];
            let (high, low) = (self.next.below(2), self.next.below(4));
            let port = EDITED + self.next.below(8) as u16;
            let matches = match self.next.below(if self.has_terms { 12 } else { 8 }) {
                0 => format!("ip flower dst_ip 10.{high}.{low}.0/24"),
                1 => format!("ip flower dst_ip 10.{high}.0.0/16 ip_proto udp"),
                2 => format!("ip flower ip_proto udp dst_port {port}"),
                3 => format!("ip flower ip_proto tcp dst_port {EDITED}-{port}"),
                4 => format!("ip flower src_ip 10.{high}.{low}.9"),
                5 => "ip flower ip_tos 0x10/0x10".to_owned(),
                6 => format!("all handle {} fw", 1 + low),
                8 => format!("ip u32 match ip dport {port} 0xffff"),
                9 => format!("ip u32 match ip dst 10.{high}.0.0/16 match ip tos 0x10 0x10"),
                10 => format!("all basic match 'cmp(u16 at 2 layer 2 gt {port})'"),
                11 => format!("ip flower ip_ttl 64 dst_ip 10.{high}.{low}.0/24"),
                _ => "all matchall".to_owned(),
            };
            // Most are before those of last resort.
            let pref = if matches.contains("matchall") { 40_000 } else { 0 } + self.pref;
            self.pref += 1;
            self.line(&format!(
                "filter add dev nrw-a parent {handle:x}:{at} pref {pref} protocol {matches} \
                 classid {handle:x}:{class:x}"
            ));
        }
    }

    /// A mark and a priority.
    fn edit(&mut self) -> (u32, u32) {
        let mark = self.next.below(6) as u32;
        let priority = match self.next.below(4) {
            0 => self.next.below(16) as u32,
            _ if self.names.is_empty() => 0,
            _ => self.names[self.next.below(self.names.len() as u64) as usize],
        };
        (mark, priority)
    }

    fn packet(&mut self) -> Packet {
        let mut of = |end: u64| self.next.below(end) as u8;
        Packet {
            source: [10, of(2), of(4), 9],
            destination: [10, of(2), of(4), of(3)],
            protocol: [6, 17, 1][usize::from(of(3))],
            port: EDITED + u16::from(of(10)),
            traffic_class: [0, 8, 0x10, 0x18, 0x20][usize::from(of(5))],
        }
    }
}

struct Packet {
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    port: u16,
    traffic_class: u8,
}

impl Packet {
    fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0; 80];
        frame[..6].fill(4);
        frame[12..16].copy_from_slice(&[8, 0, 0x45, self.traffic_class]);
        frame[17] = 66;
        (frame[22], frame[23]) = (64, self.protocol);
        frame[26..30].copy_from_slice(&self.source);
        frame[30..34].copy_from_slice(&self.destination);
        frame[36..38].copy_from_slice(&self.port.to_be_bytes());
        // The header of TCP has five words.
        frame[46] = 0x50;
        frame
    }

    fn fields(&self, mark: u32) -> Fields {
        let address = |bytes: [u8; 4]| u128::from(u32::from_be_bytes(bytes));
        let has_ports = u8::from(self.protocol != 1);
        Fields {
            source: address(self.source),
            destination: address(self.destination),
            destination_port: if has_ports == 1 { self.port } else { 0 },
            source_port: 0,
            ether_type: 0x0800,
            protocol: self.protocol,
            traffic_class: self.traffic_class,
            ip: 4,
            has: has_ports,
            mark,
        }
    }

    /// What a filter in front sets for it.
    fn edit(&self, edits: &[(u32, u32)]) -> (u32, u32) {
        let number = usize::from(self.port - EDITED);
        edits.get(number).copied().filter(|_| self.protocol == 17).unwrap_or_default()
    }
}

/// Where a packet ends that has `path`: in the class `within`, if the qdisc at `key` is a leaf;
/// `None` if it is dropped.
fn end(plan: &Plan, key: Key, path: Path, within: Option<Name>) -> Option<Name> {
    let node = &plan.nodes[&key];
    let class = match usize::from(node.level) {
        0 => path.class,
        level => path.inner.get(level - 1).copied().unwrap_or(0).into(),
    };
    let Some(handle) = key.handle else { return within };
    match &*node.config {
        Config::Tbf(_) => end(plan, node.children[0], path, Some((handle, 0))),
        Config::Htb(htb) => {
            let classes = plan.classes.get(&handle);
            let leaf = |id: u32| Some(((handle, id), classes?.get(&id)?.leaf?));
            match leaf(class).or_else(|| leaf(htb.default)) {
                Some((name, leaf)) => end(plan, leaf, path, Some(name)),
                None if htb.unclassified == Unclassified::Dropped => None,
                None => Some((handle, DIRECT)),
            }
        }
        Config::Bands(bands) => {
            let find = |id: u32| bands.classes.iter().position(|it| u32::from(it.id) == id);
            let place = find(class).or_else(|| find(u32::from(bands.otherwise?)))?;
            let name = (handle, u32::from(bands.classes[place].id));
            end(plan, node.children[place], path, Some(name))
        }
        _ => within,
    }
}

/// What the contents of the maps say without terms, by their plain meaning.
fn find(image: &Image, fields: &Fields, derived: u32, set: u32) -> u32 {
    let priority = match (set, set >> 16) {
        (0, _) => derived,
        (_, 0) => set,
        _ => 0,
    };
    let mut number = 0;
    for _ in 0..=SCOPES_DEEP {
        let scope: &Scope = match number {
            0 => &image.outermost,
            inner => &image.inner[inner as usize - 1],
        };
        let is_named = scope.major != 0 && scope.major == set >> 16 && set & 0xffff != 0;
        let matches = |rule: &&Rule| {
            let bits = &image.masks[usize::from(rule.mask)].bits;
            u32::from(rule.scope) == number && fields.masked(bits) == rule.key
        };
        let class = if is_named {
            image.names.get(&set).copied().unwrap_or(scope.unknown)
        } else {
            let rule = image.rules.iter().filter(matches).min_by_key(|rule| rule.order);
            rule.map_or(scope.otherwise[priority as usize & 15], |rule| rule.class)
        };
        if class & SCOPE == 0 || class == NOWHERE {
            return class;
        }
        number = class & !SCOPE;
    }
    panic!("the scopes have no end");
}

/// The program in the kernel; `None` without privileges.
fn program() -> Option<Tree> {
    let tree = match Tree::load(OWN, false, Entry::Own, Hook::Xdp(XdpMode::Native)) {
        Err(TreeError::Load(error @ LoadError::NotPermitted)) => {
            eprintln!("SKIPPED: {error}");
            return None;
        }
        loaded => loaded.unwrap(),
    };
    tree.connect(1).unwrap();
    Some(tree)
}

/// Gives it the plan `image`, and filters in front that make `edits`.
fn install(tree: &mut Tree, image: &Image, edits: &[(u32, u32)]) {
    // It only counts: nothing is dropped for its rate.
    let classes = image.classes.keys().map(|number| (*number, Class::default())).collect();
    let image = Image { classes, ..image.clone() };
    let new: Vec<u32> = image.classes.keys().copied().collect();
    tree.install(image, &new).unwrap();
    let terms = (EDITED..).zip(edits).map(|(port, (mark, priority))| {
        let mut term = Term::any();
        term.headers.ask(Field::Protocol, &[17], &[0xff]);
        term.headers.ask(Field::DestinationPort, &port.to_be_bytes(), &[0xff; 2]);
        let does = Does::Edit { mark: Some((*mark, u32::MAX)), priority: Some(*priority) };
        term.steps = vec![Step { does, then: Then::Pass, exceed: Then::Pass, counter: None }];
        term
    });
    let handed = tree.handed().unwrap();
    let port = FrontPort {
        own: OWN.into(),
        multi_buffer: false,
        entry: tree.entry(),
        handed: Some(&handed),
    };
    let terms: Vec<Term> = terms.collect();
    let front = Front::load(port, &terms, None, &mut FrontMaps::new().unwrap()).unwrap();
    tree.put_in_front(Some(front)).unwrap();
}

/// How often each of `numbers` has sent, and then what was dropped.
fn counts(tree: &Tree, numbers: &[u32]) -> Vec<u64> {
    let sent = numbers.iter().map(|number| tree.class_counters(*number).unwrap().own_packets);
    sent.chain([tree.totals().unwrap().unclassified_drops]).collect()
}

/// Holds a policy made from `seed` against the reference, and the program on it if there is one.
/// Returns how many scopes and classes there were; `None` if there is nothing to find.
fn hold(seed: u64, mut program: Option<&mut Tree>) -> Option<usize> {
    let mut draft = Draft::new(seed, program.is_some());
    let host = narrows_tc::OfflineHost::default();
    let policy = narrows_tc::load(&draft.lines, "policy", &host);
    let policy = policy.unwrap_or_else(|error| panic!("{error}\n{}", draft.lines));
    let plan = Plan::of(policy.port("nrw-a"), 2).unwrap();
    let Compiled { image, numbers, .. } =
        match compile(&plan, &Numbers::default(), Enforcement::Policing) {
            Ok(compiled) => compiled,
            Err(refusal) => panic!("{refusal}\n{}", draft.lines),
        };
    if image == Image::default() {
        return None;
    }
    let root = plan.roots[0];
    let rules = plan.rules.get(&root);
    let reference = rules.map(|rules| Classification::of(rules, &Actions::default(), None));
    let edits: Vec<(u32, u32)> = (0..EDITS).map(|_| draft.edit()).collect();
    if let Some(tree) = &mut program {
        install(tree, &image, &edits);
    }
    let all: Vec<u32> = numbers.all().collect();
    for _ in 0..200 {
        let packet = draft.packet();
        let frame = packet.frame();
        let (mark, set) = packet.edit(&edits);
        let mut subject = Subject::new(&frame).unwrap();
        subject.set_mark(mark);
        subject.priority = set;
        let path = reference.as_ref().map(|reference| {
            reference.classify(Found::default(), &mut subject, Nanos::ZERO).unwrap()
        });
        let name = end(&plan, root, path.unwrap_or_default(), None);
        let expected = name.map_or(NOWHERE, |name| numbers.get(name).unwrap());
        let derived = u32::from(narrows_classify::priority(&frame));
        let found = find(&image, &packet.fields(mark), derived, set);
        let what = || format!("{name:?}, set {set:#x}, {:?}\n{}", packet.fields(mark), draft.lines);
        if image.terms.is_empty() {
            assert_eq!(found, expected, "{}", what());
        }
        if let Some(tree) = &program {
            let before = counts(tree, &all);
            test_run(tree.program(), &frame, 1).unwrap();
            let after = counts(tree, &all);
            let place = all.iter().position(|number| *number == expected).unwrap_or(all.len());
            for (at, (before, after)) in before.iter().zip(&after).enumerate() {
                assert_eq!(after - before, u64::from(at == place), "{}", what());
            }
        }
    }
    Some(image.inner.len() + image.classes.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_maps_say_the_class_that_the_qdiscs_find(seed in any::<u64>()) {
        hold(seed, None);
    }
}

#[test]
fn the_program_finds_the_class_that_the_qdiscs_find() {
    let Some(mut tree) = program() else { return };
    let held = |seed: u64| hold(seed * 7919, Some(&mut tree));
    let sizes: Vec<usize> = (0..24).filter_map(held).collect();
    println!("{} trees of {} scopes and classes", sizes.len(), sizes.iter().sum::<usize>());
}
