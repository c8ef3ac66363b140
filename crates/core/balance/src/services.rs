//! All services, and what commands do to them.

use crate::command::{self, Command, View};
use crate::listing::ListedService;
use crate::maglev::{self, Part};
use crate::ring::{Moved, Ring, SLOTS};
use crate::service::{Forward, Health, Scheduler, Server, ServerId, Service, ServiceId};
use crate::text;
use crate::turns::turns;
use narrows_units::{Nanos, without_mark};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// The most services: each has a ring of its own.
pub const SERVICES_MAX: usize = 512;
/// The most servers, of all services together.
pub const SERVERS_MAX: usize = 4096;

/// A connection that sends nothing for so long after its slot has moved may move, too: the time
/// after which IPVS forgets a TCP connection.
pub(crate) const SETTLES_AFTER: Nanos = Nanos::from_secs(900);

const HELP: &str = "Usage: narrows balance COMMAND
COMMAND := add|edit SERVICE [ SERVICE-OPTIONS ] | del SERVICE
         | add|edit SERVICE -r ADDRESS [ SERVER-OPTIONS ] | del SERVICE -r ADDRESS
         | list [ SERVICE ] [ --stats ] [ --exact ] [ -j ] | save | restore [ FILE ]
         | zero [ SERVICE ] | clear | help
SERVICE := -t ADDRESS:PORT | -u ADDRESS:PORT    (an IPv6 address in brackets; port 0 for all)
SERVICE-OPTIONS := [ -s mh|sh|rr|wrr ] [ -b mh-port,mh-fallback ] [ -p [ SECONDS ] ] [ -M MASK ] [ -o ]
                   [ --quic lb:N|katran|none ]
SERVER-OPTIONS  := [ -g | -i [ --tun-type ipip|gue ] [ --tun-port PORT ] ] [ -w WEIGHT ]
                   [ --quic-id N|none ] [ --down | --up ] (edit only)
ipvsadm's -A -E -D -a -e -d -L -S -C -Z are commands, too.
";

/// The output of a command, and its exit code.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reply {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// The exit code: 0, 1 where it failed, 2 where it was no command.
    pub code: i32,
}

/// What is counted of a service or a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// New connections.
    pub connections: u64,
    /// Packets towards servers.
    pub packets: u64,
    /// Their bytes, as they came.
    pub bytes: u64,
}

impl Counts {
    fn since(self, before: Self) -> Self {
        Self {
            connections: self.connections.saturating_sub(before.connections),
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// Services for another process: what commands say of them, and by which numbers programs know
/// them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServicesState {
    text: String,
    numbers: Vec<(ServiceId, u16)>,
    servers: Vec<(ServiceId, ServerId, u16)>,
    gone: Vec<(ServiceId, ServerId, u16)>,
    health: Vec<(ServiceId, ServerId, Health)>,
    /// How many slots each ring has, and which of them have moved.
    rings: Vec<(ServiceId, usize, Vec<Moved>)>,
    moved_at: Vec<(ServiceId, u64)>,
    zeroed: Figures,
}

/// What is counted, by the numbers of services and servers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Of services.
    pub services: BTreeMap<u16, Counts>,
    /// Of servers.
    pub servers: BTreeMap<u16, Counts>,
}

/// What listings say beside what commands have said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// What is counted.
    pub figures: Figures,
    /// The addresses of servers that are this box itself.
    pub local: BTreeSet<IpAddr>,
}

/// A server with its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// By which programs know it: from 1 to [`SERVERS_MAX`], and no other server's.
    pub number: u16,
    /// What it is.
    pub server: Server,
    /// What is said of its health.
    pub health: Health,
}

impl Numbered {
    /// Whether it gets no packets until something else is said of its health.
    pub fn is_down(&self) -> bool {
        self.health == Health::Down
    }
}

/// A service with its servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// By which programs know it: below [`SERVICES_MAX`].
    pub(crate) number: u16,
    pub(crate) service: Service,
    pub(crate) servers: BTreeMap<ServerId, Numbered>,
    pub(crate) ring: Arc<Ring>,
    /// When slots moved last, and have not settled since.
    moved_at: Option<Nanos>,
}

impl Entry {
    /// The servers that are not down.
    fn up(&self) -> impl Iterator<Item = (&ServerId, &Numbered)> {
        self.servers.iter().filter(|(_, numbered)| !numbered.is_down())
    }

    /// Becomes `service`. Without connection ids of QUIC its servers have none.
    fn take(&mut self, service: Service) -> Result<(), String> {
        let servers = self.servers.iter();
        let named = servers.filter_map(|(at, numbered)| Some((at, numbered.server.quic_id?)));
        if let Some(format) = service.quic {
            for (at, quic_id) in named {
                format.fits(quic_id).map_err(|why| format!("{at}: {why}"))?;
            }
        } else {
            self.servers.values_mut().for_each(|numbered| numbered.server.quic_id = None);
        }
        self.service = service;
        Ok(())
    }

