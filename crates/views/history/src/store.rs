//! The SQLite file.
//!
//! *Layout.* `slot` has a row for each block of time that was recorded, `block` one for each series
//! that sent, dropped or measured something in it, ordered by time: what is written together lies
//! together, and so does what makes way. Series that were idle throughout are a list of number
//! ranges in the row of the slot. Of each resolution there are so many slots at most; the ones
//! written first make way, whatever their times are, so that a clock that was wrong for a while
//! costs no history.
//!
//! *Safety.* One transaction for each batch, in a write-ahead log: after `kill -9` the file has
//! exactly what was committed. After a power failure it may lack the last batches.
//!
//! *Versions.* `application_id` says whose file it is and `user_version` which layout it has.
//! [`MIGRATIONS`] lead from each version to the next. A file of a newer version is refused.

use crate::block::Block;
use crate::key::SERIES_MAX;
use crate::recorder::{Batch, Slot};
use crate::{Key, Kind, Point, Resolution, SeriesId};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `nrwh`.
const APPLICATION: i64 = 0x6e72_7768;
/// Each leads from the version that is its place to the next.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE series (
        id INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        name TEXT NOT NULL,
        port TEXT NOT NULL,
        UNIQUE (kind, name, port)
    );
    CREATE TABLE slot (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        resolution INTEGER NOT NULL,
        start INTEGER NOT NULL,
        present INTEGER NOT NULL,
        idle BLOB NOT NULL,
        UNIQUE (resolution, start)
    );
    CREATE TABLE block (
        resolution INTEGER NOT NULL,
        start INTEGER NOT NULL,
        series INTEGER NOT NULL,
        points BLOB NOT NULL,
        PRIMARY KEY (resolution, start, series)
    ) WITHOUT ROWID;
"];
/// How long to wait for another process that writes.
const BUSY: Duration = Duration::from_secs(5);
/// The largest write-ahead log that is kept between batches, in bytes.
const LOG_MAX: i64 = 4 << 20;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite's own error.
    #[error("the history in {0}: {1}")]
    Sqlite(PathBuf, rusqlite::Error),
    /// Another program's file.
    #[error("{0} is no history of narrows: name another file, which is created if it is missing")]
    Foreign(PathBuf),
    /// A newer program's file.
    #[error(
        "the history in {0} has version {1}, which this program does not know: use a newer program, \
         or another file"
    )]
    Newer(PathBuf, i64),
}

/// A history in a file.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: Connection,
}

