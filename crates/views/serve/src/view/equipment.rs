//! The box itself: workers, ports, losses, balanced services, what `narrows doctor` found.

use super::detail::Flow;
use super::{EventList, Model};
use narrows_balance::ListedService;
use narrows_snapshot::{Conservation, Finding, FleetStanding, Port, Worker};
use serde::Serialize;

/// How many events, flows and services.
const EVENTS_MAX: usize = 200;
const FLOWS_MAX: usize = 40;
const SERVICES_MAX: usize = 50;

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
