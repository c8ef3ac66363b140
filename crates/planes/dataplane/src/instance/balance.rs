//! The services that a host's ports balance: commands, the ways to servers, and the programs.
//!
//! Services are kept while a port is away. A program is in front of each port's own while there is
//! a service. Each second it is told the present neighbours, and now and then the present routes
//! ([`Ways`]).

use super::Instance;
use crate::clock;
use crate::counters::{Counts, QueueCounters};
use crate::error::InstanceError;
use crate::upgrade::state::BalanceManifest;
use narrows_balance::{Health, ListedService, Reply, Seen, ServerId, ServiceId, Services};
use narrows_bpf::{BalanceTables, Fate, FateCounters, Fated, NextHop, Way};
use narrows_forwarding::{PortId, PortSet};
use narrows_link::neighbours;
use narrows_link::ways::{self, NoWay, Ways};
use narrows_packet::DropReason;
use narrows_units::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// How often routes to servers are read; sooner while one has none, first after a second and then
/// half as often each time.
const ROUTES_EVERY: Nanos = Nanos::from_secs(10);
const SECOND: Nanos = Nanos::from_secs(1);
/// The first wait for a neighbour that was asked for; each is twice as long as the one before, up
/// to a second.
const FIRST_LOOK: Nanos = Nanos::from_millis(20);
/// How many servers without a way a message names.
const NAMED: usize = 16;
/// The longest IP packet.
const MTU_MAX: u16 = u16::MAX;

/// Services, and how packets reach their servers.
#[derive(Default)]
pub(crate) struct Balance {
    services: Services,
    /// The maps of the program, once there was a service.
    tables: Option<BalanceTables>,
    routes: Ways,
    /// When routes are read next, and how long that waits while a server has none.
    next_routes: Nanos,
    without_route: Nanos,
    found: BTreeMap<IpAddr, Result<ways::Way, NoWay>>,
    /// When neighbours are looked for again that are missing, and how long that was waited for.
    next_look: Nanos,
    look_after: Nanos,
    /// The services, by version, and the ways that packets are balanced by.
    followed: Option<(u64, BTreeMap<IpAddr, Way>)>,
    /// The ports that send nothing that arrives at others.
    unreached: PortSet,
    /// What is wrong, as last told.
    told: Option<String>,
}

impl Balance {
    /// The addresses of all servers.
    fn servers(&self) -> BTreeSet<IpAddr> {
        let ids = self.services.iter().map(|(id, ..)| id);
        let servers = ids.flat_map(|id| self.services.servers(id));
        servers.map(|(server, _)| server.address).collect()
    }

    /// The addresses of all services.
    fn addresses(&self) -> BTreeSet<IpAddr> {
        self.services.iter().map(|(id, ..)| id.address).collect()
    }

    /// Servers that cannot be reached, and why.
    fn lost(&self) -> impl Iterator<Item = (IpAddr, NoWay)> {
        let found = self.found.iter();
        found.filter_map(|(server, found)| Some((*server, found.err()?)))
    }

