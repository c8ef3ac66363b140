//! Sets as programs look them up: `programs/sets.h`.
//!
//! All programs of an instance share one [`SetTables`], which follows [`Sets`]: after each change,
//! [`SetTables::follow`] makes the same change here. A small change is made in place. After a large
//! one the table is built anew beside the old one and replaces it with one word. So no packet ever
//! meets half of a set.
//!
//! *Freeing.* A bitmap is one piece of memory and a hash is allocated in advance, so a million
//! members are freed as fast as ten. A trie of a million nodes would not be.
//!
//! Non-goals: the meaning of the words (`crates/sets`), which filters look up
//! ([`front`](crate::Front)).

use crate::load::{LoadError, explained};
use crate::mapped::{Mapped, SharedCell, SharedTable};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use narrows_sets::image::{Cell, Cells, Full, Layout};
use narrows_sets::{Changes, Element, Family, Key, SETS_MAX, Set, Sets, Shape};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// `TABLES_MAX` of `programs/sets.h`.
const TABLES_MAX: u32 = 128;
/// `IS_V6`, `HAS_PORTS`, `COUNTS` of `programs/sets.h`.
const IS_V6: u32 = 1;
const HAS_PORTS: u32 = 2;
const COUNTS: u32 = 4;
/// The size of `struct element_key` and `struct element`.
const KEY_BYTES: u32 = 20;
const ELEMENT_BYTES: u32 = 24;
/// The free cells of a new painting, in addition to a quarter of its cells.
const SPARE_CELLS: usize = 4096;
/// The least room of a hash of members.
const MEMBERS_MIN: usize = 1024;
/// The members per system call.
const AT_ONCE: usize = 16_384;

/// Sets cannot be looked up.
#[derive(Debug, thiserror::Error)]
pub enum SetsError {
    /// The kernel does not make the maps.
    #[error("the kernel offers no sets: {0}")]
    Load(LoadError),
    /// One of them cannot be made or written.
    #[error("the set cannot be put where packets are looked up: {0}")]
    Map(#[from] libbpf_rs::Error),
    /// There are more than tables.
    #[error("no table is free for the set")]
    Tables,
}

/// `enum mode` of `programs/sets.h`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Mode {
    Painted = 1,
    Walked,
    Ethernet,
}

impl Mode {
    fn of(set: &Set) -> Self {
        let kind = set.kind();
        match kind.shape {
            Shape::Mac => Self::Ethernet,
            Shape::NetPort => Self::Walked,
            _ if kind.counters => Self::Walked,
            _ => Self::Painted,
        }
    }
}

/// See the module's documentation.
pub struct SetTables {
    slots: Mapped<AtomicU64>,
    tables: Mapped<SharedTable>,
    paintings: MapHandle,
    members: MapHandle,
    /// By the number of the contents.
    contents: BTreeMap<u64, Contents>,
    /// Unused tables, the longest unused first. A reader of one is done before the next but one is
    /// used: each use waits for readers.
    free: VecDeque<u32>,
}

/// The contents of a set.
struct Contents {
    table: u32,
    painting: Option<(Layout, Mapped<SharedCell>)>,
    members: Option<Members>,
    /// Whether a change failed.
    is_stale: bool,
}

/// Members that are looked up one by one.
struct Members {
    map: MapHandle,
    room: usize,
    len: usize,
}

impl Cells for &Mapped<SharedCell> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn read(&self, index: usize) -> Cell {
        let Some(cell) = self.get(index) else { return Cell::default() };
        std::array::from_fn(|word| cell.0[word].load(Relaxed))
    }

    fn write(&mut self, index: usize, cell: &Cell) {
        for (word, value) in self[index].0.iter().zip(cell) {
            word.store(*value, Relaxed);
        }
    }

    fn publish(&mut self, index: usize, word: usize, value: u32) {
        // After the cells that it leads to. The program reads them through it (address dependency).
        self[index].0[word].store(value, Release);
    }
}

impl SetTables {
    /// Makes the maps.
    ///
    /// # Errors
    /// If the kernel refuses them: for lack of privileges, memory or a feature (Linux 5.10).
    pub fn new() -> Result<Self, SetsError> {
        explained(Self::make).map_err(SetsError::Load)
    }

