//! From what each direction did, second by second, to blocks of points.
//!
//! *Idea.* Each direction has an open interval of each resolution. When the clock leaves an
//! interval of one resolution, its figures become a point, and are merged into the open interval of
//! the next coarser one: histograms and sums, so nothing is lost before it is rounded. When it
//! leaves a block, the block is complete and goes to the store. Blocks of coarser resolutions go
//! there as far as they are, every ten minutes.
//!
//! *Clocks.* Intervals are those of the wall clock, so that points of two machines, or of two runs,
//! stand side by side. If the clock goes back by a few seconds, figures go into the interval that
//! is open; if by more, what is open is closed and recording goes on at the new time.

use crate::block::Block;
use crate::key::SERIES_MAX;
use crate::observed::Places;
use crate::{Key, Point, Resolution, SeriesId, Summary};
use narrows_snapshot::{Change, Snapshot};
use std::collections::HashMap;

/// How far a clock may go back, in seconds, and intervals still stay open.
const STEP_BACK_MAX: u64 = 60;
const COUNT: usize = Resolution::ALL.len();

/// What is to be stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Series that are new to the file.
    pub(crate) series: Vec<(SeriesId, Key)>,
    pub(crate) slots: Vec<Slot>,
}

/// A block of time, with the blocks of all series that have figures in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) resolution: Resolution,
    /// When it begins, in seconds since 1970.
    pub(crate) start: u64,
    /// Where any series has a point.
    pub(crate) present: u64,
    pub(crate) blocks: Vec<(SeriesId, Block)>,
}

/// What a series did in an interval that is over.
#[derive(Clone, PartialEq, Debug)]
pub struct Closed {
    /// The series.
    pub series: SeriesId,
    /// What it did.
    pub summary: Summary,
}

/// One direction.
#[derive(Debug)]
struct Track {
    id: SeriesId,
    /// Its open intervals.
    open: [Summary; COUNT],
    /// The points of its open blocks.
    blocks: [Block; COUNT],
}

/// Turns snapshots into points of all resolutions.
#[derive(Debug)]
pub struct Recorder {
    /// The finest resolution: no finer than there are snapshots.
    finest: usize,
    /// The number of the open interval of each resolution since 1970; none before the first
    /// snapshot.
    open: Option<[u64; COUNT]>,
    /// Of the finest resolution: the interval before the open one has no snapshot of its own, but
    /// the open one's covers it.
    also_before: bool,
    tracks: Vec<Track>,
    /// By the number of the series.
    by_id: HashMap<SeriesId, usize>,
    keys: HashMap<Key, SeriesId>,
    next: u32,
    /// The most series that are recorded.
    tracks_max: usize,
    left_out: usize,
    new: Vec<(SeriesId, Key)>,
    places: Places,
    /// When this recorder's first point of each resolution begins, in seconds since 1970.
    since: [Option<u64>; COUNT],
    /// The intervals of ten seconds, or of the finest resolution, that were closed last.
    closed: Vec<Closed>,
}

impl Recorder {
    /// For snapshots that are `interval_s` apart, and a file that has the series `known`. At most
    /// `tracks_max` directions are recorded.
    pub fn new(
        interval_s: u64,
        tracks_max: usize,
        known: impl IntoIterator<Item = (SeriesId, Key)>,
    ) -> Self {
        let keys: HashMap<Key, SeriesId> = known.into_iter().map(|(id, key)| (key, id)).collect();
        let next = keys.values().map(|id| id.0.saturating_add(1)).max().unwrap_or(1);
        Self {
            finest: Resolution::of_step(interval_s).number(),
            open: None,
            also_before: false,
            tracks: Vec::new(),
            by_id: HashMap::new(),
            keys,
            next,
            tracks_max,
            left_out: 0,
            new: Vec::new(),
            places: Places::default(),
            since: [None; COUNT],
            closed: Vec::new(),
        }
    }

