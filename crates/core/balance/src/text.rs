//! Services as text: as `ipvsadm -S` and `ipvsadm -L` write them, and as JSON.

use crate::command::View;
use crate::listing::ListedForward;
use crate::service::{Forward, Health, ServerId, Service, ServiceId, Tunnel};
use crate::services::{Counts, Entry, Seen, Services};
use std::fmt::Write;
use std::net::Ipv4Addr;

/// The lines that make `services` again.
pub(crate) fn save(services: &Services) -> String {
    let mut text = String::new();
    for (id, entry) in services.entries() {
        let Entry { service, servers, .. } = entry;
        let _ = write!(text, "-A {} -s {}", id.option(), service.scheduler.name());
        if let Some(seconds) = service.persistence_s {
            let _ = write!(text, " -p {seconds}");
        }
        if let Some(mask) = mask(*id, service) {
            let _ = write!(text, " -M {mask}");
        }
        if let Some(flags) = flags(service) {
            let _ = write!(text, " -b {flags}");
        }
        if service.one_packet {
            text.push_str(" -o");
        }
        if let Some(format) = service.quic {
            let _ = write!(text, " --quic {format}");
        }
        text.push('\n');
        for (server, numbered) in servers {
            let at = at(*server, *id);
            let _ = write!(text, "-a {} -r {at} ", id.option());
            let weight = numbered.server.weight;
            let _ = match numbered.server.forward {
                Forward::Route => write!(text, "-g -w {weight}"),
                Forward::Tunnel(Tunnel::Ip) => write!(text, "-i -w {weight} --tun-type ipip"),
                Forward::Tunnel(Tunnel::Gue(port)) => {
                    write!(text, "-i -w {weight} --tun-type gue --tun-port {port} --tun-nocsum")
                }
            };
            if let Some(id) = numbered.server.quic_id {
                let _ = write!(text, " --quic-id {id:#x}");
            }
            text.push('\n');
        }
    }
    text
}

/// A server with the port of its service.
fn at(server: ServerId, service: ServiceId) -> ServiceId {
    ServiceId { address: server.address, ..service }
}

/// The part of clients' addresses that counts, if it is not all of them.
fn mask(id: ServiceId, service: &Service) -> Option<String> {
    match (id.address.is_ipv4(), service.client_bits) {
        (true, 32) | (false, 128) => None,
        (true, bits) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Some(Ipv4Addr::from(mask).to_string())
        }
        (false, bits) => Some(bits.to_string()),
    }
}

pub(crate) fn flags(service: &Service) -> Option<String> {
    let name = service.scheduler.name();
    let all = [(service.falls_back, "fallback"), (service.hashes_port, "port")];
    let set = all.into_iter().filter(|(is, _)| *is).map(|(_, flag)| format!("{name}-{flag}"));
    let set: Vec<String> = set.collect();
    (!set.is_empty()).then(|| set.join(","))
}

