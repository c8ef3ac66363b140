//! From a file and overrides to cases.

use super::error::{Place, ScenarioError, Wrong};
use super::file::{
    ChangeTable, ControlWord, FaultTable, File, KindWord, NextHopTable, PaperTable, StackWord,
    StrategyRow, TrafficTable,
};
use super::paths::{self, Override};
use super::quantity::{Quantity, Scale};
use super::traces::Traces;
use super::{About, Case, Scenario, headers};
use crate::setup::{
    Change, Control, Cores, Fault, FaultKind, Kind, MAX_QUEUES, NextHop, Port, Run, Setup, Spread,
    Stack, Traffic,
};
use crate::tc;
use narrows_tc::OfflineHost;
use narrows_trace::Trace;
use narrows_units::{Bytes, Nanos, Rate};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use toml::{Table, Value};

/// The most runs of a scenario. More is a slip of the hand.
const MAX_CASES: usize = 4096;
/// Packets that a backlogged flow keeps in the shaper: the default, and the maximum.
const QUEUED: u32 = 4;
const MAX_QUEUED: u64 = 1024;
/// The most flows of a group.
const MAX_FLOWS: u64 = 1_000_000;
/// The default frame length: a full Ethernet frame.
const FULL_FRAME: u32 = 1514;
/// Frame lengths that can be: two MAC addresses and a type, up to what IP can say.
const FRAME_LENGTHS: std::ops::RangeInclusive<u64> = 14..=65_549;

/// Tables in which a key without a dot is looked for.
const USUAL_TABLES: [&str; 4] = ["port", "traffic.0", "run", "cores"];

/// A template of the words' table that no key of `[port]` provides.
const STRATEGY: &str = "strategy";

pub(super) fn expand(
    name: &str,
    text: &str,
    overrides: &[Override],
) -> Result<Scenario, ScenarioError> {
    let reader = Reader { name, text, overridden: BTreeSet::new() };
    reader.expand(overrides)
}

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    /// Paths whose values come from the command line.
    overridden: BTreeSet<String>,
}

/// A point of the sweep.
type Point = Vec<(String, Value)>;