    /// Records what `now` adds to the earlier snapshot of `change`, at `time` in seconds since
    /// 1970. What is to be stored now, if anything.
    pub fn record(&mut self, now: &Snapshot, change: &Change<'_>, time: u64) -> Option<Batch> {
        let batch = self.advance(time, change.seconds());
        let mut places = std::mem::take(&mut self.places);
        let observed = places.observe(now, change, |key| self.series(key));
        self.places = places;
        for (id, summary) in observed {
            self.add(id, &summary);
        }
        batch
    }

    /// The time is `time`, in seconds since 1970, and there is no snapshot: closes what is over.
    pub fn pass(&mut self, time: u64) -> Option<Batch> {
        self.advance(time, 0.0)
    }

    /// Adds what the series did in the open interval.
    pub(crate) fn add(&mut self, id: SeriesId, summary: &Summary) {
        if let Some(track) = self.by_id.get(&id).and_then(|at| self.tracks.get_mut(*at)) {
            track.open[self.finest].merge(summary);
        }
    }

    /// The series with this key; none if there is no room for another.
    pub(crate) fn series(&mut self, key: Key) -> Option<SeriesId> {
        let known = self.keys.get(&key).copied();
        if let Some(id) = known.filter(|id| self.by_id.contains_key(id)) {
            return Some(id);
        }
        if self.tracks.len() >= self.tracks_max
            || (known.is_none() && self.keys.len() >= SERIES_MAX)
        {
            self.left_out += 1;
            return None;
        }
        let id = known.unwrap_or_else(|| {
            let id = SeriesId(self.next);
            self.next = self.next.saturating_add(1);
            self.new.push((id, key.clone()));
            self.keys.insert(key, id);
            id
        });
        self.by_id.insert(id, self.tracks.len());
        self.tracks.push(Track { id, open: Default::default(), blocks: Default::default() });
        Some(id)
    }

    /// How many directions had no room since the last hour began.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The known series.
    pub fn keys(&self) -> impl Iterator<Item = (&Key, SeriesId)> {
        self.keys.iter().map(|(key, id)| (key, *id))
    }

    /// Takes what each series did in the latest interval of ten seconds that is over, or of the
    /// finest resolution if that is coarser.
    pub fn take_closed(&mut self) -> Vec<Closed> {
        std::mem::take(&mut self.closed)
    }

    /// The points of the open block of a series, with their times. The store may not have them yet.
    pub(crate) fn open_points(&self, id: SeriesId, resolution: Resolution) -> Vec<(u64, Point)> {
        let at = resolution.number();
        let (Some(open), Some(place)) = (self.open, self.by_id.get(&id)) else { return Vec::new() };
        let start = open[at] / resolution.points() * resolution.block_s();
        let block = &self.tracks[*place].blocks[at];
        block.iter().map(|(place, point)| (start + place * resolution.step_s(), point)).collect()
    }

    /// When the first point of a resolution that this recorder made begins.
    pub(crate) fn since(&self, resolution: Resolution) -> Option<u64> {
        self.since[resolution.number()]
    }

