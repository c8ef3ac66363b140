//! One look at each server, for people and scripts: the way to it, and whether it answers. It
//! changes nothing.

use crate::HealthError;
use crate::check::Check;
use crate::config::{Config, named};
use crate::instance;
use crate::monitor::take_descriptors;
use crate::probe::{Outcome, ask};
use crate::way::{Way, Ways};
use narrows_balance::{Health, ServiceId};
use narrows_control::Client;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What was found.
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
    /// Why its servers are not asked.
    unchecked: Option<String>,
    servers: Vec<ServerReport>,
}

#[derive(Clone, Debug, Serialize)]
struct ServerReport {
    address: IpAddr,
    /// What the instance has of it.
    health: Health,
    way: Way,
    /// None if it was not asked.
    answer: Option<Answer>,
}

#[derive(Clone, Debug, Serialize)]
struct Answer {
    /// The port that was asked.
    port: u16,
    passed: bool,
    /// Why it failed, or could not be asked.
    why: Option<String>,
    time_ms: f64,
}

/// Looks at each server of `client`, at all of them at the same time.
///
/// # Errors
/// If the instance does not list its services, or the kernel the ways to servers.
pub fn once(config: &Config, client: &Client) -> Result<Report, HealthError> {
    take_descriptors();
    let runtime = Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(HealthError::Start)?;
    let listed = instance::services(client).map_err(HealthError::Instance)?;
    let checks: Vec<_> = listed.iter().map(|service| config.check(service.id())).collect();
    let mut answers = runtime.block_on(async {
        let mut asked: Vec<Option<JoinHandle<Answer>>> = Vec::new();
        for (service, check) in listed.iter().zip(&checks) {
            let ask = |server: &instance::Server| {
                let (check, server) = (check.as_ref().ok()?.clone(), server.address);
                Some(tokio::spawn(answer(check, server)))
            };
            asked.extend(service.servers.iter().map(ask));
        }
        let mut answers = Vec::new();
        for answer in asked {
            answers.push(match answer {
                Some(answer) => answer.await.ok(),
                None => None,
            });
        }
        answers.into_iter()
    });
    // Neighbours are known now: servers were asked, and the instance asks for those of all servers.
    let servers = listed.iter().flat_map(|service| &service.servers);
    let servers: BTreeSet<IpAddr> = servers.map(|server| server.address).collect();
    let port = client.ports.first().map_or("", String::as_str);
    let ways = Ways::read(port, servers)?;
    let services = listed.iter().zip(checks).map(|(service, check)| {
        let id = service.id();
        let servers = service.servers.iter().map(|server| ServerReport {
            address: server.address,
            health: server.member.health,
            way: ways.to(server.address, server.tunnel),
            answer: answers.next().flatten(),
        });
        ServiceReport {
            id,
            protocol: id.protocol.name().to_lowercase(),
            address: id.address,
            port: id.port,
            unchecked: check.err().map(|why| why.to_string()),
            servers: servers.collect(),
        }
    });
    Ok(Report { services: services.collect() })
}

/// Asks `server`, and says what came of it.
async fn answer(check: Check, server: IpAddr) -> Answer {
    let began = Instant::now();
    let outcome = ask(&check, server).await;
    let time_ms = began.elapsed().as_secs_f64() * 1e3;
    let (passed, why) = match outcome {
        Outcome::Passed => (true, None),
        Outcome::Failed(why) => (false, Some(why)),
        Outcome::NotAsked(why) => (false, Some(format!("cannot check: {why}"))),
    };
    Answer { port: check.port, passed, why, time_ms }
}

impl Report {
    /// Whether there is a way to every server, and each that was asked has passed.
    pub fn is_good(&self) -> bool {
        let mut servers = self.services.iter().flat_map(|service| &service.servers);
        servers.all(|server| {
            server.way.is_there() && server.answer.as_ref().is_none_or(|answer| answer.passed)
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for service in &self.services {
            match &service.unchecked {
                None => writeln!(f, "{}", named(service.id))?,
                Some(why) => writeln!(f, "{}: not checked: {why}", named(service.id))?,
            }
            for ServerReport { address, health, way, answer } in &service.servers {
                let port = answer.as_ref().map_or(service.port, |answer| answer.port);
                let at = ServiceId { address: *address, port, ..service.id }.to_string();
                write!(f, "  -> {at:<28} ")?;
                match answer {
                    None => f.write_str("not checked")?,
                    Some(Answer { passed: true, time_ms, .. }) => {
                        write!(f, "passed in {time_ms:.1} ms")?;
                    }
                    Some(Answer { why, .. }) => {
                        write!(f, "FAILED: {}", why.as_deref().unwrap_or_default())?;
                    }
                }
                let is_down = if *health == Health::Down { " (down)" } else { "" };
                writeln!(f, "{}{is_down}", way.text())?;
            }
        }
        Ok(())
    }
}
