//! Metrics of each port and its queues.

use super::text::{Exposition, Histogram, Labelled, Metric};
use narrows_snapshot::{ConnectionIds, Delays, Losses, Port, Queue, SlowPath, Snapshot};

const QUEUES: [Metric<Queue>; 8] = [
    Metric::counter("narrows_queue_receive_bytes_total", "Bytes of frames received.", |it| {
        Some(it.rx_bytes.into())
    }),
    Metric::counter("narrows_queue_receive_packets_total", "Packets received.", |it| {
        Some(it.rx_packets.into())
    }),
    Metric::counter("narrows_queue_transmit_bytes_total", "Bytes of frames sent.", |it| {
        Some(it.tx_bytes.into())
    }),
    Metric::counter("narrows_queue_transmit_packets_total", "Packets sent.", |it| {
        Some(it.tx_packets.into())
    }),
    Metric::counter("narrows_queue_transmit_kicks_total", "System calls made to send.", |it| {
        Some(it.tx_kicks.into())
    }),
    Metric::counter(
        "narrows_queue_drops_total",
        "Packets dropped that were due to leave here.",
        |it| Some(it.drops.into()),
    ),
    Metric::gauge("narrows_queue_backlog_bytes", "Bytes of frames queued.", |it| {
        Some(it.backlog_bytes.into())
    }),
    Metric::gauge("narrows_queue_backlog_packets", "Packets queued.", |it| {
        Some(it.backlog_packets.into())
    }),
];

const PORTS: [Metric<Port>; 5] = [
    Metric::gauge(
        "narrows_port_limit_bytes_per_second",
        "The rate set at the port's root; absent if there is none.",
        |it| it.limit_bps().map(|bps| (bps as f64 / 8.0).into()),
    ),
    Metric::gauge("narrows_port_carrier", "Whether the port has a carrier.", |it| {
        Some(u64::from(!it.no_carrier).into())
    }),
    Metric::gauge("narrows_port_mtu_bytes", "The port's MTU.", |it| Some(u64::from(it.mtu).into())),
    Metric::counter(
        "narrows_port_to_self_packets_total",
        "Frames for the host itself, passed to the kernel.",
        |it| Some(it.to_self.into()),
    ),
    Metric::counter(
        "narrows_port_other_packets_total",
        "Frames of no VLAN that is a port, passed to the kernel.",
        |it| Some(it.others.into()),
    ),
];

pub(super) fn write(text: &mut Exposition, now: &Snapshot) {
    let ports = now.ports.iter();
    let ports: Vec<_> =
        ports.map(|it| Labelled { labels: vec![("device", it.name.clone())], it }).collect();
    text.each(&PORTS, &ports);
    let mut bypassed =
        text.counter("narrows_port_bypassed_packets_total", "Packets that no worker saw, by why.");
    for port in &now.ports {
        for (why, count) in [("unserved", port.unserved), ("stalled", port.stalled)] {
            bypassed.add(&[("device", &port.name), ("reason", why)], count);
        }
    }
    follows(text, now);
    front(text, now);
    balance(text, now);
    slow_path(text, now);
    delays(text, now);
    segments(text, now);
    losses(text, now);
    queues(text, now);
}

/// Only of ports whose rate follows a line.
fn follows(text: &mut Exposition, now: &Snapshot) {
    let lines = || now.ports.iter().filter_map(|port| Some((port, port.follows.as_ref()?)));
    if lines().next().is_none() {
        return;
    }
    let what = "The rate of a limit that follows a line, and its bounds.";
    let mut rates = text.gauge("narrows_port_line_bytes_per_second", what);
    for (port, line) in lines() {
        let figures = [("least", line.least_bps), ("now", line.rate_bps), ("most", line.most_bps)];
        for (which, bps) in figures {
            rates.add(&[("device", &port.name), ("rate", which)], bps as f64 / 8.0);
        }
    }
    let what = "Why a limit that follows a line has its rate: 1 for what set it last.";
    let mut reasons = text.gauge("narrows_port_line_reason", what);
    for (port, line) in lines() {
        reasons.add(&[("device", &port.name), ("reason", &line.reason)], 1_u64);
    }
}

/// Only of ports with a user's own program.
fn front(text: &mut Exposition, now: &Snapshot) {
    let mut family = text.counter(
        "narrows_port_front_packets_total",
        "Frames that the user's own program saw, by its verdict.",
    );
    for port in &now.ports {
        for (verdict, count) in &port.front {
            family.add(&[("device", &port.name), ("verdict", verdict)], *count);
        }
    }
}

/// Only of ports where services are balanced.
fn balance(text: &mut Exposition, now: &Snapshot) {
    if now.ports.iter().all(|port| port.balance.is_empty()) {
        return;
    }
    let what = "Frames that arrived where services are balanced, by what became of them.";
    let mut outcomes = text.counter("narrows_port_balance_packets_total", what);
    for port in &now.ports {
        for (outcome, count) in &port.balance {
            outcomes.add(&[("device", &port.name), ("outcome", outcome)], *count);
        }
    }
    let what = "Packets of QUIC services, by whether their connection id names a server.";
    let mut ids = text.counter("narrows_port_connection_id_packets_total", what);
    for port in &now.ports {
        let Some(ConnectionIds { named, others }) = port.connection_ids else { continue };
        for (whose, count) in [("named", named), ("other", others)] {
            ids.add(&[("device", &port.name), ("server", whose)], count);
        }
    }
}