    /// `after`, if the server `at` of this service, `id`, can be it.
    fn fits(&self, id: ServiceId, at: ServerId, after: Server) -> Result<Server, String> {
        if after.forward == Forward::Route && at.address.is_ipv6() != id.address.is_ipv6() {
            return Err(format!("{at} and {} are of different families: use -i", id.address));
        }
        if let Some(quic_id) = after.quic_id {
            let format = self.service.quic.ok_or_else(|| {
                format!("{id} has no --quic: narrows balance edit {} --quic FORMAT", id.option())
            })?;
            format.fits(quic_id)?;
            let mut others = self.servers.iter().filter(|(other, _)| **other != at);
            if let Some((other, _)) = others.find(|(_, it)| it.server.quic_id == after.quic_id) {
                return Err(format!("--quic-id {quic_id:#x} is {other}'s already"));
            }
        }
        Ok(after)
    }

    /// The servers of new connections, by slot. Empty if there are none.
    fn dealt(&self) -> Vec<u16> {
        let is_weighed = self.service.scheduler != Scheduler::RoundRobin;
        let part = |(server, numbered): (&ServerId, &Numbered)| {
            let weight = numbered.server.weight;
            let weight = if is_weighed { weight } else { weight.min(1) };
            Part { number: numbered.number, address: server.address, weight }
        };
        let parts: Vec<Part> = self.up().map(part).filter(|part| part.weight > 0).collect();
        match self.service.scheduler.is_hash() {
            true => maglev::deal(&parts, SLOTS),
            false => turns(&parts, SLOTS),
        }
    }
}

/// All services.
#[derive(Clone, Default, Debug)]
pub struct Services {
    entries: BTreeMap<ServiceId, Entry>,
    /// The numbers that servers had who are gone, the latest last. One that returns gets its own
    /// again, so that what is recorded of it counts again.
    gone: VecDeque<(ServiceId, ServerId, u16)>,
    /// What was counted when counters were zeroed.
    zeroed: Figures,
    /// How often commands or time changed something.
    version: u64,
    /// The time of the present command.
    now: Nanos,
}

impl Services {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Another number after each change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All services: name, number, what they are, their ring.
    pub fn iter(&self) -> impl Iterator<Item = (ServiceId, u16, &Service, &Arc<Ring>)> {
        let all = self.entries.iter();
        all.map(|(id, entry)| (*id, entry.number, &entry.service, &entry.ring))
    }

    /// The servers of the service `id`.
    pub fn servers(&self, id: ServiceId) -> impl Iterator<Item = (ServerId, &Numbered)> {
        let entry = self.entries.get(&id).into_iter();
        entry.flat_map(|entry| entry.servers.iter().map(|(id, server)| (*id, server)))
    }

    pub(crate) fn entries(&self) -> &BTreeMap<ServiceId, Entry> {
        &self.entries
    }

    /// Runs one command at `now`, the words behind `narrows balance`. One that fails changes
    /// nothing. What is `seen` is asked for where a command needs it.
    pub fn run(&mut self, words: &[String], seen: &dyn Fn() -> Seen, now: Nanos) -> Reply {
        self.now = now;
        let command = match command::parse(words.iter().map(String::as_str)) {
            Ok(command) => command,
            Err(why) => {
                let stderr = format!("narrows balance: {why}. Try `narrows balance help`.\n");
                return Reply { stderr, code: 2, ..Reply::default() };
            }
        };
        match self.execute(&command, seen) {
            Ok(stdout) => Reply { stdout, ..Reply::default() },
            Err(why) => {
                Reply { stderr: format!("narrows balance: {why}\n"), code: 1, ..Reply::default() }
            }
        }
    }

    /// Takes in at `now` what is `said` of the health of servers, all at once. Of one that is not
    /// there it means nothing: it may be gone since. Each ring is dealt once at most.
    pub fn set_health(&mut self, said: &[(ServiceId, ServerId, Health)], now: Nanos) {
        self.now = now;
        let (mut has_changed, mut moved) = (false, BTreeSet::new());
        for (id, at, health) in said {
            let entry = self.entries.get_mut(id);
            let Some(numbered) = entry.and_then(|entry| entry.servers.get_mut(at)) else {
                continue;
            };
            let was_down = numbered.is_down();
            has_changed |= numbered.health != *health;
            numbered.health = *health;
            if numbered.is_down() != was_down {
                moved.insert(*id);
            }
        }
        moved.into_iter().for_each(|id| self.deal(id));
        self.version += u64::from(has_changed);
    }

    /// The lines that make all of them again, as `ipvsadm-save` writes them.
    pub fn save(&self) -> String {
        text::save(self)
    }

    /// Takes the services in `text`, lines as `ipvsadm-save` writes them, in the place of all that
    /// are there, at `now`. Servers that remain keep their connections.
    ///
    /// # Errors
    /// The first line that fails; then nothing has changed.
    pub fn restore(&mut self, text: &str, now: Nanos) -> Result<(), String> {
        let next = Self::read(text)?;
        let mut result = self.clone();
        result.now = now;
        result.become_like(&next)?;
        *self = result;
        Ok(())
    }