impl Reader<'_> {
    fn error(&self, place: Place, message: impl Into<String>) -> ScenarioError {
        ScenarioError { file: self.name.to_owned(), place, message: message.into() }
    }

    /// A mistake at a path, with the source of the path's value.
    fn wrong(&self, wrong: Wrong, point: &Point) -> ScenarioError {
        let Wrong { path, message } = wrong;
        let covers = |key: &str| path == key || path.starts_with(&format!("{key}."));
        let line = |line: Option<usize>| line.map_or(Place::Whole, Place::Line);
        let place = if let Some(key) = self.overridden.iter().find(|key| covers(key)) {
            Place::Override(key.clone())
        } else if let Some((key, _)) = point.iter().find(|(key, _)| covers(key)) {
            line(paths::sweep_line(self.text, key))
        } else {
            line(paths::line(self.text, &path))
        };
        let message = if path.is_empty() { message } else { format!("{path}: {message}") };
        self.error(place, message)
    }

    fn expand(mut self, overrides: &[Override]) -> Result<Scenario, ScenarioError> {
        let mut table = self.table()?;
        for change in overrides {
            table = self.change(table, change)?;
        }
        let file = self.file(&table)?;
        let points = sweep(file.sweep.as_ref()).map_err(|wrong| self.wrong(wrong, &Vec::new()))?;
        let rows = strategies(&file.strategies).map_err(|wrong| self.wrong(wrong, &Vec::new()))?;
        if points.len().saturating_mul(rows.len()) > MAX_CASES {
            return Err(self.wrong(too_many(), &Vec::new()));
        }
        // Values that a later sweep does not name stay as in the file.
        let mut keys: Vec<&str> = Vec::new();
        for (key, _) in points.iter().flatten() {
            if !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
        if file.measures.is_empty() {
            let wrong = Wrong::new("measures", "name at least one, as \"utilization\"");
            return Err(self.wrong(wrong, &Vec::new()));
        }
        let traces = Traces::default();
        let mut cases: Vec<Case> = Vec::new();
        for point in &points {
            let here = self.at_point(&table, point)?;
            let at = keys.iter().map(|key| {
                let value = paths::get(&here, key).map(paths::label);
                ((*key).to_owned(), value.unwrap_or_else(|| "-".to_owned()))
            });
            let at: Vec<(String, String)> = at.collect();
            for row in &rows {
                let setup = setup(&here, row, &traces).map_err(|wrong| self.wrong(wrong, point))?;
                let paper = paper(&file.paper, &here, &row.name);
                cases.push(Case { strategy: row.name.clone(), at: at.clone(), setup, paper });
            }
        }
        // There is a row and a point at least.
        let seed = cases.first().map_or(1, |case| case.setup.seed);
        let File { title, source, measures, group_measures, .. } = file;
        let about = About::new(self.name, title, source);
        Ok(Scenario { about, measures, group_measures, seed, cases })
    }

    /// The file's table, if its keys and their types are right.
    fn table(&self) -> Result<Table, ScenarioError> {
        // First into types from the text itself, since those errors know their place.
        if let Err(error) = toml::from_str::<File>(self.text) {
            let place = match error.span() {
                Some(span) if span != (0..0) => Place::Line(paths::line_at(self.text, span.start)),
                _ => Place::Whole,
            };
            return Err(self.error(place, error.message()));
        }
        toml::from_str(self.text).map_err(|error| self.error(Place::Whole, error.message()))
    }

    fn file(&self, table: &Table) -> Result<File, ScenarioError> {
        read_file(table).map_err(|wrong| self.wrong(wrong, &Vec::new()))
    }

    /// `table` with `change` made.
    fn change(&mut self, table: Table, change: &Override) -> Result<Table, ScenarioError> {
        let mut candidates = vec![change.path.clone()];
        if !change.path.contains('.') && !table.contains_key(&change.path) {
            // `split` and `spread` over queues are the same value.
            let key = if change.path == "split" { "spread" } else { &change.path };
            candidates = USUAL_TABLES.iter().map(|usual| format!("{usual}.{key}")).collect();
            candidates.push(change.path.clone());
        }
        let mut complaint = String::new();
        for path in candidates {
            // As a number if it is one, as text where text is expected.
            let text = Value::String(change.value.clone());
            for value in [change.value(), text] {
                let mut next = table.clone();
                let mut swept = swept(&mut next, &path);
                swept.iter_mut().for_each(|values| **values = change.values());
                let placed = match swept.as_slice() {
                    [] => paths::set(&mut next, &path, value),
                    _ => Ok(()),
                };
                match placed.and_then(|()| read_file(&next).map_err(|wrong| wrong.message)) {
                    Ok(_) => {
                        self.overridden.insert(path);
                        return Ok(next);
                    }
                    Err(why) if complaint.is_empty() || path == change.path => complaint = why,
                    Err(_) => {}
                }
            }
        }
        if !change.path.contains('.') {
            complaint.push_str(
                "; keys of its tables are written behind a dot, as port.rate, traffic.0.load, run.length, cores.jitter",
            );
        }
        let typed = format!("{}={}", change.path, change.value);
        Err(self.error(Place::Override(typed), complaint))
    }

    fn at_point(&self, table: &Table, point: &Point) -> Result<Table, ScenarioError> {
        let mut here = table.clone();
        for (path, value) in point {
            let unknown = |message: String| self.wrong(Wrong::new(path, message), point);
            paths::set(&mut here, path, value.clone()).map_err(unknown)?;
        }
        read_file(&here).map_err(|wrong| {
            let path = point.first().map_or("", |(path, _)| path).to_owned();
            self.wrong(Wrong { path, message: wrong.message }, point)
        })?;
        Ok(here)
    }
}

