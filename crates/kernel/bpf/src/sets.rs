//! Sets as programs look them up: `programs/sets.h`.
//!
//! All programs of an instance share one [`SetTables`], which follows [`Sets`]: after each change,
//! [`SetTables::follow`] makes the same change here. A small change is made in place. After a large
//! one the contents are built anew beside the old ones and replace them with one word. So no packet
//! ever meets half of a set. What was replaced is freed when no packet is looked up in it any more.
//!
//! *Freeing.* A bitmap is a few large pieces of memory and a hash is allocated in advance, so a
//! million members are freed as fast as ten. A trie of a million nodes would not be.
//!
//! Non-goals: the meaning of the words (`crates/core/sets`), which filters look up
//! ([`front`](crate::Front)).

use crate::chunks::{ChunkError, ChunkTable, Chunks, IMAGES_BYTES_MAX};
use crate::load::{LoadError, explained};
use crate::mapped::{Mapped, SharedTable};
use crate::maps::{map, map_of_maps, put};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use narrows_image::Full;
use narrows_sets::image::Layout;
use narrows_sets::{Changes, Element, Family, Key, SETS_MAX, Set, Sets, Shape};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// `TABLES_MAX` of `programs/sets.h`.
const TABLES_MAX: u32 = 128;
/// The bits of a set's word, as in `programs/sets.h`.
const MODE_SHIFT: u32 = 8;
const IS_V6: u64 = 1 << 16;
const HAS_PORTS: u64 = 1 << 17;
const FIRST_SHIFT: u32 = 32;
/// The size of `struct element_key` and `struct element`.
const KEY_BYTES: u32 = 20;
const ELEMENT_BYTES: u32 = 24;
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
    /// All of them together are too large.
    #[error("the sets take more than {} MiB", IMAGES_BYTES_MAX >> 20)]
    Chunks,
}

impl From<ChunkError> for SetsError {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Map(error) => Self::Map(error),
            ChunkError::TooLarge => Self::Chunks,
        }
    }
}

/// `enum mode` of `programs/sets.h`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Mode {
    Bitmap = 1,
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
            _ => Self::Bitmap,
        }
    }
}

/// The maps in which programs look up the sets of an instance.
pub struct SetTables {
    words: Mapped<AtomicU64>,
    tables: Mapped<SharedTable>,
    chunks: ChunkTable,
    members: MapHandle,
    /// Instead of members that nothing leads to.
    nobody: MapHandle,
    /// By the number of the contents.
    contents: BTreeMap<u64, Contents>,
    /// Unused tables.
    free: Vec<u32>,
}

/// The contents of a set.
struct Contents {
    /// The set's word but its bitmap.
    kind: u64,
    bitmap: Option<Bitmap>,
    members: Option<Members>,
    /// Whether a change failed.
    is_stale: bool,
}

/// Prefixes as a bitmap.
struct Bitmap {
    layout: Layout,
    chunks: Chunks,
}

/// What nothing leads to any more.
#[derive(Default)]
struct Replaced {
    chunks: Vec<Chunks>,
    members: Vec<Members>,
}

/// Members that are looked up one by one.
struct Members {
    table: u32,
    map: MapHandle,
    room: usize,
    len: usize,
}

impl Contents {
    /// The set's word.
    fn word(&self) -> u64 {
        let first = self.bitmap.as_ref().map_or(0, |bitmap| bitmap.chunks.first);
        self.kind | u64::from(first) << FIRST_SHIFT
    }
}

impl SetTables {
    /// Makes the maps.
    ///
    /// # Errors
    /// If the kernel refuses them: for lack of privileges, memory or a feature (Linux 5.19).
    pub fn new() -> Result<Self, SetsError> {
        explained(Self::make).map_err(SetsError::Load)
    }

    fn make() -> Result<Self, libbpf_rs::Error> {
        let nobody = hash(1)?;
        Ok(Self {
            words: Mapped::new("set_words", SETS_MAX)?,
            tables: Mapped::new("tables", TABLES_MAX as usize)?,
            // The name in older versions, which `programs/bitmap.h` keeps, too.
            chunks: ChunkTable::new("paintings")?,
            members: map_of_maps("members", &nobody, TABLES_MAX)?,
            nobody,
            contents: BTreeMap::new(),
            // Table 0 is nobody's.
            free: (1..TABLES_MAX).collect(),
        })
    }

