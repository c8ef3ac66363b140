//! `tree`: polices traffic from one port to the other by a tree of classes, without a queue.
//!
//! *Two hooks.* The program runs at XDP, or at tcx, where packets are already built. Both work on
//! the same maps.
//!
//! *Two plans.* The maps hold two plans, and an index says which one is in force. A program reads
//! it once per packet. [`Tree::install`] writes the other plan and then the index, so each packet
//! meets one plan as a whole. Before it writes, it waits until no program can still be reading that
//! plan. Where only classes have other parameters ([`Tree::change`]), the other plan gets these,
//! and those that the plan in force got since.
//!
//! *Three ways out.* Frames leave through the other port's device, or, where ports are VLANs of one
//! device, through the same one with the other VLAN's tag ([`Port::other_tag`]), or at a host's
//! port up the stack of the box itself ([`Port::leads_to_box`]). Behind a
//! [`Router`] a tree is its port's for frames that leave, and not for those that arrive: its "other
//! port" is its own.
//!
//! *The slow path.* What the kernel itself sends through a port is charged by another program, at
//! tcx egress ([`Tree::slow_path`]), to the same tree.
//!
//! *Numbers.* A class has a number that it keeps from plan to plan; credit and counters are stored
//! under it. The caller says which numbers are new.
//!
//! Non-goals: policies, and their compilation into classes and rules.

use crate::attach::{AttachError, Entry, Hold, Hook, attach};
use crate::balance::Balancer;
use crate::front::Front;
use crate::load::{LoadError, Tries, explained, keep};
use crate::maps::{self, map, sums_in};
use crate::own_address::OwnAddress;
use crate::receive_on::{ReceiveOn, ReceiveOnError};
use crate::takers::Takers;
use crate::trips::TripsBeyond;
use crate::user_front::{FirstProgram, UserFront, UserFrontError};
use crate::vlans::Vlans;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object, OpenMapMut, OpenObject};
use narrows_forwarding::{PortId, Tag};
use narrows_packet::RouteTaken;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::AddAssign;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub mod assured;
mod egress;
pub mod layout;
#[cfg(test)]
mod merged;
mod table;
pub mod term;
#[cfg(test)]
pub(crate) mod tests;

pub use egress::{Departures, HostAddresses};
use layout::{Class, KEY_BYTES, Label, Mask, PRIORITIES, Rule, SLOT_BYTES};
use table::Table;
use term::Term;

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/tree.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton_tcx {
    include!(concat!(env!("OUT_DIR"), "/tree_tcx.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton_maps {
    include!(concat!(env!("OUT_DIR"), "/tree_maps.skel.rs"));
}

/// `BPF_F_INNER_MAP` of `linux/bpf.h`: an array in a map need not be as long as others there.
const INNER_MAP: u32 = 1 << 12;
/// The one entry of a map that has one.
const ONLY: [u8; 4] = [0; 4];
/// The map of `programs/hand_route.h`.
const ROUTE: &str = "route_taken";
/// The map of `programs/lines.h`, and its key for packets that leave.
const LINES: &str = "lines";
const LEAVES_HERE: u32 = 0;

/// The program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The kernel did not load it.
    #[error("the kernel does not load the XDP plane's program: {0}")]
    Load(LoadError),
    /// A map of it cannot be written or read.
    #[error("the XDP plane's {map} map cannot be used: {source}")]
    Map {
        /// The map's name.
        map: &'static str,
        /// The kernel's error.
        source: libbpf_rs::Error,
    },
    /// No table holds the rules.
    #[error("the XDP plane's rules hash alike: change one of them, or use --plane xsk")]
    Rules,
    /// The maps of another process are not this version's.
    #[error("the running process has another {0} map in its driver program: restart instead")]
    Inherited(&'static str),
    /// Another program cannot take its place.
    #[error("the kernel does not replace the XDP plane's program: {0}")]
    Replace(io::Error),
    /// Filters cannot be put in front of it.
    #[error("the kernel puts no filters in front of the XDP plane's program: {0}")]
    Front(libbpf_rs::Error),
    /// Filters are in front of what leads to it.
    #[error("filters are in front of what chooses a port, and not of a tree behind it")]
    Routed,
    /// A router's programs at tcx cannot ask the kernel's flowtable.
    #[error(
        "the kernel lets only XDP programs ask a flowtable, and none at tcx: leave out --xdp tcx"
    )]
    FlowsAtTcx,
    /// It cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// The plan of one port's egress.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Image {
    /// By what rules ask, in the order of [`Mask::first`].
    pub masks: Vec<Mask>,
    /// The rules that assign packets to classes. No two of a scope have the same key under the same
    /// mask.
    pub rules: Vec<Rule>,
    /// Filters that no rule can say, at most [`term::TERMS_MAX`]: those of a scope together, in
    /// their order.
    pub terms: Vec<Term>,
    /// The scope in which each packet's class is looked for: number 0.
    pub outermost: Scope,
    /// Further scopes, from number 1 on. They lead to each other and never in circles, over at most
    /// [`layout::SCOPES_DEEP`] of them.
    pub inner: Vec<Scope>,
    /// The classes, and scopes, by the names that filters in front have for them: the major number
    /// in the upper half.
    pub names: BTreeMap<u32, u32>,
    /// The classes by their numbers, which are below [`layout::CLASSES_MAX`] and not 0.
    pub classes: BTreeMap<u32, Class>,
    /// The labels of those under FlowValve's rules.
    pub labels: BTreeMap<u32, Label>,
}

