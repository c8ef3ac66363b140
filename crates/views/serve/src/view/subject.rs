//! Whom a row is about: a subscriber, a site or a host, with both directions.
//!
//! Classes of several ports are one subject if they have the same name, or the same handle where
//! they have no name. A class with classes below is a site, another one a subscriber.

use super::Figure;
use compact_str::{CompactString, format_compact};
use narrows_quality::{Latency, Measured, Outcome, Reason, Step, Symptoms, worst_outcome};
use narrows_snapshot::{Change, Class, Delays, Heavy, Losses, Port, RoundTrip, Snapshot};
use serde::Serialize;
use std::collections::HashMap;

/// A direction, as a subscriber speaks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// Download: what leaves through the port towards the subscribers.
    Down,
    /// Upload: what leaves through any other port.
    Up,
}

/// What is known of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// Where its class is in the snapshot: the port, and the place among its classes.
    pub(crate) place: Option<(u16, u32)>,
    /// Sent, in bits per second.
    pub(crate) rate: Figure,
    /// The most that it may send, in bits per second.
    pub(crate) ceil: Figure,
    /// What it is assured, in bits per second.
    pub(crate) assured: Figure,
    /// Delays in Narrows of the last interval, in microseconds.
    pub(crate) p50: Figure,
    pub(crate) p99: Figure,
    /// Round trips beyond the port, in microseconds.
    pub(crate) round_trip: Figure,
    pub(crate) round_trip_min: Figure,
    pub(crate) round_trip_p99: Figure,
    /// Shares of TCP segments that others lost, before and beyond the port.
    pub(crate) before: Figure,
    pub(crate) beyond: Figure,
    /// Packets per second that were dropped here, and their share of all.
    pub(crate) drops: Figure,
    pub(crate) dropped: Figure,
    /// What waits, in packets and bytes.
    pub(crate) packets: u32,
    pub(crate) bytes: u32,
}

impl Side {
    /// Nothing is known.
    const UNKNOWN: Self = Self {
        place: None,
        rate: Figure::UNKNOWN,
        ceil: Figure::UNKNOWN,
        assured: Figure::UNKNOWN,
        p50: Figure::UNKNOWN,
        p99: Figure::UNKNOWN,
        round_trip: Figure::UNKNOWN,
        round_trip_min: Figure::UNKNOWN,
        round_trip_p99: Figure::UNKNOWN,
        before: Figure::UNKNOWN,
        beyond: Figure::UNKNOWN,
        drops: Figure::UNKNOWN,
        dropped: Figure::UNKNOWN,
        packets: 0,
        bytes: 0,
    };

    /// The share of its ceiling that it sends.
    pub(crate) fn share(&self) -> Figure {
        let ceil = self.ceil.get().filter(|ceil| *ceil > 0.0);
        self.rate.get().zip(ceil).map(|(rate, ceil)| rate / ceil).into()
    }

    fn symptoms(&self) -> Symptoms {
        Symptoms {
            delay_p99_ms: millis(self.p99),
            dropped: self.dropped.get(),
            of_ceiling: self.share().get(),
            lost_before: self.before.get(),
            lost_beyond: self.beyond.get(),
        }
    }

    pub(crate) fn quality(&self) -> Step {
        self.symptoms().step()
    }

    pub(crate) fn reasons(&self) -> impl Iterator<Item = Reason> + use<> {
        self.symptoms().reasons()
    }

    /// What a score needs.
    pub(crate) fn measured(&self) -> Measured {
        let latency = |p50, p99| Some(Latency { p50_ms: millis(p50)?, p99_ms: millis(p99)? });
        let losses = self.before.get().zip(self.beyond.get());
        Measured {
            delay: latency(self.p50, self.p99),
            round_trip: latency(self.round_trip, self.round_trip_p99),
            loss: losses.map(|(before, beyond)| (before + beyond).min(1.0)),
        }
    }

    fn add_beyond(&mut self, round_trip: Option<&RoundTrip>, losses: Option<&Losses>) {
        if let Some(times) = round_trip {
            self.round_trip = Figure::new(times.p50_us as f64);
            self.round_trip_min = Figure::new(times.min_us as f64);
            self.round_trip_p99 = Figure::new(times.p99_us as f64);
        }
        if let Some([before, beyond]) = losses.and_then(Losses::shares) {
            (self.before, self.beyond) = (Figure::new(before), Figure::new(beyond));
        }
    }

