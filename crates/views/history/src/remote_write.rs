//! A history in Prometheus's remote-write format, for those who have a database.
//!
//! *Why this and not Parquet.* Nearly every time-series database takes it (Prometheus, Mimir,
//! Thanos, VictoriaMetrics, InfluxDB), and it is two small crates: protobuf and Snappy. A writer of
//! Parquet is many times the size of all of this, and the CSV can be converted.
//!
//! *Source.* Prometheus Remote-Write 1.0: a `WriteRequest` of `TimeSeries`, compressed as a Snappy
//! block. Labels are sorted by name, samples by time.

use crate::{Key, Point, What};
use prost::Message;

/// The headers that a request has beside its length.
pub const HEADERS: [(&str, &str); 3] = [
    ("Content-Encoding", "snappy"),
    ("Content-Type", "application/x-protobuf"),
    ("X-Prometheus-Remote-Write-Version", "0.1.0"),
];

/// The samples after which a request is full: receivers accept some megabytes.
const SAMPLES_MAX: usize = 20_000;

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    /// In milliseconds since 1970.
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

/// What is being collected for a request.
#[derive(Debug, Default)]
pub struct Writer {
    request: WriteRequest,
    samples: usize,
}

impl Writer {
    /// Adds the points of a direction, each over `step_s` seconds. A sample has the time at which
    /// its interval ends.
    pub fn add(&mut self, key: &Key, step_s: u64, points: &[(u64, Point)]) {
        for what in What::ALL {
            let samples: Vec<Sample> = points
                .iter()
                .filter_map(|(time, point)| {
                    let seconds = i64::try_from(time.saturating_add(step_s)).ok()?;
                    let timestamp = seconds.checked_mul(1000)?;
                    Some(Sample { value: base(what, what.of(point, step_s)?), timestamp })
                })
                .collect();
            if samples.is_empty() {
                continue;
            }
            self.samples += samples.len();
            self.request.timeseries.push(TimeSeries { labels: labels(key, what), samples });
        }
    }

    /// Whether the request is to be sent before more is added.
    pub fn is_full(&self) -> bool {
        self.samples >= SAMPLES_MAX
    }

    /// The samples of the request.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Takes the body of the request; none if it has no samples.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let request = std::mem::take(self).request;
        if request.timeseries.is_empty() {
            return None;
        }
        // It fails only for more than four gigabytes.
        snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).ok()
    }
}

/// A value in Prometheus's base units: seconds.
fn base(what: What, value: f64) -> f64 {
    match what.unit() {
        crate::Unit::Milliseconds => value / 1e3,
        _ => value,
    }
}

fn labels(key: &Key, what: What) -> Vec<Label> {
    let (name, quantile) = match what {
        What::Sent => ("narrows_history_sent_bits_per_second", None),
        What::Drops => ("narrows_history_drops_per_second", None),
        What::DelayP50 => ("narrows_history_delay_seconds", Some("0.5")),
        What::DelayP99 => ("narrows_history_delay_seconds", Some("0.99")),
        What::RoundTripP50 => ("narrows_history_round_trip_seconds", Some("0.5")),
        What::RoundTripP99 => ("narrows_history_round_trip_seconds", Some("0.99")),
        What::Loss => ("narrows_history_loss_ratio", None),
        What::LossBefore => ("narrows_history_loss_before_ratio", None),
        What::LossBeyond => ("narrows_history_loss_beyond_ratio", None),
    };
    // Sorted by name; `__name__` is before all others.
    let labels = [
        ("__name__", Some(name)),
        ("kind", Some(key.kind.name())),
        ("name", Some(&key.name)),
        ("port", Some(&key.port)),
        ("quantile", quantile),
    ];
    let label = |(name, value): (&str, Option<&str>)| {
        Some(Label { name: name.to_owned(), value: value?.to_owned() })
    };
    labels.into_iter().filter_map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Summary};

    #[test]
    fn a_request_has_a_series_for_each_figure_that_is_known() {
        let key = Key { kind: Kind::Subscriber, name: "alice".into(), port: "eth1".into() };
        let mut summary = Summary::sent(10.0, 1280.0, 5.0);
        summary.delays.add(2000.0, 1);
        let mut writer = Writer::default();
        assert_eq!(writer.take(), None);
        writer.add(&key, 10, &[(1_700_000_000, Point::of(&summary))]);
        assert_eq!(writer.samples(), 4);
        let bytes = writer.take().unwrap();
        let bytes = snap::raw::Decoder::new().decompress_vec(&bytes).unwrap();
        let request = WriteRequest::decode(&bytes[..]).unwrap();
        let delay = &request.timeseries[2];
        let labels: Vec<_> =
            delay.labels.iter().map(|label| (label.name.as_str(), label.value.as_str())).collect();
        assert_eq!(
            labels,
            [
                ("__name__", "narrows_history_delay_seconds"),
                ("kind", "subscriber"),
                ("name", "alice"),
                ("port", "eth1"),
                ("quantile", "0.5")
            ]
        );
        assert_eq!(delay.samples[0].timestamp, 1_700_000_010_000);
        assert!((delay.samples[0].value - 0.002).abs() < 0.0002);
        assert_eq!(writer.take(), None);
    }
}
