//! The loop: probes come in, what is down goes to the instance.
//!
//! A task for each server asks it at the interval of its check and reports the result. One thread
//! runs all of them, and a second one the requests to the instance, one after the other, since an
//! instance may be slow or silent. Each second, and whenever something is to be told, it is told
//! and asked for its services. What is to be told is the difference between what it lists and what
//! is known, so that nothing depends on an earlier request, or on the process that answered it.

use crate::HealthError;
use crate::check::Check;
use crate::config::{Config, named};
use crate::instance::{self, Edit, Listed};
use crate::network::{Known, Network};
use crate::probe::{Outcome, ask};
use crate::rise_fall::{Member, Servers};
use crate::task::Task;
use crate::way::Lookout;
use narrows_balance::{Health, ServerId, ServiceId};
use narrows_control::Client;
use narrows_link::LinkError;
use narrows_units::counted;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};

/// How often the instance is asked for its services.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// Results that wait to be read; more wait in their tasks.
const RESULTS: usize = 1024;
/// 2⁶⁴ over the golden ratio: multiples of it, modulo 2⁶⁴, are spread evenly however many there
/// are.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// What the loop waits for.
enum Event {
    /// A server was asked.
    Result(ServiceId, IpAddr, Outcome),
    /// The instance was told something, and asked.
    Said(Result<Said, String>),
}

/// What the instance says.
struct Said {
    /// What it refuses of what it was told.
    refused: Vec<String>,
    listed: Listed,
    /// What the kernel says of the network.
    known: Result<Known, LinkError>,
}

/// What finds the instance.
type Find = dyn Fn() -> Result<Client, String> + Send + Sync;

/// Checks the servers of the instance that `find` finds, until the process ends.
///
/// # Errors
/// If it cannot start.
pub fn run<F>(config: Config, find: F) -> Result<(), HealthError>
where
    F: Fn() -> Result<Client, String> + Send + Sync + 'static,
{
    take_descriptors();
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_io().enable_time().max_blocking_threads(1);
    let runtime = runtime.build().map_err(HealthError::Start)?;
    runtime.block_on(watch(config, Arc::new(find)));
    Ok(())
}

/// Each probe under way takes a descriptor: as many as this process may have.
pub(crate) fn take_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let most = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        log::warn!("cannot raise the number of descriptors: {error}");
    }
}

async fn watch(config: Config, find: Arc<Find>) {
    let (events, mut next) = channel(RESULTS);
    let lookout = Arc::new(Mutex::new(Lookout::default()));
    let mut monitor = Monitor::new(config, events.clone(), Network::open());
    let mut due = Instant::now();
    let mut is_asking = false;
    loop {
        if !is_asking && Instant::now() >= due {
            is_asking = true;
            due = Instant::now() + LIST_EVERY;
            let (find, events, edits) = (Arc::clone(&find), events.clone(), monitor.edits());
            let lookout = Arc::clone(&lookout);
            tokio::task::spawn_blocking(move || {
                let mut lookout = lookout.lock().unwrap_or_else(PoisonError::into_inner);
                let said = talk(&*find, &edits, &mut lookout);
                let _ = events.blocking_send(Event::Said(said));
            });
        }
        let event = match is_asking {
            true => next.recv().await,
            false => timeout_at(due, next.recv()).await.unwrap_or(None),
        };
        match event {
            Some(Event::Result(service, server, outcome)) => {
                let has_changed = monitor.learn(service, server, outcome);
                // It is told at once, unless the instance does not take it.
                if has_changed && monitor.is_reached() {
                    due = Instant::now();
                }
            }
            Some(Event::Said(said)) => {
                is_asking = false;
                if monitor.follow(said) {
                    due = Instant::now();
                }
            }
            // The time has come.
            None => {}
        }
    }
}

/// Tells the instance of `edits`, and asks for its services then, and the kernel for the ways to
/// their servers.
fn talk(find: &Find, edits: &[Edit], lookout: &mut Lookout) -> Result<Said, String> {
    let client = find()?;
    let refused = instance::tell(&client, edits)?;
    let services = instance::services(&client)?;
    let known = lookout.know(&client, &services);
    Ok(Said { refused, listed: instance::listed(&services), known })
}