    /// The maps, in the order in which `programs/sets.h` has them.
    pub(crate) fn maps(&self) -> [&MapHandle; 4] {
        [self.words.map(), self.tables.map(), self.chunks.map(), &self.members]
    }

    /// Applies the present `sets` to look-ups.
    ///
    /// # Errors
    /// The set that could not be changed; the others are up to date, and the next call tries again.
    pub fn follow(&mut self, sets: &mut Sets) -> Result<(), SetsError> {
        let mut outcome = Ok(());
        let mut replaced = Replaced::default();
        for (_, named) in sets.iter_mut() {
            let changes = named.set.take_changes();
            let present = self.contents.get(&named.contents);
            let fits = present.is_some_and(|present| !present.is_stale);
            let followed = match changes {
                Changes::Of(keys) if fits && keys.is_empty() => Ok(()),
                Changes::Of(keys) if fits => {
                    match self.change(named.contents, &named.set, &keys, &mut replaced) {
                        Ok(true) => Ok(()),
                        Ok(false) => self.renew(named.contents, &named.set, &mut replaced),
                        Err(error) => Err(error),
                    }
                }
                _ => self.renew(named.contents, &named.set, &mut replaced),
            };
            if let Err(error) = followed {
                if let Some(contents) = self.contents.get_mut(&named.contents) {
                    contents.is_stale = true;
                }
                outcome = Err(error);
            }
        }
        let mut words = [0; SETS_MAX];
        for (_, named) in sets.iter() {
            let contents = self.contents.get(&named.contents);
            words[named.slot as usize] = contents.map_or(0, Contents::word);
        }
        for (slot, word) in self.words.iter().zip(words) {
            slot.store(word, Release);
        }
        let kept: Vec<u64> = sets.iter().map(|(_, named)| named.contents).collect();
        let gone = self.contents.extract_if(.., |contents, _| !kept.contains(contents));
        gone.for_each(|(_, contents)| replaced.add(contents));
        self.let_go(replaced)?;
        outcome
    }

    /// Packets and bytes of the member `key` of the set whose contents have that number; `None`
    /// if nothing is counted.
    pub fn counted(&self, contents: u64, key: &Key) -> Option<(u64, u64)> {
        self.contents.get(&contents)?.members.as_ref()?.counted(key)
    }

    /// Rebuilds the contents `id` of `set`, out of packets' sight. The old contents are added to
    /// `replaced`.
    fn renew(&mut self, id: u64, set: &Set, replaced: &mut Replaced) -> Result<(), SetsError> {
        let mode = Mode::of(set);
        let bitmap = match mode {
            Mode::Ethernet => None,
            _ => Some(self.bitmap(set)?),
        };
        let mut contents =
            Contents { kind: kind(mode, set), bitmap, members: None, is_stale: false };
        if mode != Mode::Bitmap {
            match self.with_members(id, set) {
                Ok(members) => {
                    contents.kind |= u64::from(members.table);
                    contents.members = Some(members);
                }
                Err(error) => {
                    replaced.add(contents);
                    return Err(error);
                }
            }
        }
        if let Some(before) = self.contents.insert(id, contents) {
            replaced.add(before);
        }
        Ok(())
    }

    /// The members of `set`, whose present contents are `id`, in a table.
    fn with_members(&mut self, id: u64, set: &Set) -> Result<Members, SetsError> {
        let before = self.contents.get(&id).and_then(|before| before.members.as_ref());
        let table = *self.free.last().ok_or(SetsError::Tables)?;
        let members = Members::new(table, set, before)?;
        put(&self.members, table, &members.map)?;
        self.describe(table, set);
        self.tables[table as usize].counts.store(set.kind().counters.into(), Relaxed);
        self.free.pop();
        Ok(members)
    }

    /// The bitmap of `set`, which no word leads to.
    fn bitmap(&mut self, set: &Set) -> Result<Bitmap, SetsError> {
        let mut chunks = self.chunks.allocate(Layout::size(set))?;
        let layout = Layout::new(set, &mut chunks);
        // It has just been measured.
        let out_of_memory = |_: Full| io::Error::from(io::ErrorKind::OutOfMemory);
        let layout = layout.map_err(out_of_memory).map_err(libbpf_rs::Error::from)?;
        Ok(Bitmap { layout, chunks })
    }

