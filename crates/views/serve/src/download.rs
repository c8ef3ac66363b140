//! The latest snapshot as JSON, made while it is sent.
//!
//! The text of many classes is longer than what it is made of, and clients may read it slowly. So
//! no text is held beyond the part that is sent next. What a slow client holds is a snapshot that
//! is no longer the latest. At most [`HELD_MAX`] are held: clients share one that is not old, and
//! the one that has been read for longest is given up, with the connections of its clients, for a
//! new one.

use hyper::body::{Body, Bytes, Frame};
use narrows_snapshot::Snapshot;
use serde::Serialize;
use serde::ser::Error;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How many snapshots are read at a time.
const HELD_MAX: usize = 2;
/// For how long clients get the one that others read, where as many are held.
const SHARED_FOR: Duration = Duration::from_secs(10);
/// How much is made at once, in bytes, and no more than an element beyond.
const PART: usize = 1 << 16;

/// A snapshot and how its text begins, goes on and ends around the trees of its ports.
#[derive(Debug)]
pub(crate) struct EncodedSnapshot {
    pub(crate) snapshot: Arc<Snapshot>,
    before_ports: String,
    /// Each without its trees, and without its end.
    ports: Vec<String>,
    behind_ports: String,
}

impl EncodedSnapshot {
    /// # Errors
    /// If it has no JSON.
    pub(crate) fn new(mut snapshot: Snapshot) -> serde_json::Result<Self> {
        let mut ports = std::mem::take(&mut snapshot.ports);
        let around = serde_json::to_string(&snapshot)?;
        let mut texts = Vec::new();
        for port in &mut ports {
            let trees = (std::mem::take(&mut port.qdiscs), std::mem::take(&mut port.classes));
            let mut text = serde_json::to_string(&*port)?;
            (port.qdiscs, port.classes) = trees;
            text.pop();
            texts.push(text);
        }
        snapshot.ports = ports;
        // Within a text in JSON there is no quotation mark without a backslash before it.
        let (before, behind) = around
            .split_once(NO_PORTS)
            .ok_or_else(|| serde_json::Error::custom("a snapshot has no list of ports"))?;
        Ok(Self {
            snapshot: Arc::new(snapshot),
            before_ports: format!("{before}\"ports\":["),
            ports: texts,
            behind_ports: format!("]{behind}"),
        })
    }
}

/// The ports of a snapshot without any.
const NO_PORTS: &str = "\"ports\":[]";

/// The snapshots that clients read.
#[derive(Debug, Default)]
pub(crate) struct Downloads(Mutex<Vec<Weak<Reading>>>);

/// A snapshot that clients read.
#[derive(Debug)]
pub(crate) struct Reading {
    began: Instant,
    /// None if it is given up.
    encoded: Mutex<Option<Arc<EncodedSnapshot>>>,
}

impl Reading {
    fn encoded(&self) -> Option<Arc<EncodedSnapshot>> {
        lock(&self.encoded).clone()
    }
}

impl Downloads {
    /// Begins to read `latest` at `now`, or one that others read.
    pub(crate) fn begin(&self, latest: &Arc<EncodedSnapshot>, now: Instant) -> Arc<Reading> {
        let mut held = lock(&self.0);
        held.retain(|reading| reading.strong_count() > 0);
        let mut known: Vec<Arc<Reading>> = held.iter().filter_map(Weak::upgrade).collect();
        let is_latest = |reading: &&Arc<Reading>| {
            reading.encoded().is_some_and(|encoded| Arc::ptr_eq(&encoded, latest))
        };
        if let Some(same) = known.iter().find(is_latest) {
            return Arc::clone(same);
        }
        if known.len() >= HELD_MAX {
            let newest = &known[known.len() - 1];
            if now.saturating_duration_since(newest.began) < SHARED_FOR {
                return Arc::clone(newest);
            }
            lock(&known.remove(0).encoded).take();
        }
        known.push(Arc::new(Reading { began: now, encoded: Mutex::new(Some(Arc::clone(latest))) }));
        *held = known.iter().map(Arc::downgrade).collect();
        known.swap_remove(known.len() - 1)
    }
}

/// The body of an answer with a snapshot in it.
#[derive(Debug)]
pub(crate) struct Download {
    reading: Arc<Reading>,
    next: Next,
    /// What follows behind the snapshot.
    end: &'static str,
    part: Vec<u8>,
    /// Whether other connections had their turn since the last part.
    has_waited: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Begin,
    Port(usize),
    /// The element with the second number of a list of the port with the first.
    Qdisc(usize, usize),
    Class(usize, usize),
    End,
    Nothing,
}

impl Download {
    /// The snapshot of `reading` between `begin` and `end`.
    pub(crate) fn new(begin: String, reading: Arc<Reading>, end: &'static str) -> Self {
        let (next, part) = (Next::Begin, begin.into_bytes());
        Self { reading, next, end, part, has_waited: true }
    }