/// What is known of all services.
struct Monitor {
    config: Config,
    events: Sender<Event>,
    network: Arc<Network>,
    services: BTreeMap<ServiceId, Watched>,
    /// Services that are not checked, which was said.
    unchecked: BTreeSet<ServiceId>,
    /// What the instance says.
    listed: Listed,
    /// Why it does not answer, or what it refuses, as last said. None before the first answer.
    trouble: Option<Option<String>>,
    /// Whether the instance has said which services it has.
    has_begun: bool,
    /// How many servers were begun with.
    begun: u64,
}

/// A service whose servers are checked.
struct Watched {
    check: Check,
    servers: Servers,
    /// What was said of each.
    said: BTreeMap<IpAddr, Health>,
    /// The latest result of each that was not good.
    why: BTreeMap<IpAddr, Outcome>,
    probing: BTreeMap<IpAddr, Task>,
}

impl Monitor {
    fn new(config: Config, events: Sender<Event>, network: Network) -> Self {
        Self {
            config,
            events,
            network: Arc::new(network),
            services: BTreeMap::new(),
            unchecked: BTreeSet::new(),
            listed: BTreeMap::new(),
            trouble: None,
            has_begun: false,
            begun: 0,
        }
    }

    /// Whether the instance took what it was told last.
    fn is_reached(&self) -> bool {
        self.trouble == Some(None)
    }

    /// Takes a result in. Whether it changes what the instance has to be told.
    fn learn(&mut self, service: ServiceId, server: IpAddr, outcome: Outcome) -> bool {
        let Some(watched) = self.services.get_mut(&service) else { return false };
        match &outcome {
            Outcome::Passed => watched.servers.record(server, true),
            Outcome::Failed(_) => watched.servers.record(server, false),
            Outcome::NotAsked(why) => {
                if watched.why.get(&server) != Some(&outcome) {
                    log::warn!("{}: cannot check {server}: {why}", named(service));
                }
            }
        }
        if outcome != Outcome::Passed {
            watched.why.insert(server, outcome);
        }
        watched.say(service)
    }

    /// What the instance has to be told, in the order of services.
    fn edits(&self) -> Vec<Edit> {
        let all = self.services.iter().flat_map(|(service, watched)| {
            let listed = self.listed.get(service);
            watched.servers.health().filter_map(move |(server, health)| {
                let differs = listed?.get(&server)?.health != health;
                differs.then_some((*service, ServerId { address: server }, health))
            })
        });
        all.collect()
    }

    /// Follows what the instance says. Whether it has to be told something at once.
    fn follow(&mut self, said: Result<Said, String>) -> bool {
        let (trouble, listed) = match said {
            Ok(Said { refused, listed, known }) => {
                let mut trouble = refused.into_iter().next();
                match known {
                    Ok(known) => self.network.follow(known),
                    // What was known before is still believed.
                    Err(error) => trouble = trouble.or(Some(error.to_string())),
                }
                (trouble, Some(listed))
            }
            Err(why) => (Some(why), None),
        };
        let is_first = self.trouble.is_none();
        if self.trouble.as_ref() != Some(&trouble) {
            match &trouble {
                Some(why) => log::warn!("{why}"),
                None if is_first => {}
                None => log::info!("the instance answers"),
            }
        }
        let is_well = trouble.is_none();
        self.trouble = Some(trouble);
        let Some(listed) = listed else { return false };
        self.listed = listed;
        self.follow_services();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.say_begin();
        }
        is_well && !self.edits().is_empty()
    }

    /// Has the services and servers that are listed.
    fn follow_services(&mut self) {
        self.services.retain(|service, _| self.listed.contains_key(service));
        self.unchecked.retain(|service| self.listed.contains_key(service));
        for (service, members) in &self.listed {
            if !self.services.contains_key(service) {
                match self.config.check(*service) {
                    Ok(check) => drop(self.services.insert(*service, Watched::new(check))),
                    Err(why) => {
                        if self.unchecked.insert(*service) {
                            log::warn!("{} is not checked: {why}", named(*service));
                        }
                    }
                }
            }
            let Some(watched) = self.services.get_mut(service) else { continue };
            watched.follow(*service, members, (&self.events, &self.network), &mut self.begun);
        }
    }

    /// Says what is checked, and which services of the file the instance does not have.
    fn say_begin(&self) {
        let servers: usize = self.services.values().map(|service| service.probing.len()).sum();
        let services = counted(self.services.len(), "service");
        log::info!("checking {} of {services}", counted(servers, "server"));
        let unknown = self.config.services();
        for service in unknown.filter(|service| !self.listed.contains_key(service)) {
            log::warn!("the file has {}, which is no service (yet)", named(service));
        }
    }
}

