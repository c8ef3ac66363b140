//! What an agent shows, as Prometheus' text.
//!
//! Of each limit there are the rates of this box, and the sum of all: the agents of the others have
//! theirs. At most [`LIMITS_MAX`] limits are there, and a metric counts the rest.
//!
//! Source: Prometheus, text-based exposition format 0.0.4.

use narrows_escape::label;
use narrows_snapshot::fleet_agent::LimitView;
use narrows_snapshot::fleet_agent::Shown;
use std::fmt::Write as _;

/// The most limits that have metrics.
pub const LIMITS_MAX: usize = 1_000;

/// A metric of each limit: its name, what it is, and its value.
type OfLimit = (&'static str, &'static str, fn(&LimitView) -> u64);

const OF_LIMITS: [OfLimit; 8] = [
    ("limit", "The rate of all boxes together", |limit| limit.limit_bps),
    ("safe", "This box's safe share", |limit| limit.safe_bps),
    ("lent", "What others have of this box's safe share", |limit| {
        limit.lent.iter().map(|part| part.bps).sum()
    }),
    ("borrowed", "What this box has of the safe shares of others", |limit| {
        limit.borrowed.iter().map(|part| part.bps).sum()
    }),
    ("claimed", "What this box has of the safe shares of boxes that are off", |limit| {
        limit.claimed_bps
    }),
    ("in_force", "What this box enforces", |limit| limit.in_force_bps),
    ("sum", "What all boxes enforce together, as far as this one knows", |limit| limit.sum_bps),
    ("sent", "What this box sends", |limit| limit.sent_bps),
];

/// The metrics of what is `shown`.
pub fn exposition(shown: &Shown) -> String {
    let mut text = String::new();
    let fleet = label(&shown.fleet).into_owned();
    let traffic = &shown.traffic;
    let flags = [
        ("connected", "Whether the engine is connected", shown.connected_through.is_some()),
        ("instance_up", "Whether the instance answers", shown.instance_trouble.is_none()),
    ];
    for (name, help, value) in flags {
        head(&mut text, name, "gauge", help);
        let _ =
            writeln!(text, "narrows_fleet_agent_{name}{{fleet=\"{fleet}\"}} {}", u8::from(value));
    }
    let counters = [
        ("messages_sent_total", "Messages sent", traffic.messages_sent),
        ("bytes_sent_total", "Bytes of messages sent", traffic.bytes_sent),
        ("messages_dropped_total", "Messages that could not be sent", traffic.messages_dropped),
        ("messages_received_total", "Messages received", traffic.messages_received),
        ("bytes_received_total", "Bytes of messages received", traffic.bytes_received),
        ("messages_malformed_total", "Messages not understood", traffic.messages_malformed),
        ("turns_total", "Orders that the instance answered", traffic.turns),
        ("turns_failed_total", "Orders that it did not answer", traffic.turns_failed),
    ];
    for (name, help, value) in counters {
        head(&mut text, name, "counter", help);
        let _ = writeln!(text, "narrows_fleet_agent_{name}{{fleet=\"{fleet}\"}} {value}");
    }
    head(&mut text, "box_heard", "gauge", "Whether a box was heard within a lease");
    for member in &shown.view.boxes {
        let (name, heard) = (label(&member.name), u8::from(member.is_heard));
        let _ = writeln!(
            text,
            "narrows_fleet_agent_box_heard{{fleet=\"{fleet}\",box=\"{name}\"}} {heard}"
        );
    }
    let help = "What is left of the lease of what was borrowed from a box";
    head(&mut text, "box_lease_left_seconds", "gauge", help);
    for member in &shown.view.boxes {
        let Some(left_ms) = member.lease_left_ms else { continue };
        let (name, seconds) = (label(&member.name), left_ms as f64 / 1e3);
        let _ = writeln!(
            text,
            "narrows_fleet_agent_box_lease_left_seconds{{fleet=\"{fleet}\",box=\"{name}\"}} {seconds}"
        );
    }
    let limits = &shown.view.limits;
    for (name, help, value) in OF_LIMITS {
        let name = format!("{name}_bits_per_second");
        head(&mut text, &name, "gauge", help);
        for limit in limits.iter().take(LIMITS_MAX) {
            let (of, port, at) = (label(&limit.name), label(&limit.port), label(&limit.at));
            let _ = writeln!(
                text,
                "narrows_fleet_agent_{name}{{fleet=\"{fleet}\",limit=\"{of}\",device=\"{port}\",\
                 at=\"{at}\"}} {}",
                value(limit)
            );
        }
    }
    head(&mut text, "limits_left_out", "gauge", "Limits without metrics, of so many");
    let left_out = limits.len().saturating_sub(LIMITS_MAX);
    let _ = writeln!(text, "narrows_fleet_agent_limits_left_out{{fleet=\"{fleet}\"}} {left_out}");
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP narrows_fleet_agent_{name} {help}.");
    let _ = writeln!(text, "# TYPE narrows_fleet_agent_{name} {kind}");
}