    /// The services for another process, with the descriptors of their maps, if there are any.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub(crate) fn offer(&self) -> io::Result<(BalanceManifest, Vec<OwnedFd>)> {
        let maps = self.tables.as_ref().map(BalanceTables::descriptors).transpose()?;
        let maps = maps.unwrap_or_default();
        let key = self.tables.as_ref().map(BalanceTables::key).unwrap_or_default();
        let services = self.services.state();
        Ok((BalanceManifest { services, key, descriptors: maps.len() }, maps))
    }

    /// Goes on from another process's.
    pub(crate) fn resume(manifest: BalanceManifest, maps: &[OwnedFd]) -> Result<Self, String> {
        let BalanceManifest { services, key, descriptors } = manifest;
        if maps.len() != descriptors {
            return Err("descriptors are missing".to_owned());
        }
        // While its port is away a service has no maps yet.
        let services = Services::resume(services)?;
        let tables = (descriptors > 0).then(|| BalanceTables::inherit(maps, key, &services));
        let tables = tables.transpose().map_err(|error| error.to_string())?;
        Ok(Self { services, tables, ..Self::default() })
    }

    pub(crate) fn tables(&self) -> Option<&BalanceTables> {
        self.tables.as_ref().filter(|_| !self.services.is_empty())
    }

    /// All services, with what is counted.
    pub(crate) fn listed(&self) -> Vec<ListedService> {
        self.services.listed(seen(self.tables.as_ref(), &self.found))
    }

    pub(crate) fn version(&self) -> u64 {
        self.services.version()
    }

    /// What is counted at `port`.
    pub(crate) fn fates(&self, port: PortId) -> FateCounters {
        let fates = self.tables.as_ref().and_then(|tables| tables.fates(port).ok());
        fates.unwrap_or_default()
    }

    /// Adds what the programs have sent and dropped: on which CPU is not told, it is told of the
    /// first.
    pub(crate) fn add_to(&self, counts: &mut Counts) {
        if self.tables.is_none() {
            return;
        }
        for (id, port) in counts.ports.iter_mut_enumerated() {
            add_fates(port.queue(0), &self.fates(id));
        }
    }
}

/// What the programs have counted, and which servers are this box itself.
fn seen(
    tables: Option<&BalanceTables>,
    found: &BTreeMap<IpAddr, Result<ways::Way, NoWay>>,
) -> Seen {
    let local = found.iter().filter(|(_, way)| matches!(way, Ok(ways::Way::Local)));
    Seen {
        figures: tables.and_then(|tables| tables.figures().ok()).unwrap_or_default(),
        local: local.map(|(server, _)| *server).collect(),
    }
}

/// Adds what is counted at a port. What leaves through another port is sent by that one.
fn add_fates(queue: &mut QueueCounters, fates: &FateCounters) {
    for (fate, Fated { packets, bytes }) in fates.iter() {
        let dropped = match fate {
            Fate::Local | Fate::Elsewhere | Fate::Fragment | Fate::Unrecorded => continue,
            Fate::Balanced | Fate::Answered | Fate::Redirected => None,
            Fate::NoServer | Fate::NoWay => Some(DropReason::NoServer),
            Fate::TooBig => Some(DropReason::TooLong),
            Fate::Expired => Some(DropReason::Ttl),
            Fate::NoHeadroom => Some(DropReason::NoFrame),
            Fate::PortGone => Some(DropReason::PortGone),
        };
        queue.arrived.add(packets, bytes);
        if fate != Fate::Redirected {
            queue.add_outward(packets, bytes, dropped);
        }
    }
    let Fated { packets, bytes } = fates.of_other_ports();
    queue.add_outward(packets, bytes, None);
}

impl Instance {
    /// Runs one command on its services, the words behind `narrows balance`. It is in force when
    /// this returns.
    pub(crate) fn run_balance(&mut self, words: &[String]) -> Reply {
        if let Err(why) = self.may_balance() {
            return refused(&why);
        }
        let version = self.balance.services.version();
        let Balance { services, tables, found, .. } = &mut self.balance;
        let seen = || seen(tables.as_ref(), found);
        let reply = services.run(words, &seen, clock::now());
        if self.balance.services.version() == version { reply } else { self.changed(reply) }
    }

    /// Takes in what is `said` of the health of servers. It is in force when this returns.
    pub(crate) fn set_health(&mut self, said: &[(ServiceId, ServerId, Health)]) -> Reply {
        if let Err(why) = self.may_balance() {
            return refused(&why);
        }
        let version = self.balance.services.version();
        self.balance.services.set_health(said, clock::now());
        if self.balance.services.version() == version {
            return Reply::default();
        }
        self.changed(Reply::default())
    }

    /// Takes the services in `text` in the place of all others: all of them, or none.
    pub(crate) fn restore_services(&mut self, text: &str) -> Reply {
        if let Err(why) = self.may_balance() {
            return refused(&why);
        }
        match self.balance.services.restore(text, clock::now()) {
            Ok(()) => self.changed(Reply::default()),
            Err(why) => refused(&why),
        }
    }