    /// Appends what comes next to the part.
    fn step(&mut self, encoded: &EncodedSnapshot) -> io::Result<()> {
        let ports = &encoded.snapshot.ports;
        let mut add = |text: &str| self.part.extend_from_slice(text.as_bytes());
        self.next = match self.next {
            Next::Begin => {
                add(&encoded.before_ports);
                Next::Port(0)
            }
            Next::Port(port) => match encoded.ports.get(port) {
                Some(text) => {
                    add(if port == 0 { "" } else { "," });
                    add(text);
                    Next::Qdisc(port, 0)
                }
                None => Next::End,
            },
            Next::Qdisc(port, number) => {
                match element(&mut self.part, "qdiscs", &ports[port].qdiscs, number)? {
                    true => Next::Qdisc(port, number + 1),
                    false => Next::Class(port, 0),
                }
            }
            Next::Class(port, number) => {
                match element(&mut self.part, "classes", &ports[port].classes, number)? {
                    true => Next::Class(port, number + 1),
                    false => {
                        self.part.push(b'}');
                        Next::Port(port + 1)
                    }
                }
            }
            Next::End => {
                add(&encoded.behind_ports);
                add(self.end);
                Next::Nothing
            }
            Next::Nothing => Next::Nothing,
        };
        Ok(())
    }

    /// The next part; none at the end.
    fn part(&mut self) -> Option<io::Result<Bytes>> {
        if let Next::Nothing = self.next {
            return None;
        }
        let Some(encoded) = self.reading.encoded() else {
            self.next = Next::Nothing;
            return Some(Err(io::ErrorKind::TimedOut.into()));
        };
        while self.part.len() < PART && !matches!(self.next, Next::Nothing) {
            if let Err(error) = self.step(&encoded) {
                self.next = Next::Nothing;
                return Some(Err(error));
            }
        }
        Some(Ok(std::mem::take(&mut self.part).into()))
    }
}

/// Appends the element `number` of the list `all` with this name, or the end of the list. Whether
/// there is such an element. An empty list is left out.
fn element<T: Serialize>(
    part: &mut Vec<u8>,
    name: &str,
    all: &[T],
    number: usize,
) -> io::Result<bool> {
    match all.get(number) {
        Some(element) => {
            if number == 0 {
                part.extend_from_slice(format!(",\"{name}\":[").as_bytes());
            } else {
                part.push(b',');
            }
            serde_json::to_writer(part, element)?;
            Ok(true)
        }
        None => {
            if number > 0 {
                part.push(b']');
            }
            Ok(false)
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        // A scrape must not wait until a client that reads fast has it all.
        if !std::mem::replace(&mut self.has_waited, false) {
            self.has_waited = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.part().map(|part| part.map(Frame::data)))
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_snapshot::{Class, Port, Qdisc};

    fn encoded(qdiscs: usize, classes: usize) -> Arc<EncodedSnapshot> {
        let port = |name: &str| Port {
            name: name.into(),
            qdiscs: vec![Qdisc { kind: "fq".into(), ..Qdisc::default() }; qdiscs],
            classes: vec![Class { kind: "htb".into(), ..Class::default() }; classes],
            ..Port::default()
        };
        let ports = vec![port("eth1"), port("\"ports\":[]}")];
        let state = "\"ports\":[]\\".into();
        let snapshot = Snapshot { state, ports, uptime_s: 1.5, ..Snapshot::default() };
        Arc::new(EncodedSnapshot::new(snapshot).unwrap())
    }

    fn read(mut download: Download) -> io::Result<Vec<Bytes>> {
        std::iter::from_fn(|| download.part()).collect()
    }

    #[test]
    fn the_parts_together_are_the_json_of_the_snapshot() {
        for (qdiscs, classes) in [(0, 0), (1, 0), (0, 1), (2, 1), (3, 2000)] {
            let encoded = encoded(qdiscs, classes);
            let reading = Downloads::default().begin(&encoded, Instant::now());
            let parts = read(Download::new("{\"now\":".into(), reading, "}")).unwrap();
            let most = parts.iter().map(Bytes::len).max();
            assert!(most < Some(PART + 1000), "{most:?}");
            let text = String::from_utf8(parts.concat()).unwrap();
            let whole = serde_json::to_string(&*encoded.snapshot).unwrap();
            assert_eq!(text, format!("{{\"now\":{whole}}}"), "{qdiscs} and {classes}");
        }
    }

    #[test]
    fn slow_clients_hold_few_snapshots() {
        let (downloads, began) = (Downloads::default(), Instant::now());
        let begin = |encoded: &Arc<EncodedSnapshot>, second| {
            let reading = downloads.begin(encoded, began + Duration::from_secs(second));
            Download::new(String::new(), reading, "")
        };
        let all: Vec<Arc<EncodedSnapshot>> = (0..6).map(|_| encoded(1, 5000)).collect();
        let mut slow = begin(&all[0], 0);
        slow.part().unwrap().unwrap();
        let [second, same] = [begin(&all[1], 1), begin(&all[1], 2)];
        assert!(Arc::ptr_eq(&second.reading, &same.reading));
        let shared = begin(&all[2], 10);
        assert!(Arc::ptr_eq(&shared.reading, &second.reading), "that of 1 s is not old");
        let new = begin(&all[3], 11);
        assert!(Arc::ptr_eq(&new.reading.encoded().unwrap(), &all[3]));
        assert!(slow.part().unwrap().is_err() && slow.part().is_none(), "the oldest is given up");
        let held = |encoded: &Arc<EncodedSnapshot>| Arc::strong_count(encoded) - 1;
        assert_eq!(all.iter().map(held).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 0]);
        assert!(read(shared).is_ok() && read(new).is_ok());
        drop((second, same));
        assert_eq!(all.iter().map(held).sum::<usize>(), 0);
        let last = begin(&all[5], 12);
        assert!(Arc::ptr_eq(&last.reading.encoded().unwrap(), &all[5]));
    }
}