    /// Of `class`, which was as in `was` some `change` ago.
    fn of_class(class: &Class, change: Option<&Change<'_>>, was: Option<&Class>) -> Self {
        let bits = |bytes: Option<u64>| Figure::from(bytes.map(|bytes| bytes as f64 * 8.0));
        let is = &class.stats.figures;
        let waits = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let mut side = Self {
            ceil: bits(class.most()),
            assured: bits(class.assured()),
            packets: waits(is.qlen),
            bytes: waits(is.backlog),
            ..Self::UNKNOWN
        };
        side.add_beyond(class.stats.round_trip.as_ref(), class.stats.losses.as_ref());
        let (Some(change), Some(was)) = (change, was) else { return side };
        let had = &was.stats.figures;
        side.rate = change.bits(had.bytes, is.bytes).into();
        let sent = change.per_second(had.packets, is.packets);
        let drops = change.per_second(had.drops, is.drops);
        side.drops = drops.into();
        side.dropped = sent
            .zip(drops)
            .filter(|(sent, drops)| sent + drops > 0.0)
            .map(|(sent, drops)| drops / (sent + drops))
            .into();
        // Most are idle, and their delays the same bytes.
        if was.stats.delays.counts != class.stats.delays.counts {
            let delays = class.stats.delays.since(&was.stats.delays);
            (side.p50, side.p99) = percentiles(&delays);
        }
        side
    }

    fn of_host(host: &Heavy) -> Self {
        let mut side = Self {
            rate: Figure::new(host.bps as f64),
            p50: Figure::new(host.delay_p50_us as f64),
            p99: Figure::new(host.delay_p99_us as f64),
            ..Self::UNKNOWN
        };
        side.add_beyond(host.round_trip.as_ref(), host.losses.as_ref());
        side
    }
}

fn millis(us: Figure) -> Option<f64> {
    us.get().map(|us| us / 1e3)
}

/// The median and the 99th percentile; unknown if no packet left.
fn percentiles(delays: &Delays) -> (Figure, Figure) {
    match delays.is_empty() {
        true => (Figure::UNKNOWN, Figure::UNKNOWN),
        false => (Figure::new(delays.p50_us), Figure::new(delays.p99_us)),
    }
}

/// A subscriber, a site or a host.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// Its name, or its handle; with the port before it where that would be another one's.
    pub(crate) id: CompactString,
    /// The operator's name for it.
    pub(crate) name: Option<CompactString>,
    /// The id of its class; empty for a host.
    pub(crate) handle: CompactString,
    /// The site that it belongs to, by its place among the subjects.
    pub(crate) site: Option<u32>,
    /// How many belong to it.
    pub(crate) members: u32,
    pub(crate) down: Option<Side>,
    pub(crate) up: Option<Side>,
}

impl Subject {
    fn new(id: CompactString, name: Option<CompactString>, handle: CompactString) -> Self {
        Self { id, name, handle, site: None, members: 0, down: None, up: None }
    }

    /// What it is called.
    pub(crate) fn called(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.id)
    }

    pub(crate) fn sides(&self) -> impl Iterator<Item = &Side> {
        self.down.iter().chain(&self.up)
    }

    fn side(&mut self, way: Way) -> &mut Option<Side> {
        match way {
            Way::Down => &mut self.down,
            Way::Up => &mut self.up,
        }
    }

    /// The worse one of both directions.
    pub(crate) fn quality(&self) -> Step {
        self.sides().map(Side::quality).max().unwrap_or(Step::Idle)
    }

    /// The lowest ceiling of its directions, in bits per second.
    pub(crate) fn slowest(&self) -> Option<u64> {
        self.sides().filter_map(|side| side.ceil.get()).reduce(f64::min).map(|bits| bits as u64)
    }

    /// How well the application works that suffers most, over the whole path in the last interval.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        worst_outcome(self.sides().map(Side::measured), self.slowest())
    }

    /// What both directions send, in bits per second.
    pub(crate) fn rate(&self) -> Figure {
        self.sides().fold(Figure::UNKNOWN, |sum, side| sum.plus(side.rate))
    }

    /// The longer delay of both directions.
    pub(crate) fn p99(&self) -> Figure {
        self.sides().fold(Figure::UNKNOWN, |most, side| most.max(side.p99))
    }
}

/// The way of what leaves through each port: `downlink` if it is named, or else the port with most
/// classes, or the last one of these.
pub(crate) fn ways(ports: &[Port], downlink: Option<&str>) -> Vec<Way> {
    let named = ports.iter().position(|port| Some(port.name.as_str()) == downlink);
    let with_most = || (0..ports.len()).max_by_key(|number| ports[*number].classes.len());
    // What leaves through the only port of a host is its upload.
    let down = named.or_else(|| with_most().filter(|_| ports.len() > 1));
    let way = |number| if Some(number) == down { Way::Down } else { Way::Up };
    (0..ports.len()).map(way).collect()
}

