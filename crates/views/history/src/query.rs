//! Questions to a history, and their answers.

use crate::block::Block;
use crate::{Batch, Recorder, SeriesId};
use crate::{Key, Kind, Point, Resolution, Store, StoreError, Summary, What};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range as Times;
use std::sync::Arc;

/// The most points of an answer.
pub const POINTS_MAX: usize = 10_000;
/// The most subjects of an answer.
pub const SUBJECTS_MAX: usize = 1000;
/// The last second that is asked for: far beyond the year 9999, and far from overflow.
const TIME_MAX: u64 = 1 << 40;

/// A resolution with fewer than one part in so many of the points that are wanted is too coarse.
const FEW: u64 = 4;
/// Of so many points of each series, at most, subjects are ranked: all series are read.
const RANKED: u64 = 60;
/// Of the time that is asked for, one part in so many may be missing, rather than all be coarser.
const MISSING: u64 = 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// No such subject.
    #[error(
        "there is no history of \"{0}\": /api/history/subjects?search=WORD and `narrows history \
         list WORD` find who has one"
    )]
    Unknown(String),
    /// It has no such port.
    #[error("\"{subject}\" has no history at {port}; its ports are {}", ports.join(" and "))]
    Port {
        /// Who was asked for.
        subject: String,
        /// The port that was asked for.
        port: String,
        /// Its ports.
        ports: Vec<String>,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who has a history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Subject {
    /// Its identity: kind and name.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

impl Subject {
    fn of(key: &Key) -> Self {
        Self { id: key.subject(), name: key.name.clone(), kind: key.kind }
    }
}

/// A subject that was found, with the ports through which its traffic leaves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Found {
    /// Who.
    #[serde(flatten)]
    pub subject: Subject,
    /// The ports of its directions.
    pub ports: Vec<String>,
}

/// The time that a question is about, and how finely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first second since 1970.
    pub from: u64,
    /// The second behind the last.
    pub to: u64,
    /// The most points of the answer, at most [`POINTS_MAX`].
    pub points: usize,
}

/// A series.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// Who.
    pub subject: Subject,
    /// The port through which it leaves.
    pub port: String,
    /// All ports of the subject.
    pub ports: Vec<String>,
    /// What the values are.
    pub what: What,
    /// Their unit.
    pub unit: crate::Unit,
    /// The time between two values, in seconds.
    pub step_s: u64,
    /// When the interval of the first value begins, in seconds since 1970.
    pub from: u64,
    /// A value for each step; none where nothing is known.
    pub values: Vec<Option<f64>>,
    /// Of the rate sent: the highest of any second of the step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub max: Vec<Option<f64>>,
}

/// A subject, and how bad it was.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Worst {
    /// Who.
    #[serde(flatten)]
    pub subject: Subject,
    /// The port.
    pub port: String,
    /// What was asked for, over the whole time, in its unit.
    pub value: f64,
}

/// The known points of a direction.
#[derive(Clone, PartialEq, Debug)]
pub struct Track {
    /// Which direction.
    pub key: Key,
    /// The seconds of a point.
    pub step_s: u64,
    /// The points, each with the time at which it begins, in seconds since 1970.
    pub points: Vec<(u64, Point)>,
}

/// The answers of a store, and of what is not yet in it.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    /// None if nothing is stored.
    pub(crate) store: Option<&'a Store>,
    /// What is on its way to the store, the oldest first.
    pub(crate) waiting: Vec<Arc<Batch>>,
    pub(crate) recorder: Option<&'a Recorder>,
    pub(crate) keys: &'a HashMap<SeriesId, Key>,
}

