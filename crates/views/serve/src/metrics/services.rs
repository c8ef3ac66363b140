//! Metrics of balanced services and their servers.

use super::text::{Exposition, Labelled, Metric};
use narrows_balance::{Health, ListedServer, ListedService, ServiceId};
use narrows_snapshot::Snapshot;

const SERVICES: [Metric<ListedService>; 3] = [
    Metric::counter("narrows_service_connections_total", "Connections begun.", |it| {
        Some(it.stats.connections.into())
    }),
    Metric::counter("narrows_service_packets_total", "Packets sent towards servers.", |it| {
        Some(it.stats.packets.into())
    }),
    Metric::counter("narrows_service_bytes_total", "Their bytes, as they came.", |it| {
        Some(it.stats.bytes.into())
    }),
];

const SERVERS: [Metric<ListedServer>; 5] = [
    Metric::gauge(
        "narrows_server_up",
        "Whether the server passes its checks; 1 without any.",
        |it| Some(u64::from(it.health == Health::Up).into()),
    ),
    Metric::gauge("narrows_server_weight", "Its part of new connections.", |it| {
        Some(u64::from(it.weight).into())
    }),
    Metric::counter("narrows_server_connections_total", "Connections begun.", |it| {
        Some(it.stats.connections.into())
    }),
    Metric::counter("narrows_server_packets_total", "Packets sent towards it.", |it| {
        Some(it.stats.packets.into())
    }),
    Metric::counter("narrows_server_bytes_total", "Their bytes, as they came.", |it| {
        Some(it.stats.bytes.into())
    }),
];

/// Of all services; of as many servers as `servers_max`.
pub(super) fn write(text: &mut Exposition, now: &Snapshot, servers_max: usize) {
    let services = now.services.iter();
    let services: Vec<_> = services.map(|it| Labelled { labels: of(it.id()), it }).collect();
    text.each(&SERVICES, &services);
    let servers = now.services.iter().flat_map(|service| {
        let servers = service.servers.iter();
        servers.map(|it| {
            let mut labels = of(service.id());
            labels.push(("server", it.address.to_string()));
            Labelled { labels, it }
        })
    });
    let mut servers: Vec<_> = servers.collect();
    let omitted = servers.len().saturating_sub(servers_max);
    servers.truncate(servers_max);
    text.each(&SERVERS, &servers);
    text.gauge("narrows_servers_left_out", "Servers without metrics.").add(&[], omitted as u64);
}

fn of(id: ServiceId) -> Vec<(&'static str, String)> {
    let protocol = id.protocol.name().to_lowercase();
    vec![("protocol", protocol), ("service", id.to_string())]
}
