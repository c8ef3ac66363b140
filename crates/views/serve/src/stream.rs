//! A stream of events: a message for each interval, as long as the client reads.
//!
//! The messages are those of `text/event-stream` in the HTML standard (section "Server-sent
//! events"). A message's id is the time of its snapshot, so a browser that connects again says
//! which points of the charts it has. A client that reads slowly misses intervals, and no message
//! waits behind another one.

use crate::frame::{Frame, Sent};
use crate::sampler::{Known, Sampler};
use crate::view::{
    Detail, Equipment, Kind, Model, Overview, Parameters, Rows, Screen, Standing, scale, window,
};
use hyper::body::{Body, Bytes, Frame as BodyFrame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// After this time without a message, a comment tells whether the client is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// After what a browser connects again, in milliseconds.
const RETRY_MS: u32 = 1000;
/// What the charts of the first screen show.
const CHARTS: [&str; 5] = ["limit", "delivered", "delay", "round trip", "drops"];

/// The body of an answer that goes on.
#[derive(Debug)]
pub(crate) struct Stream(mpsc::Receiver<Bytes>);

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| Ok(BodyFrame::data(part))))
    }
}

/// The stream that `query` asks for. `last` is the id of the last message that the client has.
///
/// # Errors
/// A sentence that says what a query has.
pub(crate) fn open(
    sampler: &Sampler,
    query: Option<&str>,
    last: Option<f64>,
) -> Result<Stream, String> {
    let screen = Parameters::new(query).screen()?;
    let (to, from) = mpsc::channel(1);
    let sampler = sampler.clone();
    tokio::spawn(async move {
        let mut ticks = sampler.ticks();
        let (mut sent, mut last) = (Sent::default(), last);
        let mut begin = format!("retry: {RETRY_MS}\n");
        loop {
            ticks.mark_unchanged();
            let (frame, time) = {
                let known = sampler.known();
                let newest = known.newest();
                (frame(&known, &screen, last), newest)
            };
            let message = match &frame {
                Ok(frame) => sent.message(frame),
                Err(error) => serde_json::json!({ "error": error.to_string() }).to_string(),
            };
            let text = format!("{begin}id: {}\ndata: {message}\n\n", time.unwrap_or(0.0));
            begin.clear();
            last = time.or(last);
            if to.send(text.into()).await.is_err() {
                return;
            }
            loop {
                match tokio::time::timeout(KEEP_ALIVE, ticks.changed()).await {
                    Ok(Ok(())) => break,
                    Ok(Err(_)) => return,
                    Err(_) if to.send(Bytes::from_static(b":\n\n")).await.is_err() => return,
                    Err(_) => (),
                }
            }
        }
    });
    Ok(Stream(from))
}

/// What `screen` shows. A client has the points of charts up to `last`.
fn frame(known: &Known, screen: &Screen, last: Option<f64>) -> serde_json::Result<Frame> {
    let mut frame = Frame::default();
    let latest = known.model.as_deref();
    let standing =
        Standing::new(latest.map(|model| (&*model.snapshot, model.time)), known.gone.as_ref());
    frame.parts.push(("standing", serde_json::to_string(&standing)?));
    frame.parts.push(("interval", serde_json::to_string(&known.interval.as_secs_f64())?));
    frame.parts.push(("scale", scale().to_string()));
    let Some(model) = latest else { return Ok(frame) };
    frame.news.push(("time", serde_json::to_string(&model.time)?));
    match screen {
        Screen::Now { span_s } => {
            let overview = Overview::new(model);
            frame.parts.extend(overview.parts(&known.list)?);
            frame.rows = Some(texts(overview.worst())?);
            // No more than it shows, and nothing that it has.
            let after = known.newest().map_or(0.0, |newest| newest - span_s);
            let after = last.map_or(after, |last| last.max(after));
            let recent = known.history.since_of(after, &CHARTS);
            frame.news.push(("recent", serde_json::to_string(&recent)?));
            let ports = overview.ports();
            let heat = known.heat.since(after, &ports);
            frame.news.push(("heat", serde_json::to_string(&heat)?));
        }
        Screen::Rows(asked) => {
            let window = window(model, asked);
            frame.parts.push(("total", window.total.to_string()));
            frame.parts.push(("offset", window.offset.to_string()));
            frame.rows = Some(texts(window.rows)?);
            if asked.kind == Kind::Hosts {
                frame.parts.push(("flows", Equipment(model).flows()?));
            }
        }
        Screen::One { kind, id } => match Detail::find(model, *kind, id) {
            Some(detail) => {
                frame.parts.push(("missing", "false".into()));
                frame.parts.extend(detail.parts(&known.list)?);
            }
            None => frame.parts.push(("missing", "true".into())),
        },
        Screen::Box => frame.parts.extend(Equipment(model).parts(&known.list)?),
    }
    Ok(frame)
}

fn texts(rows: Vec<crate::view::Row<'_>>) -> serde_json::Result<Vec<(String, String)>> {
    let text =
        |row: crate::view::Row<'_>| Ok((row.subject.id.to_string(), serde_json::to_string(&row)?));
    rows.into_iter().map(text).collect()
}

