//! Which alarms are pending, firing or over.

use crate::{Condition, Facts, Kind, Rule, Subject};
use narrows_units::Nanos;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// The most alarms that are pending or firing at once.
pub const ALARMS_MAX: usize = 10_000;
/// For how long a condition has to be gone before its alarm ends: as long as it had to hold, within
/// these bounds.
const GONE_MIN: Nanos = Nanos::from_secs(30);
const GONE_MAX: Nanos = Nanos::from_secs(300);

/// What an alarm is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The condition holds, but not for long enough yet.
    Pending,
    /// It has held for long enough.
    Firing,
    /// It is over.
    Resolved,
}

/// An alarm.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Alarm {
    /// What it is at.
    pub state: State,
    /// The rule.
    pub rule: String,
    /// Whom it is about.
    pub subject: Subject,
    /// The latest value, for people.
    pub value: String,
    /// When the condition began to hold, in seconds since 1970.
    pub since: u64,
}

/// An alarm that began or ended.
pub type Notice = Alarm;

#[derive(Debug)]
struct Track {
    alarm: Alarm,
    began: Nanos,
    /// Since when the condition is gone.
    gone: Option<Nanos>,
}

/// The rules, and their alarms.
#[derive(Debug)]
pub struct Alarms {
    rules: Vec<Rule>,
    tracks: BTreeMap<(usize, Subject), Track>,
    left_out: u64,
}

/// What a rule says of a subject at a moment.
struct Verdict {
    holds: bool,
    is_far: bool,
    value: String,
}

impl Alarms {
    /// With these rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules, tracks: BTreeMap::new(), left_out: 0 }
    }

    /// Holds the rules against `facts` at `now`, a clock that never goes back, which is `time` in
    /// seconds since 1970. What began or ended.
    pub fn observe(&mut self, facts: &Facts, now: Nanos, time: u64) -> Vec<Notice> {
        let mut notices = Vec::new();
        for number in 0..self.rules.len() {
            let mut seen = HashSet::new();
            for (subject, verdict) in verdicts(&self.rules[number], facts) {
                seen.insert(subject.clone());
                self.judge(number, subject, verdict, now, time, &mut notices);
            }
            // Of a subject without facts, the condition is not known to hold.
            let rest: Vec<Subject> = self
                .tracks
                .range((number, FIRST)..)
                .take_while(|((of, _), _)| *of == number)
                .map(|((_, subject), _)| subject.clone())
                .filter(|subject| !seen.contains(subject))
                .collect();
            for subject in rest {
                let verdict = Verdict { holds: false, is_far: true, value: "unknown".to_owned() };
                self.judge(number, subject, verdict, now, time, &mut notices);
            }
        }
        notices
    }

    fn judge(
        &mut self,
        number: usize,
        subject: Subject,
        verdict: Verdict,
        now: Nanos,
        time: u64,
        notices: &mut Vec<Notice>,
    ) {
        let rule = &self.rules[number];
        let key = (number, subject);
        if !self.tracks.contains_key(&key) {
            if !verdict.holds {
                return;
            }
            if self.tracks.len() >= ALARMS_MAX {
                self.left_out += 1;
                return;
            }
            let alarm = Alarm {
                state: State::Pending,
                rule: rule.text.clone(),
                subject: key.1.clone(),
                value: String::new(),
                since: time,
            };
            self.tracks.insert(key.clone(), Track { alarm, began: now, gone: None });
        }
        let Some(track) = self.tracks.get_mut(&key) else { return };
        if verdict.holds {
            track.gone = None;
            track.alarm.value = verdict.value;
            let has_held = now.since(track.began) >= rule.hold;
            if track.alarm.state == State::Pending && has_held {
                track.alarm.state = State::Firing;
                notices.push(track.alarm.clone());
            }
            return;
        }
        if track.alarm.state == State::Pending {
            self.tracks.remove(&key);
            return;
        }
        if !verdict.is_far {
            track.gone = None;
            return;
        }
        let gone = *track.gone.get_or_insert(now);
        let wanted = Nanos(rule.hold.0.clamp(GONE_MIN.0, GONE_MAX.0));
        if now.since(gone) >= wanted {
            let mut alarm = track.alarm.clone();
            alarm.state = State::Resolved;
            alarm.value = verdict.value;
            notices.push(alarm);
            self.tracks.remove(&key);
        }
    }

    /// Puts other rules in force. Alarms of rules that are written as before stay as they are;
    /// those of others are gone, without a notice.
    pub fn replace(&mut self, rules: Vec<Rule>) {
        let tracks = std::mem::take(&mut self.tracks);
        for ((_, subject), track) in tracks {
            if let Some(number) = rules.iter().position(|rule| rule.text == track.alarm.rule) {
                self.tracks.insert((number, subject), track);
            }
        }
        self.rules = rules;
    }

    /// All alarms that are pending or firing, by rule and subject.
    pub fn all(&self) -> impl Iterator<Item = &Alarm> {
        self.tracks.values().map(|track| &track.alarm)
    }

    /// How often an alarm had no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