impl Image {
    /// All scopes, in the order of their numbers.
    fn scopes(&self) -> impl Iterator<Item = &Scope> {
        [&self.outermost].into_iter().chain(&self.inner)
    }

    /// Whether the tables of both have the same in them.
    fn has_tables_of(&self, other: &Self) -> bool {
        let Self { masks, rules, terms, names, .. } = other;
        self.masks == *masks && self.rules == *rules && self.terms == *terms && self.names == *names
    }
}

/// A qdisc with classes, or a class with filters: how it finds the class of a packet. The default
/// lets everything pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    /// The major number of the qdisc whose classes a priority may name, which comes before any
    /// rule, of 16 bits; 0 for no qdisc.
    pub major: u32,
    /// The class of what names another one.
    pub unknown: u32,
    /// The class of what no filter matches, by the packet's priority.
    pub otherwise: [u32; PRIORITIES],
}

/// The counters of a class, over all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassCounters {
    /// Packets sent within the assured rate.
    pub own_packets: u64,
    /// Packets sent of what others leave.
    pub borrowed_packets: u64,
    /// Frame bytes sent.
    pub bytes: u64,
    /// Packets that its AQM dropped.
    pub aqm_drops: u64,
    /// Packets dropped because its virtual queue was full.
    pub limit_drops: u64,
    /// Packets that its AQM marked.
    pub marked: u64,
}

impl ClassCounters {
    /// From the words of `struct class_slot`, without what is no counter.
    pub fn of(words: [u64; 6]) -> Self {
        let [own_packets, borrowed_packets, bytes, aqm_drops, limit_drops, marked] = words;
        Self { own_packets, borrowed_packets, bytes, aqm_drops, limit_drops, marked }
    }

    /// The inverse of [`of`](Self::of).
    pub fn words(&self) -> [u64; 6] {
        let Self { own_packets, borrowed_packets, bytes, aqm_drops, limit_drops, marked } = *self;
        [own_packets, borrowed_packets, bytes, aqm_drops, limit_drops, marked]
    }
}

impl AddAssign for ClassCounters {
    fn add_assign(&mut self, other: Self) {
        let (own, other) = (self.words(), other.words());
        *self = Self::of(std::array::from_fn(|word| own[word] + other[word]));
    }
}

/// The verdicts on frames that arrived at a port, all CPUs together: each is in one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Addressed to this box and given to its kernel.
    pub to_self: u64,
    /// Handed to the other port, or sent with the other tag.
    pub sent_packets: u64,
    /// Their frame bytes.
    pub sent_bytes: u64,
    /// Frame bytes dropped for any reason.
    pub dropped_bytes: u64,
    /// Dropped because a virtual queue was full.
    pub limit_drops: u64,
    /// Dropped by an AQM.
    pub aqm_drops: u64,
    /// Dropped because no class is theirs.
    pub unclassified_drops: u64,
    /// Dropped because the other port takes no frames.
    pub port_gone_drops: u64,
    /// Dropped because a filter said so.
    pub filter_drops: u64,
    /// Of those sent: dropped on the way to the [CPU that receives](Tree::receive_on).
    pub lost_behind: u64,
}

/// What an action saw, over all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acted {
    /// Packets.
    pub packets: u64,
    /// The bytes of their frames.
    pub bytes: u64,
}

impl Totals {
    /// From the words of `struct totals`.
    pub fn of(words: [u64; 10]) -> Self {
        let [
            to_self,
            sent_packets,
            sent_bytes,
            dropped_bytes,
            limit_drops,
            aqm_drops,
            unclassified_drops,
            port_gone_drops,
            filter_drops,
            lost_behind,
        ] = words;
        Self {
            to_self,
            sent_packets,
            sent_bytes,
            dropped_bytes,
            limit_drops,
            aqm_drops,
            unclassified_drops,
            port_gone_drops,
            filter_drops,
            lost_behind,
        }
    }

    /// The inverse of [`of`](Self::of).
    pub fn words(&self) -> [u64; 10] {
        let Self {
            to_self,
            sent_packets,
            sent_bytes,
            dropped_bytes,
            limit_drops,
            aqm_drops,
            unclassified_drops,
            port_gone_drops,
            filter_drops,
            lost_behind,
        } = *self;
        [
            to_self,
            sent_packets,
            sent_bytes,
            dropped_bytes,
            limit_drops,
            aqm_drops,
            unclassified_drops,
            port_gone_drops,
            filter_drops,
            lost_behind,
        ]
    }

    /// The packets that were dropped for any reason.
    pub fn drops(&self) -> u64 {
        self.limit_drops
            + self.aqm_drops
            + self.unclassified_drops
            + self.port_gone_drops
            + self.filter_drops
    }

    /// The sum with `other`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (one, other) = (self.words(), other.words());
        Self::of(std::array::from_fn(|word| one[word] + other[word]))
    }

    /// The difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let (now, earlier) = (self.words(), earlier.words());
        Self::of(std::array::from_fn(|word| now[word] - earlier[word]))
    }
}

/// The program of one port.
pub struct Tree {
    // Declared first, so that the program is detached before its maps go.
    hold: Option<Hold>,
    /// Behind a router, the place for what has met filters that set something.
    hold_behind: Option<Hold>,
    port: Port,
    /// For the present hook.
    loaded: Programs,
    /// Loaded when they are needed.
    of_other_hook: Option<Programs>,
    is_at_tcx: bool,
    /// A user's program, in front of all others.
    user_front: Option<FirstProgram>,
    /// The program in front of it, attached in its place.
    front: Option<Front>,
    /// A balancer between both.
    balancer: Option<Balancer>,
    /// What hands frames to other CPUs, behind it.
    receive_on: Option<ReceiveOn>,
    maps: Maps,
    /// The route that a frame takes.
    route: MapHandle,
    /// The lines that somebody follows: of this process alone.
    lines: MapHandle,
    followed: BTreeSet<u32>,
    /// The number of the plan in force, and whether it has terms.
    in_force: u32,
    has_terms: bool,
    /// The plan under each number; `None` if none is there whole, or another process may have
    /// written it.
    there: [Option<Image>; 2],
    /// The classes in which the plan in force may differ from the other one, if both are there and
    /// differ in nothing else.
    differing: Option<BTreeSet<u32>>,
}