/// The rows of one answer, as JSON.
///
/// # Errors
/// If they have no JSON.
pub(crate) fn rows(model: &Model, asked: &Rows) -> serde_json::Result<String> {
    serde_json::to_string(&window(model, asked))
}

/// All of one subject, as JSON; none if there is none with this id.
///
/// # Errors
/// If it has no JSON.
pub(crate) fn row(known: &Known, kind: Kind, id: &str) -> serde_json::Result<Option<String>> {
    let found = known.model.as_deref().and_then(|model| Detail::find(model, kind, id));
    let Some(detail) = found else { return Ok(None) };
    let parts = detail.parts(&known.list)?;
    Ok(Some(Sent::default().message(&Frame { parts, ..Frame::default() })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use narrows_control::{ControlError, NamesFile};
    use narrows_snapshot::{Class, Port, Snapshot};
    use serde_json::Value;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// An instance whose class 1:1 sends 125 kB each second; it ends after so many answers.
    fn sampler(answers: u64) -> Sampler {
        let count = AtomicU64::new(0);
        let ask = move |_| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            if number >= answers {
                return Err(ControlError::NoInstance(String::new()).into());
            }
            let classes = ["1:1", "1:2"].map(|handle| {
                let mut class = Class { handle: handle.into(), ..Class::default() };
                class.stats.figures.bytes = if handle == "1:1" { number * 125_000 } else { 0 };
                class
            });
            let port = Port { name: "lan".into(), classes: classes.into(), ..Port::default() };
            let (state, fail) = ("running".into(), "open (bridge nrwbr2)".into());
            let uptime_s = number as f64 + 1.0;
            Ok(Snapshot { state, fail, uptime_s, ports: vec![port], ..Snapshot::default() }.into())
        };
        let interval = Duration::from_millis(50);
        Sampler::start(ask, interval, NamesFile::open(None).unwrap(), Some("lan".into()), None)
    }

    /// Reads messages until one is as `is_it` says; the id of each is checked to grow.
    fn until(query: &str, answers: u64, is_it: impl Fn(&Value) -> bool) -> Vec<Value> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut stream = open(&sampler(answers), Some(query), None).unwrap();
            let (mut messages, mut last) = (Vec::new(), 0.0);
            loop {
                let part = stream.frame().await.unwrap().unwrap().into_data().unwrap();
                let text = std::str::from_utf8(&part).unwrap();
                assert!(text.ends_with("\n\n"), "{text:?}");
                let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
                let id: f64 = field("id: ").unwrap().parse().unwrap();
                assert!(id >= last);
                last = id;
                messages.push(serde_json::from_str(field("data: ").unwrap()).unwrap());
                if is_it(&messages[messages.len() - 1]) {
                    return messages;
                }
            }
        })
    }

    #[test]
    fn a_message_has_the_rows_that_changed() {
        let row = |message: &Value| message["rows"]["1:1"]["down"]["rate"].clone();
        let query = "view=rows&sort=name&desc=0";
        let messages = until(query, 1_000, |message| row(message) == 1_000_000);
        let orders = messages.iter().filter(|message| message.get("order").is_some()).count();
        assert_eq!(orders, 1, "the order has not changed");
        let last = &messages[messages.len() - 1];
        assert!(last["time"].as_f64().is_some(), "it is of now");
    }

    #[test]
    fn a_stop_is_told_and_old_points_are_not_sent_again() {
        let is_bad = |message: &Value| message["standing"]["title"] == "Stopped";
        let messages = until("view=now&span=60", 4, is_bad);
        let points: Vec<f64> = messages
            .iter()
            .filter_map(|message| message["recent"]["times"].as_array())
            .flatten()
            .filter_map(Value::as_f64)
            .collect();
        assert!(points.is_sorted_by(|one, two| one < two), "{points:?}");
        let standing = &messages[messages.len() - 1]["standing"];
        assert!(standing["detail"].as_str().unwrap().contains("UNSHAPED"));
        assert!(standing["stale_since"].as_f64().is_some());
    }

    #[test]
    fn one_that_is_not_there_is_said_to_be_missing() {
        let known = |message: &Value| message.get("missing").is_some();
        let missing = |id: &str| {
            let messages = until(&format!("view=one&id={id}"), 1_000, known);
            messages[messages.len() - 1]["missing"].clone()
        };
        assert_eq!(missing("1:9"), true);
        assert_eq!(missing("1:1"), false);
    }

    #[test]
    fn the_box_has_its_parts() {
        let messages = until("view=box", 1_000, |message| message.get("workers").is_some());
        assert_eq!(messages[messages.len() - 1]["ports"][0]["name"], "lan");
    }

    #[test]
    fn a_query_that_is_wrong_opens_no_stream() {
        let sampler = sampler(1);
        assert!(open(&sampler, Some("view=elsewhere"), None).is_err());
    }
}
