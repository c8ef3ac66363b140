//! Quality of Outcome: draft-ietf-ippm-qoo-10, section 3.3.

use crate::evidence::path;
use crate::{Evidence, Latency, Measured};
use serde::Serialize;

/// The conditions at an end of the scale.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Limits {
    /// The round trip.
    pub latency: Latency,
    /// The share of packets lost.
    pub loss: f64,
}

/// What an application needs of the network. The draft leaves it to whoever knows the application;
/// those of [`Application::ALL`] are ours.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Application {
    /// What it is, for people.
    pub name: &'static str,
    /// Requirements for optimal performance: no better network makes it better.
    pub optimal: Limits,
    /// Conditions at the point of unacceptable performance.
    pub unacceptable: Limits,
    /// The least throughput, in bits per second.
    pub rate_bps: u64,
}

const fn limits(p50_ms: f64, p99_ms: f64, loss: f64) -> Limits {
    Limits { latency: Latency { p50_ms, p99_ms }, loss }
}

impl Application {
    /// Those that are scored. The latencies of calls follow ITU-T G.114: up to 150 ms one way, most
    /// users are satisfied, and 400 ms are the limit; half of that is left to devices and codecs.
    pub const ALL: [Self; 3] = [
        Self {
            name: "video calls",
            optimal: limits(100.0, 200.0, 0.005),
            unacceptable: limits(400.0, 800.0, 0.05),
            rate_bps: 2_000_000,
        },
        Self {
            name: "games",
            optimal: limits(40.0, 80.0, 0.002),
            unacceptable: limits(150.0, 300.0, 0.03),
            rate_bps: 1_000_000,
        },
        Self {
            name: "web pages",
            optimal: limits(100.0, 300.0, 0.01),
            unacceptable: limits(800.0, 2000.0, 0.08),
            rate_bps: 4_000_000,
        },
    ];
}

/// How well an application works.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Score {
    /// What it is.
    pub application: &'static str,
    /// 0 (unusable) to 100 (as good as can be); none if something is missing.
    pub percent: Option<f64>,
    /// What decided: `latency`, `loss` or `rate`; empty at 100 % and where it is unknown.
    pub because: &'static str,
    /// What was not measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// What it means, in a sentence.
    pub meaning: String,
}

/// Where `value` stands between what is optimal (1) and what is unacceptable (0).
fn between(value: f64, optimal: f64, unacceptable: f64) -> f64 {
    (1.0 - (value - optimal) / (unacceptable - optimal)).clamp(0.0, 1.0)
}

/// How well an application works, without words: what a table of many lines needs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// What it is.
    pub application: &'static str,
    /// 0 (unusable) to 100 (as good as can be).
    pub percent: f64,
    /// What decided: `latency`, `loss` or `rate`; empty at 100 %.
    pub because: &'static str,
}

/// How well `application` works over a path with this latency and loss, whose slowest direction
/// may have `rate_bps`. A known part that is unacceptable makes 0 %, whatever else is unknown.
/// Otherwise all parts are needed, but for the rate, which need not be limited. Nothing is
/// allocated.
fn outcome(
    application: &Application,
    (latency, loss): (Option<Latency>, Option<f64>),
    rate_bps: Option<u64>,
) -> Option<Outcome> {
    let Application { name, optimal, unacceptable, rate_bps: least } = application;
    let latency_part = latency.map(|Latency { p50_ms, p99_ms }| {
        let (best, worst) = (optimal.latency, unacceptable.latency);
        let p50 = between(p50_ms, best.p50_ms, worst.p50_ms);
        p50.min(between(p99_ms, best.p99_ms, worst.p99_ms))
    });
    let loss_part = loss.map(|loss| between(loss, optimal.loss, unacceptable.loss));
    let rate_part = rate_bps.map(|rate| f64::from(u8::from(rate >= *least)));
    let parts = [("latency", latency_part), ("loss", loss_part), ("rate", rate_part)];
    let known = parts.into_iter().filter_map(|(because, part)| Some((because, part?)));
    let (because, worst) = known.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let has_all = latency.is_some() && loss.is_some();
    let because = if worst < 1.0 { because } else { "" };
    (has_all || worst == 0.0).then_some(Outcome {
        application: name,
        percent: worst * 100.0,
        because,
    })
}

/// The outcome of the application that works least well; of several, the first of
/// [`Application::ALL`]. None if none of them is known.
pub fn worst_outcome(
    directions: impl Iterator<Item = Measured>,
    rate_bps: Option<u64>,
) -> Option<Outcome> {
    let path = path(directions);
    let all = Application::ALL.iter().filter_map(|one| outcome(one, path, rate_bps));
    all.min_by(|one, other| one.percent.total_cmp(&other.percent))
}

/// The score of an application on a line.
pub fn score(application: &Application, evidence: &Evidence) -> Score {
    let name = application.name;
    let found = outcome(application, path(evidence.measured()), evidence.rate_bps);
    let (percent, because) = found.map_or((None, ""), |it| (Some(it.percent), it.because));
    let meaning = meaning(name, percent, because);
    Score { application: name, percent, because, missing: evidence.missing(), meaning }
}