/// The port that a tree is loaded for.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The address of its device.
    pub own: OwnAddress,
    /// Whether its frames may be in several buffers.
    pub multi_buffer: bool,
    /// How it is attached at XDP.
    pub entry: Entry,
    /// The outermost tag with which its frames leave through their own device, if it is a VLAN
    /// there: then all of them have one. `None` if they leave as they are through the
    /// [other](Tree::connect).
    pub other_tag: Option<Tag>,
    /// Whether what arrives is for the box itself, and leaves through no port: then all frames go
    /// up its stack, and count as sent. There is no other port to [connect](Tree::connect), and
    /// plans have no classes.
    pub leads_to_box: bool,
    /// What marks its frames for [`Tree::slow_path`], where one is attached; else 0.
    pub seal: u32,
    /// Whether its packets begin with the header of IP, as those of tunnels and of PPP do. Only at
    /// tcx and at egress.
    pub headerless: bool,
    /// Whether only programs at egress work on its maps: then its own program lets all pass, and
    /// the kernel has little to check.
    pub only_egress: bool,
}

impl Port {
    /// One whose frames leave as they are through the [other](Tree::connect).
    pub fn new(own: impl Into<OwnAddress>, multi_buffer: bool, entry: Entry) -> Self {
        let own = own.into();
        let [leads_to_box, headerless, only_egress] = [false; 3];
        let (other_tag, seal) = (None, 0);
        Self { own, multi_buffer, entry, other_tag, leads_to_box, seal, headerless, only_egress }
    }
}

/// Tells an open object what port it is for. A macro, because each object's skeleton has types of
/// its own.
macro_rules! set_up {
    ($open:expr, $port:expr) => {
        if let Some(rodata) = $open.maps.rodata_data.as_deref_mut() {
            rodata.own_mac = $port.own.mac;
            rodata.is_addressed = $port.own.is_addressed.into();
            rodata.bridge_mac = $port.own.bridge_mac;
            (rodata.own_ips, rodata.own_ips_count) = $port.own.ips.parts();
            rodata.multi_buffer = $port.multi_buffer.into();
            rodata.slow_path_seal = $port.seal;
            rodata.leads_to_box = $port.leads_to_box.into();
            if let Some(tag) = $port.other_tag {
                rodata.other_protocol = tag.protocol().ethertype().to_be();
                rodata.other_vid = tag.vid().to_be();
            }
        }
    };
}

impl Port {
    /// Loads the object for `hook`, on `maps` in the order of [`Maps::NAMES`], or with maps of its
    /// own. In both cases `shared` take the places of those of their names. Returns what `keep`
    /// keeps of it.
    fn load<T>(
        &self,
        hook: Hook,
        maps: &[BorrowedFd<'_>],
        shared: &[(&'static str, &MapHandle)],
        keep: impl Fn(&Object) -> Result<T, TreeError>,
    ) -> Result<T, TreeError> {
        let mut misfit = None;
        let mut on_maps = |open: &mut OpenObject| {
            let mut named: BTreeMap<_, _> = Maps::NAMES.iter().zip(maps.iter().copied()).collect();
            named.extend(shared.iter().map(|(name, map)| (name, map.as_fd())));
            reuse(open, &named).map_err(|(map, error)| {
                misfit = Some(map);
                error
            })
        };
        let mut tries = Tries::new();
        let kept = tries.explained(|storage| {
            if self.only_egress {
                let mut open = skeleton_maps::TreeMapsSkelBuilder::default().open(storage)?;
                on_maps(open.open_object_mut())?;
                return Ok(keep(open.load()?.object()));
            }
            if hook == Hook::Tcx {
                let mut open = skeleton_tcx::TreeTcxSkelBuilder::default().open(storage)?;
                set_up!(open, self);
                if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                    rodata.headerless = self.headerless.into();
                }
                on_maps(open.open_object_mut())?;
                return Ok(keep(open.load()?.object()));
            }
            let mut open = skeleton::TreeSkelBuilder::default().open(storage)?;
            set_up!(open, self);
            self.entry.set_up(&mut open.progs.tree, self.multi_buffer);
            self.entry.set_up(&mut open.progs.tree_behind, self.multi_buffer);
            on_maps(open.open_object_mut())?;
            Ok(keep(open.load()?.object()))
        });
        match misfit {
            Some(map) => Err(TreeError::Inherited(map)),
            None => kept.map_err(TreeError::Load)?,
        }
    }
}

/// What is loaded for a hook. All other maps are the same for each.
struct Programs {
    program: OwnedFd,
    /// The program for what has met filters that set something.
    behind: OwnedFd,
    other_port: MapHandle,
    behind_host: MapHandle,
}

impl Programs {
    /// Those of a loaded object.
    fn of(object: &Object) -> Result<Self, TreeError> {
        Ok(Self {
            program: program(object, "tree")?,
            behind: program(object, "tree_behind")?,
            other_port: named(object, "other_port")?,
            behind_host: named(object, "behind_host")?,
        })
    }
}

/// The program `name` of an object.
fn program(object: &Object, name: &'static str) -> Result<OwnedFd, TreeError> {
    let program = object.progs().find(|program| program.name() == name);
    let program = program.ok_or_else(missing).map_err(LoadError::Other);
    program.and_then(|program| keep(&program)).map_err(TreeError::Load)
}

/// Declares [`Maps`] by the names that its maps have in an object.
macro_rules! maps {
    ($($name:ident)*) => {
        /// What programs at each hook share, and the program of a process that takes over.
        struct Maps {
            $($name: MapHandle,)*
            /// The value for updates of `grace`.
            nothing: MapHandle,
        }

        impl Maps {
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Those of a loaded object.
            fn of(object: &Object) -> Result<Self, TreeError> {
                $(let $name = named(object, stringify!($name))?;)*
                let nothing = explained(|| map(MapType::Array, "nothing", [4, 4, 1], 0)).map_err(TreeError::Load)?;
                Ok(Self { $($name,)* nothing })
            }

            /// Those of an object, in the order of [`Self::NAMES`].
            fn all(&self) -> Vec<BorrowedFd<'_>> {
                vec![$(self.$name.as_fd()),*]
            }
        }
    };
}

maps! {
    in_force plans classes scopes sieves rules terms acted nodes class_slots totals grace handed
    labels valves
}

fn missing() -> libbpf_rs::Error {
    io::Error::from(io::ErrorKind::NotFound).into()
}

/// The map `name` of an object.
fn named(object: &Object, name: &'static str) -> Result<MapHandle, TreeError> {
    let map = object.maps().find(|map| map.name() == name).ok_or_else(missing);
    let handle = map.and_then(|map| MapHandle::try_from(&map));
    handle.map_err(|source| TreeError::Map { map: name, source })
}

impl Tree {
    /// Loads the program for a port that is a device with the address `own`; `multi_buffer` if its
    /// frames may be in several buffers. Until a plan is installed all frames pass, once it is
    /// [connected](Self::connect). `entry` is how it will be attached at XDP, and `hook` where it
    /// will run at first.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges or of a feature.
    pub fn load(
        own: impl Into<OwnAddress>,
        multi_buffer: bool,
        entry: Entry,
        hook: Hook,
    ) -> Result<Self, TreeError> {
        Self::inherit(own, multi_buffer, entry, hook, &[])
    }