    /// The services in `text`, whose rings are not dealt.
    fn read(text: &str) -> Result<Self, String> {
        let mut services = Self::default();
        for (number, line) in (1..).zip(without_mark(text).lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let command = command::parse(line.split_whitespace());
            let done = command.and_then(|command| match command {
                Command::AddService(..) | Command::AddServer(..) => services.change(&command),
                _ => Err("a file has only -A and -a".into()),
            });
            done.map_err(|why| format!("line {number}: {why}"))?;
        }
        Ok(services)
    }

    /// What another process needs beside the rings to go on.
    pub fn state(&self) -> ServicesState {
        let servers = self.entries.iter().flat_map(|(id, entry)| {
            let servers = entry.servers.iter();
            servers.map(|(server, numbered)| (*id, *server, numbered.number))
        });
        let health = self.entries.iter().flat_map(|(id, entry)| {
            let said = entry.servers.iter().filter(|(_, it)| it.health != Health::default());
            said.map(|(server, numbered)| (*id, *server, numbered.health))
        });
        ServicesState {
            text: self.save(),
            numbers: self.entries.iter().map(|(id, entry)| (*id, entry.number)).collect(),
            rings: self
                .entries
                .iter()
                .map(|(id, entry)| (*id, entry.ring.slots().len(), entry.ring.moved()))
                .collect(),
            servers: servers.collect(),
            health: health.collect(),
            gone: self.gone.iter().copied().collect(),
            moved_at: self
                .entries
                .iter()
                .filter_map(|(id, entry)| Some((*id, entry.moved_at?.0)))
                .collect(),
            zeroed: self.zeroed.clone(),
        }
    }

    /// Goes on where another process was, whose `state` this is.
    ///
    /// # Errors
    /// If the state is inconsistent.
    pub fn resume(state: ServicesState) -> Result<Self, String> {
        let mut services = Self::read(&state.text)?;
        let unfit = || "services and their numbers do not fit".to_owned();
        for &(id, number) in &state.numbers {
            services.entries.get_mut(&id).ok_or_else(unfit)?.number = number;
        }
        for (id, server, number) in state.servers {
            let entry = services.entries.get_mut(&id).ok_or_else(unfit)?;
            entry.servers.get_mut(&server).ok_or_else(unfit)?.number = number;
        }
        for (id, server, health) in state.health {
            let entry = services.entries.get_mut(&id).ok_or_else(unfit)?;
            entry.servers.get_mut(&server).ok_or_else(unfit)?.health = health;
        }
        let mut taken = BTreeSet::new();
        let of_services = services.entries.values().all(|entry| {
            usize::from(entry.number) < SERVICES_MAX && taken.insert((0, entry.number))
        });
        let servers = services.entries.values().flat_map(|entry| entry.servers.values());
        let numbers = servers.map(|server| server.number).chain(state.gone.iter().map(|it| it.2));
        let of_servers = numbers
            .into_iter()
            .all(|number| (1..=SERVERS_MAX as u16).contains(&number) && taken.insert((1, number)));
        if !of_services || !of_servers {
            return Err(unfit());
        }
        services.gone = state.gone.into();
        for (id, at) in state.moved_at {
            services.entries.get_mut(&id).ok_or_else(unfit)?.moved_at = Some(Nanos(at));
        }
        if !state.rings.iter().map(|(id, ..)| id).eq(services.entries.keys()) {
            return Err(unfit());
        }
        for ((_, slots, moved), entry) in state.rings.iter().zip(services.entries.values_mut()) {
            let ring = Ring::resume(&entry.dealt(), *slots, moved).ok_or_else(unfit)?;
            entry.ring = Arc::new(ring);
        }
        services.zeroed = state.zeroed;
        Ok(services)
    }

    /// When slots settle next.
    pub fn settles_at(&self) -> Option<Nanos> {
        let moved = self.entries.values().filter_map(|entry| entry.moved_at).min();
        moved.map(|at| at + SETTLES_AFTER)
    }

    /// Settles slots that have moved a while before `now`. Whether there were any.
    pub fn settle(&mut self, now: Nanos) -> bool {
        let is_due = |at: &mut Nanos| *at + SETTLES_AFTER <= now;
        let mut settled = false;
        for entry in self.entries.values_mut() {
            if entry.moved_at.take_if(is_due).is_some() {
                entry.ring = Arc::new(entry.ring.settled());
                settled = true;
            }
        }
        self.version += u64::from(settled);
        settled
    }

    /// Has the services of `next`, with as much of its own as remains.
    fn become_like(&mut self, next: &Self) -> Result<(), String> {
        let gone: Vec<ServiceId> =
            self.entries.keys().filter(|id| !next.entries.contains_key(id)).copied().collect();
        gone.into_iter().for_each(|id| self.remove(id));
        for (id, entry) in &next.entries {
            if !self.entries.contains_key(id) {
                self.insert(*id, entry.service.clone())?;
            }
            let Some(own) = self.entries.get_mut(id) else { continue };
            own.service = entry.service.clone();
            let left: Vec<ServerId> =
                own.servers.keys().filter(|id| !entry.servers.contains_key(id)).copied().collect();
            for server in left {
                self.remove_server(*id, server);
            }
            for (server, numbered) in &entry.servers {
                self.put_server(*id, *server, numbered.server.clone())?;
            }
            self.deal(*id);
        }
        self.version += 1;
        Ok(())
    }

