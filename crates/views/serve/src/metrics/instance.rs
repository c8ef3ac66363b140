//! Metrics of the instance: state, packet conservation, workers.

use super::Sample;
use super::text::{Exposition, Labelled, Metric};
use narrows_snapshot::{Snapshot, Worker};

const WORKERS: [Metric<Worker>; 5] = [
    Metric::counter("narrows_worker_cpu_seconds_total", "Processor time used.", |it| {
        Some(it.cpu_s.into())
    }),
    Metric::counter("narrows_worker_idle_seconds_total", "Time asleep or looking in vain.", |it| {
        Some(it.idle_s.into())
    }),
    Metric::counter(
        "narrows_worker_stray_frames_total",
        "Frames that the kernel returned but did not own.",
        |it| Some(it.stray_frames.into()),
    ),
    Metric::gauge("narrows_worker_core", "The core of the worker's thread.", |it| {
        Some((it.cpu as u64).into())
    }),
    Metric::gauge(
        "narrows_worker_silent_seconds",
        "How long the worker has been silent; 0 if it is not.",
        |it| Some(it.silent_s.unwrap_or(0.0).into()),
    ),
];

pub(super) fn write(text: &mut Exposition, now: &Snapshot, sample: &Sample) {
    text.gauge("narrows_running", "Whether the ports are joined.")
        .add(&[], u64::from(now.is_running()));
    text.gauge("narrows_uptime_seconds", "How long the instance has run, upgrades included.")
        .add(&[], now.uptime_s);
    text.gauge("narrows_snapshot_age_seconds", "How old these figures are.")
        .add(&[], sample.age.as_secs_f64());
    text.gauge("narrows_warnings", "Warnings in force.").add(&[], now.warnings.len() as u64);
    text.counter("narrows_events_total", "Events since this exporter started.")
        .add(&[], sample.events);
    books(text, now);
    workers(text, now);
}

fn books(text: &mut Exposition, now: &Snapshot) {
    let sum = &now.conservation;
    text.counter("narrows_received_packets_total", "Packets that workers received.")
        .add(&[], sum.received);
    text.counter("narrows_copied_packets_total", "Copies that a netem made of packets.")
        .add(&[], sum.copied);
    text.counter("narrows_sent_packets_total", "Packets handed to a device.").add(&[], sum.sent);
    text.counter(
        "narrows_to_box_packets_total",
        "Packets that a host's port passed to the host itself.",
    )
    .add(&[], sum.to_box);
    text.gauge("narrows_queued_packets", "Packets queued.").add(&[], sum.queued);
    let mut dropped = text.counter("narrows_dropped_packets_total", "Packets dropped, by reason.");
    for (reason, count) in &sum.dropped {
        dropped.add(&[("reason", reason)], *count);
    }
    text.gauge(
        "narrows_unaccounted_packets",
        "Received and copied minus sent, kept, queued and dropped; not 0 only by a bug in Narrows.",
    )
    .add(&[], sum.unaccounted as f64);
    text.counter("narrows_bypassed_packets_total", "Packets that no worker saw.")
        .add(&[], sum.bypassed);
}

fn workers(text: &mut Exposition, now: &Snapshot) {
    let workers = now.workers.iter();
    let workers: Vec<_> =
        workers.map(|it| Labelled { labels: vec![("queue", it.queue.to_string())], it }).collect();
    text.each(&WORKERS, &workers);
    let mut frames = text.gauge("narrows_worker_frames", "Frames of a worker, by place.");
    for worker in &now.workers {
        let queue = worker.queue.to_string();
        for (state, count) in [
            ("free", worker.free_frames),
            ("receiving", worker.receiving_frames),
            ("waiting", worker.waiting_frames),
            ("sending", worker.sending_frames),
        ] {
            frames.add(&[("queue", &queue), ("state", state)], u64::from(count));
        }
    }
}
