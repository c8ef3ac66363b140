//! The paths below `/api/history/`, `/api/quality` and `/api/alarms`.

use crate::watch::{Watch, direction};
use hyper::StatusCode;
use narrows_history::{
    History, Kind, Point, QueryError, Range, SUBJECTS_MAX, Summary, Track, What,
};
use narrows_quality::{
    Application, Direction, Evidence, LoadedPoint, Responsiveness, Score, responsiveness, score,
};
use serde::Serialize;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The points of a series if none are asked for.
const POINTS: usize = 500;
/// The time that is shown if none is asked for, in seconds.
const SPAN: u64 = 3600;
/// The time of a score if none is asked for, in seconds.
const SCORED: u64 = 900;

/// Why a request is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// For people, with an end of line.
    pub(crate) why: String,
}

fn refuse<T>(status: StatusCode, why: impl std::fmt::Display) -> Result<T, Refusal> {
    Err(Refusal { status, why: format!("{why}\n") })
}

impl From<QueryError> for Refusal {
    fn from(error: QueryError) -> Self {
        let status = match error {
            QueryError::Unknown(_) | QueryError::Port { .. } => StatusCode::NOT_FOUND,
            QueryError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, why: format!("{error}\n") }
    }
}

/// The JSON for a request for `path`; none if the path is another's.
pub(crate) fn answer(
    watch: Option<&Watch>,
    path: &str,
    query: Option<&str>,
) -> Option<Result<Vec<u8>, Refusal>> {
    let query = Query::new(query);
    Some(match path {
        "/api/history/series" => kept(watch).and_then(|(_, history)| series(history, &query)),
        "/api/history/subjects" => kept(watch).and_then(|(_, history)| subjects(history, &query)),
        "/api/history/worst" => kept(watch).and_then(|(_, history)| worst(history, &query)),
        "/api/quality" => kept(watch).and_then(|(watch, history)| quality(watch, history, &query)),
        "/api/alarms" => alarms(watch),
        _ => return None,
    })
}

fn kept(watch: Option<&Watch>) -> Result<(&Watch, &History), Refusal> {
    match watch.and_then(|watch| Some((watch, watch.history()?))) {
        Some(kept) => Ok(kept),
        None => refuse(
            StatusCode::NOT_FOUND,
            "no history is kept: start narrows serve with --history FILE",
        ),
    }
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(value).or_else(|error| refuse(StatusCode::INTERNAL_SERVER_ERROR, error))
}

/// The words behind the question mark.
struct Query(HashMap<String, String>);

impl Query {
    fn new(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn needed(&self, name: &str, like: &str) -> Result<&str, Refusal> {
        match self.get(name).filter(|value| !value.is_empty()) {
            Some(value) => Ok(value),
            None => {
                refuse(StatusCode::BAD_REQUEST, format!("{name}= is missing: add {name}={like}"))
            }
        }
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str, like: &str) -> Result<Option<T>, Refusal> {
        match self.get(name).map(str::parse) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(_)) => {
                refuse(StatusCode::BAD_REQUEST, format!("{name} is wrong: write {name}={like}"))
            }
        }
    }

    /// `from`, `to` and `points`; the last `span` seconds if they are missing.
    fn range(&self, span: u64) -> Result<Range, Refusal> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // A second has to be over to be known.
        let seconds = |name| self.parsed::<f64>(name, "SECONDS since 1970");
        let to = seconds("to")?.map_or(now, |to| to as u64);
        let from = seconds("from")?.map_or(to.saturating_sub(span), |from| from as u64);
        if from >= to {
            return refuse(StatusCode::BAD_REQUEST, "from is not before to: exchange them");
        }
        let points = self.parsed("points", "500, a number from 1 to 10000")?.unwrap_or(POINTS);
        Ok(Range { from, to, points })
    }

    fn what(&self) -> Result<What, Refusal> {
        let word = self.needed("what", "sent")?;
        word.parse().or_else(|error| refuse::<What>(StatusCode::BAD_REQUEST, error))
    }
}