/// The values of the sweep for `path`; with several sweeps, those of each that has it.
fn swept<'a>(table: &'a mut Table, path: &str) -> Vec<&'a mut Vec<Value>> {
    let within = |sweep: &'a mut Value| sweep.as_table_mut()?.get_mut(path)?.as_array_mut();
    match table.get_mut("sweep") {
        Some(Value::Array(sweeps)) => sweeps.iter_mut().filter_map(within).collect(),
        sweep => sweep.and_then(within).into_iter().collect(),
    }
}

/// Reads `table` into types, and refuses keys of `[port]` that no template names.
fn read_file(table: &Table) -> Result<File, Wrong> {
    let file = File::deserialize(Value::Table(table.clone()))
        .map_err(|error| Wrong::new("", error.to_string().trim_end().replace('\n', ", ")))?;
    for word in file.port.words.keys() {
        let mark = format!("{{{word}}}");
        if !names_template(&Value::Table(table.clone()), &mark) {
            return Err(Wrong::new(
                format!("port.{word}"),
                format!(
                    "unknown key `{word}`: in [port] there are queues, rate, qdisc, weights and sends, and what a template names, as {mark} in qdisc"
                ),
            ));
        }
    }
    Ok(file)
}

fn names_template(value: &Value, mark: &str) -> bool {
    match value {
        Value::String(text) => text.contains(mark),
        Value::Array(array) => array.iter().any(|value| names_template(value, mark)),
        Value::Table(table) => table.values().any(|value| names_template(value, mark)),
        _ => false,
    }
}

/// The points of a sweep: of each of its tables the product, in the order of the file.
fn sweep(sweep: Option<&Value>) -> Result<Vec<Point>, Wrong> {
    let tables: Vec<&Value> = match sweep {
        None => return Ok(vec![Vec::new()]),
        Some(Value::Array(tables)) => tables.iter().collect(),
        Some(table) => vec![table],
    };
    let mut all = Vec::new();
    for table in tables {
        let Value::Table(table) = table else {
            let message =
                "write [sweep], and below it keys as \"port.rate\" = [\"1gbit\", \"2gbit\"]";
            return Err(Wrong::new("sweep", message));
        };
        let mut points: Vec<Point> = vec![Vec::new()];
        for (path, values) in table {
            let values = values.as_array().filter(|values| !values.is_empty()).ok_or_else(|| {
                let message = format!(
                    "{path}: write the path in quotation marks and its values in brackets, as \"port.rate\" = [\"1gbit\", \"2gbit\"]"
                );
                Wrong::new("sweep", message)
            })?;
            if points.len().saturating_mul(values.len()) > MAX_CASES {
                return Err(too_many());
            }
            let with = |point: &Point, value: &Value| {
                point.iter().cloned().chain([(path.clone(), value.clone())]).collect()
            };
            points = points
                .iter()
                .flat_map(|point| values.iter().map(move |value| with(point, value)))
                .collect();
        }
        all.append(&mut points);
    }
    Ok(all)
}

fn too_many() -> Wrong {
    Wrong::new("sweep", format!("it makes more than {MAX_CASES} runs: sweep fewer values"))
}

fn strategies(rows: &[Value]) -> Result<Vec<StrategyRow>, Wrong> {
    let row = |(number, row): (usize, &Value)| {
        match row {
        Value::String(words) if !words.trim().is_empty() => {
            Ok(StrategyRow { name: words.clone(), words: words.clone(), port: Table::new() })
        }
        other => StrategyRow::deserialize(other.clone()).map_err(|error| {
            let hint = "write \"equal\", or { name = \"edt 5ms\", words = \"edt\", KEY = \"VALUE\" } to change keys of [port] for it";
            Wrong::new(format!("strategies.{number}"), format!("{hint}: {}", error.message()))
        }),
    }
    };
    let rows = rows.iter().enumerate().map(row).collect::<Result<Vec<_>, _>>()?;
    if rows.is_empty() {
        return Err(Wrong::new("strategies", "name at least one, as \"equal\""));
    }
    Ok(rows)
}