    /// Updates the contents `id` after changes of `keys` in `set`. False if they must be rebuilt.
    fn change(
        &mut self,
        id: u64,
        set: &Set,
        keys: &[Key],
        replaced: &mut Replaced,
    ) -> Result<bool, SetsError> {
        let Some(contents) = self.contents.get_mut(&id) else { return Ok(false) };
        if let Some(members) = &mut contents.members {
            for key in keys {
                if let Some(element) = set.get(key)
                    && !members.put(key, &element, set)?
                {
                    return Ok(false);
                }
            }
            let described = &self.tables[members.table as usize];
            for (word, bits) in described.lengths.iter().zip(lengths(set)) {
                word.fetch_or(bits, Release);
            }
        }
        let bitmap = contents.bitmap.as_mut();
        let updated =
            bitmap.map_or(Ok(()), |Bitmap { layout, chunks }| layout.update(set, keys, chunks));
        if updated.is_err() {
            let renewed = self.bitmap(set)?;
            let contents = self.contents.get_mut(&id);
            let before = contents.and_then(|contents| contents.bitmap.replace(renewed));
            replaced.chunks.extend(before.map(|before| before.chunks));
        }
        let contents = self.contents.get_mut(&id);
        if let Some(members) = contents.and_then(|contents| contents.members.as_mut()) {
            for key in keys.iter().filter(|key| set.get(key).is_none()) {
                members.remove(key)?;
            }
            let table = members.table;
            self.describe(table, set);
        }
        Ok(true)
    }

    /// Says in `table` which lengths of prefixes `set` has.
    fn describe(&self, table: u32, set: &Set) {
        for (word, bits) in self.tables[table as usize].lengths.iter().zip(lengths(set)) {
            word.store(bits, Release);
        }
    }

    /// Frees `replaced`, when nobody reads it any more.
    fn let_go(&mut self, replaced: Replaced) -> Result<(), libbpf_rs::Error> {
        let Replaced { chunks, members } = replaced;
        if chunks.is_empty() && members.is_empty() {
            return Ok(());
        }
        // Waits for those who read the words before they were written.
        put(&self.members, 0, &self.nobody)?;
        for members in members {
            put(&self.members, members.table, &self.nobody)?;
            self.free.push(members.table);
        }
        for chunks in chunks {
            self.chunks.free(chunks)?;
        }
        Ok(())
    }
}

impl Replaced {
    fn add(&mut self, contents: Contents) {
        self.chunks.extend(contents.bitmap.map(|bitmap| bitmap.chunks));
        self.members.extend(contents.members);
    }
}

/// The word of `set` but its table and bitmap.
fn kind(mode: Mode, set: &Set) -> u64 {
    let kind = set.kind();
    let is_six = kind.family == Family::Inet6 && kind.shape != Shape::Mac;
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    (mode as u64) << MODE_SHIFT
        | flag(is_six, IS_V6)
        | flag(kind.shape == Shape::NetPort, HAS_PORTS)
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
    let room = u32::try_from(room).unwrap_or(u32::MAX);
    map(MapType::Hash, "members", [KEY_BYTES, ELEMENT_BYTES, room], 0)
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
    fn new(table: u32, set: &Set, before: Option<&Self>) -> Result<Self, libbpf_rs::Error> {
        let len = set.len();
        let room = (len + len / 4).next_power_of_two().max(MEMBERS_MIN);
        let map = hash(room)?;
        let (mut keys, mut values, mut count) = (Vec::new(), Vec::new(), 0);
        for (index, (key, element)) in set.iter().enumerate() {
            let counters = match before.filter(|_| set.kind().counters) {
                Some(before) => before.counted(&key).unwrap_or_else(|| set.initial(&key)),
                None => set.initial(&key),
            };
            keys.extend(key.layout());
            values.extend(value(counters, &element));
            count += 1;
            if count as usize == AT_ONCE || index + 1 == len {
                map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)?;
                keys.clear();
                values.clear();
                count = 0;
            }
        }
        Ok(Self { table, map, room, len })
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