    /// Begins with `services`, of a file.
    pub(crate) fn adopt_services(&mut self, services: Services) -> Result<(), String> {
        if !services.is_empty() {
            self.may_balance()?;
        }
        self.balance.services = services;
        Ok(())
    }

    /// Its services.
    pub(crate) fn services(&self) -> &Services {
        &self.balance.services
    }

    fn may_balance(&self) -> Result<(), String> {
        if !self.options.forwarding.is_host() || self.options.plane.has_workers() {
            return Err(
                "services are of a host's ports: narrows run --port PORT --plane xdp".into()
            );
        }
        Ok(())
    }

    fn changed(&mut self, mut reply: Reply) -> Reply {
        self.balance.next_routes = Nanos::ZERO;
        self.balance.look_after = FIRST_LOOK;
        if let Err(error) = self.balance_now() {
            reply.stderr.push_str(&format!("narrows balance: {error}; it is tried again\n"));
            reply.code = reply.code.max(1);
        }
        // A neighbour that was only just asked for is no reason yet.
        let lost = self.balance.lost().filter(|(_, why)| !matches!(why, NoWay::NoNeighbour(_)));
        for (server, why) in lost {
            reply.stderr.push_str(&format!("narrows balance: warning: {server}: {why}\n"));
        }
        reply
    }

    /// Looks for neighbours that were only just asked for. Called all the time.
    pub(crate) fn look_for_ways(&mut self) {
        let is_waiting =
            self.balance.found.values().any(|way| matches!(way, Err(NoWay::NoNeighbour(_))));
        let now = clock::now();
        if is_waiting && self.balance.look_after < SECOND && now >= self.balance.next_look {
            self.balance.look_after = Nanos(self.balance.look_after.0 * 2);
            // What fails is tried again each second, and told.
            let _ = self.balance_now();
        }
    }

    /// Follows routes and neighbours, and settles slots. Called each second.
    pub(crate) fn keep_balance(&mut self) {
        let is_followed = |(version, _): &(u64, _)| *version == self.balance.services.version();
        let is_done = self.balance.followed.as_ref().is_some_and(is_followed);
        if self.balance.services.is_empty() && (is_done || self.balance.tables.is_none()) {
            return;
        }
        self.balance.services.settle(clock::now());
        let wrong = match self.balance_now() {
            Err(error) => Some(format!("cannot balance: {error}")),
            Ok(()) => {
                let lost = self.balance.lost();
                let lost: Vec<String> = lost.map(|(ip, why)| format!("{ip}: {why}")).collect();
                match lost.is_empty() {
                    true => self.unreached(),
                    false => Some(format!("servers without a way: {}", some_of(&lost))),
                }
            }
        };
        if wrong != self.balance.told {
            if let Some(wrong) = &wrong {
                self.events.warn(wrong.clone());
            } else {
                self.events.say("all servers can be reached".into());
            }
            self.balance.told = wrong;
        }
    }

