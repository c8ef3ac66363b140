//! The first screen: is it good right now, and who suffers.

use super::rows::Row;
use super::subject::{Subject, Way};
use super::{EventList, Figure, Model};
use narrows_quality::Step;
use narrows_snapshot::{Change, Losses, Snapshot};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How many of those that suffer are listed.
pub(crate) const WORST: usize = 12;
/// How many sites the map has, and how many members of each.
const SITES_MAX: usize = 24;
const MEMBERS_MAX: usize = 12;
/// How many events it has.
const EVENTS_MAX: usize = 16;

/// What leaves through a port.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Direction {
    pub(crate) port: String,
    pub(crate) way: Way,
    qdisc: String,
    no_carrier: bool,
    delivered: Figure,
    received: Figure,
    limit: Figure,
    median: Figure,
    delay: Figure,
    delay_p999: Figure,
    round_trip: Figure,
    round_trip_p99: Figure,
    before: Figure,
    beyond: Figure,
    /// Packets per second that a qdisc dropped.
    drops: Figure,
    queued: u64,
    queued_bytes: u64,
    quality: Step,
}

/// Of each port of `now`.
pub(super) fn directions(
    now: &Snapshot,
    change: Option<&Change<'_>>,
    ways: &[Way],
) -> Vec<Direction> {
    let of = |(port, way): (&narrows_snapshot::Port, &Way)| {
        let rates = change.map(|change| change.of_port(port)).unwrap_or_default();
        let delays = change.map(|change| change.delays_of_port(port)).unwrap_or_default();
        let trips = change.and_then(|change| change.round_trips_of_port(port)).unwrap_or_default();
        let time = |us: f64, is_empty: bool| Figure::from((!is_empty).then_some(us));
        let was = change.and_then(|change| change.port(&port.name));
        let losses = |port: &narrows_snapshot::Port| port.round_trips.as_ref().map(|it| it.losses);
        let lost = losses(port).zip(was.and_then(losses)).map(|(is, was)| is.since(&was));
        let lost = lost.as_ref().and_then(Losses::shares);
        let dropped = rates.tx_pps.zip(rates.drops_pps).map(|(sent, drops)| drops / (sent + drops));
        let p99 = time(delays.p99_us, delays.is_empty());
        Direction {
            port: port.name.clone(),
            way: *way,
            qdisc: port.qdisc.clone(),
            no_carrier: port.no_carrier,
            delivered: rates.tx_bps.into(),
            received: rates.rx_bps.into(),
            limit: port.limit_bps().map(|limit| limit as f64).into(),
            median: time(delays.p50_us, delays.is_empty()),
            delay: p99,
            delay_p999: time(delays.p999_us, delays.is_empty()),
            round_trip: time(trips.p50_us, trips.is_empty()),
            round_trip_p99: time(trips.p99_us, trips.is_empty()),
            before: lost.map(|[before, _]| before).into(),
            beyond: lost.map(|[_, beyond]| beyond).into(),
            drops: rates.drops_pps.into(),
            queued: port.total.backlog_packets,
            queued_bytes: port.total.backlog_bytes,
            // 0 / 0 where nothing passed.
            quality: Step::of(
                p99.get().map(|us| us / 1e3),
                dropped.filter(|share| !share.is_nan()),
            ),
        }
    };
    now.ports.iter().zip(ways).map(of).collect()
}

/// How many subscribers are in each step.
#[derive(Debug, Default, Serialize)]
struct Counts {
    subscribers: u32,
    sites: u32,
    hosts: u32,
    by_quality: BTreeMap<Step, u32>,
}

/// A rectangle of the map.
#[derive(Debug, Serialize)]
struct Tile<'a> {
    id: &'a str,
    name: &'a str,
    /// Download and upload together, in bits per second.
    rate: Figure,
    quality: Step,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<Tile<'a>>,
    /// Those that have no rectangle of their own, and what they send together.
    #[serde(skip_serializing_if = "is_zero")]
    others: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    others_rate: Option<Figure>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The first screen's parts.
#[derive(Debug)]
pub(crate) struct Overview<'a>(&'a Model);