/// The paper's value for `strategy` at the point `here`.
fn paper(
    paper: &[PaperTable],
    here: &Table,
    strategy: &str,
) -> Vec<(crate::measure::Measure, f64)> {
    let applies = |entry: &&PaperTable| {
        entry.strategy == strategy
            && entry.at.iter().all(|(path, value)| {
                paths::get(here, path).map(paths::label) == Some(paths::label(value))
            })
    };
    paper.iter().filter(applies).map(|entry| (entry.measure, entry.value)).collect()
}

/// The setup that `table` describes for the strategy `row`, with traces from `traces`.
fn setup(table: &Table, row: &StrategyRow, traces: &Traces) -> Result<Setup, Wrong> {
    let file = resolve(table, row)?;
    let rate = file.port.rate.rate().map_err(at("port.rate"))?;
    let frame = file.traffic.iter().enumerate().map(|(number, traffic)| {
        let sizes = sizes(traffic, &format!("traffic.{number}"))?;
        Ok(sizes.iter().map(|(size, _)| *size).max().unwrap_or(FULL_FRAME))
    });
    let frames = frame.collect::<Result<Vec<u32>, Wrong>>()?;
    let frame = Bytes(u64::from(frames.into_iter().max().unwrap_or(FULL_FRAME)));
    let scale = Scale { limit: rate, frame };
    let time = |quantity: &Quantity, path: &str| quantity.time(scale).map_err(at(path));
    let optional = |quantity: &Option<Quantity>, path: &str| {
        quantity.as_ref().map(|quantity| time(quantity, path)).transpose()
    };

    let port = port(&file, rate)?;
    let costs = file.cores.costs(port.queues)?;
    let cores = Cores {
        jitter: optional(&file.cores.jitter, "cores.jitter")?.unwrap_or_default(),
        clock_offset: optional(&file.cores.clock_offset, "cores.clock_offset")?.unwrap_or_default(),
        staleness: optional(&file.cores.staleness, "cores.staleness")?.unwrap_or_default(),
        costs,
    };
    if file.traffic.is_empty() {
        return Err(Wrong::new("traffic", "nothing is offered: write at least one [[traffic]]"));
    }
    let run = Run {
        warmup: optional(&file.run.warmup, "run.warmup")?.unwrap_or_default(),
        length: time(&file.run.length, "run.length")?,
        event: optional(&file.run.event, "run.event")?,
    };
    if run.length == Nanos::ZERO || run.end() == Nanos::MAX {
        return Err(Wrong::new("run.length", "a run takes some time, and ends: write as 500ms"));
    }
    if run.event.is_some_and(|event| event >= run.end()) {
        let message = format!("the run is over by then: write less than {}", run.end());
        return Err(Wrong::new("run.event", message));
    }
    let seed = match &file.run.seed {
        Some(seed) => seed.number(0, i64::MAX as u64).map_err(at("run.seed"))?,
        None => 1,
    };
    let mut traces = Replayed { known: traces, length: run.end(), seed, used: Vec::new() };
    let traffic = file.traffic.iter().enumerate();
    let traffic = traffic
        .map(|(number, group)| traffic_group(group, number, port.queues, scale, &mut traces))
        .collect::<Result<Vec<_>, _>>()?;
    let faults = file.fault.iter().enumerate();
    let faults = faults
        .map(|(number, table)| fault(table, number, port.queues, scale))
        .collect::<Result<Vec<_>, _>>()?;
    let next_hop = file.next_hop.as_ref().map(|table| next_hop(table, scale)).transpose()?;
    let changes = file.change.iter().enumerate();
    let changes = changes
        .map(|(number, table)| change(table, number, scale))
        .collect::<Result<Vec<_>, _>>()?;
    let traces = traces.used;
    Ok(Setup { seed, port, cores, traffic, next_hop, run, faults, changes, traces })
}

