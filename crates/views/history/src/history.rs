//! A history that is recorded and asked at the same time.
//!
//! A thread of its own writes to the file, so that a slow disk delays no snapshot. If it is so slow
//! that batches pile up, they are dropped, and a warning says so.

use crate::query::{POINTS_MAX, Reader};
use crate::{
    Batch, Closed, Found, Key, Kind, Point, QueryError, Range, Recorder, Series, SeriesId, Store,
    StoreError, Track, What, Worst,
};
use narrows_snapshot::{Change, Snapshot};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The most batches that wait for the disk: minutes.
const WAITING_MAX: usize = 4;

/// How to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file; none to keep only what is open, in memory.
    pub file: Option<PathBuf>,
    /// The seconds between two snapshots.
    pub interval_s: u64,
    /// The most directions that are recorded.
    pub directions_max: usize,
}

/// Records and answers. Clones share it.
#[derive(Clone, Debug)]
pub struct History {
    state: Arc<Mutex<State>>,
}

type Waiting = Arc<Mutex<VecDeque<Arc<Batch>>>>;

#[derive(Debug)]
struct State {
    recorder: Recorder,
    /// To answer; none without a file.
    store: Option<Store>,
    keys: HashMap<SeriesId, Key>,
    /// To the thread that writes.
    batches: Option<SyncSender<Arc<Batch>>>,
    /// What it has not committed yet, the oldest first.
    waiting: Waiting,
    /// Batches that the disk was too slow for.
    dropped: u64,
}

impl History {
    /// Opens the file, and starts the thread that writes to it.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn start(options: &Options) -> Result<Self, StoreError> {
        let (mut store, mut batches, mut known) = (None, None, Vec::new());
        let waiting = Waiting::default();
        if let Some(path) = &options.file {
            let writer = Store::open(path)?;
            known = writer.series()?;
            let (to, from) = sync_channel(WAITING_MAX);
            batches = Some(to);
            store = Some(Store::read(path)?);
            let waiting = Arc::clone(&waiting);
            // It ends with the process.
            thread::spawn(move || write(writer, from, &waiting));
        }
        let keys = known.iter().map(|(id, key)| (*id, key.clone())).collect();
        let recorder = Recorder::new(options.interval_s, options.directions_max, known);
        let state = State { recorder, store, keys, batches, waiting, dropped: 0 };
        Ok(Self { state: Arc::new(Mutex::new(state)) })
    }

    /// Records what `now` adds to the earlier snapshot of `change`, at `time` in seconds since
    /// 1970. What was done in the latest interval of ten seconds, if one is over.
    pub fn record(&self, now: &Snapshot, change: &Change<'_>, time: u64) -> Vec<(Key, Closed)> {
        let mut state = self.state();
        let batch = state.recorder.record(now, change, time);
        state.store(batch);
        state.closed()
    }

    /// The time is `time`, and the instance does not answer.
    pub fn pass(&self, time: u64) {
        let mut state = self.state();
        let batch = state.recorder.pass(time);
        state.store(batch);
    }

    /// How many directions have had no room in the last hour.
    pub fn left_out(&self) -> usize {
        self.state().recorder.left_out()
    }

    /// Whether there is a file.
    pub fn has_file(&self) -> bool {
        self.state().store.is_some()
    }

    /// A series of a subject, at a port or at its first.
    ///
    /// # Errors
    /// If there is no such subject or port, or the file cannot be read.
    pub fn series(
        &self,
        subject: &str,
        port: Option<&str>,
        what: What,
        range: Range,
    ) -> Result<Series, QueryError> {
        self.state().ask(|reader| reader.series(subject, port, what, range))
    }

    /// The subjects whose name or kind contains `search`, at most so many.
    pub fn subjects(&self, search: &str, most: usize) -> Vec<Found> {
        let state = self.state();
        state.ask(|reader| Ok(reader.subjects(search, most))).unwrap_or_default()
    }

    /// The directions with the highest values over a time.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn worst(
        &self,
        what: What,
        kind: Option<Kind>,
        range: Range,
        most: usize,
    ) -> Result<Vec<Worst>, QueryError> {
        self.state().ask(|reader| reader.worst(what, kind, range, most))
    }

    /// All known points of each direction of a subject in a time.
    ///
    /// # Errors
    /// If there is no such subject, or the file cannot be read.
    pub fn points(&self, subject: &str, range: Range) -> Result<Vec<Track>, QueryError> {
        self.state().ask(|reader| reader.all_points(subject, range))
    }
}

