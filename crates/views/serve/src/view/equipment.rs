//! The box itself: workers, ports, losses, balanced services, what `narrows doctor` found.

use super::detail::Flow;
use super::{EventList, Model};
use narrows_balance::ListedService;
use narrows_snapshot::fleet_agent::{FleetView, Shown};
use narrows_snapshot::{Conservation, Finding, FleetStanding, Port, Worker};
use serde::Serialize;
use std::cmp::Reverse;

/// How many events, flows and services.
const EVENTS_MAX: usize = 200;
const FLOWS_MAX: usize = 40;
const SERVICES_MAX: usize = 50;
/// How many rows of a fleet: the boxes of all its limits.
const FLEET_ROWS_MAX: usize = 200;

/// A port as it is attached, and what was lost there.
#[derive(Debug, Serialize)]
struct Attached<'a> {
    name: &'a str,
    xdp: &'a str,
    copy: &'a str,
    no_carrier: bool,
    mtu: u32,
    queues: u32,
    qdisc: &'a str,
    counted_by: &'static str,
    /// Bytes sent since the start by each queue or CPU.
    sent_bytes: Vec<u64>,
    /// Where and why packets were lost, and how many since the start.
    losses: Vec<(String, u64)>,
    /// Frames that passed beside the workers.
    bypassed: u64,
}

impl<'a> Attached<'a> {
    fn new(port: &'a Port) -> Self {
        let losses = port.losses().into_iter().filter(|(_, count)| *count > 0);
        Self {
            name: &port.name,
            xdp: &port.xdp,
            copy: &port.copy,
            no_carrier: port.no_carrier,
            mtu: port.mtu,
            queues: port.queues,
            qdisc: &port.qdisc,
            counted_by: port.counted_by.name(),
            sent_bytes: port.per_queue.iter().map(|queue| queue.tx_bytes).collect(),
            losses: losses.collect(),
            bypassed: port.unserved + port.stalled,
        }
    }
}

#[derive(Debug, Serialize)]
struct Balance<'a> {
    #[serde(flatten)]
    books: &'a Conservation,
    is_exact: bool,
}

/// What the fleet's agent says, with the limits of which all boxes send most, the most first.
fn busiest(shown: &Shown) -> Shown {
    let mut shown = shown.clone();
    let view = &mut shown.view;
    view.limits.sort_by_cached_key(|limit| Reverse(limit.sent_by_all_bps()));
    let boxes = view.limits.iter().map(|limit| limit.boxes.len());
    let kept = FleetView::fitting(FLEET_ROWS_MAX, boxes);
    view.limits_left_out += view.limits.len() - kept;
    view.limits.truncate(kept);
    shown
}

/// The screen of the box.
#[derive(Debug)]
pub(crate) struct Equipment<'a>(pub(crate) &'a Model);

impl Equipment<'_> {
    /// Its parts by name.
    pub(crate) fn parts(
        &self,
        events: &EventList,
    ) -> serde_json::Result<Vec<(&'static str, String)>> {
        let now = &self.0.snapshot;
        let ports: Vec<Attached<'_>> = now.ports.iter().map(Attached::new).collect();
        let workers: &[Worker] = &now.workers;
        let findings: Vec<&Finding> = now.findings.iter().collect();
        let services: Vec<&ListedService> = now.services.iter().take(SERVICES_MAX).collect();
        let fleet: Vec<&FleetStanding> = now.fleet.iter().take(SERVICES_MAX).collect();
        let fleet_agent = now.fleet_agent.as_deref().map(busiest);
        let books = &now.conservation;
        let balance = Balance { books, is_exact: books.unaccounted == 0 };
        Ok(vec![
            ("uptime", serde_json::to_string(&now.uptime_s)?),
            ("ports", serde_json::to_string(&ports)?),
            ("workers", serde_json::to_string(workers)?),
            ("balance", serde_json::to_string(&balance)?),
            ("findings", serde_json::to_string(&findings)?),
            ("services", serde_json::to_string(&services)?),
            ("fleet", serde_json::to_string(&fleet)?),
            ("fleet_agent", serde_json::to_string(&fleet_agent)?),
            ("flows", self.flows()?),
            ("events", serde_json::to_string(&events.latest(EVENTS_MAX))?),
        ])
    }
    /// The heaviest flows.
    pub(crate) fn flows(&self) -> serde_json::Result<String> {
        let ports = self.0.snapshot.ports.iter();
        let flows: Vec<Flow<'_>> = ports
            .flat_map(|port| port.heaviest.flows.iter().map(move |flow| Flow::new(port, flow)))
            .take(FLOWS_MAX)
            .collect();
        serde_json::to_string(&flows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_snapshot::fleet_agent::{LimitView, SharerView};

    #[test]
    fn the_busiest_limits_of_a_fleet_are_shown_with_a_bounded_number_of_boxes() {
        let limit = |number: u64| LimitView {
            name: number.to_string(),
            boxes: vec![SharerView { sent_bps: number, ..SharerView::default() }; 60],
            ..LimitView::default()
        };
        let view = FleetView { limits: (0..5).map(limit).collect(), ..FleetView::default() };
        let kept = |view: FleetView| {
            let view = busiest(&Shown { view, ..Shown::default() }).view;
            let names = view.limits.into_iter().map(|limit| limit.name);
            (names.collect::<Vec<_>>().join(" "), view.limits_left_out)
        };
        assert_eq!(kept(view), ("4 3 2".to_owned(), 2));
        let mut large = limit(7);
        large.boxes.resize(1_000, SharerView::default());
        let view = FleetView { limits: vec![large], ..FleetView::default() };
        assert_eq!(kept(view), ("7".to_owned(), 0));
        assert_eq!(kept(FleetView::default()), (String::new(), 0));
    }
}
