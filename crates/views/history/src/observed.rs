//! What each direction did between two snapshots.

use crate::{Key, SeriesId, Summary, Times};
use narrows_snapshot::{Change, Class, Delays, Losses, Port, Snapshot};
use std::collections::{HashMap, HashSet};

/// What ports and classes did since the earlier snapshot of `change`, with their keys. A direction
/// without an earlier state, or whose counters went back, has nothing: its figures are not of this
/// interval.
pub fn observed(now: &Snapshot, change: &Change<'_>) -> Vec<(Key, Summary)> {
    let mut all = Vec::new();
    each(now, change, |port, class, has_classes, summary| {
        let key = match class {
            None => Key::of_port(port),
            Some(class) => Key::of_class(port, class, has_classes),
        };
        all.push((key, summary));
    });
    all
}

/// Remembers which series each port and class has, so that no names are made for each snapshot.
#[derive(Debug, Default)]
pub(crate) struct Places(HashMap<Box<str>, OfPort>);

/// By handle; a port itself has none.
type OfPort = HashMap<Box<str>, Place>;

/// What made the key of a port or class, and its series.
#[derive(Debug)]
struct Place {
    name: Option<Box<str>>,
    has_classes: bool,
    series: Option<SeriesId>,
}

impl Places {
    /// What was observed, with the series that `series` has for a key that is not yet remembered.
    /// Directions that have none are left out.
    pub(crate) fn observe(
        &mut self,
        now: &Snapshot,
        change: &Change<'_>,
        mut series: impl FnMut(Key) -> Option<SeriesId>,
    ) -> Vec<(SeriesId, Summary)> {
        let mut all = Vec::new();
        each(now, change, |port, class, has_classes, summary| {
            let handle = class.map_or("", |class| class.handle.as_str());
            let name = class.and_then(|class| class.name.as_deref());
            let known = self.0.get(port.name.as_str()).and_then(|port| port.get(handle));
            let id = match known {
                Some(place)
                    if place.name.as_deref() == name && place.has_classes == has_classes =>
                {
                    place.series
                }
                _ => {
                    let id = series(match class {
                        None => Key::of_port(port),
                        Some(class) => Key::of_class(port, class, has_classes),
                    });
                    let port = self.0.entry(port.name.as_str().into()).or_default();
                    let name = name.map(Into::into);
                    port.insert(handle.into(), Place { name, has_classes, series: id });
                    id
                }
            };
            all.extend(id.map(|id| (id, summary)));
        });
        all
    }