    /// Closes all intervals that are over at `time`; a snapshot at `time` covers `seconds`.
    fn advance(&mut self, time: u64, seconds: f64) -> Option<Batch> {
        let at = Resolution::ALL.map(|one| time / one.step_s());
        let Some(mut open) = self.open else {
            self.open = Some(at);
            return None;
        };
        let finest = self.finest;
        if at[finest] == open[finest] {
            return None;
        }
        if at[finest] < open[finest] {
            let back = (open[finest] - at[finest]) * Resolution::ALL[finest].step_s();
            if back <= STEP_BACK_MAX {
                return None;
            }
        }
        let mut due = [false; COUNT];
        for level in finest..COUNT {
            if at[level] == open[level] {
                break;
            }
            self.close(level, open[level]);
            let points = Resolution::ALL[level].points();
            due[level] = at[level] / points != open[level] / points;
        }
        // Every ten minutes all that is open; with it, what this process has not stored yet is not
        // more than that of ten minutes.
        let ten = Resolution::TenSeconds.number().max(finest);
        if due[ten] {
            due[ten..].fill(true);
        }
        let went_back = at[finest] < open[finest];
        if went_back {
            due[finest..].fill(true);
        }
        let mut batch = Batch { series: Vec::new(), slots: Vec::new() };
        for level in (finest..COUNT).filter(|level| due[*level]) {
            let resolution = Resolution::ALL[level];
            let points = resolution.points();
            let is_over = at[level] / points != open[level] / points;
            batch.slots.extend(self.slot(resolution, open[level] / points, is_over));
        }
        self.also_before =
            at[finest] == open[finest] + 2 && seconds > Resolution::ALL[finest].step_s() as f64;
        open[finest..].copy_from_slice(&at[finest..]);
        let hour = Resolution::Hour.number();
        let is_next_hour = self.open.is_some_and(|was| was[hour] != open[hour]);
        self.open = Some(open);
        if is_next_hour {
            self.forget();
        }
        if batch.slots.is_empty() {
            return None;
        }
        batch.series = std::mem::take(&mut self.new);
        Some(batch)
    }

    /// Makes points of the open intervals of a resolution, whose number is `interval`.
    fn close(&mut self, level: usize, interval: u64) {
        let place = interval % Resolution::ALL[level].points();
        let is_told = level == Resolution::TenSeconds.number().max(self.finest);
        if is_told {
            self.closed.clear();
        }
        // The clock of snapshots is a little slow, so now and then an interval has none.
        let also = (level == self.finest && self.also_before && place > 0).then(|| place - 1);
        for track in &mut self.tracks {
            let summary = std::mem::take(&mut track.open[level]);
            if summary.seconds <= 0.0 {
                continue;
            }
            let point = Point::of(&summary);
            track.blocks[level].put(place, point);
            self.since[level].get_or_insert(interval * Resolution::ALL[level].step_s());
            if let Some(also) = also {
                track.blocks[level].put(also, point);
            }
            if let Some(coarser) = track.open.get_mut(level + 1) {
                coarser.merge(&summary);
            }
            if is_told {
                self.closed.push(Closed { series: track.id, summary });
            }
        }
    }

    /// The blocks of a slot with their points so far. If it `is_over`, new ones begin.
    fn slot(&mut self, resolution: Resolution, number: u64, is_over: bool) -> Option<Slot> {
        let mut slot = Slot {
            resolution,
            start: number * resolution.block_s(),
            present: 0,
            blocks: Vec::new(),
        };
        for track in &mut self.tracks {
            let block = &mut track.blocks[resolution.number()];
            if block.present() == 0 {
                continue;
            }
            slot.present |= block.present();
            let block = if is_over { std::mem::take(block) } else { block.clone() };
            slot.blocks.push((track.id, block));
        }
        (!slot.blocks.is_empty()).then_some(slot)
    }

