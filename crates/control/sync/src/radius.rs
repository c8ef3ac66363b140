//! RADIUS sessions: from the sockets to the store and the instance.
//!
//! *Idea.* [`Sessions`] decides, this moves things. Packets that are there are taken together, at
//! most ten times a second: their changes are one transaction of the store, then their answers go
//! out, then the instance gets one batch, as often as [`Pace`] lets it. A client has no answer for
//! what could not be stored, and sends it again (RFC 2866 section 4.1).

use crate::Online;
use crate::pace::Pace;
use narrows_sessions::radius::{Config, Counters, Datagram, Listener, Now, Sessions};
use narrows_store::StoreError;
use narrows_units::Nanos;
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The name of the source in the store, if the operator gives no other.
pub const SOURCE: &str = "radius";

/// The shortest time between two transactions. Far below the patience of clients: RouterOS waits
/// 300 ms for an answer.
const BATCH: Nanos = Nanos::from_millis(100);
/// How many packets are taken before what changed is stored.
const PACKETS_MAX: usize = 2_000;
/// How often sessions are looked at that may have ended in silence.
const TICK: Nanos = Nanos::from_secs(10);
/// How often dropped packets are reported.
const REPORT: Nanos = Nanos::from_secs(60);

/// A server of accounting and CoA that runs on.
#[derive(Debug)]
pub struct Radius {
    sessions: Sessions,
    listener: Listener,
    online: Online,
    source: String,
    start: Instant,
    /// Datagrams whose answers wait for the store.
    answers: Vec<(Datagram, Vec<u8>)>,
    /// Subscribers that the store refused, and why.
    refused: BTreeMap<String, String>,
    pace: Pace,
}

impl Radius {
    /// Listens, and takes over the sessions that the store has of `source`.
    ///
    /// # Errors
    /// If it cannot listen, or the store cannot be read.
    pub fn open(config: Config, mut online: Online, source: String) -> anyhow::Result<Self> {
        let listener = Listener::bind(&config.listen)
            .map_err(|(address, error)| anyhow::anyhow!("cannot listen at {address}: {error}"))?;
        let mut sessions = Sessions::new(config);
        let start = Instant::now();
        let store = online.store();
        let directory = store.directory()?.clone();
        for (identity, subscriber) in &directory.subscribers {
            if store.source_of(identity)?.as_deref() == Some(&source) {
                sessions.restore(now(start), identity, subscriber);
            }
        }
        Ok(Self {
            sessions,
            listener,
            online,
            source,
            start,
            answers: Vec::new(),
            refused: BTreeMap::new(),
            pace: Pace::default(),
        })
    }

    /// Where it listens, and how many sessions it has.
    pub fn summary(&self) -> String {
        let addresses: Vec<String> =
            self.listener.addresses().map(|address| address.to_string()).collect();
        let sessions = narrows_units::counted(self.sessions.count(), "session");
        format!("listens at {} for RADIUS, with {sessions}", addresses.join(", "))
    }

    /// Runs until the sockets are gone.
    ///
    /// # Errors
    /// If no socket can be read any more.
    pub fn run(&mut self) -> anyhow::Result<()> {
        let (mut stored, mut ticked, mut reported) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        let mut counters = self.sessions.counters();
        self.online.apply_again();
        loop {
            let due =
                if self.waits() { Nanos(stored.0 + BATCH.0) } else { Nanos(ticked.0 + TICK.0) };
            let due = self.pace.due().map_or(due, |apply| apply.min(due));
            self.take(due.since(self.now().steady))?;
            let now = self.now();
            if now.steady.since(ticked) >= TICK {
                ticked = now.steady;
                self.sessions.tick(now);
                // Another source may have given up the address since.
                self.sessions.again(self.refused.keys().cloned());
                self.online.apply_again();
            }
            if now.steady.since(reported) >= REPORT {
                reported = now.steady;
                let before = std::mem::replace(&mut counters, self.sessions.counters());
                if let Some(said) = dropped(&before, &counters) {
                    log::warn!("{said}");
                }
            }
            if !self.waits() {
                self.answer();
            } else if now.steady.since(stored) >= BATCH {
                self.store();
                stored = self.now().steady;
            }
            let began = self.now().steady;
            if self.pace.due().is_some_and(|due| due <= began) {
                self.online.apply();
                self.pace.applied(began, self.now().steady);
            }
        }
    }

    fn now(&self) -> Now {
        now(self.start)
    }

    fn waits(&self) -> bool {
        self.sessions.is_changed()
    }

    /// Takes the packets that are there, or waits for one.
    fn take(&mut self, patience: Nanos) -> anyhow::Result<()> {
        let mut patience = patience;
        for _ in 0..PACKETS_MAX {
            let Some(datagram) = self.listener.receive(patience)? else { return Ok(()) };
            patience = Nanos::ZERO;
            let now = self.now();
            if let Some(answer) = self.sessions.receive(now, datagram.from, &datagram.bytes) {
                self.answers.push((datagram, answer));
            }
        }
        Ok(())
    }

    fn answer(&mut self) {
        for (datagram, answer) in self.answers.drain(..) {
            self.listener.answer(&datagram, &answer);
        }
    }

    fn store(&mut self) {
        let changes = self.sessions.changes();
        let subscribers: BTreeMap<_, _> = (changes.iter())
            .map(|change| (change.identity.clone(), change.subscriber.clone()))
            .collect();
        match self.online.keep(&self.source, subscribers) {
            Ok(refused) => {
                let refused: BTreeMap<String, String> = refused
                    .into_iter()
                    .map(|(identity, why)| (identity, why.to_string()))
                    .collect();
                for change in &changes {
                    if !refused.contains_key(&change.identity) {
                        self.refused.remove(&change.identity);
                    }
                }
                for (identity, why) in refused {
                    if self.refused.get(&identity) != Some(&why) {
                        log::warn!("the session of {identity} has no effect: {why}");
                    }
                    self.refused.insert(identity, why);
                }
                self.answer();
                self.pace.changed(self.now().steady, changes.len());
            }
            Err(error) => {
                log::error!("{}", unstored(&error));
                self.sessions.not_stored(changes);
                self.answers.clear();
            }
        }
    }
}

fn unstored(error: &StoreError) -> String {
    format!("nothing is answered until sessions can be stored: {error}")
}

fn now(start: Instant) -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let steady = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Now { steady: Nanos(steady), unix }
}

/// What a person should know of the last minute; `None` if all packets were taken.
fn dropped(before: &Counters, now: &Counters) -> Option<String> {
    let differences = [
        (now.unknown_client - before.unknown_client, "from no [[client]]"),
        (now.not_authentic - before.not_authentic, "signed with another secret"),
        (now.malformed - before.malformed, "no requests of accounting or CoA"),
        (now.not_allowed - before.not_allowed, "not in the client's `allow`"),
        (now.outside_window - before.outside_window, "by a clock that is wrong"),
        (now.full - before.full, "beyond limits.sessions"),
        (now.nobody - before.nobody, "without a session or an identity"),
        (now.unusable_values - before.unusable_values, "with a value that cannot be used"),
    ];
    let words = differences.into_iter().filter(|(number, _)| *number > 0);
    let words: Vec<String> = words.map(|(number, what)| format!("{number} {what}")).collect();
    (!words.is_empty()).then(|| {
        format!("packets in the last minute: {}; RUST_LOG=debug names each", words.join(", "))
    })
}
