//! Metrics of root qdiscs, classes and tins.

use super::text::{Exposition, Labelled, Metric, Value};
use narrows_snapshot::{Class, Delays, Port, Qdisc, Snapshot, Tin};

/// The names of node_exporter's `qdisc` collector.
const ROOTS: [Metric<Qdisc>; 7] = [
    Metric::counter("node_qdisc_bytes_total", "Number of bytes sent.", |it| {
        Some(it.figures.bytes.into())
    }),
    Metric::counter("node_qdisc_packets_total", "Number of packets sent.", |it| {
        Some(it.figures.packets.into())
    }),
    Metric::counter("node_qdisc_drops_total", "Number of packets dropped.", |it| {
        Some(it.figures.drops.into())
    }),
    Metric::counter(
        "node_qdisc_requeues_total",
        "Number of packets dequeued, not transmitted, and requeued.",
        |it| Some(it.figures.requeues.into()),
    ),
    Metric::counter("node_qdisc_overlimits_total", "Number of overlimit packets.", |it| {
        Some(it.figures.overlimits.into())
    }),
    Metric::gauge(
        "node_qdisc_current_queue_length",
        "Number of packets currently in queue to be sent.",
        |it| Some(it.figures.qlen.into()),
    ),
    Metric::gauge("node_qdisc_backlog", "Number of bytes currently in queue to be sent.", |it| {
        Some(it.figures.backlog.into())
    }),
];

const CLASSES: [Metric<Class>; 16] = [
    Metric::counter("narrows_class_transmit_bytes_total", "Bytes sent.", |it| {
        Some(it.stats.figures.bytes.into())
    }),
    Metric::counter("narrows_class_transmit_packets_total", "Packets sent.", |it| {
        Some(it.stats.figures.packets.into())
    }),
    Metric::counter("narrows_class_drops_total", "Packets dropped.", |it| {
        Some(it.stats.figures.drops.into())
    }),
    Metric::counter("narrows_class_overlimits_total", "Times that a packet had to wait.", |it| {
        Some(it.stats.figures.overlimits.into())
    }),
    Metric::counter(
        "narrows_class_lended_total",
        "Packets sent within the class's own rate.",
        |it| counted(it, "lended"),
    ),
    Metric::counter("narrows_class_borrowed_total", "Packets sent at a borrowed rate.", |it| {
        counted(it, "borrowed")
    }),
    Metric::gauge("narrows_class_backlog_bytes", "Bytes queued.", |it| {
        Some(it.stats.figures.backlog.into())
    }),
    Metric::gauge("narrows_class_backlog_packets", "Packets queued.", |it| {
        Some(it.stats.figures.qlen.into())
    }),
    Metric::gauge("narrows_class_rate_bytes_per_second", "The assured rate.", |it| {
        it.assured().map(Value::from)
    }),
    Metric::gauge("narrows_class_ceil_bytes_per_second", "The ceiling.", |it| {
        it.most().map(Value::from)
    }),
    Metric::gauge(
        "narrows_class_round_trip_min_seconds",
        "The shortest round trip beyond the port of what the class sent in the last seconds.",
        |it| it.stats.round_trip.map(|trip| seconds(trip.min_us)),
    ),
    Metric::gauge("narrows_class_round_trip_median_seconds", "The median of the same.", |it| {
        it.stats.round_trip.map(|trip| seconds(trip.p50_us))
    }),
    Metric::gauge("narrows_class_round_trip_p99_seconds", "Their 99th percentile.", |it| {
        it.stats.round_trip.map(|trip| seconds(trip.p99_us))
    }),
    Metric::gauge(
        "narrows_class_segments",
        "TCP segments with data that the class sent in the last seconds and that were looked at.",
        |it| it.stats.losses.map(|losses| losses.segments.into()),
    ),
    Metric::gauge("narrows_class_segments_lost_before", "Of these, lost before they left.", |it| {
        it.stats.losses.map(|losses| losses.before.into())
    }),
    Metric::gauge("narrows_class_segments_lost_beyond", "Of these, lost beyond the port.", |it| {
        it.stats.losses.map(|losses| losses.beyond.into())
    }),
];

const TINS: [Metric<Tin>; 9] = [
    Metric::counter(
        "narrows_tin_arrived_bytes_total",
        "Bytes that arrived at the tin, including packets that it dropped later.",
        |it| Some(it.sent_bytes.into()),
    ),
    Metric::counter(
        "narrows_tin_arrived_packets_total",
        "Packets that arrived at the tin, including those that it dropped later.",
        |it| Some(it.sent_packets.into()),
    ),
    Metric::counter("narrows_tin_drops_total", "Packets dropped.", |it| Some(it.drops.into())),
    Metric::counter("narrows_tin_marks_total", "Packets marked instead of dropped.", |it| {
        Some(it.ecn_mark.into())
    }),
    Metric::gauge("narrows_tin_backlog_bytes", "Bytes queued.", |it| Some(it.backlog_bytes.into())),
    Metric::gauge(
        "narrows_tin_threshold_bytes_per_second",
        "The rate from which the tin yields to others; absent if there is none.",
        |it| Some(it.threshold_rate).filter(|rate| *rate > 0).map(Value::from),
    ),
    Metric::gauge("narrows_tin_delay_mean_seconds", "Mean delay of late.", |it| {
        Some((it.avg_delay_us as f64 / 1e6).into())
    }),
    Metric::gauge("narrows_tin_delay_peak_seconds", "Longest delays of late.", |it| {
        Some((it.peak_delay_us as f64 / 1e6).into())
    }),
    Metric::gauge("narrows_tin_flows", "Flows.", |it| {
        Some((it.sparse_flows + it.bulk_flows + it.unresponsive_flows).into())
    }),
];

