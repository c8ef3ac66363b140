//! The thread that queries the instance, and its results.

use crate::download::EncodedSnapshot;
use crate::history::{self, History, Key};
use crate::metrics::Sample;
use crate::view::{Addresses, EventList, Gone, Heat, Model, column};
use crate::watch::Watch;
use narrows_control::fleet_agent::AgentSocket;
use narrows_control::{Answer, Client, NamesFile, Request};
use narrows_snapshot::{Change, Snapshot};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// How often the policy is asked for, for the addresses of subscribers. It is where the number of
/// classes changed, too.
const POLICY_EVERY: Duration = Duration::from_secs(60);

/// What an instance answers.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) snapshot: Snapshot,
    /// Its policy as commands, if that was asked for and it answers.
    pub(crate) policy: Option<String>,
}

impl From<Snapshot> for Heard {
    fn from(snapshot: Snapshot) -> Self {
        Self { snapshot, policy: None }
    }
}

/// The addresses of classes, and when to ask for them again.
#[derive(Debug, Default)]
struct Follower {
    addresses: Arc<Addresses>,
    asked: Option<Instant>,
    classes: usize,
}

impl Follower {
    fn is_due(&self, now: Instant) -> bool {
        self.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= POLICY_EVERY)
    }

    fn learn(&mut self, heard: &Heard, now: Instant) {
        let classes = heard.snapshot.ports.iter().map(|port| port.classes.len()).sum();
        if let Some(policy) = &heard.policy {
            self.addresses = Arc::new(Addresses::parse(policy));
            self.asked = Some(now);
        } else if classes != self.classes {
            self.asked = None;
        }
        self.classes = classes;
    }
}

/// The state of the instance as last seen.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) interval: Duration,
    /// The latest snapshot, even after the instance is gone.
    pub(crate) latest: Option<Arc<EncodedSnapshot>>,
    /// What the page shows of it.
    pub(crate) model: Option<Arc<Model>>,
    /// When it was taken.
    taken: Option<Instant>,
    /// Why the instance does not answer, if it does not.
    pub(crate) gone: Option<Gone>,
    /// Events seen since the start.
    events: u64,
    /// The latest of these.
    pub(crate) list: EventList,
    pub(crate) history: History,
    pub(crate) heat: Heat,
}

/// An answer, and what is made from it before anybody waits for that.
#[derive(Debug)]
struct Next {
    encoded: Arc<EncodedSnapshot>,
    model: Model,
    /// What happened since the one before; none without one.
    values: Option<Vec<(Key, f64)>>,
    columns: Vec<(String, crate::view::Column)>,
}

/// State shared between the thread and the server.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    known: Arc<Mutex<Known>>,
    ticks: watch::Receiver<()>,
}

impl Sampler {
    /// Starts to `ask` every `interval`, now and then for the policy, too, and adds the names of
    /// classes. `downlink` is the port towards the subscribers, if it is known. What is seen is
    /// shown to `watch`, too.
    pub(crate) fn start(
        mut ask: impl FnMut(bool) -> Result<Heard, Gone> + Send + 'static,
        interval: Duration,
        mut names: NamesFile,
        downlink: Option<String>,
        watch: Option<Watch>,
    ) -> Self {
        let known = Arc::new(Mutex::new(Known::new(interval)));
        let (tick, ticks) = watch::channel(());
        let sampler = Self { known, ticks };
        let known = Arc::clone(&sampler.known);
        // It ends with the process, which is when the server ends.
        thread::spawn(move || {
            let mut follower = Follower::default();
            loop {
                let began = Instant::now();
                let answer = ask(follower.is_due(began)).map(|mut heard| {
                    names.name(&mut heard.snapshot);
                    follower.learn(&heard, began);
                    heard.snapshot
                });
                let addresses = &follower.addresses;
                let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let time = time.as_secs_f64();
                let was = lock(&known).continued();
                let next = answer.and_then(|snapshot| {
                    Next::new(was.as_deref(), snapshot, time, downlink.as_deref(), addresses)
                });
                drop(was);
                if let Some(watch) = &watch {
                    let seen = next.as_ref().ok().map(|next| &next.encoded.snapshot);
                    watch.see(seen, time as u64, Instant::now());
                }
                lock(&known).learn(next, time, Instant::now());
                // Nobody may listen.
                let _ = tick.send(());
                thread::sleep(interval.saturating_sub(began.elapsed()));
            }
        });
        sampler
    }

