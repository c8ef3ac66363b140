//! The agent at work: turns, messages, questions.
//!
//! A turn is an order to the data plane, its answer, and what is published after it. Only one is
//! under way. While the data plane does not answer, nothing is published, and what was borrowed
//! ends by itself.

use crate::claims;
use crate::clock;
use crate::config::Config;
use crate::engine::{Engine, Handed, Report};
use crate::journal::{Journal, Weight};
use crate::metrics;
use crate::plane::Plane;
use crate::view::{DONE, Question, Subject};
use narrows_lending::{Agent as Core, Claim, Event, Member, Outgoing, Settings, SettingsError};
use narrows_snapshot::fleet_agent::{FleetView, Shown, Traffic};
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// How long it waits for its first connection before it says that there is none.
const FIRST_CONNECTION: Duration = Duration::from_secs(3);

/// The agent of a box.
#[derive(Debug)]
pub struct Agent<P, E> {
    config: Config,
    core: Core,
    plane: P,
    engine: E,
    questions: mpsc::Receiver<Question>,
    connected_through: Option<String>,
    instance_trouble: Option<String>,
    /// Whether the instance has answered since the last trouble was said.
    instance_is_known: bool,
    traffic: Traffic,
    journal: Journal,
}

impl<P: Plane, E: Engine> Agent<P, E> {
    /// An agent that has not begun.
    ///
    /// # Errors
    /// If the configuration cannot be.
    pub fn new(
        config: Config,
        plane: P,
        engine: E,
        questions: mpsc::Receiver<Question>,
    ) -> Result<Self, SettingsError> {
        let member = |member: &crate::config::Member| Member {
            name: member.name.to_string(),
            weight: member.weight,
            most_bps: member.most.map(|rate| rate.bits_per_sec()),
        };
        let settings = Settings {
            me: config.me.to_string(),
            members: config.members.iter().map(member).collect(),
            interval_ns: config.interval.0,
            lease_ns: config.lease.0,
        };
        // Grows from one start to the next.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let incarnation = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            core: Core::new(settings, incarnation, clock::now_ns())?,
            config,
            plane,
            engine,
            questions,
            connected_through: None,
            instance_trouble: None,
            instance_is_known: false,
            traffic: Traffic::default(),
            journal: Journal::default(),
        })
    }

    /// Goes on with the claims that an earlier agent of this box saved.
    pub fn restore(&mut self, claims: Vec<Claim>) {
        self.core.restore(claims);
    }

    /// Works until `stop`.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut first = std::pin::pin!(tokio::time::sleep(FIRST_CONNECTION));
        let mut is_first = true;
        loop {
            let turn = clock::until(self.core.next_turn());
            // In this order: a flood of messages must not keep a turn waiting.
            tokio::select! {
                biased;
                () = &mut stop => return,
                () = tokio::time::sleep(turn) => self.turn().await,
                Some(question) = self.questions.recv() => self.answer(question),
                report = self.engine.next() => self.take(report),
                () = &mut first, if is_first => {
                    is_first = false;
                    self.say_if_alone();
                }
            }
            self.save_claims();
            self.say_events();
        }
    }

    /// Saves what is claimed, if it changed. As long as that fails, nothing follows from the
    /// change.
    fn save_claims(&mut self) {
        let Some(claims) = self.core.unsaved() else { return };
        match claims::write(&self.config.claims, &claims) {
            Ok(()) => self.core.saved(),
            Err(error) => {
                let note = format!("who is off is not known to others before it is saved: {error}");
                self.note(Weight::Trouble, note);
            }
        }
    }

    async fn turn(&mut self) {
        let order = self.core.order(clock::now_ns());
        self.save_claims();
        match self.plane.ask(order).await {
            Ok(facts) => {
                self.traffic.turns += 1;
                if self.instance_trouble.take().is_some() || !self.instance_is_known {
                    self.instance_is_known = true;
                    self.note(Weight::Usual, "the instance answers".into());
                }
                for outgoing in self.core.answered(clock::now_ns(), &facts) {
                    self.publish(outgoing);
                }
            }
            Err(error) => {
                self.traffic.turns_failed += 1;
                let trouble = error.to_string();
                if self.instance_trouble.as_ref() != Some(&trouble) {
                    let note = format!(
                        "the instance does not answer, so nothing is lent or borrowed: {trouble}"
                    );
                    self.note(Weight::Trouble, note);
                    self.instance_trouble = Some(trouble);
                }
            }
        }
    }

    fn publish(&mut self, Outgoing { to, bytes }: Outgoing) {
        let length = bytes.len() as u64;
        match self.engine.publish(to.as_deref(), bytes) {
            Handed::Over => {
                self.traffic.messages_sent += 1;
                self.traffic.bytes_sent += length;
            }
            Handed::Dropped => self.traffic.messages_dropped += 1,
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Message { from, bytes } => {
                self.traffic.messages_received += 1;
                self.traffic.bytes_received += bytes.len() as u64;
                // The core has an event for it.
                if self.core.on_message(clock::now_ns(), &from, &bytes).is_err() {
                    self.traffic.messages_malformed += 1;
                }
            }
            Report::Connected { through } => {
                self.note(Weight::Usual, format!("connected through {through}"));
                self.connected_through = Some(through);
            }
            Report::Lost => {
                self.connected_through = None;
                let note = "the connection to the engine is lost: this box keeps its safe share, \
                            less what it lent until that ends, and tries again";
                self.note(Weight::Trouble, note.into());
            }
            Report::Trouble(why) => self.note(Weight::Trouble, format!("engine: {why}")),
        }
    }

    fn say_if_alone(&mut self) {
        if self.connected_through.is_none() {
            let servers = self.config.link.servers.join(", ");
            let note = format!(
                "no connection to the engine yet ({servers}): this box keeps its safe share, and \
                 tries again for ever"
            );
            self.note(Weight::Trouble, note);
        }
    }

    fn say_events(&mut self) {
        for event in self.core.events() {
            let weight = match event {
                Event::Heard(_) | Event::Restarted(_) | Event::Returned(_) | Event::Cleared => {
                    Weight::Usual
                }
                _ => Weight::Trouble,
            };
            self.note(weight, event.to_string());
        }
    }

    fn note(&mut self, weight: Weight, what: String) {
        self.journal.note(clock::now_ns(), weight, what);
    }

    fn answer(&mut self, question: Question) {
        let now = clock::now_ns();
        let json = |shown: &Shown| serde_json::to_string(shown).map(|json| json + "\n");
        let text = match question.subject {
            // Nothing in it fails to be JSON.
            Subject::Show => json(&self.shown(self.core.view(now))),
            Subject::Busiest(rows) => json(&self.shown(self.core.view_of_busiest(now, rows))),
            Subject::Metrics => Ok(metrics::exposition(&self.shown(self.core.view(now)))),
            Subject::Forget(boxes) => Ok(match self.core.forget(now, &boxes) {
                Ok(()) => DONE.to_owned(),
                Err(error) => format!("{error}\n"),
            }),
        };
        // Who has asked may have lost interest.
        let _ = question.answer.send(text.unwrap_or_default());
    }

    fn shown(&self, view: FleetView) -> Shown {
        Shown {
            fleet: self.config.fleet.to_string(),
            interval_ms: self.config.interval.0 / 1_000_000,
            lease_ms: self.config.lease.0 / 1_000_000,
            connected_through: self.connected_through.clone(),
            instance_trouble: self.instance_trouble.clone(),
            traffic: self.traffic,
            view,
            events: self.journal.past(clock::now_ns()),
        }
    }
}