    fn execute(&mut self, command: &Command, seen: &dyn Fn() -> Seen) -> Result<String, String> {
        match command {
            Command::List(id, view) => return self.list(*id, *view, seen()),
            Command::Save => return Ok(self.save()),
            Command::Help => return Ok(HELP.into()),
            Command::Zero(id) => self.zero(*id, seen().figures)?,
            _ => {
                if let Some(id) = self.change(command)? {
                    self.deal(id);
                }
            }
        }
        Ok(String::new())
    }

    /// Changes services and servers. Says which service's ring has to be dealt for it.
    fn change(&mut self, command: &Command) -> Result<Option<ServiceId>, String> {
        let dealt = match command {
            Command::AddService(id, words) => {
                if self.entries.contains_key(id) {
                    return Err(format!("service {} {id} exists already", id.protocol.name()));
                }
                self.insert(*id, words.applied(None, id.address.is_ipv6())?)?;
                None
            }
            Command::EditService(id, words) => {
                let entry = self.entry(*id)?;
                let service = words.applied(Some(&entry.service), id.address.is_ipv6())?;
                entry.take(service)?;
                Some(*id)
            }
            Command::DeleteService(id) => {
                self.entry(*id)?;
                self.remove(*id);
                None
            }
            Command::AddServer(id, server, words) => {
                let entry = self.entry(*id)?;
                if entry.servers.contains_key(server) {
                    return Err(format!("{server} is a server of {id} already"));
                }
                let after = entry.fits(*id, *server, words.applied(None))?;
                self.put_server(*id, *server, after)?;
                Some(*id)
            }
            Command::EditServer(id, at, words) => {
                let entry = self.entry(*id)?;
                let before = entry.servers.get(at).ok_or_else(|| no_server(*id, *at))?;
                let after = entry.fits(*id, *at, words.applied(Some(&before.server)))?;
                if let Some(numbered) = entry.servers.get_mut(at) {
                    numbered.server = after;
                    numbered.health = words.health().unwrap_or(numbered.health);
                }
                Some(*id)
            }
            Command::DeleteServer(id, server) => {
                if !self.entry(*id)?.servers.contains_key(server) {
                    return Err(no_server(*id, *server));
                }
                self.remove_server(*id, *server);
                Some(*id)
            }
            Command::Clear => {
                let all: Vec<ServiceId> = self.entries.keys().copied().collect();
                all.into_iter().for_each(|id| self.remove(id));
                None
            }
            Command::List(..) | Command::Save | Command::Help | Command::Zero(_) => {
                return Ok(None);
            }
        };
        self.version += 1;
        Ok(dealt)
    }

    fn entry(&mut self, id: ServiceId) -> Result<&mut Entry, String> {
        self.entries.get_mut(&id).ok_or_else(|| no_service(id))
    }

    fn insert(&mut self, id: ServiceId, service: Service) -> Result<(), String> {
        let taken: Vec<u16> = self.entries.values().map(|entry| entry.number).collect();
        let number = (0..SERVICES_MAX as u16).find(|number| !taken.contains(number));
        let number = number.ok_or_else(|| format!("at most {SERVICES_MAX} services"))?;
        let entry = Entry {
            number,
            service,
            servers: BTreeMap::new(),
            ring: Arc::default(),
            moved_at: None,
        };
        self.entries.insert(id, entry);
        Ok(())
    }

    fn remove(&mut self, id: ServiceId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        let gone = entry.servers.into_iter();
        self.gone.extend(gone.map(|(server, numbered)| (id, server, numbered.number)));
    }

    fn remove_server(&mut self, id: ServiceId, server: ServerId) {
        let entry = self.entries.get_mut(&id);
        if let Some(numbered) = entry.and_then(|entry| entry.servers.remove(&server)) {
            self.gone.push_back((id, server, numbered.number));
        }
    }

    fn put_server(&mut self, id: ServiceId, at: ServerId, server: Server) -> Result<(), String> {
        if let Some(known) = self.entry(id)?.servers.get_mut(&at) {
            known.server = server;
            return Ok(());
        }
        let number = self.number(id, at)?;
        self.entry(id)?.servers.insert(at, Numbered { number, server, health: Health::Up });
        Ok(())
    }

    /// A number for a new server: its own, if it had one; one that none had; or that of the server
    /// that has been gone the longest.
    fn number(&mut self, id: ServiceId, at: ServerId) -> Result<u16, String> {
        let own = self.gone.iter().position(|(service, server, _)| (*service, *server) == (id, at));
        if let Some((_, _, number)) = own.and_then(|at| self.gone.remove(at)) {
            return Ok(number);
        }
        let known = self.entries.values().map(|entry| entry.servers.len()).sum::<usize>();
        let used = known + self.gone.len();
        if used < SERVERS_MAX {
            let mut taken = vec![false; SERVERS_MAX + 1];
            let servers = self.entries.values().flat_map(|entry| entry.servers.values());
            let gone = self.gone.iter().map(|(_, _, number)| *number);
            for number in servers.map(|numbered| numbered.number).chain(gone) {
                taken[usize::from(number)] = true;
            }
            let free = (1..taken.len()).find(|number| !taken[*number]);
            if let Some(free) = free {
                return Ok(free as u16);
            }
        }
        let longest = self.gone.pop_front().map(|(_, _, number)| number);
        longest.ok_or_else(|| format!("at most {SERVERS_MAX} servers, of all services together"))
    }

