//! A window of a table: the rows that match, in an order, and how many there are.
//!
//! Cost: a look at each subject, a selection of the window, which is linear, and a sort of the
//! window alone. So each client's window is made anew for each interval.

use super::query::{Column, Kind, Of, Rows};
use super::subject::{Side, Subject};
use super::{Figure, Model};
use narrows_quality::{Outcome, Reason};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::cmp::Ordering;
use std::net::IpAddr;

/// The rows of a window.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    /// How many match.
    pub(crate) total: usize,
    pub(crate) offset: usize,
    pub(crate) rows: Vec<Row<'a>>,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    model: &'a Model,
    pub(crate) subject: &'a Subject,
}

impl<'a> Row<'a> {
    pub(crate) fn new(model: &'a Model, subject: &'a Subject) -> Self {
        Self { model, subject }
    }

    fn site(&self) -> Option<&'a Subject> {
        self.model.site(self.subject)
    }
}

/// The rows that `asked` is for.
pub(crate) fn window<'a>(model: &'a Model, asked: &Rows) -> Window<'a> {
    let all = match asked.kind {
        Kind::Hosts => &model.hosts,
        Kind::Subscribers | Kind::Sites => &model.subjects,
    };
    let is_of_kind = |one: &&Subject| match asked.kind {
        Kind::Subscribers => one.members == 0,
        Kind::Sites => one.members > 0,
        Kind::Hosts => true,
    };
    let site = asked.site.as_ref().map(|id| model.subjects.iter().position(|one| one.id == *id));
    let is_of_site = |one: &&Subject| match site {
        None => true,
        Some(None) => false,
        Some(Some(site)) => model.path(one).any(|above| above as usize == site),
    };
    let chosen = all.iter().filter(is_of_kind).filter(is_of_site);
    let address = asked.search.parse().ok();
    // A score is computed once for each row, and not at each comparison.
    let score = |row: &Row<'_>| match asked.column {
        Column::Score => score(row, asked.descending),
        _ => 0.0,
    };
    let mut found: Vec<(f64, Row<'a>)> = chosen
        .map(|subject| Row { model, subject })
        .filter(|row| matches(row, &asked.search, address))
        .map(|row| (score(&row), row))
        .collect();
    let total = found.len();
    let end = asked.offset.saturating_add(asked.limit).min(total);
    let begin = asked.offset.min(end);
    // Ends with what is different for all: rows without an order would change places.
    let order = |(first, one): &(f64, Row<'_>), (second, two): &(f64, Row<'_>)| {
        let order = first.total_cmp(second).then_with(|| compare(one, two, asked));
        let order = if asked.descending { order.reverse() } else { order };
        order
            .then_with(|| natural(one.subject.called(), two.subject.called()))
            .then_with(|| one.subject.id.cmp(&two.subject.id))
    };
    if end < total && end > 0 {
        found.select_nth_unstable_by(end - 1, order);
    }
    found.truncate(end);
    // Those before the window need no order among themselves.
    if begin > 0 && begin < end {
        found.select_nth_unstable_by(begin, order);
    }
    let mut rows = found.split_off(begin);
    rows.sort_unstable_by(order);
    Window { total, offset: begin, rows: rows.into_iter().map(|(_, row)| row).collect() }
}

/// The score in percent. A row without one comes last, whichever way it is sorted.
fn score(row: &Row<'_>, is_descending: bool) -> f64 {
    let unknown = if is_descending { f64::NEG_INFINITY } else { f64::INFINITY };
    row.subject.outcome().map_or(unknown, |outcome| outcome.percent)
}