    /// Loads the program for the same port as one of another process, to run on `maps`, which that
    /// one's [`maps`](Self::maps) gave. They are not changed, and frames do not reach this program,
    /// until it [takes over](Self::take_over).
    ///
    /// # Errors
    /// If the kernel refuses it, or if these are other maps.
    pub fn inherit(
        own: impl Into<OwnAddress>,
        multi_buffer: bool,
        entry: Entry,
        hook: Hook,
        maps: &[OwnedFd],
    ) -> Result<Self, TreeError> {
        Self::at(Port::new(own, multi_buffer, entry), hook, maps)
    }

    /// Loads the program for any port, to run on `maps` as one that [inherits](Self::inherit) them,
    /// or, if there are none, on maps of its own.
    ///
    /// # Errors
    /// If the kernel refuses it, or if these are other maps.
    pub fn at(port: Port, hook: Hook, maps: &[OwnedFd]) -> Result<Self, TreeError> {
        Self::sharing(port, hook, maps, &[])
    }

    /// Loads the program for what leaves through a port that is a device, and that something in
    /// front of it chooses for each frame; else as [`at`](Self::at) does. It is
    /// [connected](Self::connect) to that device, and will [take](Self::take) one of `takers`.
    ///
    /// # Errors
    /// If the kernel refuses it, or if these are other maps.
    pub fn behind(
        takers: &Takers,
        port: Port,
        hook: Hook,
        maps: &[OwnedFd],
    ) -> Result<Self, TreeError> {
        // What is in front has told what is for the box.
        let own = OwnAddress { is_addressed: false, ..port.own };
        let seal = takers.seal();
        let shared = [("handed", takers.handed()), (ROUTE, takers.route())];
        Self::sharing(Port { own, seal, ..port }, hook, maps, &shared)
    }

