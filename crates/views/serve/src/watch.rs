//! What is done with each snapshot besides showing it: the history, the alarms, and scores.
//!
//! The thread that queries the instance calls [`Watch::see`]; answers and metrics read from another
//! thread. Nothing here waits for a disk or a network: the history is written, and alarms are
//! delivered, by threads of their own.

use crate::{Options, ServeError};
use narrows_alarms::{Alarm, Alarms, Courier, Facts, File, Outbox, Subject, SubjectFacts};
use narrows_history::{Closed, History, Key, Kind, Summary};
use narrows_quality::{Application, Direction, Evidence, Latency, Measured, Score, score};
use narrows_snapshot::{Change, Class, Port, Snapshot};
use narrows_units::Nanos;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The time of which scores are, in the metrics.
const SCORED: Duration = Duration::from_secs(300);
/// How often alarms are looked at while the instance does not answer.
const LOOK: Duration = Duration::from_secs(10);

/// The history and the alarms. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// Without a file, only what alarms need.
    history: History,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    began: Instant,
    was: Option<Arc<Snapshot>>,
    alarms: Option<Watchdog>,
    /// What each direction of a subscriber did since scores were made.
    window: HashMap<Key, Summary>,
    scored: Instant,
    scores: BTreeMap<String, Vec<Score>>,
}

/// The alarms in force.
#[derive(Debug)]
struct Watchdog {
    path: PathBuf,
    written: Option<SystemTime>,
    alarms: Alarms,
    outbox: Outbox,
    courier: Courier,
    bypassed: Option<u64>,
    looked: Instant,
}

impl Watch {
    /// As the options say; none if they say nothing.
    pub(crate) fn start(options: &Options) -> Result<Option<Self>, ServeError> {
        if options.history.is_none() && options.alarms.is_none() {
            return Ok(None);
        }
        let history = History::start(&narrows_history::Options {
            file: options.history.clone(),
            interval_s: options.interval.as_secs().max(1),
            directions_max: options.history_max,
        })?;
        let now = Instant::now();
        let alarms = options.alarms.clone().map(|path| Watchdog::read(path, now)).transpose()?;
        let state = State {
            began: now,
            was: None,
            alarms,
            window: HashMap::new(),
            scored: now,
            scores: BTreeMap::new(),
        };
        Ok(Some(Self { history, state: Arc::new(Mutex::new(state)) }))
    }

    /// Takes a snapshot, or that there is none, at `time` in seconds since 1970.
    pub(crate) fn see(&self, snapshot: Option<&Arc<Snapshot>>, time: u64, now: Instant) {
        let mut state = self.state();
        let closed = match (snapshot, &state.was) {
            (Some(is), Some(was)) => match Change::between(was, is) {
                Some(change) => self.history.record(is, &change, time),
                None => Vec::new(),
            },
            (Some(_), None) => Vec::new(),
            (None, _) => {
                self.history.pass(time);
                Vec::new()
            }
        };
        state.was = snapshot.cloned();
        state.score(&closed, now);
        let since = now.saturating_duration_since(state.began);
        let uptime = Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        let State { alarms: Some(watchdog), was, .. } = &mut *state else { return };
        watchdog.look(was.as_deref(), closed, (now, uptime, time));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The history, if there is a file for it.
    pub(crate) fn history(&self) -> Option<&History> {
        Some(&self.history).filter(|history| history.has_file())
    }

    /// How many directions have had no room in the history.
    pub(crate) fn left_out(&self) -> usize {
        self.history.left_out()
    }

    /// The texts of the rules, all alarms, and how many had no room; none without a file of alarms.
    pub(crate) fn alarms(&self) -> Option<(Vec<String>, Vec<Alarm>, u64)> {
        let state = self.state();
        let alarms = &state.alarms.as_ref()?.alarms;
        let rules = alarms.rules().iter().map(|rule| rule.text.clone()).collect();
        Some((rules, alarms.all().cloned().collect(), alarms.left_out()))
    }

    /// The scores of the subscribers in the last complete window.
    pub(crate) fn scores(&self) -> BTreeMap<String, Vec<Score>> {
        self.state().scores.clone()
    }

    /// The rate that a direction may have now, in bits per second.
    pub(crate) fn ceiling(&self, key: &Key) -> Option<u64> {
        ceiling_of(self.state().was.as_deref()?, key)
    }
}

impl State {
    /// Adds what subscribers did, and makes scores when a window is over.
    fn score(&mut self, closed: &[(Key, Closed)], now: Instant) {
        for (key, closed) in closed {
            if key.kind == Kind::Subscriber {
                self.window.entry(key.clone()).or_default().merge(&closed.summary);
            }
        }
        if now.saturating_duration_since(self.scored) < SCORED {
            return;
        }
        self.scored = now;
        let mut lines: BTreeMap<String, Evidence> = BTreeMap::new();
        let ceilings = self.was.as_deref().map(ceilings).unwrap_or_default();
        for (key, summary) in self.window.drain() {
            let line = lines.entry(key.subject()).or_default();
            let slowest = [line.rate_bps, ceilings.get(&key).copied()];
            line.rate_bps = slowest.into_iter().flatten().min();
            line.directions.push(direction(&key.port, &summary));
        }
        let scores = lines.into_iter().map(|(subject, evidence)| {
            (subject, Application::ALL.iter().map(|one| score(one, &evidence)).collect())
        });
        self.scores = scores.collect();
    }
}

/// What a summary says of a direction.
pub(crate) fn direction(port: &str, summary: &Summary) -> Direction {
    let latency = |[p50_us, p99_us]: [Option<f64>; 2]| {
        Some(Latency { p50_ms: p50_us? / 1e3, p99_ms: p99_us? / 1e3 })
    };
    let (delays, trips) = (&summary.delays, &summary.round_trips);
    let measured = Measured {
        delay: latency([delays.quantile(0.5), delays.quantile(0.99)]),
        round_trip: latency([trips.quantile(0.5), summary.slow_round_trips.quantile(0.99)]),
        loss: summary.losses().map(|[before, beyond]| (before + beyond).min(1.0)),
    };
    Direction { port: port.to_owned(), measured }
}

impl Watchdog {
    fn read(path: PathBuf, now: Instant) -> Result<Self, ServeError> {
        let written = written(&path);
        let file = File::read(&path)?;
        Ok(Self {
            path,
            written,
            alarms: Alarms::new(file.rules),
            outbox: Outbox::default(),
            courier: Courier::start(file.actions),
            bypassed: None,
            looked: now,
        })
    }