    /// Makes the ring of the service `id` again.
    fn deal(&mut self, id: ServiceId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let dealt = entry.dealt();
        let ring = if entry.service.scheduler.is_hash() {
            let up: BTreeSet<u16> = entry.up().map(|(_, numbered)| numbered.number).collect();
            let lives = |number| up.contains(&number);
            entry.ring.next(&dealt, lives)
        } else {
            Ring::new(&dealt)
        };
        let moved = entry.service.scheduler.is_hash() && ring.has_moved();
        entry.moved_at = moved.then_some(self.now);
        entry.ring = Arc::new(ring);
    }

    fn zero(&mut self, id: Option<ServiceId>, figures: Figures) -> Result<(), String> {
        let Some(id) = id else {
            self.zeroed = figures;
            return Ok(());
        };
        let entry = self.entries.get(&id).ok_or_else(|| no_service(id))?;
        let counted =
            |all: &BTreeMap<u16, Counts>, number| all.get(&number).copied().unwrap_or_default();
        let number = entry.number;
        self.zeroed.services.insert(number, counted(&figures.services, number));
        for Numbered { number, .. } in entry.servers.values() {
            self.zeroed.servers.insert(*number, counted(&figures.servers, *number));
        }
        Ok(())
    }

    fn list(&self, id: Option<ServiceId>, view: View, seen: Seen) -> Result<String, String> {
        if let Some(id) = id
            && !self.entries.contains_key(&id)
        {
            return Err(no_service(id));
        }
        if view.json {
            let mut listed = self.listed(seen);
            listed.retain(|service| id.is_none_or(|id| service.id() == id));
            let text = serde_json::to_string(&listed);
            return text.map(|text| text + "\n").map_err(|error| error.to_string());
        }
        Ok(text::list(self, id, view, &self.since_zeroed(seen)))
    }

    /// All services, with what was counted since it was zeroed.
    pub fn listed(&self, seen: Seen) -> Vec<ListedService> {
        let seen = self.since_zeroed(seen);
        let entries = self.entries.iter();
        entries.map(|(id, entry)| ListedService::of(*id, entry, &seen)).collect()
    }

    fn since_zeroed(&self, Seen { figures, local }: Seen) -> Seen {
        let since = |now: &BTreeMap<u16, Counts>, then: &BTreeMap<u16, Counts>| {
            let counted = now.iter().map(|(number, counts)| {
                (*number, counts.since(then.get(number).copied().unwrap_or_default()))
            });
            counted.collect()
        };
        let figures = Figures {
            services: since(&figures.services, &self.zeroed.services),
            servers: since(&figures.servers, &self.zeroed.servers),
        };
        Seen { figures, local }
    }
}

fn no_service(id: ServiceId) -> String {
    let protocol = id.protocol.name();
    format!("there is no service {protocol} {id}: narrows balance add {}", id.option())
}