    /// Loads the program, which reads from `shared` what filters in front set and which route a
    /// frame takes, or from maps of its own.
    fn sharing(
        port: Port,
        hook: Hook,
        maps: &[OwnedFd],
        shared: &[(&'static str, &MapHandle)],
    ) -> Result<Self, TreeError> {
        let maps: Vec<BorrowedFd<'_>> = maps.iter().map(AsFd::as_fd).collect();
        let keep = |object: &Object| {
            let kept = [ROUTE, LINES].map(|name| named(object, name));
            let [route, lines] = kept;
            Ok((Programs::of(object)?, Maps::of(object)?, route?, lines?))
        };
        let (loaded, maps, route, lines) = port.load(hook, &maps, shared, keep)?;
        Ok(Self {
            hold: None,
            hold_behind: None,
            port,
            loaded,
            of_other_hook: None,
            is_at_tcx: hook == Hook::Tcx,
            user_front: None,
            front: None,
            balancer: None,
            receive_on: None,
            maps,
            route,
            lines,
            followed: BTreeSet::new(),
            in_force: 0,
            has_terms: false,
            there: [None, None],
            differing: None,
        })
    }

    /// Puts `image` in force. The classes in `new` start without credit and counts; others
    /// continue. Only what differs from the plan that was in force before the present one is
    /// written, whose place it takes: a changed rate is one class. Returns how many entries of maps
    /// that were, with the number in force.
    ///
    /// # Errors
    /// If a map cannot be written. Then the old plan stays in force.
    pub fn install(&mut self, image: Image, new: &[u32]) -> Result<usize, TreeError> {
        let next = 1 - self.in_force;
        let Image { masks, rules, names, terms, .. } = &image;
        let table = Table::of(masks, rules, names, terms).ok_or(TreeError::Rules)?;
        self.wait()?;
        // What is written in part is not there.
        let there = self.there[next as usize].take();
        self.differing = None;
        let there = there.as_ref();
        let mut written = 0;
        let mut write = |name, map: &MapHandle, index: u32, bytes: &[u8]| {
            written += 1;
            update(name, map, &index.to_ne_bytes(), bytes)
        };
        for class in new {
            write("nodes", &self.maps.nodes, *class, &[0; layout::NODE_BYTES])?;
            write("valves", &self.maps.valves, *class, &[0; layout::VALVE_BYTES])?;
            clear("class_slots", &self.maps.class_slots, *class, layout::CLASS_SLOT_BYTES)?;
        }
        let first = next * layout::CLASSES_MAX;
        for (class, what) in &image.classes {
            if there.and_then(|there| there.classes.get(class)) != Some(what) {
                write("classes", &self.maps.classes, first + class, &what.bytes())?;
            }
        }
        for (class, label) in &image.labels {
            if there.and_then(|there| there.labels.get(class)) != Some(label) {
                write("labels", &self.maps.labels, first + class, &label.bytes())?;
            }
        }
        let has_tables = there.is_some_and(|there| there.has_tables_of(&image));
        let there = there.filter(|_| has_tables);
        let first = next * layout::SCOPES_MAX as u32;
        let mut scopes = there.into_iter().flat_map(Image::scopes);
        for (number, scope) in (0..).zip(image.scopes()) {
            if scopes.next() != Some(scope) {
                let bytes = layout::scope(scope, &table, number);
                write("scopes", &self.maps.scopes, first + u32::from(number), &bytes)?;
            }
        }
        if there.is_none_or(|there| there.outermost != image.outermost) {
            write("plans", &self.maps.plans, next, &layout::plan(&image, &table))?;
        }
        if !has_tables {
            written += self.lay_out(next, &image, &table)?;
        }
        self.put_in_force(next, !image.terms.is_empty())?;
        (self.in_force, self.has_terms) = (next, !image.terms.is_empty());
        self.there[next as usize] = Some(image);
        Ok(written + 1)
    }

    /// Puts other parameters of `classes` of the plan in force in force, all of them at once, by
    /// their numbers. Returns how many entries of maps that were; `None` if one of the classes is
    /// not there, or this process has not [installed](Self::install) the plan.
    ///
    /// # Errors
    /// If a map cannot be written. Then the old ones stay in force.
    pub fn change(&mut self, classes: &[(u32, Class)]) -> Result<Option<usize>, TreeError> {
        let next = 1 - self.in_force;
        let Some(image) = &self.there[self.in_force as usize] else { return Ok(None) };
        if classes.iter().any(|(number, _)| !image.classes.contains_key(number)) {
            return Ok(None);
        }
        if classes.is_empty() {
            return Ok(Some(0));
        }
        let numbers = classes.iter().map(|(number, _)| *number).collect();
        let Some(mut differing) = self.differing.take() else {
            // There is another plan in the other place.
            let mut image = image.clone();
            image.classes.extend(classes.iter().copied());
            let written = self.install(image, &[])?;
            self.differing = Some(numbers);
            return Ok(Some(written));
        };
        differing.extend(&numbers);
        self.wait()?;
        let written = self.write_classes(next, &differing, &classes.iter().copied().collect())?;
        self.put_in_force(next, self.has_terms)?;
        self.in_force = next;
        self.differing = Some(numbers);
        Ok(Some(written + 1))
    }

    /// Writes the classes `numbers` under the number `next` as they are in the plan in force, or as
    /// `changed` says. Returns how many were not there so.
    fn write_classes(
        &mut self,
        next: u32,
        numbers: &BTreeSet<u32>,
        changed: &BTreeMap<u32, Class>,
    ) -> Result<usize, TreeError> {
        // What is written in part is not there.
        let Some(mut there) = self.there[next as usize].take() else { return Ok(0) };
        let in_force = self.there[self.in_force as usize].as_ref();
        let mut written = 0;
        for number in numbers {
            let now = || in_force.and_then(|image| image.classes.get(number));
            let Some(class) = changed.get(number).or_else(now) else { continue };
            if there.classes.get(number) != Some(class) {
                let index = next * layout::CLASSES_MAX + number;
                update("classes", &self.maps.classes, &index.to_ne_bytes(), &class.bytes())?;
                there.classes.insert(*number, *class);
                written += 1;
            }
        }
        self.there[next as usize] = Some(there);
        Ok(written)
    }

    /// Makes the plan `number` the one in force.
    fn put_in_force(&self, number: u32, has_terms: bool) -> Result<(), TreeError> {
        let terms = if has_terms { layout::HAS_TERMS } else { 0 };
        let lines = if self.followed.is_empty() { 0 } else { layout::HAS_LINES };
        let word = number | terms | lines;
        update("in_force", &self.maps.in_force, &ONLY, &word.to_ne_bytes())
    }

    /// Times the round trips beyond the port where packets of this tree leave, from now on, into
    /// `line`; or no longer. With [`time_arriving`](Self::time_arriving) of the tree that sees what
    /// arrives there.
    ///
    /// # Errors
    /// If a map cannot be written.
    pub fn time_leaving(&mut self, line: Option<&TripsBeyond>) -> Result<(), TreeError> {
        self.time(LEAVES_HERE, line)
    }

    /// The same for what arrives at the device `ifindex`.
    ///
    /// # Errors
    /// If a map cannot be written.
    pub fn time_arriving(
        &mut self,
        ifindex: u32,
        line: Option<&TripsBeyond>,
    ) -> Result<(), TreeError> {
        self.time(ifindex, line)
    }

    fn time(&mut self, at: u32, line: Option<&TripsBeyond>) -> Result<(), TreeError> {
        match line {
            Some(line) => {
                let fd = (line.map().as_fd().as_raw_fd() as u32).to_ne_bytes();
                update(LINES, &self.lines, &at.to_ne_bytes(), &fd)?;
                self.followed.insert(at);
            }
            None if self.followed.remove(&at) => {
                let removed = self.lines.delete(&at.to_ne_bytes());
                removed.map_err(|source| TreeError::Map { map: LINES, source })?;
            }
            None => return Ok(()),
        }
        self.put_in_force(self.in_force, self.has_terms)
    }

    /// Writes the tables of the rules of `image` under the number `next`. Returns how many entries
    /// they have.
    fn lay_out(&mut self, next: u32, image: &Image, table: &Table) -> Result<usize, TreeError> {
        let slots = map(MapType::Array, "slots", [4, SLOT_BYTES as u32, table.slots], INNER_MAP)
            .map_err(|source| TreeError::Map { map: "rules", source })?;
        for (place, slot) in &table.filled {
            update("rules", &slots, &place.to_ne_bytes(), slot)?;
        }
        for sieve in &table.sieves {
            let first = (next * KEY_BYTES as u32 + u32::from(sieve.at)) * 256;
            for (index, left) in (first..).zip(&sieve.left) {
                update("sieves", &self.maps.sieves, &index.to_ne_bytes(), &left.to_ne_bytes())?;
            }
        }
        let first = next * term::TERMS_MAX as u32;
        for (index, (term, rank)) in (first..).zip(image.terms.iter().zip(&table.terms)) {
            update("terms", &self.maps.terms, &index.to_ne_bytes(), &term.bytes(*rank))?;
        }
        let number = (slots.as_fd().as_raw_fd() as u32).to_ne_bytes();
        update("rules", &self.maps.rules, &next.to_ne_bytes(), &number)?;
        let sieves = table.sieves.iter().map(|sieve| sieve.left.len());
        Ok(table.filled.len() + sieves.sum::<usize>() + image.terms.len() + 1)
    }

    /// Waits until no program runs that may have read the former plan.
    fn wait(&self) -> Result<(), TreeError> {
        let nothing = (self.maps.nothing.as_fd().as_raw_fd() as u32).to_ne_bytes();
        update("grace", &self.maps.grace, &ONLY, &nothing)
    }

    /// Attaches the program to `ifindex`. Until this handle is dropped, or the process ends, it
    /// decides about the frames that arrive there.
    ///
    /// # Errors
    /// If the kernel refuses: no XDP in the driver, an MTU too large for it, another program
    /// attached, no tcx (before Linux 6.6).
    pub fn attach(&mut self, ifindex: u32, hook: Hook) -> Result<(), TreeError> {
        self.move_to(hook)?;
        self.lead_on()?;
        self.hold = Some(Hold::Link(attach(self.program(), ifindex, hook)?));
        Ok(())
    }

    /// Continues with the programs for `hook`, on the same plan, before it is attached there.
    /// Filters and a balancer in front, and what hands frames to other CPUs, are gone if they are
    /// for another hook.
    ///
    /// # Errors
    /// If the kernel does not load them.
    pub fn move_to(&mut self, hook: Hook) -> Result<(), TreeError> {
        if self.is_at_tcx != (hook == Hook::Tcx) {
            let other = match self.of_other_hook.take() {
                Some(other) => other,
                None => {
                    let shared = [(ROUTE, &self.route), (LINES, &self.lines)];
                    self.port.load(hook, &self.maps.all(), &shared, Programs::of)?
                }
            };
            self.of_other_hook = Some(std::mem::replace(&mut self.loaded, other));
            self.is_at_tcx = !self.is_at_tcx;
            (self.front, self.balancer, self.receive_on) = (None, None, None);
        }
        Ok(())
    }

    /// Whether it takes frames in several buffers.
    pub fn is_multi_buffer(&self) -> bool {
        self.port.multi_buffer
    }

    /// How it is attached.
    pub fn entry(&self) -> Entry {
        if self.is_at_tcx { Entry::Tcx } else { self.port.entry }
    }

    /// Replaces the program of another process, whose [`hold`](Self::hold) this is, or goes behind
    /// a gate, of which it is the array. Each frame passes one or the other.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn take_over(&mut self, hold: OwnedFd) -> Result<(), TreeError> {
        self.replace(self.entry().hold(hold))
    }

    /// Goes behind `vlans`, at the `place` of its port there, in the place of what is there. Each
    /// frame passes one or the other. Filters in front of it go along.
    ///
    /// # Errors
    /// If the kernel refuses: the one is at XDP and the other at tcx.
    pub fn stand_behind(&mut self, vlans: &Vlans, place: usize) -> Result<(), TreeError> {
        self.replace(vlans.hold_of(place).map_err(TreeError::Replace)?)
    }

    /// Takes what leaves through `port`, in the place of what takes that now. Each frame passes one
    /// or the other. It was loaded to be [behind](Self::behind) what chooses that port.
    ///
    /// # Errors
    /// If the kernel refuses: programs in front of `takers` are attached otherwise.
    pub fn take(&mut self, takers: &Takers, port: PortId) -> Result<(), TreeError> {
        let [hold, behind] = takers.holds_of(port).map_err(TreeError::Replace)?;
        behind.replace(self.loaded.behind.as_fd()).map_err(TreeError::Replace)?;
        self.replace(hold)?;
        self.hold_behind = Some(behind);
        Ok(())
    }

    /// Replaces what is at `hold`, and keeps that.
    fn replace(&mut self, hold: Hold) -> Result<(), TreeError> {
        self.lead_on()?;
        hold.replace(self.program()).map_err(TreeError::Replace)?;
        self.hold = Some(hold);
        Ok(())
    }

    /// Makes what a user's program passes continue here. It may be in force at another process, so
    /// this comes only with the attachment.
    fn lead_on(&self) -> Result<(), TreeError> {
        let Some(user_front) = &self.user_front else { return Ok(()) };
        user_front.lead_to(self.first(self.front.as_ref())).map_err(TreeError::Front)
    }

    /// Makes `program` the first one behind a user's, where this is attached.
    fn begin_with(&self, program: BorrowedFd<'_>) -> Result<(), TreeError> {
        match (&self.user_front, &self.hold) {
            (_, None) => Ok(()),
            (Some(user_front), Some(_)) => user_front.lead_to(program).map_err(TreeError::Front),
            (None, Some(hold)) => hold.replace(program).map_err(TreeError::Replace),
        }
    }

    /// Runs a user's program first, once this is attached, in front of all other programs.
    ///
    /// # Errors
    /// If it is not for such a port.
    pub fn run_first(&mut self, user_front: &UserFront) -> Result<(), UserFrontError> {
        self.user_front = Some(user_front.for_port(self.port.multi_buffer, self.entry())?);
        Ok(())
    }

    /// What it is attached by, to be passed on to another process. If it stands behind [`Vlans`] or
    /// a [`Chooser`](crate::Chooser), what is attached there is passed on instead.
    pub fn hold(&self) -> Option<BorrowedFd<'_>> {
        self.hold.as_ref().map(AsFd::as_fd)
    }

