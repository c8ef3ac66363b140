//! The thread that queries the instance, and its results.

use crate::download::EncodedSnapshot;
use crate::history::{self, History};
use crate::metrics::Sample;
use crate::watch::Watch;
use narrows_control::{Client, ControlError, NamesFile};
use narrows_snapshot::{Change, Snapshot};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The state of the instance as last seen.
#[derive(Debug)]
pub(crate) struct Known {
    /// The latest snapshot, even after the instance is gone.
    pub(crate) latest: Option<Arc<EncodedSnapshot>>,
    /// When it was taken.
    taken: Option<Instant>,
    /// Why the instance does not answer, if it does not.
    pub(crate) gone: Option<String>,
    /// Events seen since the start.
    events: u64,
    pub(crate) history: History,
}

/// State shared between the thread and the server.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    known: Arc<Mutex<Known>>,
}

impl Sampler {
    /// Starts to `ask` every `interval`, and adds the names of classes. What is seen is shown to
    /// `watch`, too.
    pub(crate) fn start(
        mut ask: impl FnMut() -> Result<Snapshot, String> + Send + 'static,
        interval: Duration,
        mut names: NamesFile,
        watch: Option<Watch>,
    ) -> Self {
        let known = Known {
            latest: None,
            taken: None,
            gone: None,
            events: 0,
            history: History::new(interval),
        };
        let sampler = Self { known: Arc::new(Mutex::new(known)) };
        let thread = sampler.clone();
        // It ends with the process, which is when the server ends.
        thread::spawn(move || {
            loop {
                let began = Instant::now();
                let mut answer = ask();
                if let Ok(snapshot) = &mut answer {
                    names.name(snapshot);
                }
                let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let answer = answer.and_then(|snapshot| {
                    EncodedSnapshot::new(snapshot).map_err(|error| error.to_string())
                });
                if let Some(watch) = &watch {
                    let seen = answer.as_ref().ok().map(|encoded| &encoded.snapshot);
                    watch.see(seen, time.as_secs(), Instant::now());
                }
                thread.known().learn(answer, time.as_secs_f64(), Instant::now());
                thread::sleep(interval.saturating_sub(began.elapsed()));
            }
        });
        sampler
    }

    /// The present state. The lock is held while an answer with history is made.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the instance with the port `dev`, or the only one.
pub(crate) fn ask(dev: Option<&str>) -> Result<Snapshot, String> {
    let found = Client::find(dev).map_err(|error| error.to_string())?;
    match &found[..] {
        [only] => only.snapshot(true).map_err(|error: ControlError| error.to_string()),
        several => {
            let ports: Vec<String> = several.iter().map(|client| client.ports.join(",")).collect();
            Err(format!(
                "several instances run here ({}); choose one with --dev",
                ports.join(" and ")
            ))
        }
    }
}

impl Known {
    /// Records an answer; `time` is in seconds since 1970.
    fn learn(&mut self, answer: Result<EncodedSnapshot, String>, time: f64, now: Instant) {
        let next = match answer {
            Err(reason) => {
                if self.gone.as_ref() != Some(&reason) {
                    log::warn!("{reason}");
                }
                if self.gone.is_none() {
                    // A gap, so that graphs show no line over the time without an instance.
                    self.history.push(time, []);
                }
                self.gone = Some(reason);
                return;
            }
            Ok(next) => next,
        };
        if self.gone.take().is_some() {
            log::info!("the instance answers");
        } else if let Some(was) = &self.latest
            && let (was, now) = (&was.snapshot, &next.snapshot)
            && let Some(change) = Change::between(was, now)
        {
            self.history.push(time, history::values(now, &change));
            self.events += new_events(&was.events, &now.events) as u64;
        }
        self.latest = Some(Arc::new(next));
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

/// How many events in `is` are new; `was` are the latest events before. The list loses its oldest.
fn new_events(was: &[String], is: &[String]) -> usize {
    let old = (0..=is.len().min(was.len())).rev().find(|&old| was.ends_with(&is[..old]));
    is.len() - old.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known() -> Known {
        Known {
            latest: None,
            taken: None,
            gone: None,
            events: 0,
            history: History::new(Duration::from_secs(1)),
        }
    }

    fn at(uptime_s: f64) -> Result<EncodedSnapshot, String> {
        let port = narrows_snapshot::Port { name: "eth1".into(), ..Default::default() };
        let snapshot = Snapshot { uptime_s, ports: vec![port], ..Snapshot::default() };
        EncodedSnapshot::new(snapshot).map_err(|error| error.to_string())
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
        (1..=4).for_each(|second| known.learn(at(f64::from(second)), f64::from(second), now));
        assert_eq!(points(&known), (3, 3));
    }

    #[test]
    fn there_is_no_rate_over_a_time_without_an_instance() {
        let (mut known, now) = (known(), Instant::now());
        known.learn(at(5.0), 1.0, now);
        known.learn(at(6.0), 2.0, now);
        known.learn(Err("gone".into()), 3.0, now);
        known.learn(Err("gone".into()), 4.0, now);
        assert_eq!(points(&known), (2, 1), "a rate, and one gap");
        assert!(known.sample(now).snapshot.is_none(), "no stale figures");
        known.learn(at(9.0), 5.0, now);
        assert_eq!(points(&known), (2, 1));
        assert!(known.sample(now).snapshot.is_some());
        known.learn(at(1.0), 6.0, now);
        assert_eq!(points(&known), (2, 1), "started again within an interval");
    }

    #[test]
    fn a_sample_says_how_old_it_is() {
        let (mut known, now) = (known(), Instant::now());
        known.learn(at(5.0), 1.0, now);
        assert_eq!(known.sample(now + Duration::from_secs(3)).age, Duration::from_secs(3));
    }

    proptest! {
        #[test]
        fn new_events_are_counted_while_old_ones_are_forgotten(
            before in 0usize..20, added in 0usize..8, room in 8usize..12,
        ) {
            let list = |until: usize| -> Vec<String> {
                (until.saturating_sub(room)..until).map(|number| number.to_string()).collect()
            };
            prop_assert_eq!(new_events(&list(before), &list(before + added)), added);
        }
    }
}
