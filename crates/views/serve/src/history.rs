//! An hour of rates: one ring of bounded size for each series, with a common time axis.

use narrows_snapshot::{Change, Snapshot};
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The length of the history, in seconds.
const SPAN: f64 = 3600.0;
/// The most points in a series.
const POINTS_MAX: usize = 3600;
/// The most series, at 14 kB each. Later ones are left out.
const SERIES_MAX: usize = 1000;

/// Identifies a series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// The port; empty if the series belongs to none.
    pub device: String,
    /// `limit`, `delivered`, `received` (bit/s), `backlog` (packets), `drops` (packets/s), `queue`
    /// and `cpu` (bit/s), `delay` and `round trip` (microseconds), `worker` (share of a core).
    pub what: &'static str,
    /// The drop reason, the number of a queue, CPU or worker, or the percentile of times.
    pub name: String,
}

/// A ring of values; NaN for missing ones.
#[derive(Clone, Debug)]
struct Ring {
    values: VecDeque<f32>,
    /// The number of points since the last value.
    silent: usize,
}

/// The rates of the last hour: a ring of values for each series, with common times.
#[derive(Clone, Debug)]
pub struct History {
    points: usize,
    /// In seconds since 1970.
    times: VecDeque<f64>,
    series: BTreeMap<Key, Ring>,
}

impl History {
    /// Room for an hour, or for the most points, at one point per `interval`.
    pub fn new(interval: Duration) -> Self {
        let points = (SPAN / interval.as_secs_f64().max(1e-3)) as usize;
        Self {
            points: points.clamp(1, POINTS_MAX),
            times: VecDeque::new(),
            series: BTreeMap::new(),
        }
    }

    /// Adds a point at `time`, in seconds since 1970.
    pub fn push(&mut self, time: f64, values: impl IntoIterator<Item = (Key, f64)>) {
        let is_full = self.times.len() == self.points;
        if is_full {
            self.times.pop_front();
        }
        self.times.push_back(time);
        for ring in self.series.values_mut() {
            if is_full {
                ring.values.pop_front();
            }
            ring.values.push_back(f32::NAN);
            ring.silent += 1;
        }
        let points = self.times.len();
        self.series.retain(|_, ring| ring.silent < points);
        for (key, value) in values {
            if self.series.len() >= SERIES_MAX && !self.series.contains_key(&key) {
                continue;
            }
            let ring = self
                .series
                .entry(key)
                .or_insert_with(|| Ring { values: vec![f32::NAN; points].into(), silent: 0 });
            if let Some(newest) = ring.values.back_mut() {
                *newest = value as f32;
                ring.silent = 0;
            }
        }
    }

    /// The points after `time`, as JSON: `times`, and for each series `device`, `what`, `name` and
    /// `values`.
    pub fn since(&self, time: f64) -> impl Serialize {
        Since { history: self, first: self.first_after(time), whats: None }
    }

    /// The same of the series that are `whats`.
    pub(crate) fn since_of(&self, time: f64, whats: &'static [&'static str]) -> impl Serialize {
        Since { history: self, first: self.first_after(time), whats: Some(whats) }
    }

    /// How many points it holds at most.
    pub(crate) fn points(&self) -> usize {
        self.points
    }

    fn first_after(&self, time: f64) -> usize {
        self.times.partition_point(|point| *point <= time)
    }
}

/// The rates of a snapshot, by series.
pub(crate) fn values(now: &Snapshot, change: &Change) -> Vec<(Key, f64)> {
    let mut values = Vec::new();
    let mut add = |device: &str, what, name: String, value: Option<f64>| {
        let key = Key { device: device.into(), what, name };
        values.extend(value.map(|value| (key, value)));
    };
    for port in &now.ports {
        let rates = change.of_port(port);
        let none = String::new;
        add(&port.name, "limit", none(), port.limit_bps().map(|limit| limit as f64));
        add(&port.name, "delivered", none(), rates.tx_bps);
        add(&port.name, "received", none(), rates.rx_bps);
        add(&port.name, "backlog", none(), Some(port.total.backlog_packets as f64));
        for queue in 0..port.per_queue.len() {
            let rate = change.of_queue(port, queue).tx_bps;
            add(&port.name, port.counted_by.name(), queue.to_string(), rate);
        }
        let times = [
            ("delay", Some(change.delays_of_port(port))),
            ("round trip", change.round_trips_of_port(port)),
        ];
        for (what, times) in times {
            let Some(times) = times.filter(|times| !times.is_empty()) else { continue };
            add(&port.name, what, "median".into(), Some(times.p50_us));
            add(&port.name, what, "p99".into(), Some(times.p99_us));
        }
        let was = change.port(&port.name).map(narrows_snapshot::Port::losses).unwrap_or_default();
        for (reason, is) in port.losses().into_iter().filter(|(_, count)| *count > 0) {
            let was = was.iter().find(|(was, _)| *was == reason).map_or(0, |(_, count)| *count);
            add(&port.name, "drops", reason, change.per_second(was, is));
        }
    }
    for worker in &now.workers {
        let was = change.earlier().workers.iter().find(|was| was.queue == worker.queue);
        let share = was.and_then(|was| change.share(was.cpu_s, worker.cpu_s));
        add("", "worker", worker.queue.to_string(), share);
    }
    values
}