const SLOW_PATH: [Metric<SlowPath>; 4] = [
    Metric::counter(
        "narrows_port_slow_path_transmit_packets_total",
        "Frames that the kernel itself sent through the port, charged to its limits.",
        |it| Some(it.sent_packets.into()),
    ),
    Metric::counter(
        "narrows_port_slow_path_transmit_bytes_total",
        "Bytes of frames that the kernel itself sent through the port.",
        |it| Some(it.sent_bytes.into()),
    ),
    Metric::counter(
        "narrows_port_slow_path_drops_total",
        "Frames that the kernel itself was to send, and that exceeded the limits.",
        |it| Some(it.dropped_packets.into()),
    ),
    Metric::counter(
        "narrows_port_slow_path_drop_bytes_total",
        "Bytes of frames that the kernel itself was to send, and that exceeded the limits.",
        |it| Some(it.dropped_bytes.into()),
    ),
];

/// Only of ports where it is charged.
fn slow_path(text: &mut Exposition, now: &Snapshot) {
    let labelled = |port: &Port| {
        let it = port.slow_path?;
        Some((vec![("device", port.name.clone())], it))
    };
    let ports: Vec<_> = now.ports.iter().filter_map(labelled).collect();
    let ports: Vec<_> =
        ports.iter().map(|(labels, it)| Labelled { labels: labels.clone(), it }).collect();
    text.each(&SLOW_PATH, &ports);
}

/// The bounds of the buckets, in seconds: 16 us and each four times the one before, up to 1 s.
const DELAY_BOUNDS: [f64; 9] =
    [16e-6, 64e-6, 256e-6, 1.024e-3, 4.096e-3, 16.384e-3, 65.536e-3, 262.144e-3, 1.048_576];

fn delays(text: &mut Exposition, now: &Snapshot) {
    let help = "Delay of packets until they left through the port.";
    let mut family = text.histogram("narrows_port_delay_seconds", help);
    for port in &now.ports {
        add(&mut family, port, &port.delays);
    }
    let help = "Round trips beyond the port, if the instance measures them.";
    let mut family = text.histogram("narrows_port_round_trip_seconds", help);
    for port in &now.ports {
        if let Some(round_trips) = &port.round_trips {
            add(&mut family, port, &round_trips.times);
        }
    }
}

fn add(family: &mut Histogram<'_>, port: &Port, times: &Delays) {
    let buckets = DELAY_BOUNDS.map(|bound| (bound, times.within(bound)));
    family.add(&[("device", port.name.as_str())], &buckets, times.packets(), times.sum_s());
}

/// Counts of observed segments for round trips: under high load a sample.
const SEGMENTS: [Metric<Losses>; 3] = [
    Metric::counter(
        "narrows_port_segments_total",
        "Observed TCP segments with data that left.",
        |it| Some(it.segments.into()),
    ),
    Metric::counter(
        "narrows_port_segments_lost_before_total",
        "Of these, segments lost before the port and sent again.",
        |it| Some(it.before.into()),
    ),
    Metric::counter(
        "narrows_port_segments_lost_beyond_total",
        "Of these, segments sent again after they had left.",
        |it| Some(it.beyond.into()),
    ),
];

fn segments(text: &mut Exposition, now: &Snapshot) {
    let measured = |port: &'_ Port| Some((port.name.clone(), port.round_trips.as_ref()?.losses));
    let measured: Vec<_> = now.ports.iter().filter_map(measured).collect();
    let labelled = |(name, it)| Labelled { labels: vec![("device", String::clone(name))], it };
    let ports: Vec<_> = measured.iter().map(|(name, it)| labelled((name, it))).collect();
    text.each(&SEGMENTS, &ports);
}

/// Losses by place and reason in one metric: in the queues, the kernel, the device.
fn losses(text: &mut Exposition, now: &Snapshot) {
    let mut lost = text.counter(
        "narrows_port_lost_packets_total",
        "Packets lost on the way in or out, by place and reason.",
    );
    for port in &now.ports {
        for (reason, count) in port.losses() {
            let split = reason.split_once(' ');
            let (place, reason) = split.unwrap_or(("queue", reason.as_str()));
            let labels = [("device", port.name.as_str()), ("place", place), ("reason", reason)];
            lost.add(&labels, count);
        }
    }
}

fn queues(text: &mut Exposition, now: &Snapshot) {
    let mut queues = Vec::new();
    for port in &now.ports {
        for (number, it) in port.per_queue.iter().enumerate() {
            let part = port.counted_by.name();
            let labels = vec![("device", port.name.clone()), (part, number.to_string())];
            queues.push(Labelled { labels, it });
        }
    }
    text.each(&QUEUES, &queues);
}