fn series(history: &History, query: &Query) -> Result<Vec<u8>, Refusal> {
    let subject = query.needed("subject", "subscriber:NAME")?;
    let (what, range) = (query.what()?, query.range(SPAN)?);
    to_json(&history.series(subject, query.get("port"), what, range)?)
}

fn subjects(history: &History, query: &Query) -> Result<Vec<u8>, Refusal> {
    let most = query.parsed("most", "100")?.unwrap_or(100usize).min(SUBJECTS_MAX);
    to_json(&history.subjects(query.get("search").unwrap_or_default(), most))
}

fn worst(history: &History, query: &Query) -> Result<Vec<u8>, Refusal> {
    let (what, range) = (query.what()?, query.range(SPAN)?);
    let most = query.parsed("most", "20")?.unwrap_or(20usize);
    let kind = match query.get("kind") {
        None => None,
        Some(word) => match Kind::ALL.into_iter().find(|kind| kind.name() == word) {
            Some(kind) => Some(kind),
            None => {
                let why = "kind is one of port, site, subscriber and class";
                return refuse(StatusCode::BAD_REQUEST, why);
            }
        },
    };
    to_json(&history.worst(what, kind, range, most)?)
}

/// How good a subject's line is.
#[derive(Serialize)]
struct Quality {
    subject: String,
    from: u64,
    to: u64,
    /// The seconds of the points from which the figures are.
    step_s: u64,
    /// The lowest ceiling of its directions.
    rate_bps: Option<u64>,
    directions: Vec<Direction>,
    scores: Vec<Score>,
    responsiveness: Vec<Loaded>,
}

/// The responsiveness while one direction is under load.
#[derive(Serialize)]
struct Loaded {
    port: String,
    #[serde(flatten)]
    responsiveness: Responsiveness,
}

fn quality(watch: &Watch, history: &History, query: &Query) -> Result<Vec<u8>, Refusal> {
    let subject = query.needed("subject", "subscriber:NAME")?;
    let range = query.range(SCORED)?;
    let tracks = history.points(subject, range)?;
    let mut evidence = Evidence::default();
    for Track { key, step_s, points } in &tracks {
        let mut summary = Summary::default();
        points.iter().for_each(|(_, point)| summary.merge(&point.summary(*step_s)));
        evidence.directions.push(direction(&key.port, &summary));
        let slowest = [evidence.rate_bps, watch.ceiling(key)];
        evidence.rate_bps = slowest.into_iter().flatten().min();
    }
    let scores = Application::ALL.iter().map(|one| score(one, &evidence)).collect();
    let loaded = tracks.iter().map(|track| {
        let rate_bps = watch.ceiling(&track.key).unwrap_or_default() as f64;
        let points = track.points.iter().map(|(time, point)| LoadedPoint {
            sent_bps: point.sent_bps(),
            rate_bps,
            round_trip_ms: round_trip(&tracks, *time),
        });
        Loaded { port: track.key.port.clone(), responsiveness: responsiveness(points) }
    });
    to_json(&Quality {
        subject: tracks.first().map_or_else(|| subject.to_owned(), |track| track.key.subject()),
        from: range.from,
        to: range.to,
        step_s: tracks.first().map_or(0, |track| track.step_s),
        rate_bps: evidence.rate_bps,
        responsiveness: loaded.collect(),
        directions: evidence.directions,
        scores,
    })
}

/// The median round trip over the whole path in the interval that begins at `time`.
fn round_trip(tracks: &[Track], time: u64) -> Option<f64> {
    tracks.iter().try_fold(0.0, |sum, track| {
        let at = track.points.binary_search_by_key(&time, |(time, _)| *time).ok()?;
        let point: &Point = &track.points[at].1;
        let value = |what: What| what.of(point, track.step_s);
        Some(sum + value(What::DelayP50)? + value(What::RoundTripP50)?)
    })
}