    fn make() -> Result<Self, libbpf_rs::Error> {
        let of_paintings = Mapped::<SharedCell>::new("painting", 1, true)?;
        let of_members = hash(1)?;
        let outer = |name, inner: &MapHandle| {
            let options = libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
                inner_map_fd: inner.as_fd().as_raw_fd() as u32,
                ..Default::default()
            };
            MapHandle::create(MapType::ArrayOfMaps, Some(name), 4, 4, TABLES_MAX, &options)
        };
        Ok(Self {
            slots: Mapped::new("set_tables", SETS_MAX, false)?,
            tables: Mapped::new("tables", TABLES_MAX as usize, false)?,
            paintings: outer("paintings", of_paintings.map())?,
            members: outer("members", &of_members)?,
            contents: BTreeMap::new(),
            free: (1..TABLES_MAX).collect(),
        })
    }

    /// The maps, in the order in which `programs/sets.h` has them.
    pub(crate) fn maps(&self) -> [&MapHandle; 4] {
        [self.slots.map(), self.tables.map(), &self.paintings, &self.members]
    }

    /// Applies the present `sets` to look-ups.
    ///
    /// # Errors
    /// The set that could not be changed; the others are up to date, and the next call tries again.
    pub fn follow(&mut self, sets: &mut Sets) -> Result<(), SetsError> {
        let mut outcome = Ok(());
        let mut replaced = Vec::new();
        for (_, named) in sets.iter_mut() {
            let changes = named.set.take_changes();
            let present = self.contents.get(&named.contents);
            let fits = present.is_some_and(|present| !present.is_stale);
            let followed = match changes {
                Changes::Of(keys) if fits && keys.is_empty() => Ok(()),
                Changes::Of(keys) if fits => match self.change(named.contents, &named.set, &keys) {
                    Ok(true) => Ok(()),
                    Ok(false) => self.renew(named.contents, &named.set, &mut replaced),
                    Err(error) => Err(error),
                },
                _ => self.renew(named.contents, &named.set, &mut replaced),
            };
            if let Err(error) = followed {
                if let Some(contents) = self.contents.get_mut(&named.contents) {
                    contents.is_stale = true;
                }
                outcome = Err(error);
            }
        }
        let mut leads_to = [0; SETS_MAX];
        for (_, named) in sets.iter() {
            let contents = self.contents.get(&named.contents);
            leads_to[named.slot as usize] =
                contents.map_or(0, |contents| u64::from(contents.table));
        }
        for (slot, table) in self.slots.iter().zip(leads_to) {
            slot.store(table, Release);
        }
        let kept: Vec<u64> = sets.iter().map(|(_, named)| named.contents).collect();
        let gone = self.contents.extract_if(.., |contents, _| !kept.contains(contents));
        replaced.extend(gone.map(|(_, contents)| contents));
        replaced.into_iter().for_each(|contents| self.let_go(&contents));
        outcome
    }

    /// Packets and bytes of the member `key` of the set whose contents have that number; `None`
    /// if nothing is counted.
    pub fn counted(&self, contents: u64, key: &Key) -> Option<(u64, u64)> {
        self.contents.get(&contents)?.members.as_ref()?.counted(key)
    }

    /// Rebuilds the contents `id` of `set`, out of packets' sight. The old contents are added to
    /// `replaced`.
    fn renew(&mut self, id: u64, set: &Set, replaced: &mut Vec<Contents>) -> Result<(), SetsError> {
        let mode = Mode::of(set);
        let before = self.contents.get(&id);
        let before = before.and_then(|before| before.members.as_ref());
        let members = match mode {
            Mode::Painted => None,
            _ => Some(Members::new(set, before)?),
        };
        let painting = match mode {
            Mode::Ethernet => None,
            _ => Some(painted(set)?),
        };
        let table = self.free.pop_front().ok_or(SetsError::Tables)?;
        let put = || -> Result<(), libbpf_rs::Error> {
            if let Some((_, cells)) = &painting {
                put(&self.paintings, table, cells.map())?;
            }
            if let Some(members) = &members {
                put(&self.members, table, &members.map)?;
            }
            Ok(())
        };
        if let Err(error) = put() {
            self.free.push_back(table);
            return Err(error.into());
        }
        let contents = Contents { table, painting, members, is_stale: false };
        let described = &self.tables[table as usize];
        for (word, bits) in described.lengths.iter().zip(lengths(set)) {
            word.store(bits, Relaxed);
        }
        let kind = set.kind();
        let is_six = kind.family == Family::Inet6 && kind.shape != Shape::Mac;
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        let flags = flag(is_six, IS_V6)
            | flag(kind.shape == Shape::NetPort, HAS_PORTS)
            | flag(kind.counters, COUNTS);
        described.flags.store(flags, Relaxed);
        described.mode.store(mode as u32, Release);
        replaced.extend(self.contents.insert(id, contents));
        Ok(())
    }

    /// Updates the contents `id` after changes of `keys` in `set`. False if they must be rebuilt.
    fn change(&mut self, id: u64, set: &Set, keys: &[Key]) -> Result<bool, SetsError> {
        let Some(contents) = self.contents.get_mut(&id) else { return Ok(false) };
        let Contents { table, painting, members, .. } = contents;
        let described = &self.tables[*table as usize];
        if let Some(members) = members {
            for key in keys {
                if let Some(element) = set.get(key)
                    && !members.put(key, element, set)?
                {
                    return Ok(false);
                }
            }
            for (word, bits) in described.lengths.iter().zip(lengths(set)) {
                word.fetch_or(bits, Release);
            }
        }
        if let Some((layout, cells)) = painting
            && layout.update(set, keys, &mut &*cells).is_err()
        {
            let renewed = painted(set)?;
            put(&self.paintings, *table, renewed.1.map())?;
            *painting = Some(renewed);
        }
        if let Some(members) = members {
            for key in keys.iter().filter(|key| set.get(key).is_none()) {
                members.remove(key)?;
            }
            for (word, bits) in described.lengths.iter().zip(lengths(set)) {
                word.store(bits, Release);
            }
        }
        Ok(true)
    }

    /// Gives the table of `contents` back, to which nothing leads any more.
    fn let_go(&mut self, contents: &Contents) {
        for outer in [&self.paintings, &self.members] {
            // A missing key is gone already.
            let _ = outer.delete(&contents.table.to_ne_bytes());
        }
        self.free.push_back(contents.table);
    }
}