    /// Its maps, to be passed on to another process: plans, credit and counters.
    pub fn maps(&self) -> Vec<BorrowedFd<'_>> {
        self.maps.all()
    }

    /// Reads which plan is in force, for a program that [inherited](Self::inherit) its maps. The
    /// other process installs no further plan from now on.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn resume(&mut self) -> Result<(), TreeError> {
        let read = self.maps.in_force.lookup(&ONLY, MapFlags::ANY);
        let read = read.map_err(|source| TreeError::Map { map: "in_force", source })?;
        let number = read.and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)));
        let word = number.unwrap_or(0);
        (self.in_force, self.has_terms) = (word & 1, word & layout::HAS_TERMS != 0);
        Ok(())
    }

    /// Replaces the program in front of it by `front`, or removes it. Each frame passes the old or
    /// the new one. Behind a router, filters are in front of
    /// [its programs](crate::Chooser::put_in_front).
    ///
    /// # Errors
    /// If the kernel refuses, or it is behind a router; all is as it was then.
    pub fn put_in_front(&mut self, front: Option<Front>) -> Result<(), TreeError> {
        if self.hold_behind.is_some() && front.is_some() {
            return Err(TreeError::Routed);
        }
        if let Some(front) = &front {
            front.lead_to(self.behind_front(front)).map_err(TreeError::Front)?;
        }
        self.begin_with(self.first(front.as_ref()))?;
        self.front = front;
        Ok(())
    }

    /// Puts `balancer` between it and the filters in front of it, in the place of another one, or
    /// takes that away. Each frame passes the old or the new one.
    ///
    /// # Errors
    /// If the kernel refuses; then the former one stays.
    pub fn balance(&mut self, balancer: Option<Balancer>) -> Result<(), TreeError> {
        if let Some(balancer) = &balancer {
            balancer.lead_to(self.loaded.program.as_fd()).map_err(TreeError::Front)?;
        }
        let before = std::mem::replace(&mut self.balancer, balancer);
        let led = match &self.front {
            Some(front) => front.lead_to(self.behind_front(front)).map_err(TreeError::Front),
            None => self.begin_with(self.first(None)),
        };
        if led.is_err() {
            self.balancer = before;
        }
        led
    }

    /// Hands frames for the box to the stacks of `cpus`, each flow to one of them, from now on. For
    /// a port that [leads to the box](Port::leads_to_box).
    ///
    /// # Errors
    /// If a CPU is not there, it is at tcx, or the kernel refuses the program.
    pub fn receive_on(&mut self, cpus: &[u32]) -> Result<(), ReceiveOnError> {
        let Port { multi_buffer, .. } = self.port;
        let receive_on = ReceiveOn::load(cpus, &self.maps.totals, multi_buffer, self.entry())?;
        let fd = receive_on.program().as_raw_fd().to_ne_bytes();
        let put = self.loaded.behind_host.update(&ONLY, &fd, MapFlags::ANY);
        put.map_err(|error| ReceiveOnError::Load(LoadError::Other(error)))?;
        self.receive_on = Some(receive_on);
        Ok(())
    }

    /// The balancer in front of it.
    pub fn balancer(&mut self) -> Option<&mut Balancer> {
        self.balancer.as_mut()
    }

    /// The program that sees a frame behind `front`.
    fn behind_front(&self, front: &Front) -> BorrowedFd<'_> {
        let Programs { program, behind, .. } = &self.loaded;
        match &self.balancer {
            Some(balancer) => balancer.program(),
            None if front.hands_over() => behind.as_fd(),
            None => program.as_fd(),
        }
    }

    /// Where it reads what filters in front set: for [`FrontPort`](crate::FrontPort).
    ///
    /// # Errors
    /// Where there is no descriptor left.
    pub fn handed(&self) -> Result<MapHandle, TreeError> {
        MapHandle::try_from(&self.maps.handed)
            .map_err(|source| TreeError::Map { map: "handed", source })
    }

    /// Makes `route` the one that frames take, where no router says so: for tests.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn take_route(&self, route: RouteTaken) -> Result<(), TreeError> {
        let failed = |source| TreeError::Map { map: ROUTE, source };
        let value = [route.realms, route.metric].map(u32::to_ne_bytes).concat();
        let all = vec![value; libbpf_rs::num_possible_cpus().map_err(failed)?];
        self.route.update_percpu(&ONLY, &all, MapFlags::ANY).map_err(failed)
    }

    /// The program that sees a frame first but for a user's, with `front` before it.
    fn first<'a>(&'a self, front: Option<&'a Front>) -> BorrowedFd<'a> {
        let second = self.balancer.as_ref().map_or(self.loaded.program.as_fd(), Balancer::program);
        front.map_or(second, Front::program)
    }

    /// Redirects arriving frames to the interface `other` from now on. Until then they are dropped,
    /// as for a missing port: a driver that does not accept frames yet would lose them uncounted.
    /// A port with [another tag](Port::other_tag) needs no other.
    ///
    /// # Errors
    /// If there is no such interface.
    pub fn connect(&self, other: u32) -> Result<(), TreeError> {
        update("other_port", &self.loaded.other_port, &ONLY, &other.to_ne_bytes())
    }

    /// The program that sees a frame first, for test runs.
    pub fn program(&self) -> BorrowedFd<'_> {
        let behind = self.first(self.front.as_ref());
        self.user_front.as_ref().map_or(behind, FirstProgram::program)
    }

    /// Takes the program off the interface; frames take the kernel's path from here on. The
    /// counters stay readable.
    pub fn detach(&mut self) {
        for hold in [self.hold.take(), self.hold_behind.take()].into_iter().flatten() {
            hold.release();
        }
    }

    /// The counters of the class with this number; number 0 counts packets without a class.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn class_counters(&self, class: u32) -> Result<ClassCounters, TreeError> {
        let [_, _, _, _, _, _, counters @ ..] =
            sums::<12>("class_slots", &self.maps.class_slots, class)?;
        Ok(ClassCounters::of(counters))
    }

    /// Makes the action with this number, which no plan in force has, start to count from 0.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn forget(&self, action: u32) -> Result<(), TreeError> {
        clear("acted", &self.maps.acted, action, term::ACTED_BYTES)
    }

    /// What the action with this number saw.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn acted(&self, action: u32) -> Result<Acted, TreeError> {
        let [packets, bytes] = sums("acted", &self.maps.acted, action)?;
        Ok(Acted { packets, bytes })
    }

    /// The verdicts on frames so far.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn totals(&self) -> Result<Totals, TreeError> {
        Ok(Totals::of(sums("totals", &self.maps.totals, 0)?))
    }

    /// The verdicts on frames so far, by CPU: of all that there may be.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn totals_by_cpu(&self) -> Result<Vec<Totals>, TreeError> {
        self.totals_at(0)
    }

    /// The totals with this number, by CPU.
    fn totals_at(&self, number: u32) -> Result<Vec<Totals>, TreeError> {
        let slots = maps::by_cpu(&self.maps.totals, number)
            .map_err(|source| TreeError::Map { map: "totals", source })?;
        Ok(slots.chunks(1).map(|of_one| Totals::of(maps::sums(of_one))).collect())
    }
}