/// Reports the path of a mistake.
fn at(path: impl Into<String>) -> impl FnOnce(String) -> Wrong {
    let path = path.into();
    |message| Wrong { path, message }
}

/// The file with the strategy's keys put in and its templates filled.
fn resolve(table: &Table, row: &StrategyRow) -> Result<File, Wrong> {
    let mut table = table.clone();
    // Not part of a setup, and full of words that are no templates of it.
    for key in ["sweep", "strategies", "paper"] {
        table.remove(key);
    }
    table.insert("strategies".to_owned(), Value::Array(Vec::new()));
    let Some(Value::Table(port)) = table.get_mut("port") else {
        return Err(Wrong::new("port", "there is no [port]"));
    };
    for (key, value) in &row.port {
        port.insert(key.clone(), value.clone());
    }
    let rate = port.get("rate").map(paths::label).map(|text| Quantity(text).rate());
    let limit = rate.and_then(Result::ok).unwrap_or_default();
    let mut words: Vec<(String, String)> = vec![(STRATEGY.to_owned(), row.words.clone())];
    for (key, value) in port.iter().filter(|(key, _)| !matches!(key.as_str(), "qdisc" | "weights"))
    {
        words.push((key.clone(), word(value, limit).map_err(at(format!("port.{key}")))?));
    }
    let mut value = Value::Table(table);
    fill(&mut value, &words, "")?;
    // Its own words are removed; the rest is checked when it is used.
    File::deserialize(value).map_err(|error| Wrong::new("", error.to_string()))
}

/// The replacement of a template: sizes relative to the limit, in bytes, because `tc` reads them
/// next.
fn word(value: &Value, limit: Rate) -> Result<String, String> {
    let text = paths::label(value);
    if !text.contains("of the limit") {
        return Ok(text);
    }
    let bytes = Quantity(text).size(Scale { limit, frame: Bytes(u64::from(FULL_FRAME)) })?;
    Ok(bytes.0.to_string())
}