impl Watched {
    const fn new(check: Check) -> Self {
        Self {
            servers: Servers::new(check.thresholds),
            check,
            said: BTreeMap::new(),
            why: BTreeMap::new(),
            probing: BTreeMap::new(),
        }
    }

    /// Has the servers `members`, and asks new ones from some time within an interval on.
    fn follow(
        &mut self,
        service: ServiceId,
        members: &BTreeMap<IpAddr, Member>,
        (events, network): (&Sender<Event>, &Arc<Network>),
        begun: &mut u64,
    ) {
        self.servers.follow(members);
        self.probing.retain(|server, _| members.contains_key(server));
        self.why.retain(|server, _| members.contains_key(server));
        self.said.retain(|server, _| members.contains_key(server));
        for (server, member) in members {
            if self.probing.contains_key(server) {
                continue;
            }
            // What it begins with is known.
            self.said.insert(*server, member.health);
            let first = Instant::now() + spread(self.check.interval, *begun);
            *begun += 1;
            let (check, network) = (self.check.clone(), Arc::clone(network));
            let probes = probe((service, *server), check, first, events.clone(), network);
            self.probing.insert(*server, Task::spawn(probes));
        }
        self.say(service);
    }

    /// Says what has changed. Whether something has.
    fn say(&mut self, service: ServiceId) -> bool {
        let mut has_changed = false;
        let now: Vec<(IpAddr, Health)> = self.servers.health().collect();
        for (server, health) in now {
            let before = self.said.insert(server, health);
            if before == Some(health) {
                continue;
            }
            has_changed = true;
            let why = match self.why.get(&server) {
                Some(Outcome::Failed(why)) => format!(": {why}"),
                _ => String::new(),
            };
            let (service, fall) = (named(service), self.check.thresholds.fall);
            match (before, health) {
                (_, Health::Last) => log::error!(
                    "{service}: ALL SERVERS FAIL. {server} failed last and stays up, so that \
                     connections go somewhere{why}"
                ),
                (Some(Health::Last), Health::Down) => {
                    log::warn!("{service}: {server} is down: another server is up again");
                }
                (_, Health::Down) => {
                    log::warn!("{service}: {server} is down: {fall} checks failed in a row{why}");
                }
                (_, Health::Up) => log::info!("{service}: {server} is up"),
            }
        }
        has_changed
    }
}