impl<'a> Overview<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        Self(model)
    }

    /// The parts that may change with each interval, by name.
    pub(crate) fn parts(
        &self,
        events: &EventList,
    ) -> serde_json::Result<Vec<(&'static str, String)>> {
        Ok(vec![
            ("directions", serde_json::to_string(&self.0.directions)?),
            ("counts", serde_json::to_string(&self.counts())?),
            ("map", serde_json::to_string(&self.map())?),
            ("events", serde_json::to_string(&events.latest(EVENTS_MAX))?),
        ])
    }

    /// Those who suffer most, the worst first: in a step below `good`, or with another reason. Of
    /// hosts where there are no classes.
    pub(crate) fn worst(&self) -> Vec<Row<'a>> {
        let has_reason = |one: &&Subject| one.sides().any(|side| side.reasons().next().is_some());
        let mut worst: Vec<&Subject> = match self.0.subjects.is_empty() {
            true => self.0.hosts.iter().collect(),
            false => self.leaves().filter(has_reason).collect(),
        };
        let order = |one: &&Subject, two: &&Subject| {
            let worse = two.quality().cmp(&one.quality());
            let longer = || two.p99().order(one.p99());
            worse.then_with(longer).then_with(|| one.id.cmp(&two.id))
        };
        if worst.len() > WORST {
            worst.select_nth_unstable_by(WORST - 1, order);
            worst.truncate(WORST);
        }
        worst.sort_unstable_by(order);
        worst.into_iter().map(|subject| Row::new(self.0, subject)).collect()
    }

    /// The ports, and what leaves there.
    pub(crate) fn ports(&self) -> Vec<(&'a str, Way)> {
        self.0.directions.iter().map(|it| (it.port.as_str(), it.way)).collect()
    }

    fn leaves(&self) -> impl Iterator<Item = &'a Subject> {
        self.0.subjects.iter().filter(|one| one.members == 0)
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts {
            hosts: self.0.hosts.len() as u32,
            by_quality: Step::ALL.into_iter().map(|step| (step, 0)).collect(),
            ..Counts::default()
        };
        for subject in &self.0.subjects {
            if subject.members > 0 {
                counts.sites += 1;
                continue;
            }
            counts.subscribers += 1;
            *counts.by_quality.entry(subject.quality()).or_default() += 1;
        }
        counts
    }

    /// The sites with the highest rates, and in each the members with the highest rates.
    fn map(&self) -> Vec<Tile<'a>> {
        let mut by_site: BTreeMap<Option<u32>, Vec<&Subject>> = BTreeMap::new();
        for one in self.leaves().filter(|one| one.rate().get().is_some_and(|rate| rate > 0.0)) {
            by_site.entry(one.site).or_default().push(one);
        }
        let sum = |members: &[&Subject]| {
            members.iter().fold(Figure::UNKNOWN, |sum, one| sum.plus(one.rate()))
        };
        let mut sites: Vec<_> =
            by_site.into_iter().map(|(site, members)| (site, sum(&members), members)).collect();
        sites.sort_by(|(_, one, _), (_, two, _)| two.order(*one));
        sites.truncate(SITES_MAX);
        let tile = |one: &'a Subject| Tile {
            id: &one.id,
            name: one.called(),
            rate: one.rate(),
            quality: one.quality(),
            members: Vec::new(),
            others: 0,
            others_rate: None,
        };
        let site = |(site, rate, mut members): (Option<u32>, Figure, Vec<&'a Subject>)| {
            let site = site.and_then(|site| self.0.subjects.get(site as usize));
            members.sort_by_key(|one| Reverse(OrderedRate(one.rate())));
            let others = members.split_off(MEMBERS_MAX.min(members.len()));
            Tile {
                id: site.map_or("", |site| &site.id),
                name: site.map_or("", |site| site.called()),
                rate,
                quality: members.iter().map(|one| one.quality()).max().unwrap_or(Step::Idle),
                members: members.into_iter().map(tile).collect(),
                others: others.len(),
                others_rate: (!others.is_empty()).then(|| sum(&others)),
            }
        };
        sites.into_iter().map(site).collect()
    }
}