impl Reader<'_> {
    /// The subjects whose name or kind contains `search`, without regard to case, by name.
    pub(crate) fn subjects(&self, search: &str, most: usize) -> Vec<Found> {
        let search = search.to_lowercase();
        let mut found: BTreeMap<(Kind, &str), Vec<String>> = BTreeMap::new();
        for key in self.keys.values() {
            if key.subject().to_lowercase().contains(&search) {
                found.entry((key.kind, &key.name)).or_default().push(key.port.clone());
            }
        }
        let found =
            found.into_iter().take(most.min(SUBJECTS_MAX)).map(|((kind, name), mut ports)| {
                ports.sort();
                let key = Key { kind, name: name.to_owned(), port: String::new() };
                Found { subject: Subject::of(&key), ports }
            });
        found.collect()
    }

    /// The directions of a subject, by port. `wanted` is its identity, or its name alone.
    pub(crate) fn directions(&self, wanted: &str) -> Result<Vec<(SeriesId, &Key)>, QueryError> {
        let mut found: Vec<(SeriesId, &Key)> = Vec::new();
        for kind in Kind::ALL {
            let is_it =
                |key: &Key| key.kind == kind && (key.name == wanted || key.subject() == wanted);
            found
                .extend(self.keys.iter().filter(|(_, key)| is_it(key)).map(|(id, key)| (*id, key)));
            if !found.is_empty() {
                break;
            }
        }
        found.sort_by(|(_, one), (_, other)| one.port.cmp(&other.port));
        if found.is_empty() {
            return Err(QueryError::Unknown(wanted.to_owned()));
        }
        Ok(found)
    }

    /// A series of a subject at a port; at its first if none is given.
    pub(crate) fn series(
        &self,
        subject: &str,
        port: Option<&str>,
        what: What,
        range: Range,
    ) -> Result<Series, QueryError> {
        let directions = self.directions(subject)?;
        let ports: Vec<String> = directions.iter().map(|(_, key)| key.port.clone()).collect();
        let at = port.map_or(Some(0), |port| ports.iter().position(|other| other == port));
        let Some(&(id, key)) = at.and_then(|at| directions.get(at)) else {
            let port = port.unwrap_or_default().to_owned();
            return Err(QueryError::Port { subject: subject.to_owned(), port, ports });
        };
        let (step_s, from, points) = self.points(id, range)?;
        let value = |point: &Option<Point>| {
            point.as_ref().and_then(|point| what.of(point, step_s)).map(readable)
        };
        let max = |point: &Option<Point>| point.as_ref().map(|point| readable(point.peak_bps()));
        Ok(Series {
            subject: Subject::of(key),
            port: key.port.clone(),
            ports,
            what,
            unit: what.unit(),
            step_s,
            from,
            values: points.iter().map(value).collect(),
            max: match what {
                What::Sent => points.iter().map(max).collect(),
                _ => Vec::new(),
            },
        })
    }

    /// The points of each direction of a subject.
    pub(crate) fn all_points(&self, subject: &str, range: Range) -> Result<Vec<Track>, QueryError> {
        let directions = self.directions(subject)?.into_iter();
        let points = directions.map(|(id, key)| {
            let (step_s, first, points) = self.points(id, range)?;
            let times = (first..).step_by(step_s.max(1) as usize);
            let known = times.zip(points).filter_map(|(time, point)| Some((time, point?)));
            Ok(Track { key: key.clone(), step_s, points: known.collect() })
        });
        points.collect()
    }

    /// The step, the time of the first point, and the points of a series in `range`: of the finest
    /// resolution that goes back so far and has no more points. If that has far too few, or none
    /// has so few, several points are merged into one.
    pub(crate) fn points(
        &self,
        id: SeriesId,
        range: Range,
    ) -> Result<(u64, u64, Vec<Option<Point>>), QueryError> {
        let most = range.points.clamp(1, POINTS_MAX) as u64;
        let from = range.from.min(TIME_MAX);
        let to = range.to.clamp(from, TIME_MAX);
        let resolution = self.resolution(from, to, most, true)?;
        let step = resolution.step_s();
        // Of several points of the coarsest, in whole steps since 1970.
        let count = to.div_ceil(step) - from / step;
        let many = if count <= most + 1 { 1 } else { count.div_ceil(most) };
        let wide = step * many;
        let first = from / wide;
        let count = (to.div_ceil(wide) - first) as usize;
        let times = first * wide..to;
        let found = self.stored(id, resolution, times)?;
        if many == 1 {
            let mut points = vec![None; count];
            for (time, point) in found {
                if let Some(place) = points.get_mut((time / step - first) as usize) {
                    *place = Some(point);
                }
            }
            return Ok((step, first * step, points));
        }
        let mut merged: Vec<Summary> = vec![Summary::default(); count];
        for (time, point) in found {
            if let Some(place) = merged.get_mut((time / wide - first) as usize) {
                place.merge(&point.summary(step));
            }
        }
        let points = merged.iter().map(|it| (it.seconds > 0.0).then(|| Point::of(it)));
        Ok((wide, first * wide, points.collect()))
    }

    /// The finest resolution that has points since `from`, or a little later, and no more than
    /// `most` until `to`, and one where neither end is that of a point. If it has far fewer and
    /// points `may_merge`, it is the next finer one.
    fn resolution(
        &self,
        from: u64,
        to: u64,
        most: u64,
        may_merge: bool,
    ) -> Result<Resolution, StoreError> {
        let mut best = Resolution::Hour;
        // The one that goes back furthest, if none goes back to the beginning.
        let mut furthest = u64::MAX;
        let mut finer = None;
        for resolution in Resolution::ALL {
            let count = to.div_ceil(resolution.step_s()) - from / resolution.step_s();
            let Some(oldest) = self.oldest(resolution)? else { continue };
            let goes_back = oldest <= from.saturating_add((to - from) / MISSING);
            if count > most + 1 {
                finer = goes_back.then_some(resolution).or(finer);
                continue;
            }
            if goes_back {
                let is_coarse = may_merge && count * FEW < most;
                return Ok(finer.filter(|_| is_coarse).unwrap_or(resolution));
            }
            if oldest.saturating_add(resolution.step_s()) < furthest {
                (best, furthest) = (resolution, oldest);
            }
        }
        Ok(if furthest == u64::MAX { finer.unwrap_or(best) } else { best })
    }

    /// When a resolution begins.
    fn oldest(&self, resolution: Resolution) -> Result<Option<u64>, StoreError> {
        let open = self.recorder.and_then(|recorder| recorder.since(resolution));
        let stored = self.store.map(|store| store.oldest(resolution)).transpose()?.flatten();
        Ok(stored.into_iter().chain(open).min())
    }

    /// The points of a series, stored and open, with their times.
    pub(crate) fn stored(
        &self,
        id: SeriesId,
        resolution: Resolution,
        times: Times<u64>,
    ) -> Result<BTreeMap<u64, Point>, StoreError> {
        let stored = self.store.map(|store| store.points(id, resolution, times.clone()));
        let mut points: BTreeMap<u64, Point> = stored.transpose()?.into_iter().flatten().collect();
        let slots = self.waiting.iter().flat_map(|batch| &batch.slots);
        for slot in slots.filter(|slot| slot.resolution == resolution) {
            let block = slot.blocks.iter().find(|(of, _)| *of == id);
            let new = block.into_iter().flat_map(|(_, block)| block.iter());
            let new = new.map(|(place, point)| (slot.start + place * resolution.step_s(), point));
            points.extend(new.filter(|(time, _)| times.contains(time)));
        }
        if let Some(recorder) = self.recorder {
            let open = recorder.open_points(id, resolution).into_iter();
            points.extend(open.filter(|(time, _)| times.contains(time)));
        }
        Ok(points)
    }

    /// The `most` directions with the highest value of `what` over the whole range.
    pub(crate) fn worst(
        &self,
        what: What,
        kind: Option<Kind>,
        range: Range,
        most: usize,
    ) -> Result<Vec<Worst>, QueryError> {
        let from = range.from.min(TIME_MAX);
        let to = range.to.clamp(from, TIME_MAX);
        let resolution = self.resolution(from, to, RANKED, false)?;
        let (step, block) = (resolution.step_s(), resolution.block_s());
        let mut all: HashMap<SeriesId, Summary> = HashMap::new();
        let mut latest: Option<u64> = None;
        let mut add = |id: SeriesId, time: u64, point: &Point| {
            if (from..to).contains(&time) && !point.is_idle() {
                all.entry(id).or_default().merge(&point.summary(step));
            }
        };
        let with = |start, id, block: &Block| {
            for (place, point) in block.iter() {
                let time = start + place * step;
                latest = latest.max(Some(time));
                add(id, time, &point);
            }
        };
        let slots = from / block * block..to;
        self.store.map(|store| store.slots(resolution, slots, with)).transpose()?;
        // What waits or is open may be stored in part.
        let mut waiting: Vec<(SeriesId, u64, Point)> = Vec::new();
        for slot in self.waiting.iter().flat_map(|batch| &batch.slots) {
            for (id, block) in slot.blocks.iter().filter(|_| slot.resolution == resolution) {
                let points = block.iter().map(|(place, point)| (slot.start + place * step, point));
                let new = points.filter(|(time, _)| latest.is_none_or(|latest| *time > latest));
                waiting.extend(new.map(|(time, point)| (*id, time, point)));
            }
        }
        waiting.iter().for_each(|(id, time, point)| add(*id, *time, point));
        let latest = waiting.iter().map(|(_, time, _)| *time).max().max(latest);
        if let Some(recorder) = self.recorder {
            for id in self.keys.keys() {
                let open = recorder.open_points(*id, resolution).into_iter();
                let new = open.filter(|(time, _)| latest.is_none_or(|latest| *time > latest));
                new.for_each(|(time, point)| add(*id, time, &point));
            }
        }
        let mut worst: Vec<Worst> = Vec::new();
        for (id, summary) in all {
            let Some(key) =
                self.keys.get(&id).filter(|key| kind.is_none_or(|kind| key.kind == kind))
            else {
                continue;
            };
            if let Some(value) = what.of(&Point::of(&summary), summary.seconds as u64) {
                let (subject, port) = (Subject::of(key), key.port.clone());
                worst.push(Worst { subject, port, value: readable(value) });
            }
        }
        worst.sort_by(|one, other| other.value.total_cmp(&one.value));
        worst.truncate(most.min(SUBJECTS_MAX));
        Ok(worst)
    }
}

/// Three or four digits: more are not known.
fn readable(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits.abs());
    if digits >= 0 { (value * scale).round() / scale } else { (value / scale).round() * scale }
}