/// How long the server that was begun with as number `begun` waits for its first probe.
fn spread(interval: Duration, begun: u64) -> Duration {
    let part = u128::from(begun.wrapping_mul(GOLDEN));
    let nanos = (interval.as_nanos() * part) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Asks `server` from `first` on, at the interval of `check`, and reports what came of it.
async fn probe(
    (service, server): (ServiceId, IpAddr),
    check: Check,
    first: Instant,
    events: Sender<Event>,
    network: Arc<Network>,
) {
    let mut ticks = interval_at(first, check.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let outcome = ask(&check, network.to(&check, service, server)).await;
        if events.send(Event::Result(service, server, outcome)).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::DEFAULT;
    use Health::{Down, Last, Up};
    use tokio::sync::mpsc::Receiver;

    const SERVICE: &str = "192.0.2.1:80";

    fn service() -> ServiceId {
        ServiceId::read(narrows_balance::Protocol::Tcp, SERVICE).unwrap()
    }

    fn server(number: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, number])
    }

    fn listed(servers: &[(u8, Health)]) -> Listed {
        let member = |(number, health): &(u8, Health)| {
            (server(*number), Member { weight: 1, health: *health })
        };
        let members = servers.iter().map(member);
        [(service(), members.collect())].into()
    }

    fn said(listed: Listed) -> Result<Said, String> {
        Ok(Said { refused: Vec::new(), listed, known: Ok(Known::default()) })
    }

    /// Runs `test` with a monitor whose servers are never really asked.
    fn with_monitor(test: impl FnOnce(&mut Monitor)) {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (events, _results): (_, Receiver<Event>) = channel(1);
            let network = Network::new(Err("no answers in tests".into()));
            test(&mut Monitor::new(Config::default(), events, network));
        });
    }

    fn fail(monitor: &mut Monitor, number: u8) {
        for _ in 0..DEFAULT.thresholds.fall {
            monitor.learn(service(), server(number), Outcome::Failed("refused".into()));
        }
    }

    fn edits(monitor: &Monitor) -> Vec<(u8, Health)> {
        let last = |server| match server {
            IpAddr::V4(server) => server.octets()[3],
            IpAddr::V6(_) => panic!("IPv6"),
        };
        let edits = monitor.edits().into_iter();
        edits.map(|(_, server, health)| (last(server.address), health)).collect()
    }

    #[test]
    fn what_is_known_is_told_again_to_an_instance_that_has_forgotten_it() {
        with_monitor(|monitor| {
            assert!(!monitor.follow(said(listed(&[(1, Up), (2, Up)]))), "nothing is known");
            fail(monitor, 1);
            assert_eq!(edits(monitor), [(1, Down)]);
            assert!(!monitor.follow(said(listed(&[(1, Down), (2, Up)]))));
            assert_eq!(edits(monitor), []);
            assert!(!monitor.follow(Err("no instance".into())));
            assert!(monitor.follow(said(listed(&[(1, Up), (2, Up)]))), "it was restarted");
            assert_eq!(edits(monitor), [(1, Down)]);
        });
    }

    #[test]
    fn the_last_server_goes_down_when_another_comes_up() {
        with_monitor(|monitor| {
            monitor.follow(said(listed(&[(1, Up), (2, Up)])));
            fail(monitor, 2);
            fail(monitor, 1);
            assert_eq!(edits(monitor), [(1, Last), (2, Down)], "the last one stays");
            monitor.follow(said(listed(&[(1, Last), (2, Down)])));
            for _ in 0..DEFAULT.thresholds.rise {
                monitor.learn(service(), server(2), Outcome::Passed);
            }
            assert_eq!(edits(monitor), [(1, Down), (2, Up)]);
        });
    }

    #[test]
    fn what_was_down_at_the_start_stays_down_until_it_passes() {
        with_monitor(|monitor| {
            monitor.follow(said(listed(&[(1, Down), (2, Up)])));
            assert_eq!(edits(monitor), []);
            assert!(!monitor.learn(service(), server(1), Outcome::Passed));
            assert!(monitor.learn(service(), server(1), Outcome::Passed));
            assert_eq!(edits(monitor), [(1, Up)]);
        });
    }

    #[test]
    fn a_fault_of_this_machine_takes_no_server_out() {
        with_monitor(|monitor| {
            monitor.follow(said(listed(&[(1, Up), (2, Up)])));
            for _ in 0..100 {
                monitor.learn(service(), server(1), Outcome::NotAsked("no descriptors".into()));
            }
            assert_eq!(edits(monitor), []);
        });
    }

    #[test]
    fn a_service_that_goes_is_forgotten_and_a_refusal_is_not_repeated_at_once() {
        with_monitor(|monitor| {
            monitor.follow(said(listed(&[(1, Up), (2, Up)])));
            fail(monitor, 1);
            let refused = vec!["no".to_owned()];
            let listed_now = listed(&[(1, Up), (2, Up)]);
            assert!(!monitor.follow(Ok(Said {
                refused,
                listed: listed_now,
                known: Ok(Known::default())
            })));
            assert!(!monitor.is_reached());
            monitor.follow(said(Listed::new()));
            assert!(!monitor.learn(service(), server(2), Outcome::Failed("late".into())));
            assert!(monitor.services.is_empty());
            assert!(!monitor.follow(said(listed(&[(1, Up), (2, Up)]))), "it begins anew");
        });
    }

    #[test]
    fn first_probes_are_spread_over_the_interval() {
        let second = Duration::from_secs(1);
        let mut starts: Vec<Duration> = (0..500).map(|begun| spread(second, begun)).collect();
        starts.sort();
        let gaps = starts.windows(2).map(|two| two[1] - two[0]);
        let widest = gaps.max().unwrap();
        assert!(widest < second / 250 && starts[499] < second, "{widest:?}");
    }
}
