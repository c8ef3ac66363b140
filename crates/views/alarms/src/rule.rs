//! A rule: a condition, whom it is about, and for how long it has to hold.
//!
//! `[KIND] CONDITION [of NAME] [at PORT] [for TIME]`

use crate::facts::{Kind, SubjectFacts};
use crate::pattern::fits;
use crate::quantity::{count, per_second, percent, rate, shown_bps, shown_ms, time};
use narrows_units::Nanos;

/// From which share of its ceiling a subject is at it.
const AT_CEILING: f64 = 0.95;
/// By which part a value has to fall behind its limit before an alarm may end.
const MARGIN: f64 = 0.1;

/// What a limit is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// The median delay.
    DelayP50,
    /// Its 99th percentile.
    DelayP99,
    /// The median round trip.
    RoundTripP50,
    /// Its 99th percentile.
    RoundTripP99,
    /// The share lost.
    Loss,
    /// The rate sent.
    Sent,
    /// Packets dropped per second.
    Drops,
}

/// What has to be so.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Condition {
    /// A value is above or below a limit, in milliseconds, bits per second, packets per second, or
    /// as a share.
    Limit {
        /// The value.
        metric: Metric,
        /// Whether it has to be above.
        above: bool,
        /// The limit.
        limit: f64,
    },
    /// It sends at its ceiling.
    AtCeiling,
    /// A port has no carrier.
    PortDown,
    /// A worker does not answer.
    WorkerSilent,
    /// More than so many packets passed no worker since the last look.
    Bypassed(u64),
    /// The instance does not answer.
    Gone,
}

/// A rule of the file.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// As it was written.
    pub text: String,
    /// What has to be so.
    pub condition: Condition,
    /// The kind that it is about; none for ports, sites and subscribers.
    pub kind: Option<Kind>,
    /// The names that it is about, with `*` for any letters.
    pub name: Option<String>,
    /// The port that it is about.
    pub port: Option<String>,
    /// For how long the condition has to hold.
    pub hold: Nanos,
}

/// How a condition begins.
const CONDITIONS: &str = "delay p99 > 50ms, round-trip p99 > 200ms, loss > 2%, sent < 1mbit, \
     drops > 100/s, subscriber at ceiling, port down, worker silent, instance gone or \
     bypassed packets > 0";

impl Rule {
    /// The rule with these words, which are written as `text`.
    pub(crate) fn parse(text: &str, words: &[String]) -> Result<Self, String> {
        let mut rest = words.iter().map(String::as_str).peekable();
        let mut kind = None;
        let kinds =
            [Kind::Port, Kind::Site, Kind::Subscriber, Kind::Class, Kind::Worker, Kind::Instance];
        if let Some(known) = rest.peek().and_then(|word| kinds.iter().find(|it| it.name() == *word))
        {
            kind = Some(*known);
            rest.next();
        }
        let condition = condition(&mut rest)?;
        let mut rule = Self {
            text: text.to_owned(),
            condition,
            kind,
            name: None,
            port: None,
            hold: Nanos::ZERO,
        };
        rule.check_kind()?;
        let mut has_hold = false;
        while let Some(word) = rest.next() {
            let mut value = || rest.next().ok_or(format!("a word is missing behind \"{word}\""));
            match word {
                "of" if rule.name.is_none() => rule.name = Some(value()?.to_owned()),
                "at" if rule.port.is_none() => rule.port = Some(value()?.to_owned()),
                "for" if !has_hold => {
                    rule.hold = time(value()?)?;
                    has_hold = true;
                }
                _ => {
                    return Err(format!(
                        "\"{word}\" is not understood here: a condition may be followed by \
                         of NAME, at PORT and for TIME, once each"
                    ));
                }
            }
        }
        Ok(rule)
    }

    fn check_kind(&mut self) -> Result<(), String> {
        let wanted = match self.condition {
            Condition::PortDown => Kind::Port,
            Condition::WorkerSilent => Kind::Worker,
            Condition::Gone | Condition::Bypassed(_) => Kind::Instance,
            Condition::Limit { .. } | Condition::AtCeiling => {
                return match self.kind {
                    Some(kind @ (Kind::Worker | Kind::Instance)) => Err(format!(
                        "a {} has no such condition: write one of port, site, subscriber or class \
                         before it, or nothing",
                        kind.name()
                    )),
                    _ => Ok(()),
                };
            }
        };
        if self.kind.is_some_and(|kind| kind != wanted) {
            return Err(format!("this is a condition of a {}", wanted.name()));
        }
        self.kind = Some(wanted);
        Ok(())
    }