    /// Reads the file again if it has changed. One with mistakes changes nothing.
    fn refresh(&mut self) {
        let written = written(&self.path);
        if written.is_none() || written == self.written {
            return;
        }
        self.written = written;
        match File::read(&self.path) {
            Ok(file) => {
                log::info!("the alarms in {} are in force", self.path.display());
                self.alarms.replace(file.rules);
                self.courier = Courier::start(file.actions);
            }
            Err(error) => log::warn!("the alarms stay as they were: {error}"),
        }
    }

    /// Holds the rules against what is known now.
    fn look(
        &mut self,
        snapshot: Option<&Snapshot>,
        closed: Vec<(Key, Closed)>,
        (now, uptime, time): (Instant, Nanos, u64),
    ) {
        let is_due = match snapshot {
            Some(_) => !closed.is_empty(),
            None => now.saturating_duration_since(self.looked) >= LOOK,
        };
        if is_due {
            self.looked = now;
            self.refresh();
            let facts = self.facts(snapshot, closed);
            let notices = self.alarms.observe(&facts, uptime, time);
            self.outbox.add(notices, uptime);
        }
        if let Some(message) = self.outbox.take(uptime) {
            log::info!("{}", message.text);
            if !self.courier.deliver(message) {
                log::warn!("alarms are delivered too slowly, and one message is lost");
            }
        }
    }

    fn facts(&mut self, snapshot: Option<&Snapshot>, closed: Vec<(Key, Closed)>) -> Facts {
        let Some(now) = snapshot else { return Facts { gone: true, ..Facts::default() } };
        let ceilings = ceilings(now);
        let was = self.bypassed.replace(now.conservation.bypassed);
        let facts = |(key, closed): (Key, Closed)| {
            let ceiling_bps = ceilings.get(&key).map(|ceiling| *ceiling as f64);
            subject_facts(key, &closed.summary, ceiling_bps)
        };
        Facts {
            subjects: closed.into_iter().map(facts).collect(),
            ports: now.ports.iter().map(|port| (port.name.clone(), port.no_carrier)).collect(),
            workers: now
                .workers
                .iter()
                .map(|worker| (worker.queue, worker.silent_s.is_some()))
                .collect(),
            bypassed: was.and_then(|was| now.conservation.bypassed.checked_sub(was)),
            gone: false,
        }
    }
}

/// When a file was written last.
fn written(path: &PathBuf) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}

fn subject_facts(key: Key, summary: &Summary, ceiling_bps: Option<f64>) -> SubjectFacts {
    let Measured { delay, round_trip, loss } = direction(&key.port, summary).measured;
    let kind = match key.kind {
        Kind::Port => narrows_alarms::Kind::Port,
        Kind::Site => narrows_alarms::Kind::Site,
        Kind::Subscriber => narrows_alarms::Kind::Subscriber,
        Kind::Class => narrows_alarms::Kind::Class,
    };
    let both = |latency: Latency| [latency.p50_ms, latency.p99_ms];
    SubjectFacts {
        subject: Subject { kind, name: key.name, port: key.port },
        sent_bps: summary.mean_bps(),
        ceiling_bps,
        drops_pps: summary.drops / summary.seconds.max(1e-3),
        delay_ms: delay.map(both),
        round_trip_ms: round_trip.map(both),
        loss,
    }
}

/// The rates that ports and classes may have, in bits per second.
fn ceilings(now: &Snapshot) -> HashMap<Key, u64> {
    let mut all = HashMap::new();
    for port in &now.ports {
        all.extend(port.limit_bps().map(|limit| (Key::of_port(port), limit)));
        let parents: std::collections::HashSet<&str> =
            port.classes.iter().filter_map(|class| class.parent.as_deref()).collect();
        for class in &port.classes {
            let key = || Key::of_class(port, class, parents.contains(class.handle.as_str()));
            all.extend(class_ceiling(class).map(|ceiling| (key(), ceiling)));
        }
    }
    all
}

fn class_ceiling(class: &Class) -> Option<u64> {
    class.most().map(|bytes| bytes.saturating_mul(8))
}

/// The rate that one of them may have.
fn ceiling_of(now: &Snapshot, key: &Key) -> Option<u64> {
    let port: &Port = now.port(&key.port)?;
    if key.kind == Kind::Port {
        return port.limit_bps();
    }
    let is_it = |class: &&Class| match &class.name {
        Some(name) => name.as_str() == key.name,
        None => Key::of_class(port, class, false).name == key.name,
    };
    port.classes.iter().find(is_it).and_then(class_ceiling)
}