impl Store {
    /// Opens the file at `path` to write, and makes it if it is missing; only its owner may read
    /// it.
    ///
    /// # Errors
    /// If it cannot be opened, or is another program's.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // Before SQLite does, which would let others read it.
        use std::os::unix::fs::OpenOptionsExt;
        let made = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        made.map_err(|error| {
            let why = rusqlite::Error::InvalidPath(format!("{}: {error}", path.display()).into());
            StoreError::Sqlite(path.to_owned(), why)
        })?;
        let mut store = Self::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        store.migrate()?;
        let set = || {
            let file = &store.file;
            file.pragma_update(None, "journal_mode", "wal")?;
            file.pragma_update(None, "synchronous", "normal")?;
            file.pragma_update(None, "journal_size_limit", LOG_MAX)
        };
        set().map_err(|error| store.error(error))?;
        Ok(store)
    }

    /// Opens the file at `path` to read, beside a process that may write.
    ///
    /// # Errors
    /// If it cannot be opened, or is no history of a version that this program knows.
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let store = Self::connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        match store.version()? {
            0 => Err(StoreError::Foreign(path.to_owned())),
            _ => Ok(store),
        }
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let failed = |error| StoreError::Sqlite(path.to_owned(), error);
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let file = Connection::open_with_flags(path, flags).map_err(failed)?;
        file.busy_timeout(BUSY).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Its version; 0 for an empty file.
    fn version(&self) -> Result<i64, StoreError> {
        let number = |name: &str| -> Result<i64, StoreError> {
            let value = self.file.pragma_query_value(None, name, |row| row.get(0));
            value.map_err(|error| match error.sqlite_error_code() {
                Some(rusqlite::ErrorCode::NotADatabase) => StoreError::Foreign(self.path.clone()),
                _ => self.error(error),
            })
        };
        let (application, version) = (number("application_id")?, number("user_version")?);
        let tables =
            self.file.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0));
        let tables: i64 = tables.map_err(|error| self.error(error))?;
        match (application, version, tables) {
            (0, 0, 0) => Ok(0),
            (APPLICATION, newer, _) if newer > MIGRATIONS.len() as i64 => {
                Err(StoreError::Newer(self.path.clone(), newer))
            }
            (APPLICATION, known, _) if known > 0 => Ok(known),
            _ => Err(StoreError::Foreign(self.path.clone())),
        }
    }

    fn migrate(&mut self) -> Result<(), StoreError> {
        let version = self.version()?;
        let path = self.path.clone();
        let mut migrate = || {
            let steps = MIGRATIONS.iter().zip(1i64..).filter(|(_, to)| *to > version);
            for (step, to) in steps {
                let change = self.file.transaction()?;
                change.execute_batch(step)?;
                change.pragma_update(None, "application_id", APPLICATION)?;
                change.pragma_update(None, "user_version", to)?;
                change.commit()?;
            }
            Ok(())
        };
        migrate().map_err(|error| StoreError::Sqlite(path, error))
    }

    fn error(&self, error: rusqlite::Error) -> StoreError {
        StoreError::Sqlite(self.path.clone(), error)
    }

    /// The series that it has. Rows that are none are left out.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn series(&self) -> Result<Vec<(SeriesId, Key)>, StoreError> {
        let read = || {
            let mut rows = self.file.prepare("SELECT id, kind, name, port FROM series LIMIT ?")?;
            let rows = rows.query_map([SERIES_MAX as i64], |row| {
                let (id, kind) = (row.get::<_, u32>(0)?, row.get::<_, i64>(1)?);
                let (name, port) = (row.get(2)?, row.get(3)?);
                let kind = usize::try_from(kind).ok().and_then(|kind| Kind::ALL.get(kind));
                Ok(kind.map(|kind| (SeriesId(id), Key { kind: *kind, name, port })))
            })?;
            rows.filter_map(Result::transpose).collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|error| self.error(error))
    }

    /// Stores a batch: all of it or nothing.
    ///
    /// # Errors
    /// If it cannot be written; nothing is stored then.
    pub fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let path = self.path.clone();
        let mut commit = || {
            let change = self.file.transaction()?;
            for (id, key) in &batch.series {
                let kind = key.kind as i64;
                change
                    .prepare_cached("INSERT OR IGNORE INTO series VALUES (?, ?, ?, ?)")?
                    .execute(params![id.0, kind, key.name, key.port])?;
            }
            for slot in &batch.slots {
                write(&change, slot)?;
                make_room(&change, slot.resolution)?;
            }
            change.commit()
        };
        commit().map_err(|error| StoreError::Sqlite(path, error))
    }

    /// The points of a series with times in `times`, in seconds since 1970, in their order. Blocks
    /// that cannot be decoded are left out.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn points(
        &self,
        id: SeriesId,
        resolution: Resolution,
        times: Range<u64>,
    ) -> Result<Vec<(u64, Point)>, StoreError> {
        let number = resolution.in_file();
        let first = times.start / resolution.block_s() * resolution.block_s();
        let read = || {
            let mut slots = self.file.prepare_cached(
                "SELECT slot.start, present, idle, points FROM slot LEFT JOIN block
                 ON block.resolution = slot.resolution AND block.start = slot.start AND series = ?
                 WHERE slot.resolution = ? AND slot.start >= ? AND slot.start < ?
                 ORDER BY slot.start LIMIT ?",
            )?;
            let limits = params![
                id.0,
                number,
                first as i64,
                times.end.min(i64::MAX as u64) as i64,
                resolution.blocks_kept() as i64 + 1
            ];
            let mut rows = slots.query(limits)?;
            let mut points = Vec::new();
            while let Some(row) = rows.next()? {
                let start = row.get::<_, i64>(0)? as u64;
                let present = row.get::<_, i64>(1)? as u64;
                let block = match row.get_ref(3)?.as_blob_or_null()? {
                    Some(bytes) => Block::decode(bytes, present),
                    None => {
                        let is_idle =
                            ranges(row.get_ref(2)?.as_blob()?).any(|it| it.contains(&id.0));
                        is_idle.then(|| Block::idle(present))
                    }
                };
                for (place, point) in block.iter().flat_map(Block::iter) {
                    let time = start.saturating_add(place * resolution.step_s());
                    if times.contains(&time) {
                        points.push((time, point));
                    }
                }
            }
            Ok(points)
        };
        read().map_err(|error| self.error(error))
    }

    /// The time of its oldest point of a resolution.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn oldest(&self, resolution: Resolution) -> Result<Option<u64>, StoreError> {
        let read = || {
            let mut oldest = self.file.prepare_cached(
                "SELECT start, present FROM slot WHERE resolution = ? ORDER BY start LIMIT 1",
            )?;
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
            oldest.query_row([resolution.in_file()], row).optional()
        };
        let oldest = read().map_err(|error| self.error(error))?;
        Ok(oldest.map(|(start, present)| {
            let place = u64::from(present.trailing_zeros().min(63));
            (start.max(0) as u64).saturating_add(place * resolution.step_s())
        }))
    }

    /// The blocks of all series in the slots that begin in `times`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn slots(
        &self,
        resolution: Resolution,
        times: Range<u64>,
        mut with: impl FnMut(u64, SeriesId, &Block),
    ) -> Result<(), StoreError> {
        let mut read = || {
            let mut blocks = self.file.prepare_cached(
                "SELECT block.start, series, points, present FROM block JOIN slot
                 ON slot.resolution = block.resolution AND slot.start = block.start
                 WHERE block.resolution = ? AND block.start >= ? AND block.start < ?",
            )?;
            let end = times.end.min(i64::MAX as u64) as i64;
            let mut rows = blocks.query(params![resolution.in_file(), times.start as i64, end])?;
            while let Some(row) = rows.next()? {
                let present = row.get::<_, i64>(3)? as u64;
                if let Some(block) = Block::decode(row.get_ref(2)?.as_blob()?, present) {
                    with(row.get::<_, i64>(0)? as u64, SeriesId(row.get(1)?), &block);
                }
            }
            Ok(())
        };
        read().map_err(|error| self.error(error))
    }

    /// Its size on disk without the log, in bytes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        let number =
            |name: &str| self.file.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let size = || Ok(number("page_count")? * number("page_size")?);
        size().map(|bytes| bytes as u64).map_err(|error| self.error(error))
    }
}