    /// Forgets all: classes that are gone, and refusals.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

/// Calls `with` for each port, then for each of its classes.
fn each(
    now: &Snapshot,
    change: &Change<'_>,
    mut with: impl FnMut(&Port, Option<&Class>, bool, Summary),
) {
    for port in &now.ports {
        if let Some(summary) = of_port(port, change) {
            with(port, None, false, summary);
        }
        let parents: HashSet<&str> =
            port.classes.iter().filter_map(|class| class.parent.as_deref()).collect();
        for class in &port.classes {
            if let Some(summary) = of_class(port, class, change) {
                with(port, Some(class), parents.contains(class.handle.as_str()), summary);
            }
        }
    }
}

fn of_port(port: &Port, change: &Change<'_>) -> Option<Summary> {
    let was = change.port(&port.name)?;
    let bytes = port.total.tx_bytes.checked_sub(was.total.tx_bytes)?;
    let drops = port.total.drops.checked_sub(was.total.drops)?;
    let mut summary = sent(change, bytes, drops);
    grown(&port.delays, &was.delays, &mut summary.delays);
    if let Some(is) = &port.round_trips {
        let none = narrows_snapshot::RoundTrips::default();
        let was = was.round_trips.as_ref().unwrap_or(&none);
        grown(&is.times, &was.times, &mut summary.round_trips);
        summary.slow_round_trips = summary.round_trips.clone();
        losses(&mut summary, is.losses.since(&was.losses));
    }
    Some(summary)
}

fn of_class(port: &Port, class: &Class, change: &Change<'_>) -> Option<Summary> {
    let was = &change.class(&port.name, class)?.stats;
    let is = &class.stats;
    let bytes = is.figures.bytes.checked_sub(was.figures.bytes)?;
    let drops = is.figures.drops.checked_sub(was.figures.drops)?;
    let mut summary = sent(change, bytes, drops);
    if is.figures.packets != was.figures.packets {
        grown(&is.delays, &was.delays, &mut summary.delays);
    }
    // Those of the last window of some seconds: each window counts once.
    if let Some(window) = is.round_trip.filter(|window| Some(*window) != was.round_trip) {
        summary.round_trips.add(window.p50_us as f64, 1);
        summary.slow_round_trips.add(window.p99_us as f64, 1);
    }
    if let Some(window) = is.losses.filter(|window| Some(*window) != was.losses) {
        losses(&mut summary, window);
    }
    Some(summary)
}

fn sent(change: &Change<'_>, bytes: u64, drops: u64) -> Summary {
    Summary::sent(change.seconds(), bytes as f64 * 8.0, drops as f64)
}

fn losses(summary: &mut Summary, losses: Losses) {
    summary.segments = losses.segments as f64;
    summary.lost_before = losses.before as f64;
    summary.lost_beyond = losses.beyond as f64;
}

/// Adds the packets of `is` that are not in `was`, as [`Delays::since`] finds them, but without
/// making a list of them. Nothing if counts went back: when those packets left is not known.
fn grown(is: &Delays, was: &Delays, to: &mut Times) {
    let mut before = was.counts.iter().peekable();
    let mut found = Times::default();
    for (us, packets) in is.counts.iter() {
        let was = before.next_if(|(at, _)| *at == us).map_or(0, |(_, packets)| packets);
        match packets.checked_sub(was) {
            Some(grown) => found.add(us, grown),
            None => return,
        }
    }
    if before.peek().is_none() {
        to.merge(&found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Point, What};

    fn class(handle: &str, parent: Option<&str>, name: Option<&str>, bytes: u64) -> Class {
        let mut class = Class {
            handle: handle.into(),
            parent: parent.map(Into::into),
            name: name.map(Into::into),
            ..Class::default()
        };
        class.stats.figures.bytes = bytes;
        class.stats.figures.packets = bytes / 1000;
        class.stats.delays = Delays::new(vec![(500.0, bytes / 1000)]);
        class
    }

    fn snapshot(uptime_s: f64, classes: Vec<Class>) -> Snapshot {
        let port = Port { name: "eth1".into(), classes, ..Port::default() };
        Snapshot { uptime_s, ports: vec![port], ..Snapshot::default() }
    }

    #[test]
    fn a_class_is_a_site_if_there_are_classes_below_it() {
        let classes = || {
            vec![
                class("1:1", None, Some("north"), 0),
                class("1:10", Some("1:1"), Some("alice"), 0),
                class("1:11", Some("1:1"), None, 0),
            ]
        };
        let (was, is) = (snapshot(1.0, classes()), snapshot(2.0, classes()));
        let all = observed(&is, &Change::between(&was, &is).unwrap());
        let found: Vec<_> = all.iter().map(|(key, _)| (key.kind, key.name.as_str())).collect();
        assert_eq!(
            found,
            [
                (Kind::Port, "eth1"),
                (Kind::Site, "north"),
                (Kind::Subscriber, "alice"),
                (Kind::Class, "eth1/1:11")
            ]
        );
    }

    #[test]
    fn what_is_observed_is_what_was_added() {
        let was = snapshot(1.0, vec![class("1:10", None, Some("alice"), 1_000_000)]);
        let is = snapshot(3.0, vec![class("1:10", None, Some("alice"), 3_000_000)]);
        let all = observed(&is, &Change::between(&was, &is).unwrap());
        let summary = &all[1].1;
        assert_eq!((summary.seconds, summary.mean_bps()), (2.0, 8e6));
        assert_eq!(summary.delays.quantile(0.5).map(f64::round), Some(496.0));
        assert!(What::DelayP50.of(&Point::of(summary), 2).is_some());
    }

    #[test]
    fn a_counter_that_went_back_or_is_new_has_no_figures() {
        let was = snapshot(1.0, vec![class("1:10", None, Some("alice"), 1_000_000)]);
        let is = snapshot(
            3.0,
            vec![
                class("1:10", None, Some("alice"), 3_000),
                class("1:11", None, Some("bob"), 3_000),
            ],
        );
        let all = observed(&is, &Change::between(&was, &is).unwrap());
        assert_eq!(all.len(), 1, "the port only");
    }

    #[test]
    fn a_window_counts_once() {
        let with = |uptime_s, p50_us| {
            let mut class = class("1:10", None, None, 1000);
            class.stats.round_trip =
                Some(narrows_snapshot::RoundTrip { min_us: 1, p50_us, p99_us: 9 });
            class.stats.losses = Some(Losses { segments: p50_us, before: 0, beyond: 1 });
            snapshot(uptime_s, vec![class])
        };
        let summary = |was: &Snapshot, is: &Snapshot| {
            observed(is, &Change::between(was, is).unwrap()).pop().unwrap().1
        };
        let (one, same, other) = (with(1.0, 20_000), with(2.0, 20_000), with(3.0, 30_000));
        assert!(summary(&one, &same).round_trips.is_empty());
        assert_eq!(summary(&one, &same).segments, 0.0);
        assert!(!summary(&same, &other).round_trips.is_empty());
        assert_eq!(summary(&same, &other).segments, 30_000.0);
    }

    #[test]
    fn places_are_looked_up_again_when_a_name_changes() {
        let named = |uptime_s, name| snapshot(uptime_s, vec![class("1:10", None, name, 0)]);
        let (was, is) = (named(1.0, None), named(2.0, Some("alice")));
        let change = Change::between(&was, &is).unwrap();
        let mut asked = Vec::new();
        let mut places = Places::default();
        for now in [&was, &is, &is] {
            places.observe(now, &change, |key| {
                asked.push(key.name.clone());
                Some(SeriesId(asked.len() as u32))
            });
        }
        assert_eq!(asked, ["eth1", "eth1/1:10", "alice"]);
    }
}