/// Whether its name, class, site or an address has the text, which is in lower case, or `address`
/// is one of its own.
fn matches(row: &Row<'_>, search: &str, address: Option<IpAddr>) -> bool {
    if search.is_empty() {
        return true;
    }
    let has = |text: &str| match text.is_ascii() {
        // Almost all, and without a copy.
        true => text
            .as_bytes()
            .windows(search.len())
            .any(|part| part.eq_ignore_ascii_case(search.as_bytes())),
        false => text.to_lowercase().contains(search),
    };
    let Subject { id, name, handle, .. } = row.subject;
    has(id)
        || has(handle)
        || name.as_ref().is_some_and(|name| has(name))
        || row.site().is_some_and(|site| has(site.called()))
        || match address {
            Some(address) => row.model.networks(row.subject).any(|it| it.contains(address)),
            // The beginning of one, and no name that would only cost time.
            None if search.contains(['.', ':']) => {
                row.model.networks(row.subject).any(|it| it.to_string().contains(search))
            }
            None => false,
        }
}

fn compare(one: &Row<'_>, two: &Row<'_>, asked: &Rows) -> Ordering {
    let figures = |of: fn(&Side) -> Figure| {
        let figure = |row: &Row<'_>| {
            let Subject { down, up, .. } = row.subject;
            let known = |side: &Option<Side>| side.as_ref().map_or(Figure::UNKNOWN, of);
            match asked.of {
                Of::Down => known(down),
                Of::Up => known(up),
                Of::Both => known(down).max(known(up)),
            }
        };
        figure(one).order(figure(two))
    };
    match asked.column {
        Column::Name => natural(one.subject.called(), two.subject.called()),
        Column::Class => natural(&one.subject.handle, &two.subject.handle),
        Column::Site => {
            let [one, two] = [one, two].map(|row| row.site().map_or("", Subject::called));
            natural(one, two)
        }
        Column::Members => one.subject.members.cmp(&two.subject.members),
        Column::Quality => {
            let quality = |row: &Row<'_>| row.subject.quality();
            quality(one).cmp(&quality(two)).then_with(|| figures(|side| side.p99))
        }
        // By the number beside the row.
        Column::Score => Ordering::Equal,
        Column::Rate => figures(|side| side.rate),
        Column::Ceil => figures(|side| side.ceil),
        Column::Share => figures(Side::share),
        Column::Median => figures(|side| side.p50),
        Column::Delay => figures(|side| side.p99),
        Column::RoundTrip => figures(|side| side.round_trip),
        Column::Before => figures(|side| side.before),
        Column::Beyond => figures(|side| side.beyond),
        Column::Drops => figures(|side| side.drops),
        Column::Queued => figures(|side| Figure::new(f64::from(side.packets))),
    }
}