/// Replaces `{key}` by its value in all text of `value`.
fn fill(value: &mut Value, words: &[(String, String)], path: &str) -> Result<(), Wrong> {
    let below = |segment: &str| match path {
        "" => segment.to_owned(),
        _ => format!("{path}.{segment}"),
    };
    match value {
        Value::String(text) => {
            for (key, word) in words {
                *text = text.replace(&format!("{{{key}}}"), word);
            }
            if let Some(open) = text.find('{') {
                let keys: Vec<String> = words.iter().map(|(key, _)| format!("{{{key}}}")).collect();
                let message = format!(
                    "\"{}\" names nothing: there is {}; write any other key into [port]",
                    &text[open..],
                    keys.join(", ")
                );
                return Err(Wrong::new(path, message));
            }
        }
        Value::Array(array) => {
            for (number, value) in array.iter_mut().enumerate() {
                fill(value, words, &below(&number.to_string()))?;
            }
        }
        Value::Table(table) => {
            for (key, value) in table.iter_mut() {
                // The title is for people.
                if !(path.is_empty() && matches!(key.as_str(), "title" | "source")) {
                    fill(value, words, &below(key))?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn port(file: &File, rate: Rate) -> Result<Port, Wrong> {
    let table = &file.port;
    let queues = table.queues.number(1, MAX_QUEUES as u64).map_err(at("port.queues"))? as usize;
    let positive = |weight: &f64| weight.is_finite() && *weight > 0.0;
    let weights = &table.weights;
    if !weights.is_empty() && (weights.len() != queues || !weights.iter().all(positive)) {
        let message = format!("write a number above 0 for each of the {queues} queues, or none");
        return Err(Wrong::new("port.weights", message));
    }
    let qdisc = qdisc(&table.qdisc).map_err(at("port.qdisc"))?;
    let (weights, lock, sends) = (weights.clone(), table.lock, table.sends);
    Ok(Port { queues, rate, qdisc, weights, lock, sends })
}

/// The words of `text`, if `tc` takes them.
fn qdisc(text: &str) -> Result<Vec<String>, String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let taken = tc::execute(&mut OfflineHost::default(), "sim", &words);
    taken.map_err(|why| format!("\"{}\": {why}", words.join(" ")))?;
    Ok(words)
}

fn sizes(table: &TrafficTable, path: &str) -> Result<Vec<(u32, f64)>, Wrong> {
    let read = |size: &Quantity, path: String| {
        let number = size.number(*FRAME_LENGTHS.start(), *FRAME_LENGTHS.end()).map_err(at(path))?;
        // Within FRAME_LENGTHS.
        Ok(number as u32)
    };
    match (&table.size, &table.sizes) {
        (Some(_), Some(_)) => {
            Err(Wrong::new(format!("{path}.sizes"), "write either size or sizes"))
        }
        (Some(size), None) => Ok(vec![(read(size, format!("{path}.size"))?, 1.0)]),
        (None, None) => Ok(vec![(FULL_FRAME, 1.0)]),
        (None, Some(sizes)) => {
            let possible = |(_, weight): &(Quantity, f64)| weight.is_finite() && *weight > 0.0;
            if sizes.is_empty() || !sizes.iter().all(possible) {
                let message =
                    "write lengths and how often each occurs, as [[64, 0.5], [1514, 0.5]]";
                return Err(Wrong::new(format!("{path}.sizes"), message));
            }
            let read = |(size, weight): &(Quantity, f64)| {
                Ok((read(size, format!("{path}.sizes"))?, *weight))
            };
            sizes.iter().map(read).collect()
        }
    }
}

fn traffic_group(
    table: &TrafficTable,
    number: usize,
    queues: usize,
    scale: Scale,
    traces: &mut Replayed<'_>,
) -> Result<Traffic, Wrong> {
    let path = |key: &str| format!("traffic.{number}.{key}");
    let time = |quantity: &Option<Quantity>, key: &str| {
        quantity.as_ref().map(|it| it.time(scale).map_err(at(path(key)))).transpose()
    };
    let start = time(&table.start, "start")?.unwrap_or_default();
    let stop = time(&table.stop, "stop")?.unwrap_or(Nanos::MAX);
    if stop <= start {
        return Err(Wrong::new(path("stop"), format!("it starts at {start}: write a later time")));
    }
    let kind = kind(table, number, scale, traces)?;
    let flows = match (kind, &table.flows) {
        (Kind::Trace { .. }, _) => {
            own_of_trace(table, number)?;
            traces.used.last().map_or(0, |trace| trace.flows().len() as u32)
        }
        (_, Some(flows)) => flows.number(1, MAX_FLOWS).map_err(at(path("flows")))? as u32,
        (_, None) => queues as u32,
    };
    let some_time = |quantity: &Option<Quantity>, key: &str| match time(quantity, key)? {
        Some(Nanos::ZERO) => Err(Wrong::new(path(key), "write more than no time at all")),
        time => Ok(time),
    };
    Ok(Traffic {
        name: table.name.clone().unwrap_or_else(|| format!("traffic.{number}")),
        kind,
        flows,
        start,
        stop,
        sizes: sizes(table, &format!("traffic.{number}"))?,
        spread: spread(table.spread.as_ref(), queues).map_err(at(path("spread")))?,
        respread: some_time(&table.respread, "respread")?,
        lifetime: some_time(&table.lifetime, "lifetime")?,
        headers: headers::fields(table, number, flows)?,
    })
}

/// How it is sent; keys that mean nothing for the kind are refused.
/// Complains of what a trace has itself.
fn own_of_trace(table: &TrafficTable, number: usize) -> Result<(), Wrong> {
    let given = [
        ("flows", table.flows.is_some()),
        ("size", table.size.is_some()),
        ("sizes", table.sizes.is_some()),
        ("source_hosts", table.source_hosts.is_some()),
        ("destination_hosts", table.destination_hosts.is_some()),
        ("dscp", table.dscp.is_some()),
        ("filter_rate", table.filter_rate.is_some()),
        ("ecn", table.ecn),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((key, _)) => {
            let message = "a trace has its own flows, sizes and headers: leave it out";
            Err(Wrong::new(format!("traffic.{number}.{key}"), message))
        }
        None => Ok(()),
    }
}

/// The traces that a set-up replays.
struct Replayed<'a> {
    known: &'a Traces,
    length: Nanos,
    seed: u64,
    used: Vec<Arc<Trace>>,
}

fn kind(
    table: &TrafficTable,
    number: usize,
    scale: Scale,
    traces: &mut Replayed<'_>,
) -> Result<Kind, Wrong> {
    let path = |key: &str| format!("traffic.{number}.{key}");
    let word = table.kind;
    let given: [(&str, bool, &[KindWord]); 10] = [
        (
            "load",
            table.load.is_some(),
            &[
                KindWord::Constant,
                KindWord::Uneven,
                KindWord::Poisson,
                KindWord::OnOff,
                KindWord::Trace,
            ],
        ),
        ("on", table.on.is_some(), &[KindWord::OnOff]),
        ("off", table.off.is_some(), &[KindWord::OnOff]),
        ("stack", table.stack.is_some(), &[KindWord::Tcp]),
        ("control", table.control.is_some(), &[KindWord::Tcp]),
        ("rtt", table.rtt.is_some(), &[KindWord::Tcp]),
        ("interval", table.interval.is_some(), &[KindWord::Ping]),
        ("pace", table.pace.is_some(), &[KindWord::Backlogged]),
        ("queued", table.queued.is_some(), &[KindWord::Backlogged]),
        ("trace", table.trace.is_some(), &[KindWord::Trace]),
    ];
    for (key, given, kinds) in given {
        if given && !kinds.contains(&word) {
            let message = "this kind of traffic has no such key: constant, uneven and poisson have load, on-off has load, on and off, tcp has stack, control and rtt, backlogged has pace and queued, ping has interval, trace has trace and load";
            return Err(Wrong::new(path(key), message));
        }
    }
    let missing = |key: &str, example: &str| {
        Wrong::new(path("kind"), format!("it needs {key}, as {key} = \"{example}\""))
    };
    let load = || {
        let load = table.load.as_ref().ok_or_else(|| missing("load", "90%"))?;
        load.load(scale.limit).map_err(at(path("load")))
    };
    let time = |quantity: &Option<Quantity>, key: &str, example: &str| {
        let quantity = quantity.as_ref().ok_or_else(|| missing(key, example))?;
        match quantity.time(scale).map_err(at(path(key)))? {
            Nanos::ZERO => Err(Wrong::new(path(key), "write more than no time at all")),
            time => Ok(time),
        }
    };
    Ok(match word {
        KindWord::Constant => Kind::Constant(load()?),
        KindWord::Uneven => Kind::Uneven(load()?),
        KindWord::Poisson => Kind::Poisson(load()?),
        KindWord::OnOff => Kind::OnOff {
            rate: load()?,
            on: time(&table.on, "on", "1ms")?,
            off: time(&table.off, "off", "1ms")?,
        },
        KindWord::Tcp => Kind::Tcp {
            stack: match table.stack {
                None | Some(StackWord::Model) => Stack::Model,
                Some(StackWord::Smoltcp) => Stack::Smoltcp,
            },
            control: match table.control {
                None | Some(ControlWord::Cubic) => Control::Cubic,
                Some(ControlWord::Reno) => Control::Reno,
                Some(ControlWord::Dctcp) => Control::Dctcp,
            },
            rtt: time(&table.rtt, "rtt", "1ms")?,
        },
        KindWord::Backlogged => {
            let pace = table.pace.as_ref().ok_or_else(|| missing("pace", "1gbit"))?;
            let queued = match &table.queued {
                Some(queued) => queued.number(1, MAX_QUEUED).map_err(at(path("queued")))? as u32,
                None => QUEUED,
            };
            Kind::Backlogged { pace: pace.load(scale.limit).map_err(at(path("pace")))?, queued }
        }
        KindWord::Ping => Kind::Ping { interval: time(&table.interval, "interval", "1ms")? },
        KindWord::Trace => {
            let name = table.trace.as_ref().ok_or_else(|| missing("trace", "FILE.pcap"))?;
            let load = table.load.as_ref().map(|_| load()).transpose()?;
            let (trace, load) = traces
                .known
                .get(name, load, traces.length, traces.seed)
                .map_err(at(path("trace")))?;
            traces.used.push(trace);
            Kind::Trace { number: traces.used.len() - 1, load }
        }
    })
}

fn spread(value: Option<&Value>, queues: usize) -> Result<Spread, String> {
    const HINT: &str =
        "write \"round-robin\", \"hash\", parts by queue as [0.8, 0.2], or { dirichlet = 0.5 }";
    let number = |value: &Value| match value {
        Value::Float(number) => Some(*number),
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    };
    match value {
        None => Ok(Spread::RoundRobin),
        Some(Value::String(word)) if word == "round-robin" => Ok(Spread::RoundRobin),
        Some(Value::String(word)) if word == "hash" => Ok(Spread::Hash),
        Some(Value::Array(parts)) => {
            let parts: Option<Vec<f64>> = parts.iter().map(number).collect();
            let parts = parts.ok_or(HINT)?;
            let possible = parts.iter().all(|part| (0.0..=1e9).contains(part));
            if !possible || parts.iter().sum::<f64>() <= 0.0 {
                return Err(format!("a part is a number from 0 to 1e9 and not all are 0: {HINT}"));
            }
            if parts.len() > queues {
                return Err(format!(
                    "there are {queues} queues and {} parts: write fewer parts or more port.queues",
                    parts.len()
                ));
            }
            Ok(Spread::Parts(parts))
        }
        Some(Value::Table(table)) if table.len() == 1 => {
            let concentration = table.get("dirichlet").and_then(number);
            concentration
                .filter(|it| (1e-3..=1e6).contains(it))
                .map(Spread::Dirichlet)
                .ok_or_else(|| format!("a concentration is a number from 0.001 to 1e6: {HINT}"))
        }
        Some(_) => Err(HINT.to_owned()),
    }
}

fn fault(table: &FaultTable, number: usize, queues: usize, scale: Scale) -> Result<Fault, Wrong> {
    let path = |key: &str| format!("fault.{number}.{key}");
    let queue = table.queue.number(0, queues as u64 - 1).map_err(at(path("queue")))? as usize;
    let kind = match (&table.stall, table.death) {
        (Some(stall), false) => FaultKind::Stall(stall.time(scale).map_err(at(path("stall")))?),
        (None, true) => FaultKind::Death,
        _ => {
            let message = "write either stall = \"5ms\" or death = true";
            return Err(Wrong::new(path("queue"), message));
        }
    };
    Ok(Fault { queue, at: table.at.time(scale).map_err(at(path("at")))?, kind })
}

fn change(table: &ChangeTable, number: usize, scale: Scale) -> Result<Change, Wrong> {
    let path = |key: &str| format!("change.{number}.{key}");
    Ok(Change {
        at: table.at.time(scale).map_err(at(path("at")))?,
        qdisc: qdisc(&table.qdisc).map_err(at(path("qdisc")))?,
    })
}

fn next_hop(table: &NextHopTable, scale: Scale) -> Result<NextHop, Wrong> {
    let mark_above = table.mark_above.as_ref().map(|it| it.size(scale)).transpose();
    Ok(NextHop {
        rate: table.rate.load(scale.limit).map_err(at("next_hop.rate"))?,
        buffer: table.buffer.size(scale).map_err(at("next_hop.buffer"))?,
        mark_above: mark_above.map_err(at("next_hop.mark_above"))?,
    })
}