impl History {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn store(&mut self, batch: Option<Batch>) {
        let Some(batch) = batch else { return };
        self.keys.extend(batch.series.iter().cloned());
        let Some(batches) = &self.batches else { return };
        let batch = Arc::new(batch);
        let mut waiting = lock(&self.waiting);
        waiting.push_back(Arc::clone(&batch));
        if let Err(TrySendError::Full(_)) = batches.try_send(batch) {
            waiting.pop_back();
            self.dropped += 1;
            log::warn!(
                "the disk of the history is too slow: {} of its minutes are lost",
                self.dropped
            );
        }
    }

    fn closed(&mut self) -> Vec<(Key, Closed)> {
        let closed = self.recorder.take_closed();
        if closed.is_empty() {
            return Vec::new();
        }
        for (key, id) in self.recorder.keys() {
            self.keys.entry(id).or_insert_with(|| key.clone());
        }
        let with_key =
            closed.into_iter().filter_map(|one| Some((self.keys.get(&one.series)?.clone(), one)));
        with_key.collect()
    }

    fn ask<T>(
        &self,
        question: impl FnOnce(&Reader<'_>) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let recorder = Some(&self.recorder);
        // Before the file is read: what leaves the list is in the file by then.
        let waiting = lock(&self.waiting).iter().cloned().collect();
        question(&Reader { store: self.store.as_ref(), waiting, recorder, keys: &self.keys })
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes batches as they come, and takes them off the list of those that wait.
fn write(mut store: Store, batches: Receiver<Arc<Batch>>, waiting: &Waiting) {
    let mut failed = false;
    for batch in batches {
        match store.commit(&batch) {
            Ok(()) if failed => {
                failed = false;
                log::info!("the history is written again");
            }
            Ok(()) => {}
            Err(error) if !failed => {
                failed = true;
                log::warn!("the history is not written: {error}");
            }
            Err(_) => {}
        }
        lock(waiting).pop_front();
    }
}

/// A file that is asked without being recorded to.
#[derive(Debug)]
pub struct Archive {
    store: Store,
    keys: HashMap<SeriesId, Key>,
}

impl Archive {
    /// Opens the file at `path` to read.
    ///
    /// # Errors
    /// If it cannot be opened, or is no history.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Store::read(path)?;
        let keys = store.series()?.into_iter().collect();
        Ok(Self { store, keys })
    }

    fn reader(&self) -> Reader<'_> {
        let waiting = Vec::new();
        Reader { store: Some(&self.store), waiting, recorder: None, keys: &self.keys }
    }

    /// As [`History::subjects`].
    pub fn subjects(&self, search: &str, most: usize) -> Vec<Found> {
        self.reader().subjects(search, most)
    }

    /// As [`History::series`].
    ///
    /// # Errors
    /// As there.
    pub fn series(
        &self,
        subject: &str,
        port: Option<&str>,
        what: What,
        range: Range,
    ) -> Result<Series, QueryError> {
        self.reader().series(subject, port, what, range)
    }

    /// As [`History::worst`].
    ///
    /// # Errors
    /// As there.
    pub fn worst(
        &self,
        what: What,
        kind: Option<Kind>,
        range: Range,
        most: usize,
    ) -> Result<Vec<Worst>, QueryError> {
        self.reader().worst(what, kind, range, most)
    }

    /// Calls `with` for the points of each direction that `search` finds, in order: its key, the
    /// seconds of a point, and the points with their times.
    ///
    /// # Errors
    /// If the file cannot be read, or `with` fails.
    pub fn export<E: From<QueryError>>(
        &self,
        search: &str,
        range: Range,
        mut with: impl FnMut(&Key, u64, &[(u64, Point)]) -> Result<(), E>,
    ) -> Result<(), E> {
        let search = search.to_lowercase();
        let mut chosen: Vec<(SeriesId, &Key)> =
            self.keys.iter().map(|(id, key)| (*id, key)).collect();
        chosen.retain(|(_, key)| key.subject().to_lowercase().contains(&search));
        chosen.sort_by_key(|(_, key)| *key);
        let range = Range { points: range.points.min(POINTS_MAX), ..range };
        for (id, key) in chosen {
            let (step, first, points) = self.reader().points(id, range)?;
            let times = (first..).step_by(step.max(1) as usize);
            let known: Vec<(u64, Point)> =
                times.zip(points).filter_map(|(time, point)| Some((time, point?))).collect();
            if !known.is_empty() {
                with(key, step, &known)?;
            }
        }
        Ok(())
    }

    /// The size of the file, in bytes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        self.store.bytes()
    }
}