/// Makes `open` use `maps`, by their names, instead of maps of its own.
///
/// # Errors
/// The name of one that is laid out otherwise, and the kernel's error.
fn reuse(
    open: &mut OpenObject,
    maps: &BTreeMap<&&'static str, BorrowedFd<'_>>,
) -> Result<(), (&'static str, libbpf_rs::Error)> {
    for (&&name, &fd) in maps {
        let Some(mut map) = open.maps_mut().find(|map| map.name() == name) else { continue };
        let shape = |map: &OpenMapMut<'_>| {
            let sizes = [map.key_size(), map.value_size(), map.max_entries()];
            (map.name().to_owned(), map.map_type(), sizes)
        };
        let own = shape(&map);
        map.reuse_fd(fd).map_err(|error| (name, error))?;
        // It now says what the other is.
        if shape(&map) != own {
            return Err((name, io::Error::from(io::ErrorKind::InvalidData).into()));
        }
    }
    Ok(())
}

fn update(name: &'static str, map: &MapHandle, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
    let result = map.update(key, value, MapFlags::ANY);
    result.map_err(|source| TreeError::Map { map: name, source })
}

/// Sets an entry of `map` with so many bytes to 0 on each CPU.
fn clear(name: &'static str, map: &MapHandle, index: u32, bytes: usize) -> Result<(), TreeError> {
    let cpus = libbpf_rs::num_possible_cpus();
    let cleared = cpus.map(|cpus| vec![vec![0; bytes]; cpus]);
    let result = cleared
        .and_then(|cleared| map.update_percpu(&index.to_ne_bytes(), &cleared, MapFlags::ANY));
    result.map_err(|source| TreeError::Map { map: name, source })
}

/// The sums over all CPUs of the words of an entry of `map`.
fn sums<const N: usize>(
    name: &'static str,
    map: &MapHandle,
    index: u32,
) -> Result<[u64; N], TreeError> {
    sums_in(map, index).map_err(|source| TreeError::Map { map: name, source })
}