fn seconds(micros: u64) -> Value {
    (micros as f64 / 1e6).into()
}

fn counted(class: &Class, key: &str) -> Option<Value> {
    class.stats.detail.get(key)?.as_u64().map(Value::from)
}

pub(super) fn write(text: &mut Exposition, now: &Snapshot, classes_max: usize) {
    roots(text, now);
    classes(text, now, classes_max);
    tins(text, now, classes_max);
}

fn roots(text: &mut Exposition, now: &Snapshot) {
    let mut roots = Vec::new();
    for port in &now.ports {
        for it in port.qdiscs.iter().filter(|qdisc| qdisc.root) {
            let labels = vec![("device", port.name.clone()), ("kind", it.kind.to_string())];
            roots.push(Labelled { labels, it });
        }
    }
    text.each(&ROOTS, &roots);
}

/// The objects with metrics, each with its port, and how many of each port have none.
struct Within<'a, T> {
    kept: Vec<(&'a Port, &'a T)>,
    left_out: Vec<(&'a Port, usize)>,
}

/// The first `max` objects of each port: the topmost ones, and always the same. Of each port, so
/// that what is limited in both directions has metrics in both.
fn within<'a, T>(now: &'a Snapshot, max: usize, of: fn(&Port) -> &[T]) -> Within<'a, T> {
    let mut within = Within { kept: Vec::new(), left_out: Vec::new() };
    for port in &now.ports {
        let all = of(port);
        let room = max.min(all.len());
        within.kept.extend(all[..room].iter().map(|one| (port, one)));
        within.left_out.push((port, all.len() - room));
    }
    within
}

fn classes(text: &mut Exposition, now: &Snapshot, max: usize) {
    text.gauge("narrows_classes_max", "How many classes and qdiscs of a device have metrics.")
        .add(&[], max as u64);
    let Within { kept, left_out } = within(now, max, |port| &port.classes);
    let mut family = text.gauge(
        "narrows_classes_left_out",
        "Classes without metrics of their own, as the device has more than --classes-max.",
    );
    for (port, count) in left_out {
        family.add(&[("device", &port.name)], count as u64);
    }
    let mut classes = Vec::new();
    for (port, it) in kept {
        let labels = vec![
            ("device", port.name.clone()),
            ("classid", it.handle.to_string()),
            ("name", it.name.as_deref().unwrap_or_default().to_owned()),
            ("parent", it.parent.as_deref().unwrap_or("root").to_owned()),
        ];
        classes.push(Labelled { labels, it });
    }
    text.each(&CLASSES, &classes);
    let help = "Delay of packets until the class sent them.";
    let with_delays = classes.iter().map(|Labelled { labels, it }| (labels, &it.stats.delays));
    delays(text, "narrows_class_delay_seconds", help, with_delays);
}

/// The bounds of the buckets, in seconds: from two to the power of 18 nanoseconds, each four times
/// the one before. They are also bounds of the histograms in the snapshot.
const DELAY_BOUNDS: [f64; 7] = [
    0.000_262_144,
    0.001_048_576,
    0.004_194_304,
    0.016_777_216,
    0.067_108_864,
    0.268_435_456,
    1.073_741_824,
];

/// Adds the delays of each object that has sent something.
fn delays<'a>(
    text: &mut Exposition,
    name: &'static str,
    help: &str,
    things: impl Iterator<Item = (&'a Vec<(&'static str, String)>, &'a Delays)>,
) {
    let mut family = text.histogram(name, help);
    for (labels, delays) in things.filter(|(_, delays)| !delays.is_empty()) {
        let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let buckets = DELAY_BOUNDS.map(|bound| (bound, delays.within(bound)));
        family.add(&labels, &buckets, delays.packets(), delays.sum_s());
    }
}

fn tins(text: &mut Exposition, now: &Snapshot, max: usize) {
    let Within { kept, left_out } = within(now, max, |port| &port.qdiscs);
    let mut family = text.gauge(
        "narrows_qdiscs_left_out",
        "Qdiscs without metrics of their own, as the device has more than --classes-max.",
    );
    for (port, count) in left_out {
        family.add(&[("device", &port.name)], count as u64);
    }
    let mut tins = Vec::new();
    for (port, qdisc) in kept {
        for (name, tin) in qdisc.tins() {
            let labels = vec![
                ("device", port.name.clone()),
                ("handle", qdisc.handle.to_string()),
                ("parent", qdisc.parent.as_deref().unwrap_or("root").to_owned()),
                ("tin", name),
            ];
            tins.push((labels, tin));
        }
    }
    let tins: Vec<_> =
        tins.iter().map(|(labels, it)| Labelled { labels: labels.clone(), it }).collect();
    text.each(&TINS, &tins);
    let help = "Delay of packets until the tin sent them.";
    let with_delays = tins.iter().map(|Labelled { labels, it }| (labels, &it.delays));
    delays(text, "narrows_tin_delay_seconds", help, with_delays);
}