/// Those that the classes of `now` stand for.
pub(crate) fn of_classes(
    now: &Snapshot,
    change: Option<&Change<'_>>,
    ways: &[Way],
) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = Vec::new();
    let mut known: HashMap<&str, u32> = HashMap::new();
    for ((number, port), way) in now.ports.iter().enumerate().zip(ways) {
        let before = change.and_then(|change| change.port(&port.name));
        let mut by_handle: HashMap<&str, u32> = HashMap::with_capacity(port.classes.len());
        for (place, class) in port.classes.iter().enumerate() {
            let key = class.name.as_ref().unwrap_or(&class.handle).as_str();
            let same = known.get(key).copied();
            let index = match same.filter(|index| subjects[*index as usize].side(*way).is_none()) {
                Some(index) => index,
                None => {
                    let id = match same {
                        None => key.into(),
                        Some(_) => format_compact!("{} {}", port.name, class.handle),
                    };
                    let index = subjects.len() as u32;
                    subjects.push(Subject::new(id, class.name.clone(), class.handle.clone()));
                    known.entry(key).or_insert(index);
                    index
                }
            };
            by_handle.insert(&class.handle, index);
            // Almost always it has the place that it had.
            let had = before.and_then(|port| port.classes.get(place));
            let had = had.filter(|was| was.handle == class.handle);
            let had = had.or_else(|| change?.class(&port.name, class));
            let mut side = Side::of_class(class, change, had);
            side.place = u16::try_from(number).ok().zip(u32::try_from(place).ok());
            *subjects[index as usize].side(*way) = Some(side);
        }
        for class in &port.classes {
            let parent = class.parent.as_ref().and_then(|parent| by_handle.get(parent.as_str()));
            if let (Some(parent), Some(index)) = (parent, by_handle.get(class.handle.as_str()))
                && parent != index
                && subjects[*index as usize].site.is_none()
            {
                subjects[*index as usize].site = Some(*parent);
                subjects[*parent as usize].members += 1;
            }
        }
    }
    subjects
}