    /// Balances packets by the present services and ways.
    fn balance_now(&mut self) -> Result<(), InstanceError> {
        let Self { balance, plane, options, .. } = self;
        let Some(plane) = plane else { return Ok(()) };
        let forwarding = &options.forwarding;
        let ports: BTreeMap<u32, PortId> = forwarding
            .ids()
            .map(|port| (plane.devices()[forwarding.device_of(port)].ifindex, port))
            .collect();
        let now = clock::now();
        let reads_routes = balance.next_routes <= now;
        if reads_routes {
            let indices: Vec<u32> = ports.keys().copied().collect();
            balance.routes = Ways::read(&indices, balance.servers(), &balance.addresses())?;
            // Nothing but the programs sends to them.
            neighbours::use_stale(&indices)?;
            // Whether a driver sends what arrives at other ports may change.
            if balance.followed.is_some() {
                balance.unreached = plane.balance(balance.tables())?;
            }
        }
        balance.found = balance.routes.follow()?;
        if reads_routes {
            let lacks_one = balance.lost().any(|(_, why)| !matches!(why, NoWay::NoNeighbour(_)));
            let longer = (balance.without_route.0 * 2).clamp(SECOND.0, ROUTES_EVERY.0);
            balance.without_route = if lacks_one { Nanos(longer) } else { Nanos::ZERO };
            balance.next_routes = now + if lacks_one { Nanos(longer) } else { ROUTES_EVERY };
        }
        balance.next_look = now + balance.look_after;
        let way = |(server, found): (&IpAddr, &Result<ways::Way, NoWay>)| {
            let found = match (*found).ok()? {
                ways::Way::Local => return Some((*server, Way::Local)),
                ways::Way::Beyond(hop) => hop,
            };
            let port = *ports.get(&found.ifindex)?;
            let device = &plane.devices()[forwarding.device_of(port)];
            let of_device = u16::try_from(device.mtu).unwrap_or(MTU_MAX);
            let mtu = found.mtu.and_then(|mtu| u16::try_from(mtu).ok()).unwrap_or(of_device);
            let (to, from, source) = (found.mac, device.own().mac, found.source);
            let mtu = mtu.min(of_device);
            Some((*server, Way::Beyond(NextHop { port, to, from, source, mtu })))
        };
        let ways: BTreeMap<IpAddr, Way> = balance.found.iter().filter_map(way).collect();
        let next = (balance.services.version(), ways);
        if balance.followed.as_ref() == Some(&next) {
            return Ok(());
        }
        let refused = |source| InstanceError::Balance { port: forwarding.to_string(), source };
        let tables = match balance.tables.take() {
            Some(tables) => tables,
            None => BalanceTables::new().map_err(refused)?,
        };
        let tables = balance.tables.insert(tables);
        balance.followed = None;
        tables.follow(&balance.services, &next.1).map_err(refused)?;
        balance.unreached = plane.balance(balance.tables())?;
        balance.followed = Some(next);
        Ok(())
    }

    /// Which ports that lead to servers send nothing that arrives at others.
    fn unreached(&self) -> Option<String> {
        let forwarding = &self.options.forwarding;
        let ways = self.balance.followed.iter().flat_map(|(_, ways)| ways.values());
        let ports: BTreeSet<PortId> = ways
            .filter_map(|way| match way {
                Way::Beyond(hop) => Some(hop.port),
                Way::Local => None,
            })
            .filter(|port| self.balance.unreached.has(*port))
            .collect();
        let names: Vec<&str> = ports.iter().map(|port| forwarding.name(*port)).collect();
        let ports = forwarding.names().join(" ");
        (!names.is_empty()).then(|| {
            format!(
                "servers behind {} get no packets that arrive at other ports, because the driver \
                 does not send them: narrows doctor {ports} --port",
                names.join(", ")
            )
        })
    }

    /// The ports are joined anew: their programs have to be told everything.
    pub(super) fn balance_again(&mut self) -> Result<(), String> {
        self.balance.followed = None;
        self.balance.next_routes = Nanos::ZERO;
        if self.balance.services.is_empty() {
            return Ok(());
        }
        self.balance_now().map_err(|error| error.to_string())
    }
}

/// The first of `lost`, and how many more there are.
fn some_of(lost: &[String]) -> String {
    let (named, others) = lost.split_at(lost.len().min(NAMED));
    match others.len() {
        0 => named.join("; "),
        others => format!("{}; and {others} more", named.join("; ")),
    }
}

fn refused(why: &str) -> Reply {
    Reply { stderr: format!("narrows balance: {why}\n"), code: 1, ..Reply::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_thousands_of_servers_is_short() {
        let lost = |count: u32| (0..count).map(|at| at.to_string()).collect::<Vec<_>>();
        assert_eq!(some_of(&lost(2)), "0; 1");
        assert!(some_of(&lost(16)).ends_with("; 15"));
        assert!(some_of(&lost(4096)).ends_with("; 15; and 4080 more"));
    }
}