/// The services, or the one that is `only`.
pub(crate) fn list(
    services: &Services,
    only: Option<ServiceId>,
    view: View,
    seen: &Seen,
) -> String {
    let figures = &seen.figures;
    let entries = services.entries().iter();
    let entries = entries.filter(|(id, _)| only.is_none_or(|only| only == **id));
    let mut text = String::from("IP Virtual Server of Narrows\n");
    if view.stats {
        let _ = write!(text, "{:<33}", "Prot LocalAddress:Port");
        for head in ["Conns", "InPkts", "OutPkts", "InBytes", "OutBytes"] {
            let _ = write!(text, " {head:>8}");
        }
        text.push_str("\n  -> RemoteAddress:Port\n");
    } else {
        text.push_str("Prot LocalAddress:Port Scheduler Flags\n");
        text.push_str("  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n");
    }
    for (id, Entry { number, service, servers, .. }) in entries {
        let (protocol, id) = (id.protocol.name(), *id);
        if view.stats {
            let _ = write!(text, "{protocol}  {:<28}", id.to_string());
            counters(&mut text, figures.services.get(number), view.exact);
        } else {
            let _ = write!(text, "{protocol}  {id} {}", service.scheduler.name());
            if let Some(flags) = flags(service) {
                let _ = write!(text, " ({flags})");
            }
            if let Some(seconds) = service.persistence_s {
                let _ = write!(text, " persistent {seconds}");
            }
            if let Some(mask) = mask(id, service) {
                let _ = write!(text, " mask {mask}");
            }
            if service.one_packet {
                text.push_str(" ops");
            }
            if let Some(format) = service.quic {
                let _ = write!(text, " quic {format}");
            }
            text.push('\n');
        }
        for (server, numbered) in servers {
            let _ = write!(text, "  -> {:<28}", at(*server, id).to_string());
            if view.stats {
                counters(&mut text, figures.servers.get(&numbered.number), view.exact);
                continue;
            }
            // Nobody sees the end of a connection whose replies take another way.
            let quic_id = numbered.server.quic_id.map(|id| format!(" quic-id {id:#x}"));
            let _ = writeln!(
                text,
                " {:<7} {:<6} {:<10} {:<10}{}{}",
                ListedForward::of(*server, numbered.server.forward, seen).name(),
                numbered.server.weight,
                "-",
                "-",
                match numbered.health {
                    Health::Up => "",
                    Health::Down => " down",
                    Health::Last => " FAILS, and is up as the last",
                },
                quic_id.unwrap_or_default(),
            );
        }
    }
    text
}

fn counters(text: &mut String, counts: Option<&Counts>, exact: bool) {
    let Counts { connections, packets, bytes } = counts.copied().unwrap_or_default();
    for number in [connections, packets, 0, bytes, 0] {
        let _ = write!(text, "{}", if exact { format!(" {number:>8}") } else { short(number) });
    }
    text.push('\n');
}

/// As `ipvsadm` shortens a number.
fn short(number: u64) -> String {
    match number {
        0..100_000_000 => format!(" {number:>8}"),
        100_000_000..1_000_000_000 => format!("{:>8}K", number / 1_000),
        1_000_000_000..100_000_000_000 => format!("{:>8}M", number / 1_000_000),
        100_000_000_000..100_000_000_000_000 => format!("{:>8}G", number / 1_000_000_000),
        _ => format!("{:>8}T", number / 1_000_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::Figures;

    fn services() -> Services {
        let mut services = Services::default();
        services
            .restore(
                "-A -t 192.0.2.1:80 -s mh -p 600 -M 255.255.255.0 -b mh-port\n\
                 -a -t 192.0.2.1:80 -r 10.0.0.1:80 -i -w 1\n",
                narrows_units::Nanos::ZERO,
            )
            .unwrap();
        services
    }

    #[test]
    fn a_listing_has_the_lines_of_ipvsadm() {
        let text = list(&services(), None, View::default(), &Seen::default());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1..],
            [
                "Prot LocalAddress:Port Scheduler Flags",
                "  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn",
                "TCP  192.0.2.1:80 mh (mh-port) persistent 600 mask 255.255.255.0",
                "  -> 10.0.0.1:80                  Tunnel  1      -          -         ",
            ]
        );
    }

    #[test]
    fn counters_are_in_the_columns_of_ipvsadm() {
        let counts = Counts { connections: 1, packets: 99_999_999, bytes: 123_456_789_000 };
        let figures = Figures { services: [(0, counts)].into(), servers: [(1, counts)].into() };
        let seen = Seen { figures, ..Seen::default() };
        let view = View { stats: true, ..View::default() };
        let text = list(&services(), None, view, &seen);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes"
        );
        assert_eq!(
            lines[3],
            "TCP  192.0.2.1:80                        1 99999999        0     123G        0"
        );
    }

    #[test]
    fn a_server_that_is_this_box_is_local_as_in_ipvs() {
        let local = [std::net::IpAddr::from([10, 0, 0, 1])].into();
        let seen = Seen { local, ..Seen::default() };
        let text = list(&services(), None, View::default(), &seen);
        let line = "  -> 10.0.0.1:80                  Local   1      -          -         ";
        assert_eq!(text.lines().last(), Some(line));
        assert!(save(&services()).contains("-r 10.0.0.1:80 -i"), "what was said is saved");
    }
}
