//! Of each port and each of its queues.

use super::text::{Exposition, Labelled, Metric};
use narrows_snapshot::{Port, Queue, Snapshot};

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
        "Packets that were to leave here and were dropped.",
        |it| Some(it.drops.into()),
    ),
    Metric::gauge("narrows_queue_backlog_bytes", "Bytes of frames queued.", |it| {
        Some(it.backlog_bytes.into())
    }),
    Metric::gauge("narrows_queue_backlog_packets", "Packets queued.", |it| {
        Some(it.backlog_packets.into())
    }),
];

const PORTS: [Metric<Port>; 4] = [
    Metric::gauge(
        "narrows_port_limit_bytes_per_second",
        "The rate set at the port's root; absent where there is none.",
        |it| it.limit_bps().map(|bps| (bps as f64 / 8.0).into()),
    ),
    Metric::gauge("narrows_port_carrier", "Whether the port has a carrier.", |it| {
        Some(u64::from(!it.no_carrier).into())
    }),
    Metric::gauge("narrows_port_mtu_bytes", "The port's MTU.", |it| Some(u64::from(it.mtu).into())),
    Metric::counter(
        "narrows_port_to_self_packets_total",
        "Frames for the box itself, given to the kernel.",
        |it| Some(it.to_self.into()),
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
    delays(text, now);
    losses(text, now);
    queues(text, now);
}

/// The bounds of the buckets, in seconds: 16 us and each four times the one before, up to 1 s.
const DELAY_BOUNDS: [f64; 9] =
    [16e-6, 64e-6, 256e-6, 1.024e-3, 4.096e-3, 16.384e-3, 65.536e-3, 262.144e-3, 1.048_576];

fn delays(text: &mut Exposition, now: &Snapshot) {
    let help = "How long packets stayed here before they left through the port.";
    let mut family = text.histogram("narrows_port_delay_seconds", help);
    for port in &now.ports {
        let delays = &port.delays;
        let within = |bound: f64| {
            let within = delays.counts.iter().filter(|(us, _)| us / 1e6 <= bound);
            (bound, within.map(|(_, packets)| packets).sum())
        };
        let labels = [("device", port.name.as_str())];
        let buckets = DELAY_BOUNDS.map(within);
        family.add(&labels, &buckets, delays.packets(), delays.sum_s());
    }
}

/// By where and why, in one metric: reasons of the queues, of the kernel, of the device.
fn losses(text: &mut Exposition, now: &Snapshot) {
    let mut lost = text.counter(
        "narrows_port_lost_packets_total",
        "Packets that were to come in or leave and did not, by where and why.",
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
            let labels = vec![("device", port.name.clone()), ("queue", number.to_string())];
            queues.push(Labelled { labels, it });
        }
    }
    text.each(&QUEUES, &queues);
}