    /// The present state. The lock is held while an answer with history is made.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Tells of each new state.
    pub(crate) fn ticks(&self) -> watch::Receiver<()> {
        self.ticks.clone()
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the instance with the port `dev`, or the only one, and the fleet's agent at `agent`;
/// `with_policy` also for its policy.
pub(crate) fn ask(
    dev: Option<&str>,
    agent: &AgentSocket,
    with_policy: bool,
) -> Result<Heard, Gone> {
    let found = Client::find(dev)?;
    match &found[..] {
        [only] => {
            let mut snapshot = only.snapshot(true)?;
            agent.add_to(&mut snapshot);
            let policy = if with_policy { self::policy(only) } else { None };
            Ok(Heard { snapshot, policy })
        }
        several => {
            let ports: Vec<String> = several.iter().map(|client| client.ports.join(",")).collect();
            Err(Gone::from(format!(
                "several instances run here ({}); choose one with --dev",
                ports.join(" and ")
            )))
        }
    }
}

/// Its policy as commands. Without it the figures are there all the same.
fn policy(client: &Client) -> Option<String> {
    match client.ask(&Request::Tc { args: vec!["save".into()], names: None }) {
        Ok(Answer::Tc { stdout, code: 0, .. }) => Some(stdout),
        Ok(_) => None,
        Err(error) => {
            log::debug!("no policy, so no addresses: {error}");
            None
        }
    }
}

impl Next {
    /// Of `snapshot` at `time`, in seconds since 1970, which follows `was`.
    fn new(
        was: Option<&EncodedSnapshot>,
        snapshot: Snapshot,
        time: f64,
        downlink: Option<&str>,
        addresses: &Arc<Addresses>,
    ) -> Result<Self, Gone> {
        let encoded = EncodedSnapshot::new(snapshot).map_err(|error| error.to_string())?;
        let now = Arc::clone(&encoded.snapshot);
        let change = was.and_then(|was| Change::between(&was.snapshot, &now));
        let values = change.as_ref().map(|change| history::values(&now, change));
        let column_of = |change: &Change<'_>| {
            let of = |port| column(&change.delays_of_port(port));
            now.ports.iter().map(|port| (port.name.clone(), of(port))).collect()
        };
        let columns = change.as_ref().map(column_of).unwrap_or_default();
        let model =
            Model::new(Arc::clone(&now), change.as_ref(), time, downlink, addresses.clone());
        Ok(Self { encoded: Arc::new(encoded), model, values, columns })
    }
}

impl Known {
    fn new(interval: Duration) -> Self {
        let history = History::new(interval);
        Self {
            interval,
            latest: None,
            model: None,
            taken: None,
            gone: None,
            events: 0,
            list: EventList::default(),
            heat: Heat::new(history.points()),
            history,
        }
    }

    /// The snapshot that the next one continues; none if the instance was gone in between.
    fn continued(&self) -> Option<Arc<EncodedSnapshot>> {
        self.latest.clone().filter(|_| self.gone.is_none())
    }

    /// The time of the newest snapshot, in seconds since 1970.
    pub(crate) fn newest(&self) -> Option<f64> {
        self.model.as_ref().map(|model| model.time)
    }

    /// Records an answer; `time` is in seconds since 1970.
    fn learn(&mut self, answer: Result<Next, Gone>, time: f64, now: Instant) {
        let next = match answer {
            Err(gone) => {
                if self.gone.as_ref() != Some(&gone) {
                    log::warn!("{}", gone.reason);
                }
                if self.gone.is_none() {
                    // A gap, so that graphs show no line over the time without an instance.
                    self.history.push(time, []);
                    self.heat.push(time, []);
                }
                self.gone = Some(gone);
                return;
            }
            Ok(next) => next,
        };
        let was = self.latest.as_ref().map(|was| &was.snapshot.events[..]);
        let new = self.list.learn(was, &next.encoded.snapshot.events, time);
        if self.gone.take().is_some() {
            log::info!("the instance answers");
        } else if let Some(values) = next.values {
            self.history.push(time, values);
            let columns = next.columns.iter();
            self.heat.push(time, columns.map(|(port, column)| (port.as_str(), *column)));
            self.events += new as u64;
        }
        self.latest = Some(next.encoded);
        self.model = Some(Arc::new(next.model));
        self.taken = Some(now);
    }