/// Before every other subject.
const FIRST: Subject = Subject { kind: Kind::Port, name: String::new(), port: String::new() };

fn verdicts(rule: &Rule, facts: &Facts) -> Vec<(Subject, Verdict)> {
    let known =
        |holds: bool, value: &str| Verdict { holds, is_far: !holds, value: value.to_owned() };
    let subject = |kind, name: &str, port: &str| Subject {
        kind,
        name: name.to_owned(),
        port: port.to_owned(),
    };
    match rule.condition {
        Condition::Limit { .. } | Condition::AtCeiling => facts
            .subjects
            .iter()
            .filter(|of| rule.is_about(of.subject.kind, &of.subject.name, &of.subject.port))
            .map(|of| {
                let (holds, is_far) = rule.holds(of);
                (of.subject.clone(), Verdict { holds, is_far, value: rule.value(of) })
            })
            .collect(),
        Condition::PortDown => facts
            .ports
            .iter()
            .filter(|(name, _)| rule.is_about(Kind::Port, name, name))
            .map(|(name, down)| {
                let value = if *down { "down" } else { "up" };
                (subject(Kind::Port, name, name), known(*down, value))
            })
            .collect(),
        Condition::WorkerSilent => facts
            .workers
            .iter()
            .map(|(queue, silent)| (queue.to_string(), silent))
            .filter(|(name, _)| rule.is_about(Kind::Worker, name, ""))
            .map(|(name, silent)| {
                let value = if *silent { "silent" } else { "answers" };
                (subject(Kind::Worker, &name, ""), known(*silent, value))
            })
            .collect(),
        Condition::Bypassed(most) => facts
            .bypassed
            .map(|packets| {
                let value = format!("{packets} packets");
                (subject(Kind::Instance, "narrows", ""), known(packets > most, &value))
            })
            .into_iter()
            .collect(),
        Condition::Gone => {
            let value = if facts.gone { "does not answer" } else { "answers" };
            vec![(subject(Kind::Instance, "narrows", ""), known(facts.gone, value))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, SubjectFacts};
    use proptest::prelude::*;

    fn alarms(text: &str) -> Alarms {
        Alarms::new(File::parse(text).unwrap().rules)
    }

    fn delay(name: &str, p99: Option<f64>) -> SubjectFacts {
        SubjectFacts {
            subject: Subject { kind: Kind::Subscriber, name: name.into(), port: "eth1".into() },
            sent_bps: 1e6,
            ceiling_bps: Some(1e7),
            drops_pps: 0.0,
            delay_ms: p99.map(|p99| [1.0, p99]),
            round_trip_ms: None,
            loss: None,
        }
    }

    /// The states that are told while the delay is each of `values`, ten seconds apart.
    fn told(text: &str, values: &[Option<f64>]) -> Vec<(u64, State)> {
        let mut alarms = alarms(text);
        let mut told = Vec::new();
        for (second, value) in (0..).step_by(10).zip(values) {
            let facts = Facts { subjects: vec![delay("alice", *value)], ..Facts::default() };
            let notices = alarms.observe(&facts, Nanos::from_secs(second), 1000 + second);
            told.extend(notices.iter().map(|notice| (second, notice.state)));
        }
        told
    }

    #[test]
    fn a_condition_has_to_hold_all_the_time() {
        let high = Some(80.0);
        let held = told("delay p99 > 50ms for 30s", &[high, high, high, high]);
        assert_eq!(held, [(30, State::Firing)]);
        let paused = told("delay p99 > 50ms for 30s", &[high, high, Some(40.0), high, high, high]);
        assert_eq!(paused, []);
        let unknown = told("delay p99 > 50ms for 30s", &[high, high, None, high, high, high]);
        assert_eq!(unknown, [], "what is not measured fulfils no condition");
    }

    #[test]
    fn an_alarm_ends_when_its_condition_is_clearly_gone_for_a_while() {
        let mut values = vec![Some(80.0); 4];
        values.extend([Some(48.0); 10]);
        assert_eq!(told("delay p99 > 50ms for 30s", &values), [(30, State::Firing)], "too near");
        values.extend([Some(20.0), Some(20.0), Some(80.0), Some(20.0), Some(20.0), Some(20.0)]);
        assert_eq!(told("delay p99 > 50ms for 30s", &values).len(), 1, "not for long enough");
        values.push(Some(20.0));
        let all = told("delay p99 > 50ms for 30s", &values);
        assert_eq!(all.last(), Some(&(200, State::Resolved)));
    }

    #[test]
    fn a_subject_that_is_gone_resolves_its_alarm() {
        let mut alarms = alarms("delay p99 > 50ms");
        let high = Facts { subjects: vec![delay("alice", Some(80.0))], ..Facts::default() };
        assert_eq!(alarms.observe(&high, Nanos::ZERO, 0)[0].state, State::Firing);
        let none = Facts::default();
        assert_eq!(alarms.observe(&none, Nanos::from_secs(10), 10), []);
        assert_eq!(alarms.observe(&none, Nanos::from_secs(40), 40)[0].state, State::Resolved);
        assert_eq!(alarms.all().count(), 0);
    }

    #[test]
    fn a_rule_is_about_those_that_it_names() {
        let mut alarms = alarms("subscriber delay p99 > 50ms of b* at eth1\nsite delay p99 > 50ms");
        let subjects = ["alice", "bob", "berta"].map(|name| delay(name, Some(80.0))).to_vec();
        let facts = Facts { subjects, ..Facts::default() };
        let notices = alarms.observe(&facts, Nanos::ZERO, 0);
        let names: Vec<_> = notices.iter().map(|notice| notice.subject.name.as_str()).collect();
        assert_eq!(names, ["bob", "berta"]);
        assert_eq!(notices[0].value, "80 ms");
    }

    #[test]
    fn the_state_of_the_instance_has_rules_of_its_own() {
        let mut alarms = alarms(
            "port down\nworker silent\nbypassed packets > 0\ninstance gone\nsubscriber at ceiling",
        );
        let mut full = delay("alice", None);
        full.sent_bps = 9.7e6;
        let facts = Facts {
            subjects: vec![full],
            ports: vec![("eth1".into(), true), ("eth2".into(), false)],
            workers: vec![(0, false), (3, true)],
            bypassed: Some(17),
            gone: true,
        };
        let notices = alarms.observe(&facts, Nanos::ZERO, 0);
        let said: Vec<_> = notices
            .iter()
            .map(|notice| {
                format!("{} {} {}", notice.subject.kind.name(), notice.subject.name, notice.value)
            })
            .collect();
        assert_eq!(
            said,
            [
                "port eth1 down",
                "worker 3 silent",
                "instance narrows 17 packets",
                "instance narrows does not answer",
                "subscriber alice 9700.0 kbit/s"
            ]
        );
    }

    #[test]
    fn alarms_of_rules_that_stay_go_on_when_the_file_changes() {
        let mut alarms = alarms("delay p99 > 50ms\ndelay p99 > 40ms");
        let facts = Facts { subjects: vec![delay("alice", Some(80.0))], ..Facts::default() };
        assert_eq!(alarms.observe(&facts, Nanos::ZERO, 0).len(), 2);
        let rules = File::parse("loss > 2%\ndelay p99 > 40ms").unwrap().rules;
        alarms.replace(rules);
        assert_eq!(alarms.all().count(), 1);
        assert_eq!(alarms.observe(&facts, Nanos::from_secs(10), 10), [], "it was told before");
    }

    #[test]
    fn there_are_so_many_alarms_at_most() {
        let mut alarms = alarms("delay p99 > 50ms");
        let subjects = (0..ALARMS_MAX + 5).map(|number| delay(&number.to_string(), Some(80.0)));
        let facts = Facts { subjects: subjects.collect(), ..Facts::default() };
        assert_eq!(alarms.observe(&facts, Nanos::ZERO, 0).len(), ALARMS_MAX);
        assert_eq!(alarms.left_out(), 5);
    }

    proptest! {
        #[test]
        fn firing_and_resolved_alternate(
            values in proptest::collection::vec(proptest::option::of(0.0f64..120.0), 0..200),
        ) {
            let told = told("delay p99 > 50ms for 20s", &values);
            for (at, (_, state)) in told.iter().enumerate() {
                let expected = if at % 2 == 0 { State::Firing } else { State::Resolved };
                prop_assert_eq!(*state, expected);
            }
        }
    }
}