/// As people sort names: numbers within them by their size.
fn natural(one: &str, two: &str) -> Ordering {
    let (mut one, mut two) = (one.as_bytes(), two.as_bytes());
    loop {
        let (Some(first), Some(second)) = (one.first(), two.first()) else {
            return one.len().cmp(&two.len());
        };
        let order = match first.is_ascii_digit() && second.is_ascii_digit() {
            true => take_number(&mut one).cmp(&take_number(&mut two)),
            false => {
                (one, two) = (&one[1..], &two[1..]);
                first.to_ascii_lowercase().cmp(&second.to_ascii_lowercase())
            }
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// The digits in front, without zeros: first how many, so that they compare as numbers do.
fn take_number<'a>(text: &mut &'a [u8]) -> (usize, &'a [u8]) {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(length);
    *text = rest;
    let zeros = number.iter().take_while(|digit| **digit == b'0').count();
    let number = &number[zeros..];
    (number.len(), number)
}

impl Serialize for Side {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut side = to.serialize_struct("Side", 17)?;
        side.serialize_field("quality", &self.quality())?;
        for (name, figure) in [
            ("rate", self.rate),
            ("ceil", self.ceil),
            ("assured", self.assured),
            ("share", self.share()),
            ("median", self.p50),
            ("delay", self.p99),
            ("round_trip", self.round_trip),
            ("round_trip_min", self.round_trip_min),
            ("round_trip_p99", self.round_trip_p99),
            ("before", self.before),
            ("beyond", self.beyond),
            ("drops", self.drops),
            ("dropped", self.dropped),
        ] {
            // Most are unknown.
            if figure.get().is_some() {
                side.serialize_field(name, &figure)?;
            }
        }
        let reasons: Vec<Reason> = self.reasons().collect();
        if !reasons.is_empty() {
            side.serialize_field("reasons", &reasons)?;
        }
        side.serialize_field("queued", &self.packets)?;
        side.serialize_field("queued_bytes", &self.bytes)?;
        side.end()
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Subject { id, handle, members, down, up, .. } = self.subject;
        let mut row = to.serialize_struct("Row", 10)?;
        row.serialize_field("id", id)?;
        row.serialize_field("name", self.subject.called())?;
        row.serialize_field("class", handle)?;
        row.serialize_field("members", members)?;
        if let Some(site) = self.site() {
            row.serialize_field("site", site.called())?;
            row.serialize_field("site_id", &site.id)?;
        }
        row.serialize_field("quality", &self.subject.quality())?;
        if let Some(outcome) = self.subject.outcome() {
            // Whole: more digits would change each second, and say nothing.
            row.serialize_field("score", &Outcome { percent: outcome.percent.round(), ..outcome })?;
        }
        row.serialize_field("down", down)?;
        row.serialize_field("up", up)?;
        row.end()
    }
}

impl Serialize for Window<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut window = to.serialize_struct("Window", 3)?;
        window.serialize_field("total", &self.total)?;
        window.serialize_field("offset", &self.offset)?;
        window.serialize_field("rows", &self.rows)?;
        window.end()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Addresses;
    use super::super::query::Parameters;
    use super::*;
    use narrows_snapshot::{Class, Port, Snapshot};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// A site with a class for each delay (in milliseconds, 0: idle), named `home 0` and so on.
    fn model(delays: &[u16]) -> Model {
        let site = Class { handle: "1:1".into(), name: Some("north".into()), ..Class::default() };
        let classes = delays.iter().enumerate().map(|(number, _)| Class {
            handle: compact_str::format_compact!("1:{:x}", number + 16),
            name: Some(compact_str::format_compact!("home {number}")),
            parent: Some("1:1".into()),
            ..Class::default()
        });
        let classes: Vec<Class> = std::iter::once(site).chain(classes).collect();
        let port = Port { name: "lan".into(), classes, ..Port::default() };
        let now = Snapshot { uptime_s: 1.0, ports: vec![port], ..Snapshot::default() };
        let policy = "filter add dev lan parent 1: flower dst_ip 192.0.2.0/28 classid 1:10";
        let addresses = Arc::new(Addresses::parse(policy));
        let mut model = Model::new(Arc::new(now), None, 1.0, Some("lan"), addresses);
        for (subject, delay) in model.subjects[1..].iter_mut().zip(delays) {
            let Some(side) = &mut subject.down else { panic!("it has a class of the port") };
            side.p99 = (*delay > 0).then_some(f64::from(*delay) * 1e3).into();
        }
        model
    }

    fn asked(query: &str) -> Rows {
        Parameters::new(Some(query)).rows().unwrap()
    }

    fn names(model: &Model, query: &str) -> Vec<String> {
        let window = window(model, &asked(query));
        window.rows.iter().map(|row| row.subject.called().to_owned()).collect()
    }

    #[test]
    fn a_window_has_the_worst_and_says_how_many_there_are() {
        let model = model(&[10, 200, 0, 60]);
        assert_eq!(names(&model, ""), ["home 1", "home 3", "home 0", "home 2"]);
        assert_eq!(names(&model, "offset=1&limit=2"), ["home 3", "home 0"]);
        assert_eq!(window(&model, &asked("limit=1")).total, 4);
        assert_eq!(names(&model, "sort=name&desc=0&offset=3"), ["home 3"]);
        assert_eq!(names(&model, "offset=9"), [""; 0]);
        assert_eq!(names(&model, "kind=sites"), ["north"]);
    }

    #[test]
    fn rows_are_sorted_by_the_score_of_the_whole_path_and_those_without_one_come_last() {
        let mut model = model(&[1, 1, 1, 0]);
        for (subject, trip_ms) in model.subjects[1..].iter_mut().zip([95.0, 500.0, 10.0, 10.0]) {
            let Some(side) = &mut subject.down else { panic!("it has a class of the port") };
            side.p50 = side.p99;
            (side.round_trip, side.round_trip_p99) =
                (Figure::new(trip_ms * 1e3), Figure::new(trip_ms * 1e3));
            (side.before, side.beyond) = (Figure::new(0.0), Figure::new(0.0));
        }
        assert_eq!(names(&model, "sort=score&desc=0"), ["home 1", "home 0", "home 2", "home 3"]);
        assert_eq!(names(&model, "sort=score&desc=1"), ["home 2", "home 0", "home 1", "home 3"]);
        let rows = serde_json::to_value(&window(&model, &asked("sort=name&desc=0")).rows).unwrap();
        let score =
            serde_json::json!({"application": "games", "percent": 49.0, "because": "latency"});
        assert_eq!(rows[0]["score"], score);
        assert_eq!(rows[1]["score"]["percent"], 0.0);
        assert!(rows[3].get("score").is_none());
    }

    #[test]
    fn a_search_finds_names_classes_and_sites_in_any_case() {
        let model = model(&[1; 20]);
        assert_eq!(names(&model, "search=HOME+19"), ["home 19"]);
        assert_eq!(names(&model, "search=1:1f"), ["home 15"]);
        assert_eq!(window(&model, &asked("search=nor")).total, 20);
        assert_eq!(window(&model, &asked("search=n%C3%B6")).total, 0);
        assert_eq!(window(&model, &asked("site=north")).total, 20);
        assert_eq!(window(&model, &asked("site=south")).total, 0);
    }

    #[test]
    fn a_search_finds_whose_an_address_is() {
        let model = model(&[1; 20]);
        for search in ["192.0.2.9", "192.0.2.0", "192.0."] {
            assert_eq!(names(&model, &format!("search={search}")), ["home 0"], "{search}");
        }
        assert_eq!(names(&model, "search=192.0.2.16"), [""; 0]);
    }

    #[test]
    fn numbers_within_names_are_sorted_by_size() {
        let mut all = ["b", "a 10", "A 9", "a 010x", "a", "a 99999999999999999999999", "a 11"];
        all.sort_by(|one, two| natural(one, two));
        assert_eq!(all, ["a", "A 9", "a 10", "a 010x", "a 11", "a 99999999999999999999999", "b"]);
    }

    #[test]
    fn a_row_says_both_directions_and_leaves_out_what_is_unknown() {
        let model = model(&[60]);
        let row = serde_json::to_value(&window(&model, &asked("")).rows).unwrap();
        assert_eq!(row[0]["name"], "home 0");
        assert_eq!(row[0]["site"], "north");
        assert_eq!(row[0]["down"]["delay"], 60_000);
        assert_eq!(row[0]["down"]["reasons"], serde_json::json!(["delay"]));
        assert!(row[0]["up"].is_null() && row[0]["down"].get("rate").is_none());
    }

    proptest! {
        /// The window is the part of what a plain sort of everything gives.
        #[test]
        fn windows_are_parts_of_the_sorted_whole(
            delays in proptest::collection::vec(0u16..9, 1..60),
            offset in 0usize..70, limit in 0usize..70, descending: bool,
        ) {
            let model = model(&delays);
            let of = |number: usize| {
                let delay = i32::from(delays[number]);
                (if descending { -delay } else { delay }, number)
            };
            let mut all: Vec<usize> = (0..delays.len()).collect();
            all.sort_by_key(|number| of(*number));
            let expected: Vec<String> =
                all.into_iter().skip(offset).take(limit).map(|it| format!("home {it}")).collect();
            let desc = u8::from(descending);
            let query = format!("sort=delay_down&desc={desc}&offset={offset}&limit={limit}");
            prop_assert_eq!(names(&model, &query), expected);
        }
    }
}