/// A rate to sort by.
#[derive(Clone, Copy)]
struct OrderedRate(Figure);

impl Ord for OrderedRate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.order(other.0)
    }
}

impl PartialOrd for OrderedRate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OrderedRate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OrderedRate {}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_snapshot::{Class, Delays, Port};
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// `sites` sites with as many `homes` each. In the last second home N has sent N kB, with a
    /// delay of N ms.
    fn model(sites: u64, homes: u64) -> Model {
        let at = |uptime_s, scale: u64| {
            let mut classes = Vec::new();
            for site in 0..sites {
                let named = |name: String, parent: Option<&str>| Class {
                    handle: compact_str::format_compact!("1:{:x}", classes_before(site, homes)),
                    name: Some(name.into()),
                    parent: parent.map(Into::into),
                    ..Class::default()
                };
                let above = named(format!("site {site}"), None);
                let handle = above.handle.clone();
                classes.push(above);
                for home in 0..homes {
                    let number = site * homes + home;
                    let mut one = named(format!("home {number}"), Some(&handle));
                    one.handle = compact_str::format_compact!(
                        "1:{:x}",
                        classes_before(site, homes) + home + 1
                    );
                    one.ceil = Some(1_000_000);
                    one.stats.figures.bytes = number * 1_000 * scale;
                    one.stats.figures.packets = scale;
                    one.stats.delays = Delays::new(vec![(number as f64 * 1_000.0, scale)]);
                    classes.push(one);
                }
            }
            let port = Port { name: "lan".into(), classes, ..Port::default() };
            Snapshot { uptime_s, ports: vec![port], ..Snapshot::default() }
        };
        let (was, is) = (at(1.0, 1), at(2.0, 2));
        let change = Change::between(&was, &is);
        Model::new(Arc::new(is.clone()), change.as_ref(), 5.0, Some("lan"), Arc::default())
    }

    fn classes_before(site: u64, homes: u64) -> u64 {
        1 + site * (homes + 1)
    }

    fn part(model: &Model, name: &str) -> Value {
        let parts = Overview::new(model).parts(&EventList::default()).unwrap();
        let (_, text) = parts.iter().find(|(known, _)| *known == name).unwrap();
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_longest_delays_are_listed_first() {
        let model = model(4, 10);
        let worst = Overview::new(&model).worst();
        assert_eq!(worst.len(), WORST);
        let names: Vec<_> = worst.iter().map(|row| row.subject.called()).collect();
        assert_eq!(names[..3], ["home 39", "home 38", "home 37"]);
        let calm = self::model(1, 5);
        assert!(Overview::new(&calm).worst().is_empty(), "nobody suffers");
    }

    #[test]
    fn subscribers_are_counted_by_step() {
        let counts = part(&model(4, 20), "counts");
        assert_eq!(counts["subscribers"], 80);
        assert_eq!(counts["sites"], 4);
        let expected = json!({"idle": 0, "good": 21, "fair": 30, "poor": 29, "bad": 0});
        assert_eq!(counts["by_quality"], expected);
    }

    #[test]
    fn the_map_has_all_rate_and_a_bounded_number_of_rectangles() {
        let model = model(40, 40);
        let map = part(&model, "map");
        let sites = map.as_array().unwrap();
        assert_eq!(sites.len(), SITES_MAX);
        assert_eq!(sites[0]["name"], "site 39");
        assert_eq!(sites[0]["members"].as_array().unwrap().len(), MEMBERS_MAX);
        assert_eq!(sites[0]["others"], 28);
        let rate = |tile: &Value| tile["rate"].as_f64().unwrap();
        let members = sites[0]["members"].as_array().unwrap();
        let sum: f64 = members.iter().map(rate).sum();
        let others = sites[0]["others_rate"].as_f64().unwrap();
        assert!((sum + others - rate(&sites[0])).abs() < rate(&sites[0]) / 1e2);
        assert!(map.to_string().len() < 50_000, "{} bytes", map.to_string().len());
    }
}