    /// The input of the metrics; no snapshot if the instance is gone.
    pub(crate) fn sample(&self, now: Instant) -> Sample {
        let latest = self.latest.as_ref().filter(|_| self.gone.is_none());
        let snapshot = latest.map(|latest| Arc::clone(&latest.snapshot));
        let age = self.taken.map_or(Duration::ZERO, |taken| now.saturating_duration_since(taken));
        Sample { snapshot, age, events: self.events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known::new(Duration::from_secs(1))
    }

    fn at(uptime_s: f64) -> Result<Snapshot, String> {
        let port = narrows_snapshot::Port { name: "eth1".into(), ..Default::default() };
        Ok(Snapshot { uptime_s, ports: vec![port], ..Snapshot::default() })
    }

    /// As the thread does.
    fn learn(known: &mut Known, answer: Result<Snapshot, String>, time: f64, now: Instant) {
        let was = known.continued();
        let next = answer.map_err(Gone::from);
        let next = next.and_then(|now| Next::new(was.as_deref(), now, time, None, &Arc::default()));
        known.learn(next, time, now);
    }

    /// The number of points, and of those with values.
    fn points(known: &Known) -> (usize, usize) {
        let history = serde_json::to_value(known.history.since(0.0)).unwrap();
        let times = history["times"].as_array().unwrap().len();
        let delivered =
            history["series"].as_array().unwrap().iter().find(|one| one["what"] == "delivered");
        let values = delivered.map(|one| one["values"].as_array().unwrap().clone());
        (times, values.unwrap_or_default().iter().filter(|value| !value.is_null()).count())
    }

    #[test]
    fn each_answer_after_the_first_is_a_point() {
        let (mut known, now) = (known(), Instant::now());
        (1..=4).for_each(|second| learn(&mut known, at(f64::from(second)), f64::from(second), now));
        assert_eq!(points(&known), (3, 3));
    }

    #[test]
    fn there_is_no_rate_over_a_time_without_an_instance() {
        let (mut known, now) = (known(), Instant::now());
        learn(&mut known, at(5.0), 1.0, now);
        learn(&mut known, at(6.0), 2.0, now);
        learn(&mut known, Err("gone".into()), 3.0, now);
        learn(&mut known, Err("gone".into()), 4.0, now);
        assert_eq!(points(&known), (2, 1), "a rate, and one gap");
        assert!(known.sample(now).snapshot.is_none(), "no stale figures");
        learn(&mut known, at(9.0), 5.0, now);
        assert_eq!(points(&known), (2, 1));
        assert!(known.sample(now).snapshot.is_some());
        learn(&mut known, at(1.0), 6.0, now);
        assert_eq!(points(&known), (2, 1), "started again within an interval");
    }

    #[test]
    fn the_policy_is_asked_for_again_after_a_minute_or_with_other_classes() {
        let (mut follower, now) = (Follower::default(), Instant::now());
        let with = |policy: Option<&str>, classes| {
            let classes = vec![narrows_snapshot::Class::default(); classes];
            let port = narrows_snapshot::Port { classes, ..Default::default() };
            let snapshot = Snapshot { ports: vec![port], ..Snapshot::default() };
            Heard { snapshot, policy: policy.map(str::to_owned) }
        };
        assert!(follower.is_due(now));
        follower.learn(&with(Some(""), 2), now);
        assert!(!follower.is_due(now + POLICY_EVERY - Duration::from_secs(1)));
        assert!(follower.is_due(now + POLICY_EVERY));
        follower.learn(&with(None, 2), now);
        assert!(!follower.is_due(now));
        follower.learn(&with(None, 3), now);
        assert!(follower.is_due(now));
    }

    #[test]
    fn a_sample_says_how_old_it_is() {
        let (mut known, now) = (known(), Instant::now());
        learn(&mut known, at(5.0), 1.0, now);
        assert_eq!(known.sample(now + Duration::from_secs(3)).age, Duration::from_secs(3));
    }
}