    /// Forgets directions that have nothing open, so that those that are gone make room.
    fn forget(&mut self) {
        self.left_out = 0;
        self.places.forget();
        self.tracks.retain(|track| {
            track.open.iter().any(|open| open.seconds > 0.0)
                || track.blocks.iter().any(|block| block.present() != 0)
        });
        let tracks = self.tracks.iter().enumerate();
        self.by_id = tracks.map(|(at, track)| (track.id, at)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, What};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(name: &str) -> Key {
        Key { kind: Kind::Subscriber, name: name.into(), port: "eth1".into() }
    }

    /// Adds what alice did; her place may have been forgotten.
    fn add(recorder: &mut Recorder, summary: &Summary) {
        let id = recorder.series(key("alice")).unwrap();
        recorder.add(id, summary);
    }

    /// All points that were stored, and those that are open, by resolution, series and time.
    #[derive(Default)]
    struct Stored(BTreeMap<(Resolution, SeriesId, u64), Point>);

    impl Stored {
        fn take(&mut self, batch: Option<Batch>) {
            for slot in batch.into_iter().flat_map(|batch| batch.slots) {
                for (id, block) in &slot.blocks {
                    for (place, point) in block.iter() {
                        let time = slot.start + place * slot.resolution.step_s();
                        self.0.insert((slot.resolution, *id, time), point);
                    }
                }
            }
        }

        fn take_open(&mut self, recorder: &Recorder, id: SeriesId) {
            for resolution in Resolution::ALL {
                for (time, point) in recorder.open_points(id, resolution) {
                    self.0.insert((resolution, id, time), point);
                }
            }
        }
    }

    fn any_summary() -> impl Strategy<Value = Summary> {
        (
            0u32..5,
            0u64..100_000_000,
            0u64..100,
            proptest::collection::vec((0u32..500_000, 1u64..9), 0..4),
        )
            .prop_map(|(kind, bits, drops, times)| {
                if kind == 0 {
                    return Summary::sent(1.0, 0.0, 0.0);
                }
                let mut summary = Summary::sent(1.0, bits as f64, drops as f64);
                for (us, packets) in times {
                    summary.delays.add(us.into(), packets);
                    summary.round_trips.add(f64::from(us) * 2.0, packets);
                    summary.slow_round_trips.add(f64::from(us) * 3.0, packets);
                    summary.segments += packets as f64;
                    summary.lost_beyond += 0.1 * packets as f64;
                }
                summary
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn each_point_is_that_of_all_seconds_of_its_interval(
            seconds in proptest::collection::vec(
                (prop_oneof![8 => Just(1u64), 1 => Just(2), 1 => 3u64..5000], any_summary()), 1..300),
            begin in 0u64..100_000,
        ) {
            let mut recorder = Recorder::new(1, 10, []);
            let id = recorder.series(key("alice")).unwrap();
            let mut stored = Stored::default();
            // The naive model: all seconds are kept, and merged when a point is wanted.
            let mut model: BTreeMap<(Resolution, u64), Summary> = BTreeMap::new();
            let mut time = begin;
            for (after, summary) in &seconds {
                time += after;
                stored.take(recorder.advance(time, 1.0));
                add(&mut recorder, summary);
                for resolution in Resolution::ALL {
                    let start = time / resolution.step_s() * resolution.step_s();
                    model.entry((resolution, start)).or_default().merge(summary);
                }
            }
            stored.take(recorder.advance(time + 100_000, 1.0));
            let expected: BTreeMap<_, _> = model
                .into_iter()
                .map(|((resolution, start), summary)| ((resolution, id, start), Point::of(&summary)))
                .collect();
            prop_assert_eq!(&stored.0, &expected);
            stored.take_open(&recorder, id);
            prop_assert_eq!(&stored.0, &expected);
        }

        #[test]
        fn no_clock_makes_it_panic_or_lose_what_was_open(
            times in proptest::collection::vec(
                prop_oneof![0u64..10_000, any::<u64>(), 0u64..100], 1..100),
        ) {
            let mut recorder = Recorder::new(1, 10, []);
            let id = recorder.series(key("alice")).unwrap();
            let mut stored = Stored::default();
            for time in times {
                stored.take(recorder.advance(time, 1.0));
                add(&mut recorder, &Summary::sent(1.0, 8.0, 0.0));
            }
            stored.take_open(&recorder, id);
            for point in stored.0.values() {
                prop_assert_eq!(point.sent_bps(), 8.0);
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_a_little_changes_no_earlier_point() {
        let mut recorder = Recorder::new(1, 10, []);
        let id = recorder.series(key("alice")).unwrap();
        for time in [100, 101, 99, 98, 102, 103] {
            recorder.advance(time, 1.0);
            add(&mut recorder, &Summary::sent(1.0, 8.0, 1.0));
        }
        let drops: Vec<_> = recorder
            .open_points(id, Resolution::Second)
            .iter()
            .map(|(time, point)| (*time, point.drops()))
            .collect();
        assert_eq!(drops, [(100, 1.0), (101, 3.0), (102, 1.0)]);
    }

    #[test]
    fn a_clock_that_was_set_back_by_hours_is_followed() {
        let mut recorder = Recorder::new(1, 10, []);
        let id = recorder.series(key("alice")).unwrap();
        let mut stored = Stored::default();
        for time in [90_000, 90_001, 1_000, 1_001, 1_002] {
            stored.take(recorder.advance(time, 1.0));
            add(&mut recorder, &Summary::sent(1.0, 8.0, 1.0));
        }
        stored.take_open(&recorder, id);
        let seconds: Vec<u64> = stored
            .0
            .keys()
            .filter(|(resolution, _, _)| *resolution == Resolution::Second)
            .map(|(_, _, time)| *time)
            .collect();
        assert_eq!(seconds, [1_000, 1_001, 90_000, 90_001]);
    }

    #[test]
    fn a_second_that_no_snapshot_fell_into_has_the_figures_of_the_one_that_covers_it() {
        let mut recorder = Recorder::new(1, 10, []);
        let id = recorder.series(key("alice")).unwrap();
        for (time, seconds) in [(100, 1.0), (101, 1.0), (103, 1.002), (104, 1.0)] {
            recorder.advance(time, seconds);
            add(&mut recorder, &Summary::sent(seconds, 8.0 * seconds, 0.0));
        }
        let times: Vec<_> =
            recorder.open_points(id, Resolution::Second).iter().map(|(time, _)| *time).collect();
        assert_eq!(times, [100, 101, 102, 103]);
    }

    #[test]
    fn slow_snapshots_make_no_fine_points() {
        let mut recorder = Recorder::new(30, 10, []);
        let id = recorder.series(key("alice")).unwrap();
        for time in (0..7200).step_by(30) {
            recorder.advance(time, 30.0);
            add(&mut recorder, &Summary::sent(30.0, 240.0, 0.0));
        }
        assert!(recorder.open_points(id, Resolution::TenSeconds).is_empty());
        assert_eq!(recorder.open_points(id, Resolution::Minute).len(), 59);
        assert_eq!(recorder.open_points(id, Resolution::Hour).len(), 1);
    }

    #[test]
    fn so_many_directions_are_recorded_and_those_that_are_gone_make_room() {
        let mut recorder = Recorder::new(1, 1, [(SeriesId(7), key("bob"))]);
        let alice = recorder.series(key("alice")).unwrap();
        assert_eq!(alice, SeriesId(8), "numbers are not used twice");
        assert_eq!((recorder.series(key("bob")), recorder.left_out()), (None, 1));
        add(&mut recorder, &Summary::sent(1.0, 8.0, 0.0));
        for hours in 0..60 {
            recorder.advance(hours * 3600, 1.0);
        }
        assert_eq!(recorder.series(key("bob")), Some(SeriesId(7)));
        assert_eq!(recorder.series(key("alice")), None);
    }

    #[test]
    fn intervals_of_ten_seconds_are_told_when_they_are_over() {
        let mut recorder = Recorder::new(1, 10, []);
        let id = recorder.series(key("alice")).unwrap();
        for time in 100..121 {
            recorder.advance(time, 1.0);
            let closed = recorder.take_closed();
            assert_eq!(closed.len(), usize::from(time == 110 || time == 120));
            if let [one] = &closed[..] {
                let point = Point::of(&one.summary);
                assert_eq!((one.series, What::Sent.of(&point, 10)), (id, Some(8.0)));
            }
            add(&mut recorder, &Summary::sent(1.0, 8.0, 0.0));
        }
    }
}