fn no_server(id: ServiceId, server: ServerId) -> String {
    format!("{server} is no server of {id}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Nanos = Nanos::from_secs(1);

    fn run(services: &mut Services, line: &str) -> Reply {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        services.run(&words, &Seen::default, NOW)
    }

    fn done(services: &mut Services, line: &str) -> String {
        let reply = run(services, line);
        assert_eq!(reply.code, 0, "{line}: {}", reply.stderr);
        reply.stdout
    }

    fn with_servers(count: u8) -> Services {
        let mut services = Services::default();
        let server = |number| format!("-a -t 192.0.2.1:80 -r 10.0.0.{number} -i\n");
        let text: String = (1..=count).map(server).collect();
        services.restore(&format!("-A -t 192.0.2.1:80 -s mh\n{text}"), NOW).unwrap();
        services
    }

    fn ring(services: &Services) -> &Ring {
        services.iter().next().unwrap().3
    }

    #[test]
    fn a_saved_text_makes_the_same_services() {
        let text = "\
-A -t 192.0.2.1:80 -s mh -p 600 -M 255.255.255.0 -b mh-port
-a -t 192.0.2.1:80 -r 10.0.0.1:80 -i -w 1 --tun-type ipip
-a -t 192.0.2.1:80 -r 10.0.0.2:80 -i -w 0 --tun-type gue --tun-port 6080 --tun-nocsum
-A -t [2001:db8::1]:0 -s wrr -p 360
-a -t [2001:db8::1]:0 -r [2001:db8::2]:0 -g -w 3
-A -u 192.0.2.1:53 -s rr -o
-A -u 192.0.2.1:443 -s mh --quic lb:4
-a -u 192.0.2.1:443 -r 10.0.0.1:443 -g -w 1 --quic-id 0x2a
-a -u 192.0.2.1:443 -r 10.0.0.2:443 -i -w 1 --tun-type ipip
";
        let mut services = Services::default();
        services.restore(text, NOW).unwrap();
        assert_eq!(done(&mut services, "save"), text);
        let before = services.clone();
        services.restore(text, NOW).unwrap();
        assert_eq!(services.entries, before.entries, "nothing is new");
    }

    #[test]
    fn a_text_may_begin_with_the_mark_of_an_editor_and_end_lines_as_it_does() {
        let mut services = Services::default();
        services.restore("\u{feff}-A -t 192.0.2.1:80 -s rr\r\n\r\n", NOW).unwrap();
        assert_eq!(done(&mut services, "save"), "-A -t 192.0.2.1:80 -s rr\n");
    }

    #[test]
    fn a_text_with_a_wrong_line_changes_nothing() {
        let mut services = with_servers(2);
        let before = services.entries.clone();
        let text = "-A -t 192.0.2.9:80 -s mh\n-a -t 192.0.2.9:80 -r 10.0.0.1 -m\n";
        let why = services.restore(text, NOW).unwrap_err();
        assert!(why.starts_with("line 2: ") && why.contains("-m"), "{why}");
        assert!(services.restore("-L", NOW).unwrap_err().contains("only -A and -a"));
        assert_eq!(services.entries, before);
    }

    #[test]
    fn a_server_that_drains_keeps_what_it_has_and_gets_nothing_new() {
        let mut services = with_servers(3);
        let all = ring(&services).clone();
        done(&mut services, "edit -t 192.0.2.1:80 -r 10.0.0.2 -w 0");
        let draining = ring(&services);
        for (before, now) in all.slots().iter().zip(draining.slots()) {
            assert_ne!(now.now, 2);
            assert_eq!(now.before, before.now);
            assert_eq!(now.records, now.now != now.before);
        }
        let Forward::Tunnel(_) =
            services.servers(services.iter().next().unwrap().0).nth(1).unwrap().1.server.forward
        else {
            panic!("an edit changes only what it says")
        };
        done(&mut services, "del -t 192.0.2.1:80 -r 10.0.0.2");
        assert!(ring(&services).slots().iter().all(|slot| slot.now != 2 && slot.before != 2));
        done(&mut services, "add -t 192.0.2.1:80 -r 10.0.0.2 -i");
        let again: Vec<u16> = ring(&services).slots().iter().map(|slot| slot.now).collect();
        assert!(all.slots().iter().map(|slot| slot.now).eq(again), "and has its number again");
    }

    #[test]
    fn a_server_that_is_down_is_as_if_removed_but_keeps_its_place() {
        let (mut down, mut removed) = (with_servers(3), with_servers(3));
        let all = ring(&down).clone();
        done(&mut down, "edit -t 192.0.2.1:80 -r 10.0.0.2 --down");
        done(&mut removed, "del -t 192.0.2.1:80 -r 10.0.0.2");
        assert_eq!(ring(&down), ring(&removed));
        let list = done(&mut down, "list");
        let line = list.lines().find(|line| line.contains("10.0.0.2")).unwrap();
        assert!(line.ends_with(" down"), "{list}");
        assert!(done(&mut down, "list -j").contains("\"health\":\"down\""));
        // Other changes leave it down, also a file, which does not say who is down.
        done(&mut down, "edit -t 192.0.2.1:80 -r 10.0.0.2 -w 4");
        down.restore(&down.save(), NOW).unwrap();
        assert_eq!(Services::resume(down.state()).unwrap().entries, down.entries);
        assert_eq!(ring(&down), ring(&removed));
        done(&mut down, "edit -t 192.0.2.1:80 -r 10.0.0.2 -w 1 --up");
        let now = |ring: &Ring| ring.slots().iter().map(|slot| slot.now).collect::<Vec<_>>();
        assert_eq!(now(ring(&down)), now(&all));
        assert_eq!(run(&mut down, "add -t 192.0.2.1:80 -r 10.0.0.9 --down").code, 2);
        // The last one that is up may fail, too: it is said, and changes nothing.
        let before = ring(&down).clone();
        down.set_health(&[(service(), server(2), Health::Last)], NOW);
        assert!(done(&mut down, "list").contains("FAILS, and is up as the last"));
        assert_eq!(*ring(&down), before);
        assert_eq!(Services::resume(down.state()).unwrap().entries, down.entries);
    }

    fn service() -> ServiceId {
        ServiceId::read(crate::Protocol::Tcp, "192.0.2.1:80").unwrap()
    }

    fn server(number: u8) -> ServerId {
        ServerId { address: [10, 0, 0, number].into() }
    }

    #[test]
    fn health_of_many_servers_is_taken_in_at_once_and_of_none_that_is_gone() {
        let (mut one_by_one, mut at_once) = (with_servers(4), with_servers(4));
        done(&mut one_by_one, "edit -t 192.0.2.1:80 -r 10.0.0.2 --down");
        one_by_one.set_health(&[(service(), server(3), Health::Last)], NOW);
        let gone = ServiceId { port: 81, ..service() };
        let said = [
            (service(), server(2), Health::Down),
            (service(), server(3), Health::Last),
            (service(), server(99), Health::Down),
            (gone, server(1), Health::Down),
        ];
        at_once.set_health(&said, NOW);
        assert_eq!(at_once.entries, one_by_one.entries);
        let version = at_once.version();
        at_once.set_health(&said, NOW);
        assert_eq!(at_once.version(), version, "nothing new");
    }

    #[test]
    fn slots_that_have_moved_settle_after_a_while() {
        let mut services = with_servers(2);
        assert_eq!(services.settles_at(), None, "a file makes a ring at once");
        done(&mut services, "add -t 192.0.2.1:80 -r 10.0.0.3");
        let due = services.settles_at().unwrap();
        assert!(!services.settle(due - Nanos(1)) && ring(&services).has_moved());
        let version = services.version();
        assert!(services.settle(due) && !ring(&services).has_moved());
        assert!(services.version() > version && services.settles_at().is_none());
        assert!(ring(&services).slots().iter().any(|slot| slot.records), "records still count");
    }

    #[test]
    fn without_a_server_for_new_connections_old_ones_stay() {
        let mut services = with_servers(1);
        done(&mut services, "edit -t 192.0.2.1:80 -r 10.0.0.1 -w 0");
        assert!(ring(&services).slots().iter().all(|slot| (slot.now, slot.before) == (0, 1)));
    }

    #[test]
    fn what_does_not_exist_is_said_with_what_to_type() {
        let mut services = with_servers(1);
        for (line, code, why) in [
            ("add -t 192.0.2.1:80", 1, "exists already"),
            ("add -t 192.0.2.1:80 -r 10.0.0.1", 1, "a server of 192.0.2.1:80 already"),
            ("edit -u 192.0.2.1:80 -s rr", 1, "narrows balance add -u 192.0.2.1:80"),
            ("del -t 192.0.2.1:80 -r 10.0.0.9", 1, "no server of"),
            ("edit -t 192.0.2.1:80 -b sh-port", 1, "has no flag"),
            ("lst", 2, "narrows balance help"),
        ] {
            let before = services.entries.clone();
            let reply = run(&mut services, line);
            assert!(reply.code == code && reply.stderr.contains(why), "{line}: {reply:?}");
            assert_eq!(services.entries, before, "{line}");
        }
    }

    #[test]
    fn a_quic_id_is_one_servers_and_fits_the_format_of_its_service() {
        let mut services = Services::default();
        let service = "-u 192.0.2.1:443";
        for (line, why) in [
            (format!("add {service} -s mh"), None),
            (format!("add {service} -r 10.0.0.1 --quic-id 1"), Some("--quic FORMAT")),
            (format!("edit {service} --quic lb:1"), None),
            (format!("add {service} -r 10.0.0.1 --quic-id 256"), Some("0 to 0xff")),
            (format!("add {service} -r 10.0.0.1 --quic-id 0"), None),
            (format!("add {service} -r 10.0.0.2 --quic-id 0"), Some("10.0.0.1's already")),
            (format!("add {service} -r 10.0.0.2 --quic-id 1"), None),
            (format!("edit {service} -r 10.0.0.2 --quic-id 0"), Some("10.0.0.1's already")),
            (format!("edit {service} --quic katran"), Some("10.0.0.1: --quic-id 0x0 does not fit")),
            (format!("edit {service} -r 10.0.0.1 --quic-id none"), None),
            (format!("edit {service} --quic katran"), None),
            (format!("edit {service} -r 10.0.0.1 --quic-id 0xffffffff"), None),
            (format!("edit {service} --quic none"), None),
        ] {
            let (before, version) = (services.save(), services.version());
            let reply = run(&mut services, &line);
            match why {
                None => assert_eq!(reply.code, 0, "{line}: {}", reply.stderr),
                Some(why) => {
                    assert!(reply.code == 1 && reply.stderr.contains(why), "{line}: {reply:?}");
                    assert_eq!((services.save(), services.version()), (before, version), "{line}");
                }
            }
        }
        assert!(!services.save().contains("quic"), "servers have no ids without a format");
    }

    #[test]
    fn zeroed_counters_begin_at_zero() {
        let mut services = with_servers(1);
        let counts = Counts { connections: 5, packets: 60, bytes: 7_000 };
        let figures = Figures { services: [(0, counts)].into(), servers: [(1, counts)].into() };
        let seen = Seen { figures, ..Seen::default() };
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let shown = services.run(&words("list --stats"), &|| seen.clone(), NOW).stdout;
        assert!(shown.contains("7000"), "{shown}");
        services.run(&words("zero"), &|| seen.clone(), NOW);
        let shown = services.run(&words("list --stats"), &|| seen.clone(), NOW).stdout;
        assert!(!shown.contains("7000"), "{shown}");
    }

    #[test]
    fn another_process_goes_on_with_the_same_numbers_and_slots() {
        let mut services = with_servers(5);
        for line in [
            "edit -t 192.0.2.1:80 -r 10.0.0.2 -w 0",
            "del -t 192.0.2.1:80 -r 10.0.0.1",
            "add -t 192.0.2.1:80 -r 10.0.0.9",
            "add -u 192.0.2.1:53 -s rr",
            "add -t 192.0.2.1:81",
            "add -t 192.0.2.1:81 -r 10.0.0.1",
            "edit -t 192.0.2.1:81 -r 10.0.0.1 -w 0",
        ] {
            done(&mut services, line);
        }
        let mut again = Services::resume(services.state()).unwrap();
        assert_eq!(again.state(), services.state());
        assert_eq!(again.entries, services.entries);
        done(&mut again, "add -t 192.0.2.1:80 -r 10.0.0.1");
        let numbers = |services: &Services| {
            let servers = services.servers(services.iter().next().unwrap().0);
            servers.map(|(_, server)| server.number).collect::<Vec<_>>()
        };
        assert!(numbers(&again).contains(&1), "the one that was gone has its number again");
    }

    #[test]
    fn a_state_whose_numbers_do_not_fit_is_refused() {
        let state = with_servers(2).state();
        let with = |change: fn(&mut ServicesState)| {
            let mut state = state.clone();
            change(&mut state);
            Services::resume(state)
        };
        assert!(with(|_| ()).is_ok());
        assert!(with(|state| state.servers[0].2 = 2).is_err(), "of another server");
        assert!(with(|state| state.servers[0].2 = 0).is_err());
        assert!(with(|state| state.numbers[0].1 = u16::MAX).is_err());
        assert!(with(|state| state.text.clear()).is_err());
        assert!(with(|state| state.rings.clear()).is_err());
        let nobody = ServerId { address: "10.0.0.9".parse().unwrap() };
        assert!(state.servers.iter().all(|(_, server, _)| *server != nobody));
        let mut down = state.clone();
        down.health.push((state.servers[0].0, nobody, Health::Down));
        assert!(Services::resume(down).is_err());
    }

    /// Some words of a command, right and wrong.
    fn line() -> impl Strategy<Value = String> {
        let verb = prop::sample::select(vec!["add", "add", "edit", "edit", "del"]);
        let service = prop::sample::select(vec![
            "-t 192.0.2.1:80",
            "-t 192.0.2.1:0",
            "-u 192.0.2.1:443",
            "-u [2001:db8::1]:443",
        ]);
        let words = prop::sample::select(vec![
            "-s mh",
            "-s sh",
            "-s rr",
            "-s wrr",
            "-b mh-port",
            "-b sh-fallback,sh-port",
            "-b mh-fallback",
            "-p",
            "-p 5",
            "-M 24",
            "-M 255.255.0.0",
            "-o",
            "--quic lb:4",
            "--quic katran",
            "--quic none",
            "-r 10.0.0.1",
            "-r 10.0.0.2",
            "-r 2001:db8::2",
            "-g",
            "-i",
            "-w 0",
            "-w 7",
            "--tun-type gue",
            "--tun-port 7",
            "--down",
            "--up",
            "--quic-id 0x2a",
            "--quic-id 7",
            "--quic-id none",
        ]);
        (verb, service, prop::collection::vec(words, 0..4))
            .prop_map(|(verb, service, words)| format!("{verb} {service} {}", words.join(" ")))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn whatever_was_said_is_saved_and_read_back(lines in prop::collection::vec(line(), 1..40)) {
            let mut services = Services::default();
            for line in &lines {
                run(&mut services, line);
            }
            let text = done(&mut services, "save");
            let mut again = Services::default();
            let read = again.restore(&text, NOW);
            prop_assert!(read.is_ok(), "{}{:?}", text, read);
            prop_assert_eq!(done(&mut again, "save"), text);
            let settings = |services: &Services| -> Vec<Service> {
                services.entries.values().map(|entry| entry.service.clone()).collect()
            };
            prop_assert_eq!(settings(&again), settings(&services));
        }
    }

    proptest! {
        #[test]
        fn numbers_are_of_one_server_each(acts in prop::collection::vec((0u8..3, 1u8..20), 1..80)) {
            let mut services = Services::default();
            done(&mut services, "add -t 192.0.2.1:80 -s rr");
            for (act, server) in acts {
                match act {
                    0 => run(&mut services, &format!("del -t 192.0.2.1:80 -r 10.0.0.{server}")),
                    _ => run(&mut services, &format!("add -t 192.0.2.1:80 -r 10.0.0.{server}")),
                };
                let entry = services.entries.values().next().unwrap();
                let mut numbers: Vec<u16> =
                    entry.servers.values().map(|server| server.number).collect();
                numbers.sort_unstable();
                numbers.dedup();
                prop_assert_eq!(numbers.len(), entry.servers.len());
                prop_assert!(numbers.iter().all(|number| (1..=SERVERS_MAX as u16).contains(number)));
                prop_assert_eq!(entry.ring.slots().len(), entry.servers.len());
            }
        }
    }
}