/// Stores the blocks of a slot. Points that it has already stay where there are no new ones.
fn write(change: &Transaction<'_>, slot: &Slot) -> rusqlite::Result<()> {
    let at = params![slot.resolution.in_file(), slot.start as i64];
    let new = slot.blocks.iter().map(|(id, block)| (id.0, Cow::Borrowed(block)));
    let mut blocks: BTreeMap<u32, Cow<'_, Block>> = new.collect();
    let mut present = slot.present;
    let earlier = change
        .prepare_cached("SELECT present, idle FROM slot WHERE resolution = ? AND start = ?")?
        .query_row(at, |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, Vec<u8>>(1)?)))
        .optional()?;
    if let Some((was_present, idle)) = earlier {
        present |= was_present;
        let mut add = |id: u32, before: Block| match blocks.entry(id) {
            Entry::Occupied(mut block) => block.get_mut().to_mut().fill_from(&before),
            Entry::Vacant(none) => {
                none.insert(Cow::Owned(before));
            }
        };
        ranges(&idle).flatten().for_each(|id| add(id, Block::idle(was_present)));
        let mut stored = change.prepare_cached(
            "SELECT series, points FROM block WHERE resolution = ? AND start = ?",
        )?;
        let mut rows = stored.query(at)?;
        while let Some(row) = rows.next()? {
            if let Some(before) = Block::decode(row.get_ref(1)?.as_blob()?, was_present) {
                add(row.get(0)?, before);
            }
        }
        drop(rows);
        change
            .prepare_cached("DELETE FROM block WHERE resolution = ? AND start = ?")?
            .execute(at)?;
    }
    let mut put = change.prepare_cached("INSERT INTO block VALUES (?, ?, ?, ?)")?;
    let mut idle = Vec::new();
    for (id, block) in blocks {
        if block.is_idle() && block.present() == present {
            idle.push(id);
        } else {
            let bytes = block.encode(present);
            put.execute(params![slot.resolution.in_file(), slot.start as i64, id, bytes])?;
        }
    }
    change
        .prepare_cached(
            "INSERT INTO slot (resolution, start, present, idle) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (resolution, start) DO UPDATE SET present = ?3, idle = ?4",
        )?
        .execute(params![
            slot.resolution.in_file(),
            slot.start as i64,
            present as i64,
            packed(&idle)
        ])?;
    Ok(())
}

