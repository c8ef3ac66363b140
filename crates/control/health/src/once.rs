//! One look at each server, for people and scripts: the way to it, and whether it answers. It
//! changes nothing.

use crate::HealthError;
use crate::check::Check;
use crate::client_path::full_size_arrives;
use crate::config::{Config, named};
use crate::instance;
use crate::monitor::take_descriptors;
use crate::network::Network;
use crate::probe::{Outcome, To, ask};
use crate::way::{Lookout, Way};
use narrows_balance::{Health, ListedServer, ServiceId};
use narrows_control::Client;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long an echo of a packet may take.
const ECHO_WITHIN: Duration = Duration::from_secs(1);

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
    let known = Lookout::default().know(client, &listed)?;
    let ways = known.ways.clone();
    runtime.block_on(async {
        let network = Arc::new(Network::open());
        network.follow(known);
        let mut number = 0;
        let mut asked: Vec<Vec<JoinHandle<ServerReport>>> = Vec::new();
        for service in &listed {
            let id = service.id();
            let check = config.check(id).ok();
            let look = |server: &ListedServer| {
                number += 1;
                let way = ways.to(server.address, server.tunnel);
                let (server, health) = (server.address, server.health);
                tokio::spawn(look(
                    id,
                    (server, health, way),
                    check.clone(),
                    (Arc::clone(&network), number),
                ))
            };
            asked.push(service.servers.iter().map(look).collect());
        }
        let mut services = Vec::new();
        for (service, asked) in listed.iter().zip(asked) {
            let id = service.id();
            let mut servers = Vec::new();
            for server in asked {
                servers.extend(server.await.ok());
            }
            services.push(ServiceReport {
                id,
                protocol: id.protocol.name().to_lowercase(),
                address: id.address,
                port: id.port,
                unchecked: config.check(id).err().map(|why| why.to_string()),
                servers,
            });
        }
        Ok(Report { services })
    })
}

/// Asks a server, and looks at the way to it. `number` is its own.
async fn look(
    service: ServiceId,
    (address, health, mut way): (IpAddr, Health, Way),
    check: Option<Check>,
    (network, number): (Arc<Network>, u16),
) -> ServerReport {
    let full_size = async {
        match network.path(service, address) {
            Ok(To::Path(path)) => full_size_arrives(&path, number, ECHO_WITHIN).await,
            _ => None,
        }
    };
    let answer = async {
        match &check {
            Some(check) => Some(answer(check, &network, service, address).await),
            None => None,
        }
    };
    let (arrives, answer) = tokio::join!(full_size, answer);
    way.full_size_arrives = arrives;
    ServerReport { address, health, way, answer }
}

/// Asks `server`, and says what came of it.
async fn answer(check: &Check, network: &Network, service: ServiceId, server: IpAddr) -> Answer {
    let began = Instant::now();
    let to = network.to(check, service, server);
    let is_path = matches!(to, Ok(To::Path(_)));
    let outcome = ask(check, to).await;
    let time_ms = began.elapsed().as_secs_f64() * 1e3;
    let (passed, why) = match outcome {
        Outcome::Passed => (true, None),
        Outcome::Failed(why) => {
            let is_near =
                is_path && ask(check, Ok(network.direct(server))).await == Outcome::Passed;
            let hint = format!(
                "; at its own address it answers: does it have {} on a device, and unpack the \
                 tunnel, with rp_filter off?",
                service.address
            );
            (false, Some(if is_near { why + &hint } else { why }))
        }
        Outcome::NotAsked(why) => (false, Some(format!("cannot check: {why}"))),
    };
    Answer { port: check.port, passed, why, time_ms }
}

impl Report {
    /// Whether there is a way to every server, and each that was asked has passed.
    pub fn is_good(&self) -> bool {
        let mut servers = self.services.iter().flat_map(|service| &service.servers);
        servers.all(|server| {
            server.way.is_good() && server.answer.as_ref().is_none_or(|answer| answer.passed)
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