fn alarms(watch: Option<&Watch>) -> Result<Vec<u8>, Refusal> {
    #[derive(Serialize)]
    struct All {
        rules: Vec<String>,
        alarms: Vec<narrows_alarms::Alarm>,
        left_out: u64,
    }
    match watch.and_then(Watch::alarms) {
        Some((rules, alarms, left_out)) => to_json(&All { rules, alarms, left_out }),
        None => refuse(
            StatusCode::NOT_FOUND,
            "there are no alarms: start narrows serve with --alarms FILE",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use narrows_control::NamesFile;
    use narrows_snapshot::{Class, Delays, Losses, Port, RoundTrip, Snapshot};
    use serde_json::{Value, json};
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const BEGIN: u64 = 1_700_000_000;

    struct Files(PathBuf);

    impl Files {
        fn new(test: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("nrw-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn watch(files: &Files, history: bool, alarms: Option<&str>) -> Option<Watch> {
        let alarms = alarms.map(|text| {
            let path = files.0.join("alarms");
            std::fs::write(&path, text).unwrap();
            path
        });
        let options = Options {
            listen: ([127, 0, 0, 1], 0).into(),
            credentials: None,
            dev: None,
            downlink: None,
            interval: Duration::from_secs(1),
            classes_max: 10,
            names: NamesFile::open(None).unwrap(),
            agent: narrows_control::fleet_agent::AgentSocket::default(),
            api: None,
            history: history.then(|| files.0.join("history.sqlite")),
            history_max: 100,
            alarms,
        };
        Watch::start(&options).unwrap()
    }

    /// A subscriber whose class at eth1 sends 9 Mbit/s of 10, and at eth2 1 Mbit/s.
    fn snapshot(second: u64) -> Arc<Snapshot> {
        let port = |name: &str, bytes: u64, p50_us: u64| {
            let mut class = Class {
                handle: "1:10".into(),
                name: Some("alice & bob".into()),
                ceil: Some(1_250_000),
                ..Class::default()
            };
            class.stats.figures.bytes = bytes * second;
            class.stats.figures.packets = bytes * second / 1000;
            class.stats.delays = Delays::new(vec![(70_000.0, bytes * second / 1000)]);
            // A window that differs from the one before.
            let p50_us = p50_us + second % 2;
            class.stats.round_trip = Some(RoundTrip { min_us: 1, p50_us, p99_us: p50_us * 2 });
            class.stats.losses = Some(Losses { segments: 100 + second % 2, before: 0, beyond: 0 });
            let mut port = Port { name: name.into(), classes: vec![class], ..Port::default() };
            port.total.tx_bytes = bytes * second;
            port
        };
        let ports = vec![port("eth1", 1_125_000, 10_000), port("eth2", 125_000, 20_000)];
        Arc::new(Snapshot { uptime_s: second as f64 + 1.0, ports, ..Snapshot::default() })
    }

    fn run(watch: &Watch, seconds: u64) -> Instant {
        let began = Instant::now();
        for second in 0..seconds {
            let now = began + Duration::from_secs(second);
            watch.see(Some(&snapshot(second)), BEGIN + second, now);
        }
        began + Duration::from_secs(seconds)
    }

    fn ask(watch: Option<&Watch>, path: &str) -> Result<Value, (u16, String)> {
        let (path, query) = path.split_once('?').map_or((path, None), |(at, it)| (at, Some(it)));
        match answer(watch, path, query).expect("a path of ours") {
            Ok(body) => Ok(serde_json::from_slice(&body).unwrap()),
            Err(refusal) => Err((refusal.status.as_u16(), refusal.why)),
        }
    }

    #[test]
    fn a_series_of_a_subscriber_has_its_values_and_maxima() {
        let files = Files::new("routes-series");
        let watch = watch(&files, true, None);
        run(watch.as_ref().unwrap(), 130);
        let time = format!("from={}&to={}&points=500", BEGIN + 10, BEGIN + 20);
        let subject = "subject=subscriber:alice+%26+bob";
        let path = format!("/api/history/series?{subject}&what=sent&{time}");
        let series = ask(watch.as_ref(), &path).unwrap();
        assert_eq!(
            series["subject"],
            json!({"id": "subscriber:alice & bob", "name": "alice & bob", "kind": "subscriber"})
        );
        assert_eq!((&series["what"], &series["unit"]), (&json!("sent"), &json!("bit/s")));
        assert_eq!((&series["step_s"], &series["from"]), (&json!(1), &json!(BEGIN + 10)));
        assert_eq!((&series["port"], &series["ports"]), (&json!("eth1"), &json!(["eth1", "eth2"])));
        for values in [&series["values"], &series["max"]] {
            let values = values.as_array().unwrap();
            assert_eq!(values.len(), 10);
            let near = |value: &Value| {
                value.as_f64().is_some_and(|value| (value / 9e6 - 1.0).abs() < 0.003)
            };
            assert!(values.iter().all(near), "{values:?}");
        }
        let path = format!("/api/history/series?{subject}&port=eth2&what=delay-p99&{time}");
        let delay = ask(watch.as_ref(), &path).unwrap();
        assert_eq!((&delay["unit"], &delay["max"]), (&json!("ms"), &Value::Null));
        assert!((delay["values"][0].as_f64().unwrap() / 70.0 - 1.0).abs() < 0.07);
        // The latest seconds, which are not in the file yet, and the time before it all.
        let path = format!(
            "/api/history/series?{subject}&what=sent&from={}&to={}",
            BEGIN - 5,
            BEGIN + 129
        );
        let series = ask(watch.as_ref(), &path).unwrap();
        let values = series["values"].as_array().unwrap();
        assert!(values[..5].iter().all(Value::is_null));
        assert!(values[133].as_f64().is_some(), "{:?}", values.last());
    }

    #[test]
    fn subjects_are_found_and_ranked() {
        let files = Files::new("routes-subjects");
        let watch = watch(&files, true, None);
        run(watch.as_ref().unwrap(), 130);
        let found = ask(watch.as_ref(), "/api/history/subjects?search=ALICE").unwrap();
        assert_eq!(found.as_array().unwrap().len(), 1);
        assert_eq!(found[0]["ports"], json!(["eth1", "eth2"]));
        let all = ask(watch.as_ref(), "/api/history/subjects").unwrap();
        assert_eq!(all.as_array().unwrap().len(), 3);
        let time = format!("from={BEGIN}&to={}", BEGIN + 130);
        let path = format!("/api/history/worst?what=sent&kind=subscriber&{time}");
        let worst = ask(watch.as_ref(), &path).unwrap();
        let ports: Vec<_> = worst.as_array().unwrap().iter().map(|one| &one["port"]).collect();
        assert_eq!(ports, ["eth1", "eth2"]);
    }

    #[test]
    fn the_quality_of_a_line_is_that_of_its_whole_path() {
        let files = Files::new("routes-quality");
        let watch = watch(&files, true, None);
        run(watch.as_ref().unwrap(), 130);
        let path = format!("/api/quality?subject=alice+%26+bob&from={BEGIN}&to={}", BEGIN + 130);
        let quality = ask(watch.as_ref(), &path).unwrap();
        assert_eq!(quality["directions"].as_array().unwrap().len(), 2);
        assert_eq!(quality["rate_bps"], json!(10_000_000));
        // 70 ms of delay twice, 10 and 20 ms of round trips: 170 ms of 100 to 400.
        let calls = &quality["scores"][0];
        assert_eq!(calls["application"], json!("video calls"));
        assert!((calls["percent"].as_f64().unwrap() - 77.0).abs() < 8.0, "{calls}");
        assert_eq!(calls["because"], json!("latency"));
        let loaded = &quality["responsiveness"][0];
        assert_eq!(loaded["port"], json!("eth1"));
        assert!(
            (loaded["rpm"].as_f64().unwrap() / (60_000.0 / 170.0) - 1.0).abs() < 0.1,
            "{loaded}"
        );
        assert_eq!(quality["responsiveness"][1]["rpm"], Value::Null, "it is not under load");
    }

    #[test]
    fn alarms_fire_and_are_delivered() {
        let files = Files::new("routes-alarms");
        let told = files.0.join("told");
        let rules = format!(
            "subscriber delay p99 > 50ms at eth1 for 20s\nport down\nsubscriber at ceiling\n\
             command /bin/sh -c 'cat >{}'\n",
            told.display()
        );
        let watch = watch(&files, false, Some(&rules));
        let end = run(watch.as_ref().unwrap(), 70);
        let all = ask(watch.as_ref(), "/api/alarms").unwrap();
        assert_eq!(all["rules"].as_array().unwrap().len(), 3);
        let alarms = all["alarms"].as_array().unwrap();
        assert_eq!(alarms.len(), 1, "{alarms:?}");
        assert_eq!(alarms[0]["state"], json!("firing"));
        assert_eq!(alarms[0]["subject"]["port"], json!("eth1"));
        while std::fs::read_to_string(&told).unwrap_or_default().is_empty() {
            assert!(end.elapsed() < Duration::from_secs(60), "nothing is delivered");
            std::thread::yield_now();
        }
        let text = std::fs::read_to_string(&told).unwrap();
        assert!(text.contains("began: subscriber alice & bob at eth1: "), "{text}");
        let metrics = crate::metrics::watched(watch.as_ref().unwrap(), 10);
        assert!(metrics.contains("narrows_alarms{state=\"firing\"} 1\n"), "{metrics}");
        // No history is kept for it.
        assert_eq!(ask(watch.as_ref(), "/api/quality?subject=x").unwrap_err().0, 404);
    }

    #[test]
    fn an_instance_that_is_gone_is_told_once() {
        let files = Files::new("routes-gone");
        let watch = watch(&files, false, Some("instance gone for 20s\nport down"));
        let watch = watch.as_ref().unwrap();
        let from = run(watch, 30);
        for second in 0..50 {
            watch.see(None, BEGIN + 30 + second, from + Duration::from_secs(second));
        }
        let (_, alarms, _) = watch.alarms().unwrap();
        let rules: Vec<_> = alarms.iter().map(|alarm| (alarm.rule.as_str(), alarm.state)).collect();
        assert_eq!(rules, [("instance gone for 20s", narrows_alarms::State::Firing)]);
    }

    #[test]
    fn scores_are_made_of_whole_windows() {
        let files = Files::new("routes-scores");
        let watch = watch(&files, true, None).unwrap();
        run(&watch, 299);
        assert!(watch.scores().is_empty());
        run(&watch, 312);
        assert_eq!(watch.scores().len(), 1);
        let metrics = crate::metrics::watched(&watch, 10);
        let line = "narrows_quality_ratio{subscriber=\"alice & bob\",application=\"games\"} ";
        assert!(metrics.contains(line), "{metrics}");
    }

    #[test]
    fn bad_requests_say_what_to_write() {
        let files = Files::new("routes-bad");
        let watch = watch(&files, true, None);
        run(watch.as_ref().unwrap(), 15);
        let refused = |path: &str| ask(watch.as_ref(), path).unwrap_err();
        let series = "/api/history/series";
        assert!(refused(series).1.contains("subject=subscriber:NAME"));
        assert!(refused(&format!("{series}?subject=x")).1.contains("what=sent"));
        assert!(refused(&format!("{series}?subject=x&what=y")).1.contains("delay-p99"));
        assert_eq!(refused(&format!("{series}?subject=x&what=sent")).0, 404);
        let alice = format!("{series}?subject=alice+%26+bob&what=sent");
        assert!(refused(&format!("{alice}&port=eth9")).1.contains("eth1 and eth2"));
        assert_eq!(refused(&format!("{alice}&from=5&to=4")).0, 400);
        assert_eq!(refused(&format!("{alice}&points=many")).0, 400);
        assert_eq!(refused("/api/history/worst?what=sent&kind=flow").0, 400);
        assert!(refused("/api/alarms").1.contains("--alarms FILE"));
        for odd in ["from=-5", "from=1e300&to=1e301", "from=nan", "points=0", "points=99999999999"]
        {
            let _ = ask(watch.as_ref(), &format!("{alice}&{odd}"));
        }
        assert_eq!(ask(None, "/api/history/subjects").unwrap_err().0, 404);
    }
}