    /// Whether it is about a subject of this kind and name, at this port.
    pub(crate) fn is_about(&self, kind: Kind, name: &str, port: &str) -> bool {
        let is_kind = match self.kind {
            Some(wanted) => wanted == kind,
            None => matches!(kind, Kind::Port | Kind::Site | Kind::Subscriber),
        };
        is_kind
            && self.name.as_ref().is_none_or(|pattern| fits(pattern, name))
            && self.port.as_ref().is_none_or(|wanted| wanted == port)
    }

    /// Whether the condition holds for a direction, and whether it is far from it.
    pub(crate) fn holds(&self, facts: &SubjectFacts) -> (bool, bool) {
        match self.condition {
            Condition::Limit { metric, above, limit } => match metric.of(facts) {
                None => (false, true),
                Some(value) if above => (value > limit, value <= limit * (1.0 - MARGIN)),
                Some(value) => (value < limit, value >= limit * (1.0 + MARGIN)),
            },
            Condition::AtCeiling => match facts.ceiling_bps {
                Some(ceiling) if ceiling > 0.0 => {
                    let share = facts.sent_bps / ceiling;
                    (share >= AT_CEILING, share < AT_CEILING * (1.0 - MARGIN))
                }
                _ => (false, true),
            },
            _ => (false, true),
        }
    }

    /// The value that the condition is about, for people.
    pub(crate) fn value(&self, facts: &SubjectFacts) -> String {
        match self.condition {
            Condition::Limit { metric, .. } => match (metric, metric.of(facts)) {
                (_, None) => "unknown".to_owned(),
                (Metric::Loss, Some(share)) => format!("{:.1} %", share * 100.0),
                (Metric::Sent, Some(bps)) => shown_bps(bps),
                (Metric::Drops, Some(pps)) => format!("{pps:.1} packets/s"),
                (_, Some(ms)) => shown_ms(ms),
            },
            _ => shown_bps(facts.sent_bps),
        }
    }
}

impl Metric {
    fn of(self, facts: &SubjectFacts) -> Option<f64> {
        match self {
            Self::DelayP50 => facts.delay_ms.map(|[median, _]| median),
            Self::DelayP99 => facts.delay_ms.map(|[_, p99]| p99),
            Self::RoundTripP50 => facts.round_trip_ms.map(|[median, _]| median),
            Self::RoundTripP99 => facts.round_trip_ms.map(|[_, p99]| p99),
            Self::Loss => facts.loss,
            Self::Sent => Some(facts.sent_bps),
            Self::Drops => Some(facts.drops_pps),
        }
    }
}

fn condition<'a>(rest: &mut impl Iterator<Item = &'a str>) -> Result<Condition, String> {
    let mut next = |of: &str| rest.next().ok_or(format!("a word is missing behind \"{of}\""));
    let first = next("the beginning").map_err(|_| format!("no condition: write {CONDITIONS}"))?;
    match first {
        "down" => return Ok(Condition::PortDown),
        "silent" => return Ok(Condition::WorkerSilent),
        "gone" => return Ok(Condition::Gone),
        "at" if next("at")? == "ceiling" => return Ok(Condition::AtCeiling),
        "at" => return Err("write at ceiling".to_owned()),
        _ => {}
    }
    if first == "bypassed" {
        return match [next("bypassed")?, next("packets")?] {
            ["packets", ">"] => Ok(Condition::Bypassed(count(next(">")?)?)),
            _ => Err("write bypassed packets > 0".to_owned()),
        };
    }
    let metric = match first {
        "delay" => match next("delay")? {
            "p50" => Metric::DelayP50,
            "p99" => Metric::DelayP99,
            other => {
                return Err(format!(
                    "\"{other}\" is no percentile that is kept: write delay p50 or delay p99"
                ));
            }
        },
        "round-trip" => match next("round-trip")? {
            "p50" => Metric::RoundTripP50,
            "p99" => Metric::RoundTripP99,
            other => {
                return Err(format!(
                    "\"{other}\" is no percentile that is kept: write round-trip p50 or round-trip p99"
                ));
            }
        },
        "loss" => Metric::Loss,
        "sent" => Metric::Sent,
        "drops" => Metric::Drops,
        _ => return Err(format!("there is no condition \"{first}\": write {CONDITIONS}")),
    };
    let above = match next(first)? {
        ">" => true,
        "<" => false,
        other => {
            return Err(format!(
                "\"{other}\" compares nothing: write > or <, with a space behind it"
            ));
        }
    };
    let word = next(if above { ">" } else { "<" })?;
    let limit = match metric {
        Metric::Loss => percent(word)?,
        Metric::Sent => rate(word)?.bits_per_sec() as f64,
        Metric::Drops => per_second(word)?,
        _ => time(word)?.as_secs_f64() * 1e3,
    };
    Ok(Condition::Limit { metric, above, limit })
}