/// Replaces the map of the table `number` by `inner`. Readers of the old one are done on return.
fn put(outer: &MapHandle, number: u32, inner: &MapHandle) -> Result<(), libbpf_rs::Error> {
    let fd = inner.as_fd().as_raw_fd();
    outer.update(&number.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}

/// The layout of `set`.
fn painted(set: &Set) -> Result<(Layout, Mapped<SharedCell>), libbpf_rs::Error> {
    let size = Layout::size(set);
    let cells = Mapped::new("painting", size + size / 4 + SPARE_CELLS, true)?;
    match Layout::new(set, &mut &cells) {
        Ok(layout) => Ok((layout, cells)),
        // It has just been measured.
        Err(Full) => Err(std::io::Error::from(std::io::ErrorKind::OutOfMemory).into()),
    }
}

/// The lengths of prefixes, if members are looked up: bit n for n + 1 bits.
fn lengths(set: &Set) -> [u64; 2] {
    let mut bits = [0; 2];
    for len in set.lengths() {
        let bit = usize::from(len.saturating_sub(1)).min(127);
        bits[bit / 64] |= 1_u64 << (bit % 64);
    }
    bits
}

fn hash(room: usize) -> Result<MapHandle, libbpf_rs::Error> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let room = u32::try_from(room).unwrap_or(u32::MAX);
    MapHandle::create(MapType::Hash, Some("members"), KEY_BYTES, ELEMENT_BYTES, room, &options)
}

/// A member as the program has it: packets, bytes, and whether it is an exception.
fn value(counters: (u64, u64), element: &Element) -> [u8; ELEMENT_BYTES as usize] {
    let words = [counters.0, counters.1, u64::from(element.is_exception)];
    let mut bytes = [0; ELEMENT_BYTES as usize];
    for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
        part.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

impl Members {
    /// The contents of `set`, with room for more; the counters of `before` continue.
    fn new(set: &Set, before: Option<&Self>) -> Result<Self, libbpf_rs::Error> {
        let len = set.len();
        let room = (len + len / 4).next_power_of_two().max(MEMBERS_MIN);
        let map = hash(room)?;
        let (mut keys, mut values, mut count) = (Vec::new(), Vec::new(), 0);
        for (index, (key, element)) in set.iter().enumerate() {
            let counters = match before.filter(|_| set.kind().counters) {
                Some(before) => before.counted(key).unwrap_or_else(|| set.initial(key)),
                None => set.initial(key),
            };
            keys.extend(key.layout());
            values.extend(value(counters, element));
            count += 1;
            if count as usize == AT_ONCE || index + 1 == len {
                map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)?;
                keys.clear();
                values.clear();
                count = 0;
            }
        }
        Ok(Self { map, room, len })
    }

    /// Adds or replaces `key` of `set`. False if there is no room.
    fn put(&mut self, key: &Key, element: &Element, set: &Set) -> Result<bool, libbpf_rs::Error> {
        let present = self.counted(key);
        if present.is_none() && self.len >= self.room {
            return Ok(false);
        }
        self.len += usize::from(present.is_none());
        // Given initial counters count; otherwise the old ones continue.
        let said = Some(set.initial(key)).filter(|counters| *counters != (0, 0));
        let counters = said.or(present).unwrap_or_default();
        self.map.update(&key.layout(), &value(counters, element), MapFlags::ANY)?;
        Ok(true)
    }

    fn remove(&mut self, key: &Key) -> Result<(), libbpf_rs::Error> {
        // A key may be reported twice.
        if self.counted(key).is_some() {
            self.map.delete(&key.layout())?;
            self.len -= 1;
        }
        Ok(())
    }

    fn counted(&self, key: &Key) -> Option<(u64, u64)> {
        let value = self.map.lookup(&key.layout(), MapFlags::ANY).ok()??;
        let word = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
        Some((word(0)?, word(8)?))
    }
}