fn meaning(name: &str, percent: Option<f64>, because: &str) -> String {
    let Some(percent) = percent else {
        return format!("Too little was measured to say how well {name} work.");
    };
    let why = match because {
        "latency" => "answers take too long",
        "loss" => "too many packets are lost",
        _ => "the rate is too low",
    };
    match percent {
        100.0.. => format!("Nothing in this network makes {name} worse."),
        75.0.. => format!("Good for {name}; at times {why}."),
        40.0.. => format!("{} suffer noticeably: {why}.", capital(name)),
        0.001.. => format!("{} work badly: {why}.", capital(name)),
        _ => format!("{} are unusable: {why}.", capital(name)),
    }
}

fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;
    use proptest::prelude::*;

    fn direction(port: &str, delay: [f64; 2], round_trip: [f64; 2], loss: f64) -> Direction {
        let latency = |[p50_ms, p99_ms]: [f64; 2]| Some(Latency { p50_ms, p99_ms });
        let (delay, round_trip) = (latency(delay), latency(round_trip));
        let measured = Measured { delay, round_trip, loss: Some(loss) };
        Direction { port: port.into(), measured }
    }

    fn line() -> Evidence {
        Evidence {
            directions: vec![
                direction("eth1", [1.0, 5.0], [4.0, 20.0], 0.0),
                direction("eth2", [2.0, 10.0], [23.0, 40.0], 0.001),
            ],
            rate_bps: Some(50_000_000),
        }
    }

    /// The example of the draft's section 3.4, with the median in the place of the 99.9th
    /// percentile.
    #[test]
    fn the_example_of_the_draft_scores_50() {
        let application = Application {
            name: "examples",
            optimal: limits(300.0, 200.0, 0.01),
            unacceptable: limits(600.0, 500.0, 0.05),
            rate_bps: 4_000_000,
        };
        let evidence = Evidence {
            directions: vec![direction("eth1", [0.0, 0.0], [375.0, 350.0], 0.02)],
            rate_bps: Some(28_000_000),
        };
        let score = score(&application, &evidence);
        assert_eq!((score.percent, score.because), (Some(50.0), "latency"));
        assert!((between(0.02, 0.01, 0.05) - 0.75).abs() < 1e-9);
        assert!((between(375.0, 300.0, 600.0) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn the_parts_of_a_path_add_up() {
        let whole = path(line().measured());
        assert_eq!(whole, (Some(Latency { p50_ms: 30.0, p99_ms: 75.0 }), Some(0.001)));
        let [calls, games, _] = Application::ALL.map(|one| score(&one, &line()));
        assert_eq!((calls.percent, games.percent), (Some(100.0), Some(100.0)));
        assert!(calls.meaning.contains("Nothing in this network"), "{}", calls.meaning);
    }

    #[test]
    fn what_is_unknown_stays_unknown() {
        let mut evidence = line();
        evidence.directions[1].measured.round_trip = None;
        let unknown = score(&Application::ALL[0], &evidence);
        assert_eq!((unknown.percent, unknown.because), (None, ""));
        assert_eq!(unknown.missing, ["round trips at eth2"]);
        let nothing = score(&Application::ALL[0], &Evidence::default());
        assert_eq!(nothing.missing, ["traffic"]);
    }

    #[test]
    fn a_part_that_is_unacceptable_decides_whatever_else_is_unknown() {
        let mut evidence = line();
        evidence.directions[1].measured.round_trip = None;
        evidence.directions[0].measured.loss = Some(0.2);
        let score = score(&Application::ALL[0], &evidence);
        assert_eq!((score.percent, score.because), (Some(0.0), "loss"));
        assert_eq!(score.meaning, "Video calls are unusable: too many packets are lost.");
    }

    #[test]
    fn the_worst_outcome_is_that_of_the_application_that_suffers_most() {
        let worst = |evidence: &Evidence| worst_outcome(evidence.measured(), evidence.rate_bps);
        assert_eq!(worst(&line()).unwrap().percent, 100.0);
        let mut evidence = line();
        evidence.directions[1].measured.round_trip = Some(Latency { p50_ms: 93.0, p99_ms: 100.0 });
        let found = worst(&evidence).unwrap();
        assert_eq!((found.application, found.because), ("games", "latency"));
        let scores = Application::ALL.map(|one| score(&one, &evidence).percent.unwrap());
        assert_eq!(found.percent, scores.into_iter().fold(100.0, f64::min));
        assert_eq!(worst(&Evidence::default()), None);
    }

    #[test]
    fn a_rate_below_the_least_makes_it_unusable() {
        let evidence = Evidence { rate_bps: Some(500_000), ..line() };
        assert_eq!(score(&Application::ALL[0], &evidence).because, "rate");
        let unlimited = Evidence { rate_bps: None, ..line() };
        assert_eq!(score(&Application::ALL[0], &unlimited).percent, Some(100.0));
    }

    proptest! {
        #[test]
        fn a_worse_line_has_no_better_score(
            p50 in 0.0f64..1000.0, more in 0.0f64..1000.0, loss in 0.0f64..1.0,
            worse in 0.0f64..500.0, lost in 0.0f64..0.5,
        ) {
            let of = |p50: f64, p99, loss| Evidence {
                directions: vec![direction("eth1", [0.0, 0.0], [p50, p99], loss)],
                rate_bps: None,
            };
            for application in Application::ALL {
                let good = score(&application, &of(p50, p50 + more, loss)).percent.unwrap();
                let bad = of(p50 + worse, p50 + more + worse, (loss + lost).min(1.0));
                let bad = score(&application, &bad).percent.unwrap();
                prop_assert!((0.0..=100.0).contains(&good) && bad <= good);
            }
        }
    }
}
