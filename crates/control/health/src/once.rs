//! One check of each server, for people and scripts. It changes nothing.

use crate::HealthError;
use crate::config::{Config, named};
use crate::instance;
use crate::monitor::take_descriptors;
use crate::probe::{Outcome, ask};
use narrows_balance::{Health, ServiceId};
use narrows_control::Client;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use tokio::runtime::Builder;
use tokio::time::Instant;

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    services: Vec<ServiceReport>,
}

#[derive(Clone, Debug, Serialize)]
struct ServiceReport {
    #[serde(skip)]
    id: ServiceId,
    protocol: String,
    address: IpAddr,
    port: u16,
    /// Why its servers are not checked.
    unchecked: Option<String>,
    servers: Vec<ServerReport>,
}

#[derive(Clone, Debug, Serialize)]
struct ServerReport {
    address: IpAddr,
    /// The port that was asked.
    port: u16,
    /// What the instance has of it.
    health: Health,
    passed: bool,
    /// Why it failed, or was not asked.
    why: Option<String>,
    time_ms: f64,
}

/// Checks each server of `client` once, all at the same time.
///
/// # Errors
/// If the instance does not list its services.
pub fn once(config: &Config, client: &Client) -> Result<Report, HealthError> {
    take_descriptors();
    let runtime = Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(HealthError::Start)?;
    let listed = instance::list(client).map_err(HealthError::Instance)?;
    let mut services = Vec::new();
    runtime.block_on(async {
        let mut asked = Vec::new();
        for (id, members) in listed {
            let check = config.check(id);
            services.push(ServiceReport {
                id,
                protocol: id.protocol.name().to_lowercase(),
                address: id.address,
                port: id.port,
                unchecked: check.as_ref().err().map(ToString::to_string),
                servers: Vec::new(),
            });
            let Ok(check) = check else { continue };
            let begun = members.into_iter().map(|(server, member)| {
                let check = check.clone();
                tokio::spawn(async move {
                    let began = Instant::now();
                    let outcome = ask(&check, server).await;
                    let time_ms = began.elapsed().as_secs_f64() * 1e3;
                    let (passed, why) = match outcome {
                        Outcome::Passed => (true, None),
                        Outcome::Failed(why) => (false, Some(why)),
                        Outcome::NotAsked(why) => (false, Some(format!("cannot check: {why}"))),
                    };
                    let (port, health) = (check.port, member.health);
                    ServerReport { address: server, port, health, passed, why, time_ms }
                })
            });
            asked.push((services.len() - 1, begun.collect::<Vec<_>>()));
        }
        for (service, answers) in asked {
            for answer in answers {
                services[service].servers.extend(answer.await.ok());
            }
        }
    });
    Ok(Report { services })
}

impl Report {
    /// Whether every server that is checked has passed.
    pub fn all_passed(&self) -> bool {
        self.services.iter().flat_map(|service| &service.servers).all(|server| server.passed)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for service in &self.services {
            match &service.unchecked {
                None => writeln!(f, "{}", named(service.id))?,
                Some(why) => writeln!(f, "{}: not checked: {why}", named(service.id))?,
            }
            for server in &service.servers {
                let ServerReport { address, port, passed, time_ms, .. } = server;
                let at = ServiceId { address: *address, port: *port, ..service.id }.to_string();
                let result = if *passed { "passed" } else { "FAILED" };
                write!(f, "  -> {at:<28} {result} in {time_ms:.1} ms")?;
                if let Some(why) = &server.why {
                    write!(f, ": {why}")?;
                }
                writeln!(f, "{}", if server.health == Health::Down { " (down)" } else { "" })?;
            }
        }
        Ok(())
    }
}