/// Removes the slots of a resolution that were written first, as long as there are too many.
fn make_room(change: &Transaction<'_>, resolution: Resolution) -> rusqlite::Result<()> {
    let number = resolution.in_file();
    let mut oldest = change.prepare_cached(
        "SELECT number, start FROM slot WHERE resolution = ?1 ORDER BY number
         LIMIT max(0, (SELECT count(*) FROM slot WHERE resolution = ?1) - ?2)",
    )?;
    let gone = oldest
        .query_map(params![number, resolution.blocks_kept() as i64], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    for (slot, start) in gone {
        change
            .prepare_cached("DELETE FROM block WHERE resolution = ? AND start = ?")?
            .execute(params![number, start])?;
        change.prepare_cached("DELETE FROM slot WHERE number = ?")?.execute([slot])?;
    }
    Ok(())
}

/// Ascending numbers as pairs: how many are left out, and how many follow one another.
fn packed(ids: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut ids, mut next) = (ids.iter().copied().peekable(), 0);
    while let Some(first) = ids.next() {
        let mut end = first.saturating_add(1);
        while ids.next_if_eq(&end).is_some() {
            end = end.saturating_add(1);
        }
        for mut number in [first - next, end - first] {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        next = end;
    }
    bytes
}

/// The ranges of numbers in these bytes, up to where they are none.
fn ranges(mut bytes: &[u8]) -> impl Iterator<Item = Range<u32>> + '_ {
    let mut number = move || {
        let mut number = 0u32;
        for shift in (0..32).step_by(7) {
            let (byte, rest) = bytes.split_first()?;
            bytes = rest;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    };
    let mut next = 0u32;
    std::iter::from_fn(move || {
        let first = next.checked_add(number()?)?;
        next = first.checked_add(number()?)?;
        // More series than there can be are damage.
        (next as usize <= 2 * SERIES_MAX).then_some(first..next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    struct File(PathBuf);

    impl File {
        fn new(test: &str) -> Self {
            let file = std::env::temp_dir().join(format!("nrw-{test}-{}", std::process::id()));
            let file = Self(file);
            file.remove();
            file
        }

        fn remove(&self) {
            for end in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{end}", self.0.display()));
            }
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            self.remove();
        }
    }

    fn slot(start: u64, present: u64, busy: u64) -> Slot {
        let block = |id: u32| {
            let mut block = Block::default();
            for place in (0..60).filter(|place| (present >> place) & 1 == 1) {
                let mut point = Point::default();
                point.0[0] = u16::from((busy >> place) & 1 == 1) * (id as u16 + 1);
                block.put(place, point);
            }
            (SeriesId(id), block)
        };
        let blocks = (1..=3).map(block).collect();
        Slot { resolution: Resolution::Second, start, present, blocks }
    }

    fn batch(slots: Vec<Slot>) -> Batch {
        Batch { series: Vec::new(), slots }
    }

    #[test]
    fn what_is_committed_is_read() {
        let file = File::new("committed");
        let mut store = Store::open(&file.0).unwrap();
        let key = Key { kind: Kind::Subscriber, name: "alice".into(), port: "eth1".into() };
        let mut first = batch(vec![slot(600, 0b0111, 0b0101)]);
        first.series.push((SeriesId(1), key.clone()));
        store.commit(&first).unwrap();
        store.commit(&batch(vec![slot(600, 0b1100, 0)])).unwrap();
        let other = Store::read(&file.0).unwrap();
        assert_eq!(other.series().unwrap(), [(SeriesId(1), key)]);
        let points = other.points(SeriesId(1), Resolution::Second, 601..9999).unwrap();
        let sent: Vec<_> = points.iter().map(|(time, point)| (*time, point.0[0])).collect();
        assert_eq!(sent, [(601, 0), (602, 0), (603, 0)], "a later point makes an earlier one way");
        assert_eq!(other.oldest(Resolution::Second).unwrap(), Some(600));
        assert_eq!(other.oldest(Resolution::Hour).unwrap(), None);
        assert!(other.bytes().unwrap() > 0);
    }

    #[test]
    fn a_series_that_was_idle_has_zeros_and_one_that_was_not_there_has_none() {
        let file = File::new("idle");
        let mut store = Store::open(&file.0).unwrap();
        store.commit(&batch(vec![slot(0, 0b11, 0)])).unwrap();
        let read = |id| store.points(SeriesId(id), Resolution::Second, 0..60).unwrap();
        assert_eq!(read(2), [(0, Point::default()), (1, Point::default())]);
        assert_eq!(read(7), []);
    }

    #[test]
    fn the_slots_that_were_written_first_make_way_whatever_the_clock_said() {
        let file = File::new("ring");
        let mut store = Store::open(&file.0).unwrap();
        let far = 4_000_000_000;
        store.commit(&batch(vec![slot(far, 1, 1)])).unwrap();
        let kept = Resolution::Second.blocks_kept();
        for minute in 0..kept - 1 {
            store.commit(&batch(vec![slot(minute * 60, 1, 1)])).unwrap();
        }
        let read = |store: &Store| {
            let points = store.points(SeriesId(1), Resolution::Second, 0..u64::MAX).unwrap();
            points.into_iter().map(|(time, _)| time).collect::<Vec<_>>()
        };
        assert_eq!((read(&store).len() as u64, read(&store).last()), (kept, Some(&far)));
        store.commit(&batch(vec![slot((kept - 1) * 60, 1, 1)])).unwrap();
        assert_eq!((read(&store).len() as u64, read(&store)[0]), (kept, 0));
        store.commit(&batch(vec![slot(kept * 60, 1, 1)])).unwrap();
        assert_eq!(read(&store)[0], 60);
        let rows: i64 =
            store.file.query_row("SELECT count(*) FROM block", [], |row| row.get(0)).unwrap();
        assert_eq!(rows as u64, 3 * kept);
    }

    #[test]
    fn another_file_is_refused_and_stays_as_it_is() {
        let file = File::new("foreign");
        std::fs::write(&file.0, "no database, and long enough to be read as one\n".repeat(20))
            .unwrap();
        let before = std::fs::read(&file.0).unwrap();
        assert!(matches!(Store::open(&file.0), Err(StoreError::Foreign(_))));
        assert_eq!(std::fs::read(&file.0).unwrap(), before);
        file.remove();
        let other = Connection::open(&file.0).unwrap();
        other.execute_batch("CREATE TABLE mine (x)").unwrap();
        drop(other);
        assert!(matches!(Store::open(&file.0), Err(StoreError::Foreign(_))));
        file.remove();
        let store = Store::open(&file.0).unwrap();
        store.file.pragma_update(None, "user_version", 99).unwrap();
        drop(store);
        assert!(matches!(Store::open(&file.0), Err(StoreError::Newer(_, 99))));
    }

    #[test]
    fn only_its_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let file = File::new("mode");
        drop(Store::open(&file.0).unwrap());
        assert_eq!(std::fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
    }

    proptest! {
        #[test]
        fn lists_are_read_as_they_were_packed(ids: BTreeSet<u16>) {
            let ids: Vec<u32> = ids.into_iter().map(u32::from).collect();
            prop_assert!(ranges(&packed(&ids)).flatten().eq(ids.iter().copied()));
        }

        #[test]
        fn any_list_is_read_without_a_panic(bytes: Vec<u8>) {
            prop_assert!(ranges(&bytes).count() <= bytes.len());
        }
    }
}