struct Since<'a> {
    history: &'a History,
    first: usize,
    /// Of which series; none for all.
    whats: Option<&'static [&'static str]>,
}

impl Serialize for Since<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let times: Vec<f64> = self.history.times.range(self.first..).copied().collect();
        let mut history = to.serialize_struct("History", 2)?;
        history.serialize_field("times", &times)?;
        history.serialize_field("series", &AllSeries(self))?;
        history.end()
    }
}

struct AllSeries<'a>(&'a Since<'a>);

impl Serialize for AllSeries<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct One<'a> {
            #[serde(flatten)]
            key: &'a Key,
            /// JSON has no NaN.
            values: Vec<Option<f32>>,
        }
        let Since { history, first, whats } = self.0;
        let mut all = to.serialize_seq(None)?;
        let is_asked = |key: &Key| whats.is_none_or(|whats| whats.contains(&key.what));
        for (key, ring) in history.series.iter().filter(|(key, _)| is_asked(key)) {
            let values = ring.values.range(*first..);
            let values = values.map(|value| Some(*value).filter(|value| !value.is_nan())).collect();
            all.serialize_element(&One { key, values })?;
        }
        all.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn key(name: &str) -> Key {
        Key { device: "eth1".into(), what: "queue", name: name.into() }
    }

    fn seen(history: &History, time: f64) -> Value {
        serde_json::to_value(history.since(time)).unwrap()
    }

    #[test]
    fn a_series_that_begins_or_pauses_has_gaps() {
        let mut history = History::new(Duration::from_secs(1));
        history.push(10.0, [(key("a"), 1.0)]);
        history.push(11.0, [(key("b"), 2.0)]);
        let answer = seen(&history, 0.0);
        assert_eq!(answer["times"], json!([10.0, 11.0]));
        assert_eq!(
            answer["series"][0],
            json!({"device": "eth1", "what": "queue", "name": "a", "values": [1.0, null]})
        );
        assert_eq!(answer["series"][1]["values"], json!([null, 2.0]));
    }

    #[test]
    fn a_client_asks_for_what_is_new_to_it() {
        let mut history = History::new(Duration::from_secs(1));
        (0..5).for_each(|time| history.push(f64::from(time), [(key("a"), f64::from(time))]));
        let answer = seen(&history, 2.0);
        assert_eq!(answer["times"], json!([3.0, 4.0]));
        assert_eq!(answer["series"][0]["values"], json!([3.0, 4.0]));
        assert_eq!(seen(&history, 4.0)["times"], json!([]));
    }

    #[test]
    fn an_hour_is_kept_and_no_more_points_than_there_is_room_for() {
        for (interval, points) in [(1.0, 3600), (10.0, 360), (0.1, 3600), (1e6, 1)] {
            let history = History::new(Duration::from_secs_f64(interval));
            assert_eq!(history.points, points, "every {interval} s");
        }
    }

    #[test]
    fn there_is_room_for_so_many_series_and_old_ones_make_room() {
        let mut history = History::new(Duration::from_secs(1800));
        let many =
            |from: usize| (from..from + 2 * SERIES_MAX).map(|name| (key(&name.to_string()), 1.0));
        history.push(0.0, many(0));
        assert_eq!(history.series.len(), SERIES_MAX);
        history.push(1.0, []);
        history.push(2.0, many(5000));
        assert_eq!(history.series.len(), SERIES_MAX);
        assert!(history.series.contains_key(&key("5000")));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_list_of_all_points(
            points in proptest::collection::vec(
                proptest::collection::btree_map(0u8..4, 0u16..9, 0..4), 0..40),
        ) {
            let mut history = History::new(Duration::from_secs(300)); // 12 points
            for (time, values) in points.iter().enumerate() {
                let values = values.iter().map(|(name, value)| {
                    (key(&name.to_string()), f64::from(*value))
                });
                history.push(time as f64, values);
            }
            let kept: Vec<_> = points.iter().skip(points.len().saturating_sub(12)).collect();
            let answer = seen(&history, -1.0);
            prop_assert_eq!(answer["times"].as_array().unwrap().len(), kept.len());
            let mut names = Vec::new();
            for series in answer["series"].as_array().unwrap() {
                let name: u8 = series["name"].as_str().unwrap().parse().unwrap();
                names.push(name);
                let value = |point: &&std::collections::BTreeMap<u8, u16>| {
                    point.get(&name).map(|value| f64::from(*value))
                };
                let expected: Vec<Option<f64>> = kept.iter().map(value).collect();
                prop_assert_eq!(&series["values"], &json!(expected));
            }
            let expected: std::collections::BTreeSet<u8> =
                kept.iter().flat_map(|point| point.keys().copied()).collect();
            prop_assert_eq!(names, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
