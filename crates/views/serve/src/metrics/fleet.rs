//! Metrics of the limits that a fleet of boxes shares.

use super::text::{Exposition, Labelled, Metric};
use narrows_snapshot::{FleetStanding, Snapshot};

const LIMITS: [Metric<FleetStanding>; 3] = [
    Metric::gauge(
        "narrows_fleet_limit_bits_per_second",
        "The rate of all boxes of the fleet together.",
        |it| Some(it.limit_bps.into()),
    ),
    Metric::gauge(
        "narrows_fleet_safe_bits_per_second",
        "The part that this box may use alone.",
        |it| Some(it.safe_bps.into()),
    ),
    Metric::gauge(
        "narrows_fleet_in_force_bits_per_second",
        "The rate that is enforced here now.",
        |it| Some(it.in_force_bps.into()),
    ),
];

/// Of as many limits as `limits_max`.
pub(super) fn write(text: &mut Exposition, now: &Snapshot, limits_max: usize) {
    if now.fleet.is_empty() {
        return;
    }
    let limits = now.fleet.iter().take(limits_max);
    let limits: Vec<_> =
        limits.map(|it| Labelled { labels: vec![("name", it.name.to_string())], it }).collect();
    text.each(&LIMITS, &limits);
    text.gauge("narrows_fleet_agent_up", "Whether the agent on this box answers.")
        .add(&[], u64::from(now.fleet_agent.is_some()));
    let omitted = now.fleet.len() - limits.len();
    text.gauge("narrows_fleet_limits_left_out", "Shared limits without metrics.")
        .add(&[], omitted as u64);
}