/// The heaviest hosts: what a host receives leaves towards it, what it sends towards others.
pub(crate) fn of_hosts(now: &Snapshot, ways: &[Way]) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (port, way) in now.ports.iter().zip(ways) {
        let hosts = match way {
            Way::Down => &port.heaviest.destinations,
            Way::Up => &port.heaviest.sources,
        };
        for host in hosts {
            let index = *known.entry(&host.name).or_insert_with(|| {
                subjects.push(Subject::new(host.name.as_str().into(), None, "".into()));
                subjects.len() - 1
            });
            *subjects[index].side(*way) = Some(Side::of_host(host));
        }
    }
    subjects
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn class(handle: &str, parent: Option<&str>, name: Option<&str>) -> Class {
        Class {
            handle: handle.into(),
            parent: parent.map(Into::into),
            name: name.map(Into::into),
            ceil: Some(1_000),
            ..Class::default()
        }
    }

    fn port(name: &str, classes: Vec<Class>) -> Port {
        Port { name: name.into(), classes, ..Port::default() }
    }

    fn snapshot(ports: Vec<Port>) -> Snapshot {
        Snapshot { uptime_s: 1.0, ports, ..Snapshot::default() }
    }

    #[test]
    fn both_directions_of_a_name_are_one_subscriber_of_its_site() {
        let tree = |ann| {
            vec![
                class("1:1", None, Some("north")),
                class(ann, Some("1:1"), Some("Ann")),
                class("1:12", Some("1:1"), None),
            ]
        };
        let now = snapshot(vec![port("wan", tree("1:21")), port("lan", tree("1:11"))]);
        let all = of_classes(&now, None, &ways(&now.ports, None));
        let ids: Vec<_> = all.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["north", "Ann", "1:12"]);
        assert!(all.iter().all(|one| one.down.is_some() && one.up.is_some()));
        assert_eq!((all[1].site, all[0].members, all[1].members), (Some(0), 2, 0));
    }

    #[test]
    fn a_name_that_a_port_has_twice_is_two_subscribers() {
        let twice = vec![class("1:1", None, Some("Ann")), class("1:2", None, Some("Ann"))];
        let now = snapshot(vec![port("lan", twice)]);
        let all = of_classes(&now, None, &ways(&now.ports, None));
        assert_eq!([&all[0].id, &all[1].id], ["Ann", "lan 1:2"]);
        assert!(all.iter().all(|one| one.called() == "Ann"));
    }

    #[test]
    fn download_leaves_through_the_port_that_is_named_or_has_most_classes() {
        let of = |wan: usize, lan: usize, named| {
            let ports = [
                port("wan", vec![Class::default(); wan]),
                port("lan", vec![Class::default(); lan]),
            ];
            ways(&ports, named)
        };
        assert_eq!(of(0, 3, None), [Way::Up, Way::Down]);
        assert_eq!(of(3, 3, None), [Way::Up, Way::Down]);
        assert_eq!(of(3, 0, None), [Way::Down, Way::Up]);
        assert_eq!(of(3, 3, Some("wan")), [Way::Down, Way::Up]);
        assert_eq!(ways(&[port("eth0", Vec::new())], None), [Way::Up]);
        assert_eq!(ways(&[port("eth0", Vec::new())], Some("eth0")), [Way::Down]);
    }

    #[test]
    fn rates_delays_and_drops_are_those_of_the_last_interval() {
        let at = |uptime_s, packets, drops, counts: Vec<(f64, u64)>| {
            let mut one = class("1:1", None, None);
            one.stats.figures.bytes = packets * 1_000;
            one.stats.figures.packets = packets;
            one.stats.figures.drops = drops;
            one.stats.delays = Delays::new(counts);
            Snapshot { uptime_s, ports: vec![port("lan", vec![one])], ..Snapshot::default() }
        };
        let was = at(1.0, 100, 1, vec![(500.0, 100)]);
        let is = at(3.0, 106, 3, vec![(500.0, 100), (30_000.0, 6)]);
        let change = Change::between(&was, &is);
        let all = of_classes(&is, change.as_ref(), &[Way::Down]);
        let side = all[0].down.unwrap();
        assert_eq!(side.rate.get(), Some(24_000.0));
        assert_eq!(side.share().get(), Some(3.0));
        assert_eq!((side.p50.get(), side.p99.get()), (Some(30_000.0), Some(30_000.0)));
        assert_eq!((side.drops.get(), side.dropped.get()), (Some(1.0), Some(0.25)));
        assert_eq!(all[0].quality(), Step::Bad);
        let none =
            of_classes(&is, Change::between(&is, &at(4.0, 106, 3, vec![])).as_ref(), &[Way::Down]);
        assert_eq!(none[0].down.unwrap().p99.get(), None, "no packet left");
    }

    #[test]
    fn a_host_is_one_row_of_what_it_sends_and_receives() {
        let heavy = |name: &str, bps| Heavy { name: name.into(), bps, ..Heavy::default() };
        let (mut wan, mut lan) = (port("wan", Vec::new()), port("lan", Vec::new()));
        wan.heaviest.sources = vec![heavy("192.0.2.7", 5)];
        lan.heaviest.destinations = vec![heavy("192.0.2.7", 50), heavy("192.0.2.8", 1)];
        let now = snapshot(vec![wan, lan]);
        let hosts = of_hosts(&now, &ways(&now.ports, None));
        assert_eq!(hosts.len(), 2);
        assert_eq!(hosts[0].rate().get(), Some(55.0));
    }

    proptest! {
        /// Whatever an instance says of parents and names, each class is found once.
        #[test]
        fn every_class_is_a_side_of_one_subject(
            ports in proptest::collection::vec(
                proptest::collection::vec((0u8..9, 0u8..9, proptest::option::of(0u8..4)), 0..12),
                0..4,
            ),
        ) {
            let ports: Vec<Port> = ports.iter().enumerate().map(|(number, classes)| {
                let classes = classes.iter().map(|(handle, parent, name)| {
                    let name = name.map(|name| format!("n{name}"));
                    class(&format!("1:{handle}"), Some(&format!("1:{parent}")), name.as_deref())
                });
                port(&format!("p{number}"), classes.collect())
            }).collect();
            let count: usize = ports.iter().map(|port| port.classes.len()).sum();
            let now = snapshot(ports);
            let all = of_classes(&now, None, &ways(&now.ports, None));
            let places: BTreeSet<_> =
                all.iter().flat_map(Subject::sides).filter_map(|side| side.place).collect();
            prop_assert_eq!(places.len(), count);
            let members: u32 = all.iter().map(|one| one.members).sum();
            prop_assert_eq!(members as usize, all.iter().filter(|one| one.site.is_some()).count());
        }
    }
}
